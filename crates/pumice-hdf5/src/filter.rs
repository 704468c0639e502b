//! The callbacks of libhdf5. Each first takes its own return address, from which `library.rs` finds the libhdf5 that
//! called, and then continues in Rust, where a panic becomes an error like any other.
//!
//! Several threads, and several libraries, may call the filter. Its only state is the memory of chunks that it has restored:
//! values that a program reads and writes again keep their bits.

use std::any::Any;
use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use pumice::{DecodeOptions, Error, ErrorKind, Recent, Result};

use crate::FILTER_ID;
use crate::cd_values::{ByteOrder, CdValues, ChunkType};
use crate::chunk;
use crate::library::{Hid, Library};

/// Worker threads for each chunk; 1 unless set, since HDF5 is used by programs that have threads of their own.
const THREADS: &str = "PUMICE_HDF5_THREADS";
/// The variable that limits the memory for a decoded chunk and to decode it, and the limit without it.
const MAX_BYTES: &str = "PUMICE_HDF5_MAX_BYTES";
const DEFAULT_MAX_BYTES: u64 = 16 << 30;

/// The variable that limits the bytes of compressed chunks that are remembered, and the limit without it.
const REMEMBER_BYTES: &str = "PUMICE_HDF5_REMEMBER_BYTES";
const DEFAULT_REMEMBER_BYTES: u64 = 256 << 20;

const CLASS_VERSION: c_int = 1;
const PLUGIN_IS_FILTER: c_int = 0;
const REVERSE: c_uint = 0x100;
/// The number of HDF5's shuffle.
const SHUFFLE: c_int = 2;
/// Filters that take what they get for numbers, and some of which change these: HDF5's nbit and scaleoffset, ZFP, fpzip,
/// SZ, BitGroom, GranularBR, SZ3, SPERR.
const NEED_NUMBERS: [c_int; 9] = [5, 6, 32013, 32014, 32017, 32022, 32023, 32024, 32028];

type Prelude = unsafe extern "C" fn(Hid, Hid, Hid) -> c_int;
type Filter = unsafe extern "C" fn(c_uint, usize, *const c_uint, usize, *mut usize, *mut *mut c_void) -> usize;

/// `H5Z_class2_t`, which describes a filter to HDF5.
#[repr(C)]
#[derive(Debug)]
pub struct FilterClass {
    version: c_int,
    id: c_int,
    encoder_present: c_uint,
    decoder_present: c_uint,
    name: *const c_char,
    can_apply: Prelude,
    set_local: Prelude,
    filter: Filter,
}

// SAFETY: nothing changes it, and it points to constants only.
unsafe impl Sync for FilterClass {}

static CLASS: FilterClass = FilterClass {
    version: CLASS_VERSION,
    id: FILTER_ID,
    encoder_present: 1,
    decoder_present: 1,
    name: concat!("pumice ", env!("CARGO_PKG_VERSION"), "; id for testing\0").as_ptr().cast(),
    can_apply,
    set_local,
    filter,
};

/// The filter, for `H5Zregister`.
pub fn filter_class() -> &'static FilterClass {
    &CLASS
}

/// Tells libhdf5 that this plugin is a filter.
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_type() -> c_int {
    PLUGIN_IS_FILTER
}

/// Gives libhdf5 the filter.
#[unsafe(no_mangle)]
pub extern "C" fn H5PLget_plugin_info() -> *const c_void {
    (&raw const CLASS).cast()
}

