//! Arrays that are written slab by slab along their slowest axis, to a file or to a function of the caller.

use std::ffi::{c_char, c_int, c_void};
use std::io;

use pumice::{Element, FileWriter, Result, Summary, with_dtype};

use crate::arguments::{OutPointer, dtype, exclusive, extents, free, path, shared, slice};
use crate::config::Config;
use crate::status::{Status, guard, invalid};

/// Takes the next bytes of a stream; returns 0 if all went well. Called in the thread, and during the call, of the writer's
/// functions; it must not throw exceptions.
pub type WriteCallback = Option<unsafe extern "C" fn(user: *mut c_void, bytes: *const c_void, n_bytes: usize) -> c_int>;

/// An array that is being written.
pub struct Writer {
    /// `None` once it is finished, or a call has panicked or lost bytes.
    rows: Option<Box<dyn Rows>>,
}

/// A writer of rows of any type to any output.
trait Rows: Send {
    /// # Safety
    /// As for `slice`, for the element type of the writer.
    unsafe fn write(&mut self, values: *const c_void, n_values: usize) -> Result<()>;

    fn finish(self: Box<Self>) -> Result<Summary>;
}

impl<T: Element> Rows for FileWriter<T> {
    unsafe fn write(&mut self, values: *const c_void, n_values: usize) -> Result<()> {
        // SAFETY: as the caller promises.
        self.write_rows(unsafe { slice(values.cast::<T>(), n_values, "values") }?)
    }

    fn finish(self: Box<Self>) -> Result<Summary> {
        FileWriter::finish(*self)
    }
}

/// Worker threads produce bytes, but the caller's function must run in the caller's thread: bytes are kept here until the
/// call is about to return.
struct CallbackWriter<T> {
    writer: pumice::Writer<T, Vec<u8>>,
    put: Callback,
}

struct Callback {
    function: unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> c_int,
    user: *mut c_void,
}

// SAFETY: the function is called only by whoever uses the writer, one thread at a time, as the header says.
unsafe impl Send for Callback {}

impl Callback {
    fn put(&self, bytes: &[u8]) -> Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        // SAFETY: the caller gave the two for each other; the bytes are alive during the call.
        match unsafe { (self.function)(self.user, bytes.as_ptr().cast(), bytes.len()) } {
            0 => Ok(()),
            code => Err(io::Error::other(format!("the write callback returned {code}")).into()),
        }
    }
}

impl<T: Element> Rows for CallbackWriter<T> {
    unsafe fn write(&mut self, values: *const c_void, n_values: usize) -> Result<()> {
        // SAFETY: as the caller promises.
        self.writer.write_rows(unsafe { slice(values.cast::<T>(), n_values, "values") }?)?;
        let bytes = self.writer.get_mut();
        self.put.put(bytes)?;
        bytes.clear();
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Summary> {
        let (bytes, summary) = self.writer.finish()?;
        self.put.put(&bytes)?;
        Ok(summary)
    }
}

impl Writer {
    /// A handle for a writer.
    fn handle(rows: impl Rows + 'static) -> *mut Self {
        Box::into_raw(Box::new(Self { rows: Some(Box::new(rows)) }))
    }

    /// Takes the inner writer out. It is put back only if it can continue, so that a panic or lost bytes end it.
    fn take(&mut self) -> Result<Box<dyn Rows>> {
        self.rows.take().ok_or_else(|| invalid("the writer is finished, or an earlier call of it failed"))
    }
}

/// Starts a file of rows of this shape: the array has one more axis, the slowest, whose extent is the number of rows. The bound must
/// not depend on the values: a relative one needs pumice_config_set_range(), targets are not possible. The file appears
/// under its name, or replaces an old one, only when the writer is finished.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_writer_create_file(
    path: *const c_char,
    config: *const Config,
    dtype: i32,
    row_rank: usize,
    row_shape: *const usize,
    writer: *mut *mut Writer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (path, config, shape, writer) = unsafe {
            (
                self::path(path)?,
                shared(config, "config")?,
                extents(row_rank, row_shape, "row_shape")?,
                OutPointer::new(writer, "writer")?,
            )
        };
        writer.set(
            with_dtype!(self::dtype(dtype)?, T => Writer::handle(FileWriter::<T>::create(path, shape, &config.0)?)),
        );
        Ok(())
    })
}

/// Appends to a file: adds rows with its bound, fill values and chunks. The file does not change until the writer is finished.
/// `threads` is the number of worker threads; 0 means one per core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_writer_append_file(
    path: *const c_char,
    dtype: i32,
    threads: usize,
    writer: *mut *mut Writer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (path, writer) = unsafe { (self::path(path)?, OutPointer::new(writer, "writer")?) };
        writer.set(with_dtype!(self::dtype(dtype)?, T => Writer::handle(FileWriter::<T>::append(path, threads)?)));
        Ok(())
    })
}

/// Starts a stream whose bytes go to `put`, in order, with `user` as its first argument.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_writer_create_callback(
    put: WriteCallback,
    user: *mut c_void,
    config: *const Config,
    dtype: i32,
    row_rank: usize,
    row_shape: *const usize,
    writer: *mut *mut Writer,
) -> Status {
    guard(|| {
        let put = Callback { function: put.ok_or_else(|| invalid("put is NULL"))?, user };
        // SAFETY: as the caller promises.
        let (config, shape, writer) = unsafe {
            (shared(config, "config")?, extents(row_rank, row_shape, "row_shape")?, OutPointer::new(writer, "writer")?)
        };
        writer.set(with_dtype!(self::dtype(dtype)?, T => {
            Writer::handle(CallbackWriter { writer: pumice::Writer::<T, _>::new(Vec::new(), shape, &config.0)?, put })
        }));
        Ok(())
    })
}

/// Adds rows: any whole number of them, given as the number of values. They are copied or encoded before the call returns.
/// After a failure other than PUMICE_STATUS_INVALID_ARGUMENT the writer can only be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_writer_write(writer: *mut Writer, values: *const c_void, n_values: usize) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let writer = unsafe { exclusive(writer, "writer") }?;
        let mut rows = writer.take()?;
        // SAFETY: as the caller promises.
        let written = unsafe { rows.write(values, n_values) };
        if written.as_ref().err().is_none_or(|error| error.kind() == pumice::ErrorKind::InvalidArgument) {
            writer.rows = Some(rows);
        }
        written
    })
}

/// Writes the remaining rows and completes the stream. Its size is written to `compressed_size`, unless that is NULL.
/// Afterwards the writer can only be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_writer_finish(writer: *mut Writer, compressed_size: *mut u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (writer, size) =
            unsafe { (exclusive(writer, "writer")?, OutPointer::optional(compressed_size, "compressed_size")?) };
        let summary = writer.take()?.finish()?;
        size.into_iter().for_each(|size| size.set(summary.compressed_bytes));
        Ok(())
    })
}

/// Frees a writer. If it is not finished, it leaves no new file and does not change an old one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_writer_free(writer: *mut Writer) {
    // SAFETY: as the caller promises.
    unsafe { free(writer) }
}
