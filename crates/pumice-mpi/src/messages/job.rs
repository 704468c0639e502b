//! What the ranks know about a transfer: they check that all ask for the same, find the bound, and decide whether to
//! compress.

use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::{ChunkSettings, finite_range};
use pumice::{Config, DecodeOptions, ErrorBound, Result};

use super::{Transfer, Wire};
use crate::agreement::{agree, check_same};
use crate::collective::reduce;
use crate::link::{LEAST_VALUES, Link, Load, Speed, sample};
use crate::local::{Value, invalid};
use crate::pieces::Code;

/// A transfer of all ranks.
pub(super) struct Job<'a, M> {
    /// Of the user, which knows its links.
    users: &'a M,
    /// For the messages of this transfer alone.
    pub(super) comm: SimpleCommunicator,
    wire: Wire,
    settings: ChunkSettings,
    abs_bound: f64,
    pub(super) code: ValueCode,
    pub(super) is_compressed: bool,
    pub(super) sent_bytes: u64,
}

impl<'a, M: Communicator> Job<'a, M> {
    /// Checks that all ranks ask for the same: also for the same operation, and for as many values if `length` says so.
    pub(super) fn new<T: Value>(
        users: &'a M,
        operation: &str,
        root: Option<i32>,
        length: Option<usize>,
        config: &Config,
        wire: Wire,
    ) -> Result<Self> {
        let comm = users.duplicate();
        check_same(
            &comm,
            &[
                ("operation", operation.into()),
                ("type of values", T::DTYPE.to_string()),
                ("rank that collects or sends", format!("{root:?}")),
                ("number of values", format!("{length:?}")),
                ("bound or other options", format!("{:?}", config.clone().threads(0))),
                ("way of sending", format!("{wire:?}")),
            ],
        )?;
        if let Some(root) = root.filter(|root| !(0..comm.size()).contains(root)) {
            return Err(invalid(format!("there is no rank {root} among {}", comm.size())));
        }
        let settings = settings_of(config)?;
        let code = ValueCode::new(&settings, settings.bound);
        Ok(Self { users, comm, wire, settings, abs_bound: 0.0, code, is_compressed: false, sent_bytes: 0 })
    }

    /// The numbers of all ranks.
    pub(super) fn counts(&self, mine: usize) -> Vec<usize> {
        let mut all = vec![0_u64; self.comm.size() as usize];
        self.comm.all_gather_into(&(mine as u64), &mut all[..]);
        all.into_iter().map(|n| n as usize).collect()
    }

    /// Decides whether to compress, and finds the absolute bound if so. `values` are those that this rank gives.
    pub(super) fn decide<T: Value>(&mut self, values: &[T], load: Load) -> Result<()> {
        if self.wire == Wire::Plain || self.comm.size() == 1 {
            return Ok(());
        }
        if self.wire == Wire::Compressed {
            self.is_compressed = true;
            self.resolve(values);
            return Ok(());
        }
        let [largest] = reduce(&self.comm, [load.carried], SystemOperation::max());
        if largest < LEAST_VALUES as f64 {
            return Ok(());
        }
        let link = Link::of(self.users, &self.comm)?;
        if link.is_memory() {
            return Ok(());
        }
        self.resolve(values);
        let speed = agree(&self.comm, Speed::of(&self.code, sample(values)))?;
        self.is_compressed = link.is_worth(&self.comm, speed, load, size_of::<T>());
        Ok(())
    }

    /// Makes a relative bound absolute: it is for the range of all values.
    fn resolve<T: Value>(&mut self, values: &[T]) {
        let mut ends = [f64::INFINITY; 2];
        if needs_range(&self.settings) {
            ends = ends_of(values);
            ends = reduce(&self.comm, ends, SystemOperation::min());
        }
        (self.code, self.abs_bound) = resolve(&self.settings, ends);
    }

    /// What it has cost, once all ranks have succeeded.
    pub(super) fn finish(self, done: Result<()>) -> Result<Transfer> {
        agree(&self.comm, done)?;
        let abs_bound = if self.is_compressed { self.abs_bound } else { 0.0 };
        Ok(Transfer { abs_bound, is_compressed: self.is_compressed, sent_bytes: self.sent_bytes })
    }
}

