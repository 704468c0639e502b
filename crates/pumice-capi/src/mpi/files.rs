//! Files that all ranks write and read together.

use std::ffi::{c_char, c_void};
use std::path::Path;

use pumice::{DType, Result, with_dtype};
use pumice_mpi::{LocalBox, LocalBoxMut, Value};

use super::messages::wire;
use super::{MpiComm, end, together};
use crate::arguments::{OutPointer, dtype, dtype_number, exclusive, extents, path, ranges, shared, slice, slice_mut};
use crate::config::{Config, DecodeOptions, decode_options};
use crate::oneshot::count;
use crate::status::{Status, guard, guard_or, invalid};

/// A Pumice file that all ranks of a communicator have open.
pub struct MpiReader(pumice_mpi::Reader);

/// Writes an array of this type (a pumice_dtype) and shape to one file, together with all ranks; it has the bytes that one
/// process writes, and appears under its name when it is complete. A rank gives the boxes that it has: `n_boxes`, which
/// may be 0, with `rank` numbers each in `starts` and `counts`, and a pointer each in `values`. All boxes of all ranks
/// make up the array. `n_bytes`, if not NULL, gets the size of the file.
///
/// `wire` is a pumice_mpi_wire: PUMICE_MPI_WIRE_COMPRESSED gives those bytes. With PUMICE_MPI_WIRE_AUTO, values go to the file
/// as they are where a short measurement says that this is quicker; the file then is a Pumice file without loss.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_write(
    comm: *const MpiComm,
    path: *const c_char,
    config: *const Config,
    wire: i32,
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
        let (comm, (file, wire, n_bytes)) = unsafe {
            together(comm, || {
                let file = NewFile::new(path, config, dtype, rank, shape, (n_boxes, starts, counts, values))?;
                Ok((file, self::wire(wire)?, OutPointer::optional(n_bytes, "n_bytes")?))
            })
        }?;
        let summary = with_dtype!(file.dtype, T => {
            // SAFETY: as the caller promises.
            let boxes = pumice_mpi::agree(comm, unsafe { file.boxes.read::<T>() })?;
            pumice_mpi::write_with(comm, file.path, file.shape, &boxes, file.config, wire)
        })?;
        if let Some(n_bytes) = n_bytes {
            n_bytes.set(summary.compressed_bytes);
        }
        Ok(())
    })
}

/// A file that is being written while the program goes on.
pub struct MpiWriting(pumice_mpi::Writing);

/// As pumice_mpi_write() with PUMICE_MPI_WIRE_COMPRESSED, while the program goes on: when this returns, the values may change.
/// pumice_mpi_writing_wait() ends it. Each rank needs memory for a copy of its values. If MPI_Init_thread gave
/// MPI_THREAD_MULTIPLE, the file is written meanwhile; otherwise values are compressed meanwhile, and written when the ranks
/// wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_iwrite(
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
    writing: *mut *mut MpiWriting,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, (file, writing)) = unsafe {
            together(comm, || {
                let file = NewFile::new(path, config, dtype, rank, shape, (n_boxes, starts, counts, values))?;
                Ok((file, OutPointer::new(writing, "writing")?))
            })
        }?;
        let started = with_dtype!(file.dtype, T => {
            // SAFETY: as the caller promises.
            let boxes = pumice_mpi::agree(comm, unsafe { file.boxes.read::<T>() })?;
            pumice_mpi::iwrite(comm, file.path, file.shape, &boxes, file.config)
        })?;
        writing.set(Box::into_raw(Box::new(MpiWriting(started))));
        Ok(())
    })
}

/// 1 if pumice_mpi_writing_wait() has nothing to wait for but other ranks, otherwise 0; for this rank alone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writing_is_done(writing: *const MpiWriting) -> i32 {
    // SAFETY: as the caller promises.
    guard_or(0, || Ok(unsafe { shared(writing, "writing") }?.0.is_done().into()))
}

/// Waits until the file is in its place, together with all ranks, in the same order for all files. Frees `writing`, whatever
/// the status. `n_bytes`, if not NULL, gets the size of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writing_wait(writing: *mut MpiWriting, n_bytes: *mut u64) -> Status {
    guard(|| {
        if writing.is_null() {
            return Err(invalid("writing is NULL"));
        }
        // SAFETY: as the caller promises.
        let (writing, n_bytes) = unsafe { (Box::from_raw(writing), OutPointer::optional(n_bytes, "n_bytes")) };
        let summary = writing.0.wait()?;
        if let Some(n_bytes) = n_bytes? {
            n_bytes.set(summary.compressed_bytes);
        }
        Ok(())
    })
}

/// A file to which all ranks together add rows, such as time steps.
pub struct MpiWriter(Rows);

enum Rows {
    F32(pumice_mpi::Writer<f32>),
    F64(pumice_mpi::Writer<f64>),
}

/// Adds rows that C gives.
///
/// # Safety
/// As for [`Boxes::new`] and [`Boxes::read`].
unsafe fn write_rows<T: Value>(
    writer: &mut pumice_mpi::Writer<T>,
    n_rows: usize,
    (rank, n_boxes, starts, counts, values): (usize, usize, *const usize, *const usize, *const *const c_void),
) -> Result<()> {
    let boxes = if n_boxes == 0 || rank == 1 + writer.row_shape().len() {
        // SAFETY: as the caller promises.
        unsafe {
            Boxes::new(rank, n_boxes, starts, counts, values.cast(), "values").and_then(|boxes| boxes.read::<T>())
        }
    } else {
        let n_axes = 1 + writer.row_shape().len();
        Err(invalid(format!("boxes of rows have {n_axes} axes, one more than a row, not {rank}")))
    };
    let boxes = pumice_mpi::agree(writer.communicator(), boxes)?;
    writer.write_rows(n_rows, &boxes)
}

