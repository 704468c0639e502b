//! Whole arrays in one call, into memory of the caller or of the library.

use std::ffi::c_void;
use std::io::{self, Cursor};

use pumice::{Element, Error, ErrorKind, Result, SliceSource, with_dtype};

use crate::arguments::{OutPointer, dtype, extents, shared, slice, slice_mut};
use crate::buffer::Buffer;
use crate::config::{Config, DecodeOptions, decode_options};
use crate::status::{Status, guard, invalid};

/// An upper bound on the compressed size of an array of this type and shape, whatever its values: the capacity that
/// pumice_compress_into() needs. A little more than the size of the values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_max_compressed_size(
    config: *const Config,
    dtype: i32,
    rank: usize,
    shape: *const usize,
    n_bytes: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (config, shape, n_bytes) = unsafe {
            (shared(config, "config")?, extents(rank, shape, "shape")?, OutPointer::new(n_bytes, "n_bytes")?)
        };
        let most = with_dtype!(self::dtype(dtype)?, T => pumice::max_compressed_bytes::<T>(shape, &config.0))?;
        n_bytes.set(usize::try_from(most).map_err(|_| invalid(format!("shape {shape:?} is too large")))?);
        Ok(())
    })
}

/// Compresses `values`, an array of this type (a pumice_dtype) and shape, to a new buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_compress(
    config: *const Config,
    dtype: i32,
    values: *const c_void,
    rank: usize,
    shape: *const usize,
    buffer: *mut *mut Buffer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (config, shape, buffer) =
            unsafe { (shared(config, "config")?, extents(rank, shape, "shape")?, OutPointer::new(buffer, "buffer")?) };
        let bytes = with_dtype!(self::dtype(dtype)?, T => {
            // SAFETY: as the caller promises.
            let values = unsafe { slice(values.cast::<T>(), count(shape)?, "values") }?;
            pumice::compress(values, shape, &config.0)
        })?;
        buffer.set(Buffer::new(bytes));
        Ok(())
    })
}

/// Compresses `values` as pumice_compress() does, but to memory of the caller, and says how many of its bytes were
/// written. PUMICE_STATUS_LIMIT_EXCEEDED if `capacity` is too small; pumice_max_compressed_size() is always enough.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_compress_into(
    config: *const Config,
    dtype: i32,
    values: *const c_void,
    rank: usize,
    shape: *const usize,
    out: *mut c_void,
    capacity: usize,
    n_bytes: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (config, shape, out, n_bytes) = unsafe {
            (
                shared(config, "config")?,
                extents(rank, shape, "shape")?,
                slice_mut(out.cast::<u8>(), capacity, "out")?,
                OutPointer::new(n_bytes, "n_bytes")?,
            )
        };
        let mut out = Cursor::new(out);
        with_dtype!(self::dtype(dtype)?, T => {
            // SAFETY: as the caller promises.
            let values = unsafe { slice(values.cast::<T>(), count(shape)?, "values") }?;
            compress_within(values, shape, &config.0, &mut out)
        })?;
        n_bytes.set(out.position() as usize);
        Ok(())
    })
}

/// Decompresses a stream to a new buffer; `dtype` is the type that its values must have. To get the shape, open a
/// pumice_reader.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_decompress(
    bytes: *const c_void,
    n_bytes: usize,
    options: *const DecodeOptions,
    dtype: i32,
    buffer: *mut *mut Buffer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (bytes, options, buffer) = unsafe {
            (slice(bytes.cast::<u8>(), n_bytes, "bytes")?, decode_options(options)?, OutPointer::new(buffer, "buffer")?)
        };
        let reader = pumice::Reader::new(bytes, options)?;
        buffer.set(with_dtype!(self::dtype(dtype)?, T => Buffer::new(reader.read::<T>()?.data)));
        Ok(())
    })
}

/// Decompresses a stream to memory of the caller, for exactly as many values as the stream has. After a failure its
/// contents are undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_decompress_into(
    bytes: *const c_void,
    n_bytes: usize,
    options: *const DecodeOptions,
    dtype: i32,
    values: *mut c_void,
    n_values: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (bytes, options) = unsafe { (slice(bytes.cast::<u8>(), n_bytes, "bytes")?, decode_options(options)?) };
        with_dtype!(self::dtype(dtype)?, T => {
            // SAFETY: as the caller promises.
            let values = unsafe { slice_mut(values.cast::<T>(), n_values, "values") }?;
            pumice::decompress_into(bytes, values, &options)
        })
    })
}

/// Number of values of an array.
pub(crate) fn count(shape: &[usize]) -> Result<usize> {
    let n = shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent));
    // An extent of 0 means no values, however large the other extents are.
    let n = if shape.contains(&0) { Some(0) } else { n };
    n.ok_or_else(|| invalid(format!("shape {shape:?} is too large")))
}

/// Compresses to memory that cannot grow.
fn compress_within<T: Element>(
    values: &[T],
    shape: &[usize],
    config: &pumice::Config,
    out: &mut Cursor<&mut [u8]>,
) -> Result<()> {
    let capacity = out.get_ref().len();
    let written = pumice::compress_from(&SliceSource::new(values, shape)?, config, out, &|_| ());
    written.map(drop).map_err(|error| match error.io_error().map(io::Error::kind) {
        Some(io::ErrorKind::WriteZero) => Error::new(
            ErrorKind::LimitExceeded,
            format!("the stream takes more than the {capacity} bytes of `out`: pumice_max_compressed_size() is enough"),
        ),
        _ => error,
    })
}