/// A function that calls another with its own arguments and its return address.
macro_rules! with_return_address {
    ($(#[$doc:meta])* $name:ident($($arg:ty),*) -> $out:ty => $to:ident, $x86_64:literal, $aarch64:literal) => {
        $(#[$doc])*
        #[unsafe(naked)]
        unsafe extern "C" fn $name($(_: $arg),*) -> $out {
            #[cfg(target_arch = "x86_64")]
            core::arch::naked_asm!($x86_64, to = sym $to);
            #[cfg(target_arch = "aarch64")]
            core::arch::naked_asm!($aarch64, to = sym $to);
            #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
            compile_error!("pumice-hdf5 knows the calling conventions of x86_64 and aarch64 only");
        }
    };
}

with_return_address! {
    /// Whether the filter can compress a dataset.
    can_apply(Hid, Hid, Hid) -> c_int => can_apply_for,
    "mov rcx, [rsp]\njmp {to}",
    "mov x3, x30\nb {to}"
}

with_return_address! {
    /// Adds the dataset's part to the `cd_values` of a dataset that is being created.
    set_local(Hid, Hid, Hid) -> c_int => set_local_for,
    "mov rcx, [rsp]\njmp {to}",
    "mov x3, x30\nb {to}"
}

with_return_address! {
    /// Encodes or decodes a chunk. On x86_64 the return address is the seventh argument, which goes on the stack; its
    /// eight bytes also align the stack.
    filter(c_uint, usize, *const c_uint, usize, *mut usize, *mut *mut c_void) -> usize => filter_for,
    "push qword ptr [rsp]\ncall {to}\nadd rsp, 8\nret",
    "mov x6, x30\nb {to}"
}

/// What `can_apply` gives for an error. HDF5 then refuses to create the dataset, even if the filter is optional: it would
/// otherwise skip the filter, and the dataset would list one that does nothing.
const REFUSED: c_int = -1;

unsafe extern "C" fn can_apply_for(dcpl: Hid, datatype: Hid, _space: Hid, return_address: *const c_void) -> c_int {
    guarded(return_address, |library| suits(library, dcpl, datatype)).map_or(REFUSED, |()| 1)
}

unsafe extern "C" fn set_local_for(dcpl: Hid, datatype: Hid, space: Hid, return_address: *const c_void) -> c_int {
    guarded(return_address, |library| complete_cd_values(library, dcpl, datatype, space)).map_or(-1, |()| 1)
}

/// Whether the filter gets the numbers of the dataset as they are in memory, and those after it get its stream as it is.
fn suits(library: &Library, dcpl: Hid, datatype: Hid) -> Result<()> {
    library.element_type(datatype)?;
    shuffle_comes_first(library, dcpl).map(drop)
}

/// Whether HDF5's shuffle is ahead of this filter in the pipeline, which is the only other filter that may be.
fn shuffle_comes_first(library: &Library, dcpl: Hid) -> Result<bool> {
    let filters = library.filters(dcpl)?;
    let own = filters.iter().position(|(id, _)| *id == FILTER_ID);
    let (before, after) = filters.split_at(own.ok_or_else(|| Error::unsupported("the dataset has no Pumice filter"))?);
    if let Some((_, name)) = before.iter().find(|(id, _)| *id != SHUFFLE).or_else(|| before.get(1)) {
        return Err(Error::unsupported(format!(
            "the filter '{name}' comes before Pumice, which needs the numbers themselves: leave it out (xarray: encoding \
             without zlib, complevel, fletcher32; h5py: no scaleoffset, fletcher32; nccopy: first copy with -F none)"
        )));
    }
    if let Some((_, name)) = after[1..].iter().find(|(id, _)| *id == FILTER_ID || NEED_NUMBERS.contains(id)) {
        return Err(Error::unsupported(format!(
            "the filter '{name}' comes after Pumice, but needs numbers, not a compressed stream: leave it out"
        )));
    }
    Ok(!before.is_empty())
}

fn complete_cd_values(library: &Library, dcpl: Hid, datatype: Hid, space: Hid) -> Result<()> {
    let (flags, cd_values) = library.cd_values(dcpl)?;
    let cd_values = CdValues::parse(&cd_values)?;
    let (dtype, order) = library.element_type(datatype)?;
    let fill = library.fill_bytes(dcpl, datatype)?.map(|bytes| fill_value(&bytes[..dtype.size()], order));
    let (extents, shuffled) = (library.extents(space)?, shuffle_comes_first(library, dcpl)?);
    let chunk_type = ChunkType { dtype, order, extents, fill, shuffled };
    let cd_values = CdValues { chunk_type: Some(chunk_type), ..cd_values };
    library.set_cd_values(dcpl, flags, &cd_values.to_vec())
}

/// A fill value as a number.
pub(crate) fn fill_value(bytes: &[u8], order: ByteOrder) -> f64 {
    let mut bytes = bytes.to_vec();
    if order == ByteOrder::Big {
        bytes.reverse();
    }
    match bytes[..] {
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]).into(),
        _ => f64::from_le_bytes(std::array::from_fn(|i| bytes[i])),
    }
}