/// What a config says about messages, which have no shape, and one bound.
pub(super) fn settings_of(config: &Config) -> Result<ChunkSettings> {
    let [bound] = *config.bounds() else {
        return Err(invalid("a message has one bound; give the tightest"));
    };
    let is_valid = match bound {
        ErrorBound::Abs(e) | ErrorBound::Rel(e) => e.is_finite() && e >= 0.0,
        ErrorBound::PwRel(e) => (0.0..1.0).contains(&e),
        ErrorBound::Lossless => true,
        _ => false,
    };
    if !is_valid {
        return Err(invalid(format!(
            "messages have an absolute, a relative or a point-wise relative bound, or none; not {bound}"
        )));
    }
    let settings = ChunkSettings::of(config)?;
    if let Some((lo, hi)) = settings.range.filter(|(lo, hi)| !(lo.is_finite() && hi.is_finite() && lo <= hi)) {
        return Err(invalid(format!("the range must be MIN <= MAX, both finite, not {lo}, {hi}")));
    }
    if settings.fills.is_empty() {
        Ok(settings)
    } else {
        Err(invalid("messages have no fill values; send NaN for values that are missing"))
    }
}

/// Whether the bound of messages depends on the range of their values.
pub(super) fn needs_range(settings: &ChunkSettings) -> bool {
    match settings.bound {
        ErrorBound::Rel(_) => settings.range.is_none(),
        ErrorBound::PwRel(_) => true,
        _ => false,
    }
}

/// The least finite value and minus the greatest: the least of both over several lists are those of all.
pub(super) fn ends_of<T: Value>(values: &[T]) -> [f64; 2] {
    finite_range(values).0.map_or([f64::INFINITY; 2], |(lo, hi)| [lo, -hi])
}

/// The code of values, and the largest error.
pub(super) fn resolve(settings: &ChunkSettings, [lo, minus_hi]: [f64; 2]) -> (ValueCode, f64) {
    let (lo, hi) = settings.range.filter(|_| !needs_range(settings)).unwrap_or((lo, -minus_hi));
    let (bound, abs) = match settings.bound {
        ErrorBound::Abs(abs) => (ErrorBound::Abs(abs), abs),
        ErrorBound::Rel(rel) => {
            // The difference may overflow where the products do not.
            let abs = if (hi - lo).is_finite() { rel * (hi - lo) } else { rel * hi - rel * lo };
            let abs = if lo <= hi { abs.min(f64::MAX) } else { 0.0 };
            (ErrorBound::Abs(abs), abs)
        }
        ErrorBound::PwRel(rel) => (settings.bound, if lo <= hi { rel * lo.abs().max(hi.abs()) } else { 0.0 }),
        _ => (ErrorBound::Lossless, 0.0),
    };
    // A bound of 0, no finite value, or one value only.
    if abs > 0.0 {
        (ValueCode::new(settings, bound), abs)
    } else {
        (ValueCode::new(settings, ErrorBound::Lossless), 0.0)
    }
}

/// The code of values under a bound.
#[derive(Clone, Debug)]
pub(super) struct ValueCode {
    config: Config,
}

impl Default for ValueCode {
    /// To decode: streams say themselves how.
    fn default() -> Self {
        Self { config: Config::new(ErrorBound::Lossless) }
    }
}

impl ValueCode {
    fn new(settings: &ChunkSettings, bound: ErrorBound) -> Self {
        Self { config: Config::new(bound).preset(settings.preset).stable(settings.stable).threads(1) }
    }
}

impl<T: Value> Code<T> for ValueCode {
    const IS_EXACT: bool = false;

    fn encode(&self, values: &[T], bytes: &mut Vec<u8>) -> Result<()> {
        pumice::compress_into(values, &[values.len()], &self.config, bytes).map(|_| ())
    }

    fn decode(&self, bytes: &[u8], values: &mut [T]) -> Result<()> {
        pumice::decompress_into(bytes, values, &DecodeOptions::new().threads(1))
    }
}
