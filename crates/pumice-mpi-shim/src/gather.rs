//! Gathers of floating-point values, compressed on their way. `unsafe` is allowed for buffers of the program.
//!
//! All ranks must come to the same decision from what they know each. What the ranks send with `MPI_Gather` has the same
//! size everywhere, so small ones are handed on at once. For large ones, and for each `MPI_Gatherv`, whose counts the root
//! alone knows, the ranks agree with one reduction of three numbers. Where a link turns out to be quicker than the code, the
//! next gathers of the communicator are handed on without a test.
#![allow(unsafe_code, reason = "buffers of the program")]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use ffi::{MPI_Comm, MPI_Datatype};
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use mpi_sys as ffi;
use pumice::{DType, ErrorKind, Result};
use pumice_mpi::Value;

use crate::agreement::{lent, reduce};
use crate::config::GatherRule;
use crate::datatype::{Kind, Layout};
use crate::memory::{bytes_of, zeros};
use crate::report;
use crate::session::{rules, say};

const SUCCESS: c_int = ffi::MPI_SUCCESS as c_int;

/// Gathers of a communicator that are handed on after one for which the link was quicker.
const HANDED_ON: u32 = 31;

/// What a rank sends.
pub(crate) struct Sent {
    pub(crate) buffer: *const c_void,
    pub(crate) count: i64,
    pub(crate) datatype: MPI_Datatype,
}

/// Where the root wants it: for each rank the count and, unless one follows the other, the displacement.
pub(crate) struct Received<F> {
    pub(crate) buffer: *mut c_void,
    pub(crate) datatype: MPI_Datatype,
    pub(crate) counts: F,
}

pub(crate) fn gather<F: Fn(usize) -> (i64, Option<i64>)>(
    sent: Sent,
    received: Received<F>,
    varies: bool,
    root: c_int,
    comm: MPI_Comm,
) -> Option<c_int> {
    let rule = rules()?.gather.as_ref().filter(|rule| !varies || rule.gatherv)?;
    let comm = lent(comm).filter(|comm| comm.size() > 1)?;
    if !(0..comm.size()).contains(&root) {
        return None;
    }
    let is_root = comm.rank() == root;
    let rank = comm.rank() as usize;
    let n_bytes = n_bytes(&sent, &received, is_root, rank);
    if !varies && n_bytes < rule.least_bytes {
        return None;
    }
    let mine = Mine::new(n_bytes, &sent, &received, is_root, rank);
    let history = history(&comm)?;
    if history.get() > 0 {
        history.set(history.get() - 1);
        if is_root {
            report::not_gathered(report::QUICK_LINK);
        }
        return None;
    }
    let is_sent = |is_wanted: bool, dtype| i64::from(is_wanted && mine.may_be(dtype));
    let sent = [is_sent(rule.f32, DType::F32), is_sent(rule.f64, DType::F64), -(mine.n_bytes as i64)];
    let [f32, f64, minus_most] = reduce(&comm, sent, SystemOperation::min());
    if (-minus_most) < rule.least_bytes as i64 {
        return None;
    }
    let done = match (f32, f64) {
        (1, _) => run::<f32, F>(&comm, rule, root, &mine, &received, history),
        (_, 1) => run::<f64, F>(&comm, rule, root, &mine, &received, history),
        _ => {
            if is_root {
                report::not_gathered(report::OTHER_TYPES);
            }
            return None;
        }
    };
    // All ranks have the same error: the MPI library does it for all.
    if let (Err(error), true) = (&done, is_root) {
        report::not_gathered(report::ERRORS);
        say(&format!("a gather is not compressed: {error}"));
    }
    done.ok().map(|()| SUCCESS)
}

/// What this rank adds to a gather.
struct Mine {
    buffer: *const c_void,
    n_bytes: u64,
    /// `None`: it may not be compressed. Any kind, if there are no bytes.
    kind: Option<Kind>,
}

/// How many bytes this rank adds.
fn n_bytes<F: Fn(usize) -> (i64, Option<i64>)>(sent: &Sent, received: &Received<F>, is_root: bool, rank: usize) -> u64 {
    let is_in_place = is_root && is_in_place(sent.buffer);
    let count = if is_in_place { (received.counts)(rank).0 } else { sent.count };
    // Without values, there may be no type.
    let count = u64::try_from(count).unwrap_or(0);
    if count == 0 { 0 } else { count * size(if is_in_place { received.datatype } else { sent.datatype }) }
}

