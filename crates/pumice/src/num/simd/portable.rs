//! Plain Rust: the reference that the other instruction sets are tested against.
#![allow(unsafe_code)]

use super::{SUPER, Simd, read_groups, transpose_8x8, write_groups};
use crate::num::{Int, Value};

#[derive(Clone, Copy)]
pub(crate) struct Portable;

const LANES: usize = 8;

macro_rules! lanewise {
    ($a:ident, $b:ident => $body:expr) => {{
        let mut out = $a;
        for lane in 0..LANES {
            let ($a, $b) = ($a[lane], $b[lane]);
            out[lane] = $body;
        }
        out
    }};
}

// SAFETY of the `unsafe` blocks in this file: pointers are valid by the contract of `Simd`.
#[allow(clippy::undocumented_unsafe_blocks)]
impl<T: Value> Simd<T> for Portable {
    const LANES: usize = LANES;
    type F = [T; LANES];
    type I = [T::Int; LANES];

    #[inline(always)]
    unsafe fn load(from: *const T) -> Self::F {
        unsafe { from.cast::<Self::F>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store(to: *mut T, v: Self::F) {
        unsafe { to.cast::<Self::F>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const T, n: usize) -> Self::F {
        let mut v = [T::default(); LANES];
        unsafe { std::ptr::copy_nonoverlapping(from, v.as_mut_ptr(), n.min(LANES)) };
        v
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut T, n: usize, v: Self::F) {
        unsafe { std::ptr::copy_nonoverlapping(v.as_ptr(), to, n.min(LANES)) }
    }

    #[inline(always)]
    unsafe fn keep_first(mut v: Self::I, n: usize) -> Self::I {
        for (lane, value) in v.iter_mut().enumerate() {
            *value = if lane < n { *value } else { T::Int::default() };
        }
        v
    }

    #[inline(always)]
    unsafe fn load_int(from: *const T::Int) -> Self::I {
        unsafe { from.cast::<Self::I>().read_unaligned() }
    }

    #[inline(always)]
    unsafe fn store_int(to: *mut T::Int, v: Self::I) {
        unsafe { to.cast::<Self::I>().write_unaligned(v) }
    }

    #[inline(always)]
    unsafe fn splat(value: T) -> Self::F {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn splat_int(value: T::Int) -> Self::I {
        [value; LANES]
    }

    #[inline(always)]
    unsafe fn mul(a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b => a.fmul(b))
    }

    #[inline(always)]
    unsafe fn add(a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b => a.fadd(b))
    }

    #[inline(always)]
    unsafe fn sub(a: Self::F, b: Self::F) -> Self::F {
        lanewise!(a, b => a.fsub(b))
    }

    #[inline(always)]
    unsafe fn bits(v: Self::F) -> Self::I {
        v.map(T::bits)
    }

    #[inline(always)]
    unsafe fn of_bits(v: Self::I) -> Self::F {
        v.map(T::of_bits)
    }

    #[inline(always)]
    unsafe fn add_int(a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b => a.add(b))
    }

    #[inline(always)]
    unsafe fn sub_int(a: Self::I, b: Self::I) -> Self::I {
        lanewise!(a, b => a.sub(b))
    }

    #[inline(always)]
    unsafe fn zigzag(v: Self::I) -> Self::I {
        v.map(Int::zigzag)
    }

    #[inline(always)]
    unsafe fn unzigzag(v: Self::I) -> Self::I {
        v.map(Int::unzigzag)
    }

    #[inline(always)]
    unsafe fn of_ordered(v: Self::I) -> Self::F {
        v.map(T::of_ordered)
    }

    #[inline(always)]
    unsafe fn over_lanes(d: Self::F, tolerance: Self::F) -> u32 {
        (0..LANES).fold(0, |over, lane| over | u32::from(!(d[lane].fabs() <= tolerance[lane])) << lane)
    }

    #[inline(always)]
    unsafe fn equal_lanes(a: Self::I, b: Self::I) -> u32 {
        (0..LANES).fold(0, |equal, lane| equal | u32::from(a[lane] == b[lane]) << lane)
    }

    #[inline(always)]
    unsafe fn nudge(s: Self::F, d: Self::F, tolerance: Self::F) -> Self::F {
        // 1.0 as T, without a conversion: the integer after MAGIC.
        let one = T::of_bits(T::MAGIC.bits().add(T::Int::from_i64(1))).fsub(T::MAGIC);
        let mut out = s;
        for lane in 0..LANES {
            if !(d[lane].fabs() <= tolerance[lane]) {
                out[lane] = if d[lane] > T::default() { s[lane].fadd(one) } else { s[lane].fsub(one) };
            }
        }
        out
    }

    #[inline(always)]
    unsafe fn shift_in(before: Self::I, v: Self::I) -> Self::I {
        let mut out = v;
        out[0] = before[LANES - 1];
        out[1..].copy_from_slice(&v[..LANES - 1]);
        out
    }

    #[inline(always)]
    unsafe fn prefix_sum(v: Self::I) -> Self::I {
        let mut out = v;
        for lane in 1..LANES {
            out[lane] = out[lane].add(out[lane - 1]);
        }
        out
    }

    #[inline(always)]
    unsafe fn broadcast_last(v: Self::I) -> Self::I {
        [v[LANES - 1]; LANES]
    }

    #[inline(always)]
    unsafe fn pack(codes: *const T::Int, out: *mut u8, widths: &mut [u8; 8]) -> usize {
        let codes = unsafe { &*codes.cast::<[T::Int; SUPER]>() };
        let all = codes.iter().fold(0, |all, code| all | code.to_u64());
        unsafe {
            match all {
                0..=0xFF => write_groups(&transposed::<T, 1>(codes), out, widths),
                0x100..=0xFFFF => write_groups(&transposed::<T, 2>(codes), out, widths),
                0x1_0000..=0xFFFF_FFFF => write_groups(&transposed::<T, 4>(codes), out, widths),
                _ => write_groups(&transposed::<T, 8>(codes), out, widths),
            }
        }
    }

    #[inline(always)]
    unsafe fn unpack(planes: *const u8, widths: &[u8; 8], codes: *mut T::Int) {
        let codes = unsafe { &mut *codes.cast::<[T::Int; SUPER]>() };
        unsafe {
            match widths.iter().max().expect("eight widths") {
                0..=8 => restored::<T, 1>(planes, widths, codes),
                9..=16 => restored::<T, 2>(planes, widths, codes),
                17..=32 => restored::<T, 4>(planes, widths, codes),
                _ => restored::<T, 8>(planes, widths, codes),
            }
        }
    }

    #[inline(always)]
    unsafe fn least_byte(bytes: u64) -> u8 {
        bytes.to_le_bytes().into_iter().fold(u8::MAX, u8::min)
    }

    #[inline(always)]
    unsafe fn pack_bytes(codes: &[u8; SUPER], out: *mut u8, widths: &mut [u8; 8]) -> usize {
        let mut planes = [[0; 8]; 1];
        for (plane, bytes) in planes[0].iter_mut().zip(codes.as_chunks().0) {
            *plane = transpose_8x8(u64::from_le_bytes(*bytes));
        }
        unsafe { write_groups(&planes, out, widths) }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(from: *const u8, widths: &[u8; 8], codes: &mut [u8; SUPER]) {
        let mut planes = [[0; 8]; 1];
        unsafe { read_groups(from, widths, &mut planes) };
        for (plane, bytes) in planes[0].iter().zip(codes.as_chunks_mut().0) {
            *bytes = transpose_8x8(*plane).to_le_bytes();
        }
    }
}

/// `[byte][group]`: that byte of the group's eight codes, transposed.
#[inline(always)]
fn transposed<T: Value, const BYTES: usize>(codes: &[T::Int; SUPER]) -> [[u64; 8]; BYTES] {
    let mut planes = [[0; 8]; BYTES];
    for (group, codes) in codes.as_chunks::<8>().0.iter().enumerate() {
        for (byte, planes) in planes.iter_mut().enumerate() {
            let gathered = codes.map(|code| (code.to_u64() >> (8 * byte)) as u8);
            planes[group] = transpose_8x8(u64::from_le_bytes(gathered));
        }
    }
    planes
}

/// Inverse of [`transposed`], straight from the stream.
///
/// # Safety
/// As [`read_groups`].
#[inline(always)]
unsafe fn restored<T: Value, const BYTES: usize>(from: *const u8, widths: &[u8; 8], codes: &mut [T::Int; SUPER]) {
    let mut planes = [[0; 8]; BYTES];
    // SAFETY: the caller's contract.
    unsafe { read_groups(from, widths, &mut planes) };
    for (group, codes) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
        let mut gathered = [0_u64; 8];
        for (byte, planes) in planes.iter().enumerate() {
            for (code, bits) in gathered.iter_mut().zip(transpose_8x8(planes[group]).to_le_bytes()) {
                *code |= u64::from(bits) << (8 * byte);
            }
        }
        *codes = gathered.map(|code| T::Int::from_i64(code as i64));
    }
}