unsafe extern "C" fn filter_for(
    flags: c_uint,
    n_cd_values: usize,
    cd_values: *const c_uint,
    n_bytes: usize,
    buffer_bytes: *mut usize,
    buffer: *mut *mut c_void,
    return_address: *const c_void,
) -> usize {
    let run = |_: &Library| {
        let cd_values = match n_cd_values {
            0 => &[], // the pointer may be null
            // SAFETY: HDF5 passes this many `cd_values`.
            n => unsafe { std::slice::from_raw_parts(cd_values, n) },
        };
        // SAFETY: both pointers are valid during this call, and nobody else uses them.
        let mut buffer = unsafe { Buffer { start: &mut *buffer, capacity: &mut *buffer_bytes, n_bytes } };
        let chunk_type = CdValues::parse(cd_values).and_then(|cd_values| match cd_values.chunk_type {
            Some(chunk_type) => Ok((cd_values.options, chunk_type)),
            None => Err(Error::unsupported(
                "the filter parameters of this dataset lack its type and shape: write it again with the Pumice plugin",
            )),
        });
        let (options, chunk_type) = chunk_type?;
        if flags & REVERSE == 0 {
            let threads = setting(THREADS)?.unwrap_or(1) as usize;
            let stream = chunk::encode(buffer.bytes(), &chunk_type, &options, threads, recent()?)?;
            buffer.replace_by(&stream)
        } else {
            let limit = setting(MAX_BYTES)?.unwrap_or(DEFAULT_MAX_BYTES);
            let options = DecodeOptions::new().threads(setting(THREADS)?.unwrap_or(1) as usize).max_bytes(limit);
            buffer.decode(&chunk_type, options, limit)
        }
    };
    guarded(return_address, run).unwrap_or(0)
}

/// The chunks that were read lately. The limit is that of the first call.
fn recent() -> Result<&'static Recent> {
    static RECENT: OnceLock<Recent> = OnceLock::new();
    if let Some(recent) = RECENT.get() {
        return Ok(recent);
    }
    let limit = setting(REMEMBER_BYTES)?.unwrap_or(DEFAULT_REMEMBER_BYTES);
    Ok(RECENT.get_or_init(|| Recent::new(usize::try_from(limit).unwrap_or(usize::MAX))))
}

/// A number from an environment variable.
fn setting(name: &str) -> Result<Option<u64>> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let number = text.to_str().and_then(|text| text.trim().parse().ok());
    let wrong = || Error::new(ErrorKind::InvalidArgument, format!("{name} must be a number, not {}", text.display()));
    Ok(Some(number.ok_or_else(wrong)?))
}

/// HDF5's buffer, which comes from `malloc` and may be replaced by another.
struct Buffer<'a> {
    start: &'a mut *mut c_void,
    capacity: &'a mut usize,
    /// How much of it is filled.
    n_bytes: usize,
}