impl Mine {
    fn new<F: Fn(usize) -> (i64, Option<i64>)>(
        n_bytes: u64,
        sent: &Sent,
        received: &Received<F>,
        is_root: bool,
        rank: usize,
    ) -> Self {
        let out = is_root.then(|| Layout::of(received.datatype)).flatten();
        let is_in_place = is_root && is_in_place(sent.buffer);
        let (buffer, datatype) = if is_in_place {
            let (count, displacement) = (received.counts)(rank);
            let before = displacement.unwrap_or(count * rank as i64) as isize;
            let offset = out.as_ref().map_or(0, |out| before * out.extent);
            (received.buffer.cast_const().wrapping_byte_offset(offset), received.datatype)
        } else {
            (sent.buffer, sent.datatype)
        };
        let layout = if n_bytes > 0 { Layout::of(datatype) } else { None };
        // As values are lent to others as they are.
        let is_usable = |layout: &Layout, buffer: *const c_void| {
            layout.is_dense()
                && matches!(layout.kind, Kind::Float(dtype) if (buffer as usize).is_multiple_of(dtype.size()))
        };
        let mut kind = match &layout {
            _ if n_bytes == 0 => Some(Kind::Bytes),
            Some(layout) if is_usable(layout, buffer) => Some(layout.kind),
            _ => None,
        };
        if is_root {
            let received_kind = out.filter(|out| is_usable(out, received.buffer)).map(|out| out.kind);
            kind = received_kind.filter(|received| kind == Some(*received) || kind == Some(Kind::Bytes));
        }
        Self { buffer, n_bytes, kind }
    }

    fn may_be(&self, dtype: DType) -> bool {
        self.kind.is_some_and(|kind| kind.suits(dtype))
    }
}

/// Whether a buffer is the constant `MPI_IN_PLACE`, which no binding has: 1 in Open MPI, -1 in MPICH.
fn is_in_place(buffer: *const c_void) -> bool {
    matches!(buffer as isize, 1 | -1)
}

fn size(datatype: MPI_Datatype) -> u64 {
    let mut size = 0;
    // SAFETY: a datatype of the program, and an integer.
    unsafe { ffi::PMPI_Type_size(datatype, &mut size) };
    u64::try_from(size).unwrap_or(0)
}

fn run<T: Value, F: Fn(usize) -> (i64, Option<i64>)>(
    comm: &SimpleCommunicator,
    rule: &GatherRule,
    root: c_int,
    mine: &Mine,
    received: &Received<F>,
    history: &Cell<u32>,
) -> Result<()> {
    let n = mine.n_bytes as usize / size_of::<T>();
    // SAFETY: MPI wants a buffer that has these values; it is aligned, or the ranks would not have agreed.
    let values: &[T] = if n == 0 { &[] } else { unsafe { std::slice::from_raw_parts(mine.buffer.cast(), n) } };
    let is_root = comm.rank() == root;
    let parts = if is_root { Parts::new::<T, F>(comm.size() as usize, received) } else { Parts::default() };
    // In place or with gaps, values come by way of a buffer of ours, or the program's would be lent twice.
    let lies_in_out = parts.contains(values.as_ptr().cast());
    let is_direct = parts.is_contiguous && !lies_in_out;
    let buffered = zeros::<T>(if is_root && !is_direct { parts.n_values } else { 0 });
    // Memory may end on one rank alone: the others must know before they send.
    let [is_lacking] = reduce(comm, [i64::from(buffered.is_err())], SystemOperation::max());
    let mut buffered = match buffered {
        Ok(_) if is_lacking != 0 => {
            return Err(pumice::Error::new(ErrorKind::LimitExceeded, "the root has no memory for a copy"));
        }
        buffered => buffered?,
    };
    let out: &mut [T] = if is_root && is_direct && parts.n_values > 0 {
        let start = received.buffer.wrapping_byte_offset(parts.list[0].0);
        // SAFETY: MPI wants a buffer that has these values, and that of the sender is apart.
        unsafe { std::slice::from_raw_parts_mut(start.cast(), parts.n_values) }
    } else {
        &mut buffered
    };
    let transfer = pumice_mpi::gather(comm, root, values, out, &rule.config, rule.wire)?;
    if is_root && !is_direct {
        let mut rest = bytes_of(&buffered);
        for (offset, n_bytes) in &parts.list {
            let (part, others) = rest.split_at(*n_bytes);
            rest = others;
            let start = received.buffer.cast::<u8>().wrapping_offset(*offset);
            // SAFETY: MPI wants a buffer that has these bytes; ours is apart.
            unsafe { std::ptr::copy_nonoverlapping(part.as_ptr(), start, part.len()) };
        }
    }
    if transfer.is_compressed {
        report::gathered(is_root, (parts.n_values * size_of::<T>()) as u64, transfer.sent_bytes);
    } else {
        history.set(HANDED_ON);
        if is_root {
            report::not_gathered(report::QUICK_LINK);
        }
    }
    Ok(())
}

