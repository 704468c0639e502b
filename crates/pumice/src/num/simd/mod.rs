//! The vector operations that the kernels of `tile.rs` are written in, one implementation per instruction set.
//!
//! Every implementation computes the same bits (floating-point operations are single IEEE operations, never fused), so
//! the stream does not depend on the machine. Methods are `unsafe` because they may use instructions that the machine
//! lacks: call them only below the wrappers of `fast.rs`, which pick the instruction set at run time.
#![allow(unsafe_code)]

use std::ffi::OsStr;
use std::io::Write;

use super::value::Value;
use crate::error::{Error, Result};
use crate::exec::DefaultFloats;

#[cfg(target_arch = "x86_64")]
pub(crate) mod avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) mod avx512;
pub(crate) mod portable;

/// Values in a supergroup: eight groups whose widths share one header.
pub(crate) const SUPER: usize = 64;
/// How many bytes [`Simd::pack`] and [`Simd::unpack`] may access beyond what they produce or consume.
pub(crate) const SLACK: usize = 64;

/// The most values per vector of any instruction set.
pub(crate) const MAX_LANES: usize = 16;

/// An instruction set, for element type T.
///
/// # Safety
/// Every method requires that the machine has the instruction set. Pointers must be valid for the number of values or
/// bytes each method names; no alignment is required.
// Methods have the names of those of `Value` where both have one.
#[cfg_attr(not(target_arch = "x86_64"), allow(unreachable_pub))]
pub trait Simd<T: Value>: Copy + 'static {
    /// Values per vector, at most `MAX_LANES`, which it divides.
    const LANES: usize;
    /// Vector of T.
    type F: Copy;
    /// Vector of `T::Int`.
    type I: Copy;

    unsafe fn load(from: *const T) -> Self::F;
    unsafe fn store(to: *mut T, v: Self::F);
    /// The first `n` lanes; the others are 0.
    unsafe fn load_first(from: *const T, n: usize) -> Self::F;
    unsafe fn store_first(to: *mut T, n: usize, v: Self::F);
    /// `v` with all but the first `n` lanes 0.
    unsafe fn keep_first(v: Self::I, n: usize) -> Self::I;
    unsafe fn load_int(from: *const T::Int) -> Self::I;
    unsafe fn store_int(to: *mut T::Int, v: Self::I);
    unsafe fn splat(value: T) -> Self::F;
    unsafe fn splat_int(value: T::Int) -> Self::I;
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F;
    unsafe fn bits(v: Self::F) -> Self::I;
    unsafe fn of_bits(v: Self::I) -> Self::F;
    unsafe fn add_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn sub_int(a: Self::I, b: Self::I) -> Self::I;
    unsafe fn zigzag(v: Self::I) -> Self::I;
    unsafe fn unzigzag(v: Self::I) -> Self::I;

    /// [`Value::of_ordered`] of each lane.
    unsafe fn of_ordered(v: Self::I) -> Self::F;

    /// A bit for each lane, set where `!(|d| <= tolerance)`.
    unsafe fn over_lanes(d: Self::F, tolerance: Self::F) -> u32;
    /// A bit for each lane, set where both are equal.
    unsafe fn equal_lanes(a: Self::I, b: Self::I) -> u32;
    /// `s` with 1 added where `d > tolerance` and subtracted where `d < -tolerance` or d is NaN.
    unsafe fn nudge(s: Self::F, d: Self::F, tolerance: Self::F) -> Self::F;
    /// Lanes moved up by one, the last lane of `before` coming in.
    unsafe fn shift_in(before: Self::I, v: Self::I) -> Self::I;
    /// Each lane the sum of itself and all lanes before it.
    unsafe fn prefix_sum(v: Self::I) -> Self::I;
    /// The last lane in all lanes.
    unsafe fn broadcast_last(v: Self::I) -> Self::I;

    /// Bit planes of 64 codes: group after group its `widths[g]` planes (docs/format.md, 6.2). Returns the number of bytes written to
    /// `out`, which must have room for `SUPER * size_of::<T>() + SLACK`.
    unsafe fn pack(codes: *const T::Int, out: *mut u8, widths: &mut [u8; 8]) -> usize;
    /// Inverse of [`Simd::pack`]. Reads up to `SLACK` bytes beyond the planes. Widths are at most the bits of T.
    unsafe fn unpack(planes: *const u8, widths: &[u8; 8], codes: *mut T::Int);
    /// The least of eight bytes, all below 128.
    unsafe fn least_byte(bytes: u64) -> u8;
    /// As `pack`, for 64 codes of one byte.
    unsafe fn pack_bytes(codes: &[u8; SUPER], out: *mut u8, widths: &mut [u8; 8]) -> usize;
    /// As `unpack`, for codes of one byte. Widths are at most 8.
    unsafe fn unpack_bytes(planes: *const u8, widths: &[u8; 8], codes: &mut [u8; SUPER]);
}

