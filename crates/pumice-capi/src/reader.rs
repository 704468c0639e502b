//! Reads streams: their header, regions of their values, and the check against the original.

use std::ffi::{CString, c_char, c_void};
use std::fs::File;
use std::ops::Range;
use std::ptr;

use pumice::metrics::{Comparison, Guarantee};
use pumice::{Element, Error, ErrorKind, ReadAt, Result, SliceSource, with_dtype};

use crate::arguments::{OutPointer, dtype, dtype_number, free, path, ranges, shared, slice, slice_mut};
use crate::buffer::Buffer;
use crate::config::{DecodeOptions, decode_options};
use crate::oneshot::count;
use crate::status::{Status, c_text, guard, guard_or, invalid};

/// An open stream, from which any region can be read.
pub struct Reader {
    stream: pumice::Reader<Bytes>,
    preset: CString,
    attributes: Vec<(CString, CString)>,
}

/// Where a stream is.
enum Bytes {
    File(File),
    /// Memory of the caller, who keeps it for as long as the reader.
    Memory(&'static [u8]),
}

impl ReadAt for Bytes {
    fn len(&self) -> Result<u64> {
        match self {
            Bytes::File(file) => file.len(),
            Bytes::Memory(bytes) => ReadAt::len(*bytes),
        }
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        match self {
            Bytes::File(file) => file.read_exact_at(buf, offset),
            Bytes::Memory(bytes) => bytes.read_exact_at(buf, offset),
        }
    }

    fn slice(&self, offset: u64, len: usize) -> Option<&[u8]> {
        match self {
            Bytes::File(file) => file.slice(offset, len),
            Bytes::Memory(bytes) => bytes.slice(offset, len),
        }
    }
}

impl Reader {
    /// A handle for an open stream.
    fn open(bytes: Bytes, options: pumice::DecodeOptions) -> Result<*mut Self> {
        let stream = pumice::Reader::new(bytes, options)?;
        let info = stream.info();
        let preset = c_text(info.preset.name());
        let attributes = info.attributes.iter().map(|(key, value)| (c_text(key), c_text(value))).collect();
        Ok(Box::into_raw(Box::new(Self { stream, preset, attributes })))
    }

    fn info(&self) -> &pumice::Info {
        self.stream.info()
    }

    fn whole(&self) -> Vec<Range<usize>> {
        self.info().shape.iter().map(|&n| 0..n).collect()
    }

    /// Compares everything with the original.
    fn check<T: Element>(&self, original: &[T]) -> Result<Comparison> {
        let original = SliceSource::new(original, &self.info().shape)?;
        Ok(Guarantee::of(self.info()).check(&original, &self.stream, |_| ())?.total)
    }
}

/// What a getter returns; `fallback` for NULL.
///
/// # Safety
/// `reader` is NULL or alive.
unsafe fn get<R>(reader: *const Reader, fallback: R, get: impl FnOnce(&'static Reader) -> Result<R>) -> R {
    // SAFETY: as the caller promises; what is returned to C lives as long as the reader.
    guard_or(fallback, || get(unsafe { shared(reader, "reader") }?))
}

/// Opens a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_open_file(
    path: *const c_char,
    options: *const DecodeOptions,
    reader: *mut *mut Reader,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (path, options, reader) =
            unsafe { (self::path(path)?, decode_options(options)?, OutPointer::new(reader, "reader")?) };
        let with_path = |e: Error| e.context(path.display());
        let file = File::open(path).map_err(|e| with_path(e.into()))?;
        reader.set(Reader::open(Bytes::File(file), options).map_err(with_path)?);
        Ok(())
    })
}

/// Opens a stream in memory, which must not change until the reader is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_open_memory(
    bytes: *const c_void,
    n_bytes: usize,
    options: *const DecodeOptions,
    reader: *mut *mut Reader,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises; the memory outlives the reader, so that no use of it is too late.
        let (bytes, options, reader) = unsafe {
            (slice(bytes.cast::<u8>(), n_bytes, "bytes")?, decode_options(options)?, OutPointer::new(reader, "reader")?)
        };
        reader.set(Reader::open(Bytes::Memory(bytes), options)?);
        Ok(())
    })
}

