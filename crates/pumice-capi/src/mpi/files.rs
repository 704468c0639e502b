//! Files that all ranks write and read together.

use std::ffi::{c_char, c_void};

use pumice::{Result, with_dtype};
use pumice_mpi::{LocalBox, LocalBoxMut, Value};

use super::{MpiComm, end, together};
use crate::arguments::{OutPointer, dtype, dtype_number, extents, path, ranges, shared, slice, slice_mut};
use crate::config::{Config, DecodeOptions, decode_options};
use crate::oneshot::count;
use crate::status::{Status, guard, guard_or, invalid};

/// A Pumice file that all ranks of a communicator have open.
pub struct MpiReader(pumice_mpi::Reader);

/// Writes an array of this type (a pumice_dtype) and shape to one file, together with all ranks; it has the bytes that one
/// process writes, and appears under its name when it is complete. A rank gives the boxes that it has: `n_boxes`, which
/// may be 0, with `rank` numbers each in `starts` and `counts`, and a pointer each in `values`. All boxes of all ranks
/// make up the array. `n_bytes`, if not NULL, gets the size of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_write(
    comm: *const MpiComm,
    path: *const c_char,
    config: *const Config,
    dtype: i32,
    rank: usize,
    shape: *const usize,
    n_boxes: usize,
    starts: *const usize,
    counts: *const usize,
    values: *const *const c_void,
    n_bytes: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, (path, config, dtype, shape, boxes, n_bytes)) = unsafe {
            together(comm, || {
                let shape = extents(rank, shape, "shape")?;
                let boxes = Boxes::new(rank, n_boxes, starts, counts, values.cast(), "values")?;
                let n_bytes = OutPointer::optional(n_bytes, "n_bytes")?;
                Ok((self::path(path)?, &shared(config, "config")?.0, self::dtype(dtype)?, shape, boxes, n_bytes))
            })
        }?;
        let summary = with_dtype!(dtype, T => {
            // SAFETY: as the caller promises.
            let boxes = pumice_mpi::agree(comm, unsafe { boxes.read::<T>() })?;
            pumice_mpi::write(comm, path, shape, &boxes, config)
        })?;
        if let Some(n_bytes) = n_bytes {
            n_bytes.set(summary.compressed_bytes);
        }
        Ok(())
    })
}

/// Opens a file, together with all ranks. `options` may be NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_open(
    comm: *const MpiComm,
    path: *const c_char,
    options: *const DecodeOptions,
    reader: *mut *mut MpiReader,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, (path, options, reader)) = unsafe {
            together(comm, || Ok((self::path(path)?, decode_options(options)?, OutPointer::new(reader, "reader")?)))
        }?;
        let opened = pumice_mpi::Reader::open(comm, path, options)?;
        reader.set(Box::into_raw(Box::new(MpiReader(opened))));
        Ok(())
    })
}

/// Closes a file, together with all ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_free(reader: *mut MpiReader) {
    guard(|| {
        if !reader.is_null() {
            // SAFETY: as the caller promises.
            end(unsafe { Box::from_raw(reader) });
        }
        Ok(())
    });
}

/// Element type of the array, a pumice_dtype; 0 on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_dtype(reader: *const MpiReader) -> i32 {
    // SAFETY: as the caller promises.
    guard_or(0, || dtype_number(unsafe { shared(reader, "reader") }?.0.info().dtype))
}

/// Number of axes; 0 on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_rank(reader: *const MpiReader) -> usize {
    // SAFETY: as the caller promises.
    guard_or(0, || Ok(unsafe { shared(reader, "reader") }?.0.info().shape.len()))
}

/// Extents, as many as pumice_mpi_reader_rank() says, which live as long as the reader; NULL on failure.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_shape(reader: *const MpiReader) -> *const usize {
    // SAFETY: as the caller promises.
    guard_or(std::ptr::null(), || Ok(unsafe { shared(reader, "reader") }?.0.info().shape.as_ptr()))
}

/// As pumice_mpi_agree(), for the ranks that have a file open.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_agree(reader: *const MpiReader, status: i32) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { &shared(reader, "reader")?.0 };
        pumice_mpi::agree(reader.communicator(), Status::last_error(status))
    })
}

