//! The caller's options: how to compress ([`Config`]) and how to decode ([`DecodeOptions`]).

use std::ffi::c_char;

use pumice::{ErrorBound, Preset, Result};

use crate::arguments::{exclusive, extents, free, ranges, shared, slice, text};
use crate::status::{Status, guard, guard_or, invalid};

/// Type of the values of an array. The numbers are those of the file format.
#[repr(i32)]
pub enum Dtype {
    /// float: IEEE 754 binary32.
    F32 = 1,
    /// double: IEEE 754 binary64.
    F64 = 2,
}

/// Kind of an error bound, to which a number e belongs. The numbers are those of the file format.
#[repr(i32)]
pub enum BoundKind {
    /// Every bit is kept; e is ignored.
    Lossless = 0,
    /// |x - x'| <= e for every finite value.
    Abs = 1,
    /// |x - x'| <= e * (max - min) over the finite values that are not fill values.
    Rel = 2,
    /// |x - x'| <= e * |x| for every finite value. Zeros stay zeros.
    PwRel = 3,
    /// A peak signal to noise ratio of at least e dB. Like all targets (PSNR, L2, RATIO) it is found by a search that
    /// compresses several times, and needs the whole array: a writer cannot have it.
    Psnr = 4,
    /// An L2 norm of the error of at most e.
    L2 = 5,
    /// A stream at least e times smaller than the values, with no more error than that needs.
    Ratio = 6,
}

/// Whether values that are restored, and compressed again under the same absolute bound, keep every bit, whatever the
/// chunks and the preset.
#[repr(i32)]
pub enum Stable {
    /// They may move by up to the bound each time: the best ratio, and the default of pumice_compress() and the like. For
    /// pumice_hdf5_cd_values(), a config without a stable mode has PUMICE_STABLE_AUTO.
    Off = 0,
    /// They do. For PUMICE_BOUND_ABS and PUMICE_BOUND_REL.
    On = 1,
    /// They do in chunks where an estimate says that it costs less than 2 % of the size.
    Auto = 2,
}

/// How to compress: an error bound, and settings that all have good defaults.
pub struct Config(pub(crate) pumice::Config);

/// How to decode. Wherever a function takes options, NULL means the defaults.
#[derive(Default)]
pub struct DecodeOptions(pub(crate) pumice::DecodeOptions);

/// The bound of a kind, which is given by its number in [`BoundKind`], with the number `e`.
pub(crate) fn bound(kind: i32, e: f64) -> Result<ErrorBound> {
    let known = u8::try_from(kind).ok().and_then(pumice::BoundKind::from_code);
    known
        .map(|kind| ErrorBound::from_kind(kind, e))
        .ok_or_else(|| invalid(format!("unknown kind of bound {kind}: use a PUMICE_BOUND constant")))
}

/// Applies a change to a config.
///
/// # Safety
/// `config` is NULL or alive and not in use elsewhere.
unsafe fn change(config: *mut Config, with: impl FnOnce(pumice::Config) -> Result<pumice::Config>) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let config = unsafe { exclusive(config, "config") }?;
        config.0 = with(config.0.clone())?;
        Ok(())
    })
}

/// A config with this bound: `bound` is a pumice_bound. NULL if that is unknown. Whether the number `e` is valid is
/// checked when the config is used.
#[unsafe(no_mangle)]
pub extern "C" fn pumice_config_new(bound: i32, e: f64) -> *mut Config {
    guard_or(std::ptr::null_mut(), || {
        let config = pumice::Config::new(self::bound(bound, e)?);
        Ok(Box::into_raw(Box::new(Config(config))))
    })
}

/// Frees a config.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_free(config: *mut Config) {
    // SAFETY: as the caller promises.
    unsafe { free(config) }
}

/// Asks for one more bound, so that all of them hold.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_add_bound(config: *mut Config, bound: i32, e: f64) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.and(self::bound(bound, e)?))) }
}

/// Asks for one more bound in a box of the array, which starts at `start` and has `count` positions along each axis. A
/// relative one refers to the range of the whole array. Up to 1024 boxes; targets are not possible.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_add_region(
    config: *mut Config,
    rank: usize,
    start: *const usize,
    count: *const usize,
    bound: i32,
    e: f64,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.region(&ranges(rank, start, count)?, self::bound(bound, e)?))) }
}