impl Buffer<'_> {
    fn bytes(&self) -> &[u8] {
        if self.n_bytes == 0 {
            return &[];
        }
        // SAFETY: HDF5 says that the buffer has this many bytes; they are borrowed with `self`.
        unsafe { std::slice::from_raw_parts((*self.start).cast(), self.n_bytes) }
    }

    /// Returns these bytes to HDF5, in its own buffer if they fit.
    fn replace_by(&mut self, bytes: &[u8]) -> Result<usize> {
        if bytes.len() > *self.capacity {
            self.exchange(zeroed(bytes.len())?, bytes.len());
        }
        // SAFETY: the buffer has at least this many bytes, and nobody else writes to it during the call.
        unsafe { std::slice::from_raw_parts_mut((*self.start).cast::<u8>(), bytes.len()) }.copy_from_slice(bytes);
        Ok(bytes.len())
    }

    /// Replaces the stream in the buffer by its values.
    fn decode(&mut self, chunk_type: &ChunkType, options: DecodeOptions, limit: u64) -> Result<usize> {
        let too_large = |n| {
            Error::new(ErrorKind::LimitExceeded, format!("a chunk of {n} bytes is above the limit; raise {MAX_BYTES}"))
        };
        let n_bytes = chunk_type.n_bytes().unwrap_or(usize::MAX);
        // To shuffle values takes a copy of them.
        let needed = (n_bytes as u64).saturating_mul(if chunk_type.shuffled { 2 } else { 1 });
        if needed > limit {
            return Err(too_large(needed));
        }
        // Another stream is refused before memory is allocated for its values.
        chunk::check(self.bytes(), chunk_type, options.clone().max_bytes(limit)).map_err(with_variable)?;
        let recent = recent()?;
        let start = zeroed(n_bytes)?;
        // SAFETY: `calloc` has allocated this many bytes, all zero, and nobody else has a pointer to them.
        let out = unsafe { std::slice::from_raw_parts_mut(start.cast::<u8>(), n_bytes) };
        pumice::backend::prefer_large_pages(out);
        // The values count towards the limit, since the filter allocates them.
        let options = options.max_bytes(limit - n_bytes as u64);
        let decoded = catch_unwind(AssertUnwindSafe(|| chunk::decode(self.bytes(), chunk_type, out, options)));
        match decoded.unwrap_or_else(|panic| Err(panicked(&*panic))) {
            Ok(()) => {
                recent.remember(self.bytes());
                self.exchange(start, n_bytes);
                Ok(n_bytes)
            }
            Err(e) => {
                // SAFETY: nobody uses it any more.
                unsafe { libc::free(start) };
                Err(with_variable(e))
            }
        }
    }

    fn exchange(&mut self, start: *mut c_void, capacity: usize) {
        // SAFETY: a filter owns the buffer, which comes from `malloc`.
        unsafe { libc::free(*self.start) };
        (*self.start, *self.capacity) = (start, capacity);
    }
}

/// The same error, with the variable that sets the limit in place of the option.
fn with_variable(error: Error) -> Error {
    match error.kind() {
        ErrorKind::LimitExceeded => {
            let option = "`max_bytes` or read a smaller region";
            Error::new(ErrorKind::LimitExceeded, error.to_string().replace(option, MAX_BYTES))
        }
        _ => error,
    }
}

/// Memory that HDF5 can free; at least one byte.
fn zeroed(n_bytes: usize) -> Result<*mut c_void> {
    // SAFETY: `calloc` may be called with any size.
    let start = unsafe { libc::calloc(n_bytes.max(1), 1) };
    let message = format!("cannot allocate {n_bytes} bytes for a chunk");
    if start.is_null() { Err(Error::new(ErrorKind::LimitExceeded, message)) } else { Ok(start) }
}

thread_local! {
    /// The kind of the last error of a callback: HDF5's error stack has its message only.
    static LAST_ERROR: Cell<Option<ErrorKind>> = const { Cell::new(None) };
}

/// The kind of the last error of the filter on this thread, once.
#[cfg(feature = "files")]
pub(crate) fn last_error() -> Option<ErrorKind> {
    LAST_ERROR.take()
}

/// Runs a callback. Pushes an error on the library's error stack as the very last call, since other calls clear the stack.
/// What cannot be pushed, or nobody would see there, is printed.
fn guarded<T>(return_address: *const c_void, run: impl FnOnce(&Library) -> Result<T>) -> Option<T> {
    let library = Library::calling(return_address).map_err(|e| eprintln!("pumice: {e}")).ok()?;
    let outcome = catch_unwind(AssertUnwindSafe(|| run(&library))).unwrap_or_else(|panic| Err(panicked(&*panic)));
    let told = outcome.map_err(|e| {
        LAST_ERROR.set(Some(e.kind()));
        let message = format!("pumice: {e}");
        let is_hidden = library.hides_errors();
        if !library.push_error(&message) || is_hidden {
            eprintln!("{message}");
        }
    });
    told.ok()
}

fn panicked(panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::unsupported(format!("a bug in Pumice, please report it: {}", text.unwrap_or("panic")))
}

#[cfg(test)]
mod tests {
    use pumice::{Config, ErrorBound, Reader};

    use super::*;

    #[test]
    fn an_error_of_the_limit_names_the_variable() {
        let stream = pumice::compress(&[1.0_f32; 100], &[100], &Config::new(ErrorBound::Abs(0.1))).unwrap();
        let reader = Reader::new(&stream[..], DecodeOptions::new().max_bytes(1)).unwrap();
        let error = with_variable(reader.read::<f32>().map(drop).unwrap_err());
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(error.to_string().ends_with("raise PUMICE_HDF5_MAX_BYTES"), "{error}");
    }
}