/// Where the values of each rank go: offset and number of bytes.
#[derive(Default)]
struct Parts {
    start: usize,
    list: Vec<(isize, usize)>,
    n_values: usize,
    is_contiguous: bool,
}

impl Parts {
    fn new<T, F: Fn(usize) -> (i64, Option<i64>)>(n_ranks: usize, received: &Received<F>) -> Self {
        let Some(layout) = Layout::of(received.datatype) else { return Self::default() };
        let mut list = Vec::new();
        let mut next = 0;
        for rank in 0..n_ranks {
            let (count, displacement) = (received.counts)(rank);
            let offset = displacement.map_or(next, |displacement| displacement as isize * layout.extent);
            list.push((offset, count.max(0) as usize * layout.size));
            next = offset + count.max(0) as isize * layout.extent;
        }
        let n_bytes: usize = list.iter().map(|(_, n)| n).sum();
        list.retain(|(_, n)| *n > 0);
        let is_contiguous = list.windows(2).all(|pair| pair[0].0 + pair[0].1 as isize == pair[1].0);
        Self { start: received.buffer as usize, list, n_values: n_bytes / size_of::<T>(), is_contiguous }
    }

    fn contains(&self, pointer: *const c_void) -> bool {
        let at = (pointer as usize).wrapping_sub(self.start) as isize;
        self.list.iter().any(|(offset, n)| (*offset..offset + *n as isize).contains(&at))
    }
}

/// How many gathers of this communicator are still to be handed on. It belongs to the communicator, so that all ranks have
/// the same number.
fn history(comm: &SimpleCommunicator) -> Option<&Cell<u32>> {
    static KEY: OnceLock<Option<c_int>> = OnceLock::new();
    let key = (*KEY.get_or_init(|| {
        let mut key = 0;
        // SAFETY: functions of the right form, and an integer.
        let code =
            unsafe { ffi::PMPI_Comm_create_keyval(Some(not_copied), Some(deleted), &mut key, std::ptr::null_mut()) };
        (code == SUCCESS).then_some(key)
    }))?;
    let (mut value, mut is_there): (*mut c_void, c_int) = (std::ptr::null_mut(), 0);
    // SAFETY: the value is a pointer, as it was set.
    unsafe { ffi::PMPI_Comm_get_attr(comm.as_raw(), key, (&raw mut value).cast(), &mut is_there) };
    if is_there == 0 {
        value = Box::into_raw(Box::new(Cell::new(0_u32))).cast();
        // SAFETY: the value lives until the communicator is freed.
        let code = unsafe { ffi::PMPI_Comm_set_attr(comm.as_raw(), key, value) };
        if code != SUCCESS {
            // SAFETY: nobody else has it.
            drop(unsafe { Box::from_raw(value.cast::<Cell<u32>>()) });
            return None;
        }
    }
    // SAFETY: as above. Gathers of one communicator do not run at the same time: MPI forbids it.
    Some(unsafe { &*value.cast::<Cell<u32>>() })
}

unsafe extern "C" fn not_copied(
    _comm: MPI_Comm,
    _key: c_int,
    _extra: *mut c_void,
    _value: *mut c_void,
    _copy: *mut c_void,
    is_copied: *mut c_int,
) -> c_int {
    // SAFETY: an integer of the library.
    unsafe { *is_copied = 0 };
    SUCCESS
}

unsafe extern "C" fn deleted(_comm: MPI_Comm, _key: c_int, value: *mut c_void, _extra: *mut c_void) -> c_int {
    // SAFETY: the value of `history`, which nothing uses from now on.
    drop(unsafe { Box::from_raw(value.cast::<Cell<u32>>()) });
    SUCCESS
}