/// Keeps only the means of bins, which have `factors` values along each axis, outside of the boxes of
/// pumice_config_add_region().
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_bin(config: *mut Config, rank: usize, factors: *const usize) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.bin(extents(rank, factors, "factors")?))) }
}

/// The pipeline: "fast", "balanced", "small" (the default) or "max", from fastest to smallest; or that of a paper.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_preset(config: *mut Config, preset: *const c_char) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.preset(text(preset, "preset")?.parse::<Preset>()?))) }
}

/// Whether values that are compressed again keep their bits: `stable` is a pumice_stable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_stable(config: *mut Config, stable: i32) -> Status {
    let known = usize::try_from(stable).ok().and_then(|number| pumice::Stable::ALL.get(number));
    let known = || known.ok_or_else(|| invalid(format!("unknown stable mode {stable}: use a PUMICE_STABLE constant")));
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.stable(*known()?))) }
}

/// Worker threads; 0, the default, means one per core. The bytes do not depend on it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_threads(config: *mut Config, threads: usize) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.threads(threads))) }
}

/// The value that means "no data" (NaN always does): kept bit for bit and left out of ranges. Without it a repeated
/// extreme value far away from all others is taken for one. Replaces those given before.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_fill(config: *mut Config, value: f64) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.fills(&[value]))) }
}

/// As pumice_config_set_fill(), with `n` values, at most 8; NaN is kept without being given.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_fills(config: *mut Config, n: usize, values: *const f64) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.fills(slice(values, n, "values")?))) }
}

/// The value range that PUMICE_BOUND_REL refers to, instead of the data's own. A writer needs it for such a bound.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_range(config: *mut Config, min: f64, max: f64) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.range(min, max))) }
}

/// The extents of chunks: the unit of partial reads and of parallel work. By default, chunks have roughly a million
/// values.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_set_chunk_shape(
    config: *mut Config,
    rank: usize,
    chunk_shape: *const usize,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.chunk_shape(extents(rank, chunk_shape, "chunk_shape")?))) }
}

/// Adds a note that is stored with the array, such as a name or units; both in UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_config_add_attribute(
    config: *mut Config,
    key: *const c_char,
    value: *const c_char,
) -> Status {
    // SAFETY: as the caller promises.
    unsafe { change(config, |config| Ok(config.attribute(text(key, "key")?, text(value, "value")?))) }
}

/// The defaults: one thread per core, and a memory limit of 16 GiB.
#[unsafe(no_mangle)]
pub extern "C" fn pumice_decode_options_new() -> *mut DecodeOptions {
    guard_or(std::ptr::null_mut(), || Ok(Box::into_raw(Box::default())))
}

/// Frees options.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_decode_options_free(options: *mut DecodeOptions) {
    // SAFETY: as the caller promises.
    unsafe { free(options) }
}

/// Worker threads; 0, the default, means one per core.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_decode_options_set_threads(options: *mut DecodeOptions, threads: usize) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let options = unsafe { exclusive(options, "options") }?;
        options.0 = options.0.clone().threads(threads);
        Ok(())
    })
}

/// Most memory that one call may allocate for decoded values and to decode them, not counting memory of the caller and 16
/// MiB beside the values; a call that would need more fails with PUMICE_STATUS_LIMIT_EXCEEDED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_decode_options_set_max_bytes(options: *mut DecodeOptions, max_bytes: u64) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let options = unsafe { exclusive(options, "options") }?;
        options.0 = options.0.clone().max_bytes(max_bytes);
        Ok(())
    })
}

/// Options to decode with; NULL means the defaults.
///
/// # Safety
/// `options` is NULL or alive.
pub(crate) unsafe fn decode_options(options: *const DecodeOptions) -> Result<pumice::DecodeOptions> {
    if options.is_null() {
        return Ok(pumice::DecodeOptions::new());
    }
    // SAFETY: as the caller promises.
    Ok(unsafe { shared(options, "options") }?.0.clone())
}