/// Closes a stream.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_free(reader: *mut Reader) {
    // SAFETY: as the caller promises.
    unsafe { free(reader) }
}

/// Type of the values, a pumice_dtype; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_dtype(reader: *const Reader) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| dtype_number(reader.info().dtype)) }
}

/// Number of axes, at most 8; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_rank(reader: *const Reader) -> usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.info().shape.len())) }
}

/// The extent of each axis, slowest first. Valid until the reader is freed; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_shape(reader: *const Reader) -> *const usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, ptr::null(), |reader| Ok(reader.info().shape.as_ptr())) }
}

/// The extents of chunks: regions that are aligned to chunks are read with the least work. Valid until the reader is freed; NULL
/// for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_chunk_shape(reader: *const Reader) -> *const usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, ptr::null(), |reader| Ok(reader.info().chunk_shape.as_ptr())) }
}

/// Number of values; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_n_values(reader: *const Reader) -> usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| count(&reader.info().shape)) }
}

/// Size of the stream in bytes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_compressed_size(reader: *const Reader) -> u64 {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.info().compressed_bytes)) }
}

/// Version of the file format that the stream is written in; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_format_version(reader: *const Reader) -> u32 {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.info().version.into())) }
}

/// The preset that the stream was written with. Valid until the reader is freed; NULL for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_preset(reader: *const Reader) -> *const c_char {
    // SAFETY: as the caller promises.
    unsafe { get(reader, ptr::null(), |reader| Ok(reader.preset.as_ptr())) }
}

/// 1 if the stream was written with PUMICE_STABLE_ON, else 0; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_is_stable(reader: *const Reader) -> i32 {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.info().stable.into())) }
}

/// The absolute error bound that holds for all values: 0 if lossless, infinite if there is only a bound relative to each
/// value. NaN for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_abs_bound(reader: *const Reader) -> f64 {
    // SAFETY: as the caller promises.
    unsafe { get(reader, f64::NAN, |reader| Ok(reader.info().abs_bound)) }
}

/// Number of bounds that were asked for; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_n_bounds(reader: *const Reader) -> usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.info().bounds.len())) }
}

/// A bound that was asked for, by its index: its kind, a pumice_bound, and its number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_bound(
    reader: *const Reader,
    index: usize,
    bound: *mut i32,
    e: *mut f64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, bound, e) =
            unsafe { (shared(reader, "reader")?, OutPointer::new(bound, "bound")?, OutPointer::new(e, "e")?) };
        let asked = *at(&reader.info().bounds, index, "bounds")?;
        bound.set(asked.kind().code().into());
        e.set(asked.value().unwrap_or(0.0));
        Ok(())
    })
}

/// Number of fill values beside NaN and infinities, which are always kept; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_n_fills(reader: *const Reader) -> usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.info().fills.len())) }
}

/// A fill value, by its index. NaN is one if the stream lists it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_fill(reader: *const Reader, index: usize, value: *mut f64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, value) = unsafe { (shared(reader, "reader")?, OutPointer::new(value, "value")?) };
        value.set(*at(&reader.info().fills, index, "fill values")?);
        Ok(())
    })
}

/// Number of attributes; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_n_attributes(reader: *const Reader) -> usize {
    // SAFETY: as the caller promises.
    unsafe { get(reader, 0, |reader| Ok(reader.attributes.len())) }
}

/// An attribute, by its index. Both texts are valid until the reader is freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_attribute(
    reader: *const Reader,
    index: usize,
    key: *mut *const c_char,
    value: *mut *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, key, value) =
            unsafe { (shared(reader, "reader")?, OutPointer::new(key, "key")?, OutPointer::new(value, "value")?) };
        let (key_text, value_text) = at(&reader.attributes, index, "attributes")?;
        key.set(key_text.as_ptr());
        value.set(value_text.as_ptr());
        Ok(())
    })
}