/// The instruction sets that have kernels of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Isa {
    Portable,
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512 F, BW, VL, DQ, VBMI2 and GFNI: Ice Lake, Zen 4 and later.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// A computation that is compiled once for each instruction set. `run`, and all that it calls in hot loops, must be
/// `#[inline(always)]`; the compiler then vectorises plain loops for that instruction set. This is a trait and not a
/// closure, because closures are not always inlined into functions compiled for an instruction set.
pub(crate) trait Kernel {
    type Output;
    fn run(self) -> Self::Output;
}

/// Runs a kernel on the best instruction set of this machine.
pub(crate) fn run<K: Kernel>(kernel: K) -> K::Output {
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
    unsafe fn run_avx2<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512dq,avx512cd")]
    unsafe fn run_avx512<K: Kernel>(kernel: K) -> K::Output {
        kernel.run()
    }
    // Each worker thread has its own floating-point settings.
    let _floats = DefaultFloats::set();
    match Isa::detect() {
        Isa::Portable => kernel.run(),
        // SAFETY: `Isa` names only what the machine has.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx2 => unsafe { run_avx2(kernel) },
        // SAFETY: as above.
        #[cfg(target_arch = "x86_64")]
        Isa::Avx512 => unsafe { run_avx512(kernel) },
    }
}

impl Isa {
    /// The instruction set that kernels use: the best of this machine, unless `PUMICE_ISA` (portable, avx2, avx512)
    /// lowers it for tests and measurements.
    pub(crate) fn detect() -> Self {
        static ISA: std::sync::OnceLock<Isa> = std::sync::OnceLock::new();
        *ISA.get_or_init(|| {
            let asked = std::env::var_os("PUMICE_ISA");
            Isa::choose(asked.as_deref()).unwrap_or_else(|error| {
                let best = Isa::choose(None).expect("portable is always there");
                // Unlike `eprintln!`, this does not panic if standard error is closed.
                let _ = writeln!(std::io::stderr(), "pumice: {error}; {} is used instead", best.name());
                best
            })
        })
    }

    /// The instruction set of this name, or the best one.
    fn choose(asked: Option<&OsStr>) -> Result<Self> {
        let available = Isa::available();
        let asked = asked.filter(|name| !name.is_empty());
        let chosen = available.iter().rev().copied().find(|isa| asked.is_none_or(|name| name == isa.name()));
        chosen.ok_or_else(|| {
            let names: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
            let asked = asked.unwrap_or_default().display();
            Error::invalid(format!(
                "PUMICE_ISA is '{asked}', which this machine does not have; it has {}",
                names.join(", ")
            ))
        })
    }

    /// All instruction sets of this machine, slowest first.
    pub(crate) fn available() -> Vec<Self> {
        #[allow(unused_mut)]
        let mut all = vec![Isa::Portable];
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2")
                && is_x86_feature_detected!("bmi1")
                && is_x86_feature_detected!("bmi2")
                && is_x86_feature_detected!("lzcnt")
                && is_x86_feature_detected!("popcnt")
            {
                all.push(Isa::Avx2);
                if avx512::detected() {
                    all.push(Isa::Avx512);
                }
            }
        }
        all
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Isa::Portable => "portable",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => "avx2",
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => "avx512",
        }
    }
}

/// The name of the instruction set that the kernels use. The environment variable `PUMICE_ISA` lowers it. If it names
/// an instruction set that this machine does not have, this function returns an error; other functions print a message
/// to standard error, once.
///
/// ```
/// println!("running on {}", pumice::instruction_set()?); // portable, avx2 or avx512
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn instruction_set() -> Result<&'static str> {
    Ok(Isa::choose(std::env::var_os("PUMICE_ISA").as_deref())?.name())
}

/// Returns `x` in a general register. This keeps the compiler from packing a few independent chains of scalar work into
/// a vector, whose latencies are longer.
#[inline(always)]
pub(crate) fn scalar(value: u32) -> u32 {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let mut value = value;
        // SAFETY: there is no instruction.
        unsafe { std::arch::asm!("/* {0:e} */", inout(reg) value, options(pure, nomem, nostack, preserves_flags)) };
        value
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    value
}