/// Reads boxes, together with all ranks, each of which gives those that it wants, as for pumice_mpi_write(); also such
/// that others read too, or none. `dtype` is the type that the values must have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_read_all(
    reader: *const MpiReader,
    dtype: i32,
    n_boxes: usize,
    starts: *const usize,
    counts: *const usize,
    values: *const *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { &shared(reader, "reader")?.0 };
        let rank = reader.info().shape.len();
        let boxes = self::dtype(dtype).and_then(|dtype| {
            // SAFETY: as above.
            Ok((dtype, unsafe { Boxes::new(rank, n_boxes, starts, counts, values.cast(), "values") }?))
        });
        let (dtype, boxes) = pumice_mpi::agree(reader.communicator(), boxes)?;
        with_dtype!(dtype, T => {
            // SAFETY: as above.
            let mut boxes = pumice_mpi::agree(reader.communicator(), unsafe { boxes.write::<T>() })?;
            reader.read_all(&mut boxes)
        })
    })
}

/// Reads one box, without the other ranks.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_reader_read(
    reader: *const MpiReader,
    dtype: i32,
    start: *const usize,
    count: *const usize,
    values: *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { &shared(reader, "reader")?.0 };
        let rank = reader.info().shape.len();
        // SAFETY: as above.
        let (region, extents) = unsafe { (ranges(rank, start, count)?, extents(rank, count, "count")?) };
        with_dtype!(self::dtype(dtype)?, T => {
            // SAFETY: as the caller promises.
            let out = unsafe { slice_mut(values.cast::<T>(), self::count(extents)?, "values") }?;
            reader.read(&region, out)
        })
    })
}

/// The boxes of one rank, as C gives them.
struct Boxes<'a> {
    rank: usize,
    starts: &'a [usize],
    counts: &'a [usize],
    values: &'a [*mut c_void],
    what: &'static str,
}

impl<'a> Boxes<'a> {
    /// # Safety
    /// As for [`slice`], for all arrays.
    unsafe fn new(
        rank: usize,
        n_boxes: usize,
        starts: *const usize,
        counts: *const usize,
        values: *const *mut c_void,
        what: &'static str,
    ) -> Result<Self> {
        let n = n_boxes.checked_mul(rank).ok_or_else(|| invalid(format!("{n_boxes} boxes are too many")))?;
        // SAFETY: as the caller promises.
        let (starts, counts, values) =
            unsafe { (slice(starts, n, "starts")?, slice(counts, n, "counts")?, slice(values, n_boxes, what)?) };
        Ok(Self { rank, starts, counts, values, what })
    }

    /// Start, extents, and pointer to the values of each box.
    fn iter(&self) -> impl Iterator<Item = (&'a [usize], &'a [usize], *mut c_void)> {
        let (rank, starts, counts) = (self.rank, self.starts, self.counts);
        self.values.iter().enumerate().map(move |(i, values)| {
            let numbers = i * rank..(i + 1) * rank;
            (&starts[numbers.clone()], &counts[numbers], *values)
        })
    }

    /// # Safety
    /// Each pointer is NULL or points to as many live values as its box has.
    unsafe fn read<T: Value>(&self) -> Result<Vec<LocalBox<'a, T>>> {
        self.iter()
            .map(|(start, extents, values)| {
                // SAFETY: as the caller promises.
                let values = unsafe { slice(values.cast::<T>().cast_const(), count(extents)?, self.what) }?;
                Ok(LocalBox { start, extents, values })
            })
            .collect()
    }

    /// # Safety
    /// As for `read`, and nobody else uses the values.
    unsafe fn write<T: Value>(&self) -> Result<Vec<LocalBoxMut<'a, T>>> {
        self.iter()
            .map(|(start, extents, values)| {
                // SAFETY: as the caller promises.
                let values = unsafe { slice_mut(values.cast::<T>(), count(extents)?, self.what) }?;
                Ok(LocalBoxMut { start, extents, values })
            })
            .collect()
    }
}