/// Decodes the whole array to a new buffer; `dtype` is the type that the values must have.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_read(reader: *const Reader, dtype: i32, buffer: *mut *mut Buffer) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, buffer) = unsafe { (shared(reader, "reader")?, OutPointer::new(buffer, "buffer")?) };
        buffer.set(with_dtype!(self::dtype(dtype)?, T => Buffer::new(reader.stream.read::<T>()?.data)));
        Ok(())
    })
}

/// Decodes the whole array to memory of the caller, for exactly as many values as the array has. After a failure its
/// contents are undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_read_into(
    reader: *const Reader,
    dtype: i32,
    values: *mut c_void,
    n_values: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let reader = unsafe { shared(reader, "reader") }?;
        // SAFETY: as the caller promises.
        unsafe { read_region_into(reader, dtype, &reader.whole(), values, n_values) }
    })
}

/// Decodes a box of the array, which starts at `start` and has `count` positions along each axis, to a new buffer. Only
/// the chunks that it touches are decoded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_read_region(
    reader: *const Reader,
    dtype: i32,
    rank: usize,
    start: *const usize,
    count: *const usize,
    buffer: *mut *mut Buffer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, region, buffer) =
            unsafe { (shared(reader, "reader")?, ranges(rank, start, count)?, OutPointer::new(buffer, "buffer")?) };
        buffer.set(with_dtype!(self::dtype(dtype)?, T => Buffer::new(reader.stream.read_region::<T>(&region)?.data)));
        Ok(())
    })
}

/// Decodes a box of the array to memory of the caller, for exactly as many values as the box has. After a failure its
/// contents are undefined.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_read_region_into(
    reader: *const Reader,
    dtype: i32,
    rank: usize,
    start: *const usize,
    count: *const usize,
    values: *mut c_void,
    n_values: usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, region) = unsafe { (shared(reader, "reader")?, ranges(rank, start, count)?) };
        // SAFETY: as the caller promises.
        unsafe { read_region_into(reader, dtype, &region, values, n_values) }
    })
}

/// Compares the stream with the original array, of the same type and shape: PUMICE_STATUS_BOUND_BROKEN if any value is
/// further from the original than the stream's bound allows. The greatest error is written to `max_abs_error` in both
/// cases, unless that is NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_reader_check(
    reader: *const Reader,
    dtype: i32,
    original: *const c_void,
    n_values: usize,
    max_abs_error: *mut f64,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (reader, max_abs_error) =
            unsafe { (shared(reader, "reader")?, OutPointer::optional(max_abs_error, "max_abs_error")?) };
        let found = with_dtype!(self::dtype(dtype)?, T => {
            // SAFETY: as the caller promises.
            reader.check(unsafe { slice(original.cast::<T>(), n_values, "original") }?)
        })?;
        max_abs_error.into_iter().for_each(|error| error.set(found.max_abs_error));
        if found.bound_kept() {
            return Ok(());
        }
        let (n, error) = (found.n_over + found.n_mismatched_special, found.max_abs_error);
        Err(Error::new(ErrorKind::BoundBroken, format!("{n} values are over the bound; the greatest error is {error}")))
    })
}

/// # Safety
/// As for `slice_mut`.
unsafe fn read_region_into(
    reader: &Reader,
    dtype: i32,
    region: &[Range<usize>],
    values: *mut c_void,
    n_values: usize,
) -> Result<()> {
    with_dtype!(self::dtype(dtype)?, T => {
        // SAFETY: as the caller promises.
        let values = unsafe { slice_mut(values.cast::<T>(), n_values, "values") }?;
        reader.stream.read_region_into(region, values)
    })
}

fn at<'a, T>(all: &'a [T], index: usize, what: &str) -> Result<&'a T> {
    all.get(index).ok_or_else(|| invalid(format!("there are {} {what}, so {index} is not one of them", all.len())))
}