/// Prefetches the cache line at `address`, which need not be valid.
#[inline(always)]
pub(crate) fn prefetch<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// As [`prefetch`], for a line that will be written.
#[inline(always)]
pub(crate) fn prefetch_write<T>(address: *const T) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint; it never faults.
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_ET0 }>(address.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

/// Transposes an 8x8 bit matrix: bit j of byte i becomes bit i of byte j. Its own inverse.
#[inline(always)]
pub(crate) fn transpose_8x8(x: u64) -> u64 {
    // Three rounds of swapping off-diagonal blocks of 1, 2 and 4 bits.
    let t = (x ^ (x >> 7)) & 0x00AA_00AA_00AA_00AA;
    let x = x ^ t ^ (t << 7);
    let t = (x ^ (x >> 14)) & 0x0000_CCCC_0000_CCCC;
    let x = x ^ t ^ (t << 14);
    let t = (x ^ (x >> 28)) & 0x0000_0000_F0F0_F0F0;
    x ^ t ^ (t << 28)
}

/// Significant bytes of `planes`: the width of a group whose transposed codes these are.
#[inline(always)]
pub(crate) fn significant_bytes(planes: u64) -> u32 {
    8 - planes.leading_zeros() / 8
}

/// Writes the planes of eight groups whose transposed bytes are `planes[byte][group]`; fills `widths`.
///
/// # Safety
/// `out` has room for the planes and `SLACK` more.
#[inline(always)]
pub(crate) unsafe fn write_groups<const BYTES: usize>(
    planes: &[[u64; 8]; BYTES],
    out: *mut u8,
    widths: &mut [u8; 8],
) -> usize {
    let mut at = 0;
    for group in 0..8 {
        let mut width = 0;
        for byte in 0..BYTES {
            let bits = planes[byte][group];
            // SAFETY: `at` is the sum of the widths so far; a group has at most 64 bytes of planes, so this stays within the slack.
            unsafe { out.add(at + 8 * byte).cast::<u64>().write_unaligned(bits.to_le()) };
            width = if bits != 0 { 8 * byte as u32 + significant_bytes(bits) } else { width };
        }
        widths[group] = width as u8;
        at += width as usize;
    }
    at
}

/// Inverse of [`write_groups`].
///
/// # Safety
/// `from` is readable for the planes and `SLACK` more.
#[inline(always)]
pub(crate) unsafe fn read_groups<const BYTES: usize>(
    from: *const u8,
    widths: &[u8; 8],
    planes: &mut [[u64; 8]; BYTES],
) {
    let mut at = 0;
    for group in 0..8 {
        let width = u32::from(widths[group]);
        for byte in 0..BYTES {
            // SAFETY: within the planes or the slack, as in `write_groups`.
            let bits = unsafe { from.add(at + 8 * byte).cast::<u64>().read_unaligned() };
            planes[byte][group] = u64::from_le(bits) & low_bytes(width.saturating_sub(8 * byte as u32));
        }
        at += width as usize;
    }
}

/// A mask of the `n` low bytes, all of them from 8 on.
#[inline(always)]
fn low_bytes(n: u32) -> u64 {
    if n >= 8 { u64::MAX } else { (1 << (8 * n)) - 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn least_bytes<S: Simd<f32>>() {
        for bytes in [[5, 3, 9, 7, 64, 3, 8, 100], [0; 8], [7, 7, 7, 7, 7, 7, 7, 2], [127, 1, 127, 0, 5, 5, 5, 5]] {
            // SAFETY: the caller has S.
            let least = unsafe { S::least_byte(u64::from_le_bytes(bytes)) };
            assert_eq!(Some(&least), bytes.iter().min());
        }
    }

    #[test]
    fn least_byte_of_each_instruction_set() {
        least_bytes::<portable::Portable>();
        #[cfg(target_arch = "x86_64")]
        for isa in Isa::available() {
            match isa {
                Isa::Portable => {}
                Isa::Avx2 => least_bytes::<avx2::Avx2>(),
                Isa::Avx512 => least_bytes::<avx512::Avx512>(),
            }
        }
    }

    #[test]
    fn a_name_that_is_none_of_the_instruction_sets_is_an_error() {
        let best = *Isa::available().last().unwrap();
        assert_eq!(Isa::choose(None).unwrap(), best);
        assert_eq!(Isa::choose(Some(OsStr::new(""))).unwrap(), best);
        for isa in Isa::available() {
            assert_eq!(Isa::choose(Some(OsStr::new(isa.name()))).unwrap(), isa);
        }
        let error = Isa::choose(Some(OsStr::new("avx-2"))).unwrap_err();
        assert_eq!(error.kind(), crate::ErrorKind::InvalidArgument);
        let message = error.to_string();
        assert!(message.contains("'avx-2'") && message.contains("portable"), "{message}");
    }

    #[test]
    fn transposing_twice_changes_nothing() {
        let x = 0x0123_4567_89AB_CDEF;
        assert_eq!(transpose_8x8(transpose_8x8(x)), x);
        assert_eq!(transpose_8x8(0xFF), 0x0101_0101_0101_0101);
    }
}