/// Starts a file of rows of this shape, together with all ranks: the array has one more axis, the slowest. The bound must not
/// depend on the values, as for pumice_writer_create_file(); the file has the bytes of one process, and appears under its
/// name when it is finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writer_create(
    comm: *const MpiComm,
    path: *const c_char,
    config: *const Config,
    dtype: i32,
    row_rank: usize,
    row_shape: *const usize,
    writer: *mut *mut MpiWriter,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, (path, config, dtype, shape, writer)) = unsafe {
            together(comm, || {
                let (shape, writer) = (extents(row_rank, row_shape, "row_shape")?, OutPointer::new(writer, "writer")?);
                Ok((self::path(path)?, &shared(config, "config")?.0, self::dtype(dtype)?, shape, writer))
            })
        }?;
        let rows = match dtype {
            DType::F32 => Rows::F32(pumice_mpi::Writer::create(comm, path, shape, config)?),
            _ => Rows::F64(pumice_mpi::Writer::create(comm, path, shape, config)?),
        };
        writer.set(Box::into_raw(Box::new(MpiWriter(rows))));
        Ok(())
    })
}

/// Adds rows to a file that exists, together with all ranks, with its bound and chunks. It does not change until the writer
/// is finished. `threads` are those of each rank; 0 means its share of the cores of its node.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writer_append(
    comm: *const MpiComm,
    path: *const c_char,
    dtype: i32,
    threads: usize,
    writer: *mut *mut MpiWriter,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (comm, (path, dtype, writer)) = unsafe {
            together(comm, || Ok((self::path(path)?, self::dtype(dtype)?, OutPointer::new(writer, "writer")?)))
        }?;
        let rows = match dtype {
            DType::F32 => Rows::F32(pumice_mpi::Writer::append(comm, path, threads)?),
            _ => Rows::F64(pumice_mpi::Writer::append(comm, path, threads)?),
        };
        writer.set(Box::into_raw(Box::new(MpiWriter(rows))));
        Ok(())
    })
}

/// Adds `n_rows` rows, together with all ranks. Boxes are given as for pumice_mpi_write(); they have `rank` axes, one more
/// than a row, and the first of these rows has position 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writer_write(
    writer: *mut MpiWriter,
    n_rows: usize,
    rank: usize,
    n_boxes: usize,
    starts: *const usize,
    counts: *const usize,
    values: *const *const c_void,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let writer = unsafe { exclusive(writer, "writer") }?;
        let boxes = (rank, n_boxes, starts, counts, values);
        // SAFETY: as above.
        unsafe {
            match &mut writer.0 {
                Rows::F32(rows) => write_rows(rows, n_rows, boxes),
                Rows::F64(rows) => write_rows(rows, n_rows, boxes),
            }
        }
    })
}

/// Puts the file in its place, together with all ranks, and frees the writer, whatever the status. `n_bytes`, if not NULL,
/// gets the size of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writer_finish(writer: *mut MpiWriter, n_bytes: *mut u64) -> Status {
    guard(|| {
        if writer.is_null() {
            return Err(invalid("writer is NULL"));
        }
        // SAFETY: as the caller promises.
        let (writer, n_bytes) = unsafe { (Box::from_raw(writer), OutPointer::optional(n_bytes, "n_bytes")) };
        let summary = match writer.0 {
            Rows::F32(rows) => rows.finish(),
            Rows::F64(rows) => rows.finish(),
        }?;
        if let Some(n_bytes) = n_bytes? {
            n_bytes.set(summary.compressed_bytes);
        }
        Ok(())
    })
}

/// Frees a writer without finishing, together with all ranks; what was written stays in the partial file. NULL is allowed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_mpi_writer_free(writer: *mut MpiWriter) {
    guard(|| {
        if !writer.is_null() {
            // SAFETY: as the caller promises.
            end(unsafe { Box::from_raw(writer) });
        }
        Ok(())
    });
}

/// What all ways of writing an array are given.
struct NewFile<'a> {
    path: &'a Path,
    config: &'a pumice::Config,
    dtype: DType,
    shape: &'a [usize],
    boxes: Boxes<'a>,
}

impl<'a> NewFile<'a> {
    /// # Safety
    /// As for the functions of [`crate::arguments`].
    unsafe fn new(
        path: *const c_char,
        config: *const Config,
        dtype: i32,
        rank: usize,
        shape: *const usize,
        (n_boxes, starts, counts, values): (usize, *const usize, *const usize, *const *const c_void),
    ) -> Result<Self> {
        // SAFETY: as the caller promises.
        unsafe {
            Ok(Self {
                path: self::path(path)?,
                config: &shared(config, "config")?.0,
                dtype: self::dtype(dtype)?,
                shape: extents(rank, shape, "shape")?,
                boxes: Boxes::new(rank, n_boxes, starts, counts, values.cast(), "values")?,
            })
        }
    }
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
