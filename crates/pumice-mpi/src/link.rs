//! What links and codes give, and whether to compress.
//!
//! Two mistakes must not happen: to compress where memory is the link, which is never quicker, and to believe a single
//! measurement, which other programs may have disturbed. So ranks of one node send values as they are, without any
//! measurement. Other links are measured once for a communicator, several times, and the least time counts, which is that
//! without disturbance. Compression must then promise to be clearly quicker.
#![allow(unsafe_code, reason = "attributes of a communicator that is borrowed")]

use mpi::attribute::CommAttribute;
use mpi::collective::SystemOperation;
use mpi::point_to_point::Source as _;
use mpi::request;
use mpi::traits::*;
use mpi_sys as ffi;
use pumice::Result;

use crate::agreement::agree;
use crate::collective::{reduce, zeros};
use crate::local::Value;
use crate::pieces::Code;

/// The fewest values that are worth a measurement.
pub(crate) const LEAST_VALUES: usize = 1 << 16;

/// Values of a sample that is coded to measure a code.
pub(crate) const SAMPLE: usize = 1 << 14;

/// Bytes that are sent to measure a link: more than buffers on the way take at once.
const MESSAGE: usize = 1 << 18;

/// How often something is measured, of which the least time counts.
pub(crate) const TIMES: usize = 3;

/// What compression must save at least, of the time without it: measurements are not exact.
const MARGIN: f64 = 0.8;

/// The links between the ranks of a communicator.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Link {
    /// Of the slowest link, when all are in use. 0 where all ranks are on one node.
    seconds_per_byte: f64,
}

impl CommAttribute for Link {
    /// A copy of a communicator has the same links.
    const CLONE_ON_DUP: bool = true;
}

impl Link {
    /// The links of a communicator, as all ranks together measure them the first time. `private` is a copy of it.
    pub(crate) fn of(comm: &impl Communicator, private: &impl Communicator) -> Result<Self> {
        if let Some(known) = Self::known(comm) {
            return Ok(known);
        }
        let node = private.split_shared(0);
        // One rank that is elsewhere is enough.
        let [is_node] = reduce(private, [u8::from(node.size() == private.size())], SystemOperation::min());
        let link = if is_node == 1 { Self { seconds_per_byte: 0.0 } } else { Self::measure(private)? };
        let value = Box::into_raw(Box::new(link));
        // SAFETY: the attribute is a box of the type that the key is for, which MPI hands to the type's own function when
        // the communicator is freed.
        unsafe { ffi::MPI_Comm_set_attr(comm.as_raw(), Self::get_key().as_raw(), value.cast()) };
        Ok(link)
    }

    /// The links of a communicator, if they have been measured.
    pub(crate) fn known(comm: &impl Communicator) -> Option<Self> {
        comm.get_attr::<Self>().copied()
    }

    /// Whether all ranks share memory.
    pub(crate) fn is_memory(self) -> bool {
        self.seconds_per_byte == 0.0
    }

    /// Each rank sends to the next one at the same time.
    fn measure(comm: &impl Communicator) -> Result<Self> {
        let (n, rank) = (comm.size(), comm.rank());
        let (next, previous) = (comm.process_at_rank((rank + 1) % n), comm.process_at_rank((rank + n - 1) % n));
        let buffers = zeros::<u8>(MESSAGE).map(|bytes| (bytes.clone(), bytes));
        let (sent, mut received) = agree(comm, buffers)?;
        let mut least = f64::INFINITY;
        for _ in 0..=TIMES {
            comm.barrier();
            let start = mpi::time();
            request::scope(|scope| {
                let sending = next.immediate_send(scope, &sent[..]);
                previous.receive_into(&mut received[..]);
                sending.wait();
            });
            least = least.min(mpi::time() - start);
        }
        let [slowest] = reduce(comm, [least], SystemOperation::max());
        // Not 0, which means memory.
        Ok(Self { seconds_per_byte: (slowest / MESSAGE as f64).max(f64::MIN_POSITIVE) })
    }

    /// Whether to compress: each rank says what it has to do, and the slowest one decides.
    pub(crate) fn is_worth(self, comm: &impl Communicator, speed: Speed, load: Load, bytes_per_value: usize) -> bool {
        // Not all ranks have values of their own to measure.
        let Speed { encoding, decoding, share } = speed;
        let [encoding, decoding, share] = reduce(comm, [encoding, decoding, share], SystemOperation::max());
        let plain = load.carried * bytes_per_value as f64 * self.seconds_per_byte;
        let compressed = load.encoded * encoding + load.decoded * decoding + share * plain;
        let [plain, compressed] = reduce(comm, [plain, compressed], SystemOperation::max());
        is_quicker(compressed, plain)
    }
}

/// Whether compression saves enough time.
pub(crate) fn is_quicker(compressed: f64, plain: f64) -> bool {
    compressed < MARGIN * plain
}

/// How many values a rank codes, decodes, and sends or receives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) encoded: f64,
    pub(crate) decoded: f64,
    pub(crate) carried: f64,
}

/// What a code needs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Speed {
    /// Seconds per value.
    pub(crate) encoding: f64,
    pub(crate) decoding: f64,
    /// Of the bytes.
    pub(crate) share: f64,
}

impl Speed {
    /// Measures a code on a sample of values.
    pub(crate) fn of<V: Value, K: Code<V>>(code: &K, sample: &[V]) -> Result<Self> {
        let mut restored = zeros::<V>(sample.len())?;
        let mut bytes = Vec::new();
        let (mut encoding, mut decoding) = (f64::INFINITY, f64::INFINITY);
        if sample.is_empty() {
            return Ok(Self::default());
        }
        for _ in 0..TIMES {
            let start = mpi::time();
            code.encode(sample, &mut bytes)?;
            let coded = mpi::time();
            code.decode(&bytes, &mut restored)?;
            encoding = encoding.min(coded - start);
            decoding = decoding.min(mpi::time() - coded);
        }
        let n = sample.len() as f64;
        let share = bytes.len() as f64 / size_of_val(sample) as f64;
        Ok(Self { encoding: encoding / n, decoding: decoding / n, share })
    }
}

/// Values to measure a code on: from the middle of a list, whose ends may be of one value.
pub(crate) fn sample<V>(values: &[V]) -> &[V] {
    let n = values.len().min(SAMPLE);
    let start = (values.len() - n) / 2;
    &values[start..start + n]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_from_the_middle() {
        let values: Vec<usize> = (0..SAMPLE + 10).collect();
        assert_eq!(sample(&values)[0], 5);
        assert_eq!(sample(&values).len(), SAMPLE);
        assert_eq!(sample(&values[..3]), &[0, 1, 2]);
        assert!(sample::<f32>(&[]).is_empty());
    }
}
