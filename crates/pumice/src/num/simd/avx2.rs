//! AVX2 with BMI and LZCNT: Haswell, Zen and later.
//!
//! 8x8 bit matrices are transposed four at a time by the same block swaps as in the portable code; groups are then
//! written one by one, since AVX2 cannot compress bytes.
#![allow(unsafe_code)]
// SAFETY of the `unsafe` blocks in this file: the instruction set is there and pointers are valid, by the contract of
// `Simd`.
#![allow(clippy::undocumented_unsafe_blocks)]

use std::arch::x86_64::*;

use super::{SUPER, Simd, read_groups, write_groups};

#[derive(Clone, Copy)]
pub struct Avx2;

impl Simd<f32> for Avx2 {
    const LANES: usize = 8;
    type F = __m256;
    type I = __m256i;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m256 {
        unsafe { _mm256_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m256) {
        unsafe { _mm256_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> __m256 {
        unsafe { _mm256_maskload_ps(from, first_mask_32(n)) }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, n: usize, v: __m256) {
        unsafe { _mm256_maskstore_ps(to, first_mask_32(n), v) }
    }

    #[inline(always)]
    unsafe fn keep_first(v: __m256i, n: usize) -> __m256i {
        unsafe { _mm256_and_si256(v, first_mask_32(n)) }
    }

    #[inline(always)]
    unsafe fn load_int(from: *const i32) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_int(to: *mut i32, v: __m256i) {
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m256 {
        unsafe { _mm256_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m256i {
        unsafe { _mm256_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256, b: __m256) -> __m256 {
        unsafe { _mm256_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn bits(v: __m256) -> __m256i {
        unsafe { _mm256_castps_si256(v) }
    }

    #[inline(always)]
    unsafe fn of_bits(v: __m256i) -> __m256 {
        unsafe { _mm256_castsi256_ps(v) }
    }

    #[inline(always)]
    unsafe fn add_int(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_int(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn zigzag(v: __m256i) -> __m256i {
        unsafe { _mm256_xor_si256(_mm256_add_epi32(v, v), _mm256_srai_epi32::<31>(v)) }
    }

    #[inline(always)]
    unsafe fn unzigzag(v: __m256i) -> __m256i {
        unsafe {
            let odd = _mm256_and_si256(v, _mm256_set1_epi32(1));
            let sign = _mm256_sub_epi32(_mm256_setzero_si256(), odd);
            _mm256_xor_si256(_mm256_srli_epi32::<1>(v), sign)
        }
    }

    #[inline(always)]
    unsafe fn of_ordered(v: __m256i) -> __m256 {
        unsafe {
            let magnitude = _mm256_srli_epi32::<1>(_mm256_srai_epi32::<31>(v));
            _mm256_castsi256_ps(_mm256_xor_si256(v, magnitude))
        }
    }

    #[inline(always)]
    unsafe fn over_lanes(d: __m256, tolerance: __m256) -> u32 {
        unsafe {
            let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), d);
            _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_NLE_UQ>(magnitude, tolerance)) as u32
        }
    }

    #[inline(always)]
    unsafe fn equal_lanes(a: __m256i, b: __m256i) -> u32 {
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b))) as u32 }
    }

    #[inline(always)]
    unsafe fn nudge(s: __m256, d: __m256, tolerance: __m256) -> __m256 {
        unsafe {
            let magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0), d);
            let over = _mm256_cmp_ps::<_CMP_NLE_UQ>(magnitude, tolerance);
            let positive = _mm256_cmp_ps::<_CMP_GT_OQ>(d, _mm256_setzero_ps());
            let one = _mm256_blendv_ps(_mm256_set1_ps(-1.0), _mm256_set1_ps(1.0), positive);
            _mm256_blendv_ps(s, _mm256_add_ps(s, one), over)
        }
    }

    #[inline(always)]
    unsafe fn shift_in(before: __m256i, v: __m256i) -> __m256i {
        unsafe { _mm256_alignr_epi8::<12>(v, _mm256_permute2x128_si256::<0x21>(before, v)) }
    }

    #[inline(always)]
    unsafe fn prefix_sum(v: __m256i) -> __m256i {
        unsafe {
            let v = _mm256_add_epi32(v, _mm256_slli_si256::<4>(v));
            let v = _mm256_add_epi32(v, _mm256_slli_si256::<8>(v));
            // The low half's total, added to the high half only.
            let low = _mm256_permute2x128_si256::<0x08>(v, v);
            _mm256_add_epi32(v, _mm256_shuffle_epi32::<0xFF>(low))
        }
    }

    #[inline(always)]
    unsafe fn broadcast_last(v: __m256i) -> __m256i {
        unsafe { _mm256_permutevar8x32_epi32(v, _mm256_set1_epi32(7)) }
    }

    #[inline(always)]
    unsafe fn pack(codes: *const i32, out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe {
            let codes: *const __m256i = codes.cast();
            let groups: [__m256i; 8] = std::array::from_fn(|group| _mm256_loadu_si256(codes.add(group)));
            let all = groups.iter().fold(_mm256_setzero_si256(), |all, v| _mm256_or_si256(all, *v));
            if _mm256_testz_si256(all, _mm256_set1_epi32(!0xFF)) != 0 {
                return write_groups(&[transposed_bytes::<0>(&groups)], out, widths);
            }
            let low = [transposed_bytes::<0>(&groups), transposed_bytes::<8>(&groups)];
            if _mm256_testz_si256(all, _mm256_set1_epi32(!0xFFFF)) != 0 {
                return write_groups(&low, out, widths);
            }
            let high = [transposed_bytes::<16>(&groups), transposed_bytes::<24>(&groups)];
            write_groups(&[low[0], low[1], high[0], high[1]], out, widths)
        }
    }

    #[inline(always)]
    unsafe fn unpack(planes: *const u8, widths: &[u8; 8], codes: *mut i32) {
        unsafe {
            match widths.iter().max().expect("eight widths") {
                0..=8 => restore_codes::<1>(planes, widths, codes),
                9..=16 => restore_codes::<2>(planes, widths, codes),
                _ => restore_codes::<4>(planes, widths, codes),
            }
        }
    }

    #[inline(always)]
    unsafe fn least_byte(bytes: u64) -> u8 {
        unsafe { least_byte(bytes) }
    }

    #[inline(always)]
    unsafe fn pack_bytes(codes: &[u8; SUPER], out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe { write_groups(&[transpose_groups(codes)], out, widths) }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(planes: *const u8, widths: &[u8; 8], codes: &mut [u8; SUPER]) {
        unsafe { *codes = unpack_byte_groups(planes, widths) }
    }
}

impl Simd<f64> for Avx2 {
    const LANES: usize = 4;
    type F = __m256d;
    type I = __m256i;

    #[inline(always)]
    unsafe fn load(from: *const f64) -> __m256d {
        unsafe { _mm256_loadu_pd(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f64, v: __m256d) {
        unsafe { _mm256_storeu_pd(to, v) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f64, n: usize) -> __m256d {
        unsafe { _mm256_maskload_pd(from, first_mask_64(n)) }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f64, n: usize, v: __m256d) {
        unsafe { _mm256_maskstore_pd(to, first_mask_64(n), v) }
    }

    #[inline(always)]
    unsafe fn keep_first(v: __m256i, n: usize) -> __m256i {
        unsafe { _mm256_and_si256(v, first_mask_64(n)) }
    }

    #[inline(always)]
    unsafe fn load_int(from: *const i64) -> __m256i {
        unsafe { _mm256_loadu_si256(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_int(to: *mut i64, v: __m256i) {
        unsafe { _mm256_storeu_si256(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f64) -> __m256d {
        unsafe { _mm256_set1_pd(value) }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i64) -> __m256i {
        unsafe { _mm256_set1_epi64x(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m256d, b: __m256d) -> __m256d {
        unsafe { _mm256_mul_pd(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m256d, b: __m256d) -> __m256d {
        unsafe { _mm256_add_pd(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m256d, b: __m256d) -> __m256d {
        unsafe { _mm256_sub_pd(a, b) }
    }

    #[inline(always)]
    unsafe fn bits(v: __m256d) -> __m256i {
        unsafe { _mm256_castpd_si256(v) }
    }

    #[inline(always)]
    unsafe fn of_bits(v: __m256i) -> __m256d {
        unsafe { _mm256_castsi256_pd(v) }
    }

    #[inline(always)]
    unsafe fn add_int(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_add_epi64(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_int(a: __m256i, b: __m256i) -> __m256i {
        unsafe { _mm256_sub_epi64(a, b) }
    }

    #[inline(always)]
    unsafe fn zigzag(v: __m256i) -> __m256i {
        unsafe {
            // AVX2 has no arithmetic shift of 64-bit lanes; a comparison gives the sign.
            let sign = _mm256_cmpgt_epi64(_mm256_setzero_si256(), v);
            _mm256_xor_si256(_mm256_add_epi64(v, v), sign)
        }
    }

    #[inline(always)]
    unsafe fn unzigzag(v: __m256i) -> __m256i {
        unsafe {
            let odd = _mm256_and_si256(v, _mm256_set1_epi64x(1));
            let sign = _mm256_sub_epi64(_mm256_setzero_si256(), odd);
            _mm256_xor_si256(_mm256_srli_epi64::<1>(v), sign)
        }
    }

    #[inline(always)]
    unsafe fn of_ordered(v: __m256i) -> __m256d {
        unsafe {
            let magnitude = _mm256_srli_epi64::<1>(_mm256_cmpgt_epi64(_mm256_setzero_si256(), v));
            _mm256_castsi256_pd(_mm256_xor_si256(v, magnitude))
        }
    }

    #[inline(always)]
    unsafe fn over_lanes(d: __m256d, tolerance: __m256d) -> u32 {
        unsafe {
            let magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), d);
            _mm256_movemask_pd(_mm256_cmp_pd::<_CMP_NLE_UQ>(magnitude, tolerance)) as u32
        }
    }

    #[inline(always)]
    unsafe fn equal_lanes(a: __m256i, b: __m256i) -> u32 {
        unsafe { _mm256_movemask_pd(_mm256_castsi256_pd(_mm256_cmpeq_epi64(a, b))) as u32 }
    }

    #[inline(always)]
    unsafe fn nudge(s: __m256d, d: __m256d, tolerance: __m256d) -> __m256d {
        unsafe {
            let magnitude = _mm256_andnot_pd(_mm256_set1_pd(-0.0), d);
            let over = _mm256_cmp_pd::<_CMP_NLE_UQ>(magnitude, tolerance);
            let positive = _mm256_cmp_pd::<_CMP_GT_OQ>(d, _mm256_setzero_pd());
            let one = _mm256_blendv_pd(_mm256_set1_pd(-1.0), _mm256_set1_pd(1.0), positive);
            _mm256_blendv_pd(s, _mm256_add_pd(s, one), over)
        }
    }

    #[inline(always)]
    unsafe fn shift_in(before: __m256i, v: __m256i) -> __m256i {
        unsafe { _mm256_alignr_epi8::<8>(v, _mm256_permute2x128_si256::<0x21>(before, v)) }
    }

    #[inline(always)]
    unsafe fn prefix_sum(v: __m256i) -> __m256i {
        unsafe {
            let v = _mm256_add_epi64(v, _mm256_slli_si256::<8>(v));
            let low = _mm256_permute2x128_si256::<0x08>(v, v);
            _mm256_add_epi64(v, _mm256_unpackhi_epi64(low, low))
        }
    }

    #[inline(always)]
    unsafe fn broadcast_last(v: __m256i) -> __m256i {
        unsafe { _mm256_permute4x64_epi64::<0xFF>(v) }
    }

    #[inline(always)]
    unsafe fn pack(codes: *const i64, out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe {
            let source: *const __m256i = codes.cast();
            let mut all = _mm256_setzero_si256();
            for i in 0..16 {
                all = _mm256_or_si256(all, _mm256_loadu_si256(source.add(i)));
            }
            if _mm256_testz_si256(all, _mm256_set1_epi64x(!0xFFFF_FFFF)) != 0 {
                // The usual case: the low halves, as codes of an f32 tile.
                let mut low = [0_i32; SUPER];
                for (i, code) in low.iter_mut().enumerate() {
                    *code = *codes.add(i) as i32;
                }
                return <Avx2 as Simd<f32>>::pack(low.as_ptr(), out, widths);
            }
            <super::portable::Portable as Simd<f64>>::pack(codes, out, widths)
        }
    }

    #[inline(always)]
    unsafe fn unpack(planes: *const u8, widths: &[u8; 8], codes: *mut i64) {
        unsafe {
            if *widths.iter().max().expect("eight widths") > 32 {
                return <super::portable::Portable as Simd<f64>>::unpack(planes, widths, codes);
            }
            let mut low = [0_i32; SUPER];
            <Avx2 as Simd<f32>>::unpack(planes, widths, low.as_mut_ptr());
            for (i, code) in low.iter().enumerate() {
                *codes.add(i) = i64::from(*code as u32);
            }
        }
    }

    #[inline(always)]
    unsafe fn least_byte(bytes: u64) -> u8 {
        unsafe { least_byte(bytes) }
    }

    #[inline(always)]
    unsafe fn pack_bytes(codes: &[u8; SUPER], out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe { <Avx2 as Simd<f32>>::pack_bytes(codes, out, widths) }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(planes: *const u8, widths: &[u8; 8], codes: &mut [u8; SUPER]) {
        unsafe { <Avx2 as Simd<f32>>::unpack_bytes(planes, widths, codes) }
    }
}

#[inline(always)]
pub(super) unsafe fn least_byte(bytes: u64) -> u8 {
    // The one horizontal minimum of the instruction set works on 16 bits.
    unsafe { _mm_cvtsi128_si32(_mm_minpos_epu16(_mm_cvtepu8_epi16(_mm_cvtsi64_si128(bytes as i64)))) as u8 }
}

/// All ones in the first `n` lanes of 32 bits.
#[inline(always)]
unsafe fn first_mask_32(n: usize) -> __m256i {
    unsafe { _mm256_cmpgt_epi32(_mm256_set1_epi32(n as i32), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7)) }
}

/// All ones in the first `n` lanes of 64 bits.
#[inline(always)]
unsafe fn first_mask_64(n: usize) -> __m256i {
    unsafe { _mm256_cmpgt_epi64(_mm256_set1_epi64x(n as i64), _mm256_setr_epi64x(0, 1, 2, 3)) }
}

/// Four 8x8 bit matrices transposed; see [`super::transpose_8x8`].
#[inline(always)]
unsafe fn transpose_4(x: __m256i) -> __m256i {
    unsafe {
        let t = _mm256_xor_si256(x, _mm256_srli_epi64::<7>(x));
        let t = _mm256_and_si256(t, _mm256_set1_epi64x(0x00AA_00AA_00AA_00AA));
        let x = _mm256_xor_si256(_mm256_xor_si256(x, t), _mm256_slli_epi64::<7>(t));
        let t = _mm256_xor_si256(x, _mm256_srli_epi64::<14>(x));
        let t = _mm256_and_si256(t, _mm256_set1_epi64x(0x0000_CCCC_0000_CCCC));
        let x = _mm256_xor_si256(_mm256_xor_si256(x, t), _mm256_slli_epi64::<14>(t));
        let t = _mm256_xor_si256(x, _mm256_srli_epi64::<28>(x));
        let t = _mm256_and_si256(t, _mm256_set1_epi64x(0x0000_0000_F0F0_F0F0));
        _mm256_xor_si256(_mm256_xor_si256(x, t), _mm256_slli_epi64::<28>(t))
    }
}

/// Byte `SHIFT / 8` of the codes of each group, transposed.
#[inline(always)]
unsafe fn transposed_bytes<const SHIFT: i32>(groups: &[__m256i; 8]) -> [u64; 8] {
    unsafe {
        let byte = _mm256_set1_epi32(0xFF);
        let cut = |v: __m256i| _mm256_and_si256(_mm256_srli_epi32::<SHIFT>(v), byte);
        // Packing works within halves, so that groups come out as 0a 1a 2a 3a 0b 1b 2b 3b; one permutation restores the
        // order.
        let order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
        let mut planes = [0; 8];
        for half in 0..2 {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| cut(groups[4 * half + i]));
            let packed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
            let transposed = transpose_4(_mm256_permutevar8x32_epi32(packed, order));
            _mm256_storeu_si256(planes[4 * half..].as_mut_ptr().cast(), transposed);
        }
        planes
    }
}

#[inline(always)]
unsafe fn transpose_groups(codes: &[u8; SUPER]) -> [u64; 8] {
    unsafe {
        let mut planes = [0; 8];
        for half in 0..2 {
            let v = transpose_4(_mm256_loadu_si256(codes.as_ptr().add(32 * half).cast()));
            _mm256_storeu_si256(planes[4 * half..].as_mut_ptr().cast(), v);
        }
        planes
    }
}

/// One byte of each of the 64 codes, from the planes `[group]` of that byte.
#[inline(always)]
unsafe fn bytes_of(planes: &[u64; 8]) -> [u8; SUPER] {
    unsafe {
        let mut bytes = [0; SUPER];
        for half in 0..2 {
            let v = transpose_4(_mm256_loadu_si256(planes.as_ptr().add(4 * half).cast()));
            _mm256_storeu_si256(bytes.as_mut_ptr().add(32 * half).cast(), v);
        }
        bytes
    }
}

#[inline(always)]
unsafe fn unpack_byte_groups(from: *const u8, widths: &[u8; 8]) -> [u8; SUPER] {
    unsafe {
        let mut planes = [[0; 8]; 1];
        read_groups(from, widths, &mut planes);
        bytes_of(&planes[0])
    }
}

#[inline(always)]
unsafe fn restore_codes<const BYTES: usize>(from: *const u8, widths: &[u8; 8], codes: *mut i32) {
    unsafe {
        let mut planes = [[0; 8]; BYTES];
        read_groups(from, widths, &mut planes);
        let mut bytes = [[0; SUPER]; BYTES];
        for byte in 0..BYTES {
            bytes[byte] = bytes_of(&planes[byte]);
        }
        for group in 0..8 {
            let mut v = _mm256_setzero_si256();
            for (byte, bytes) in bytes.iter().enumerate() {
                let wide = _mm256_cvtepu8_epi32(_mm_loadl_epi64(bytes.as_ptr().add(8 * group).cast()));
                let shift = _mm_cvtsi32_si128(8 * byte as i32);
                v = _mm256_or_si256(v, _mm256_sll_epi32(wide, shift));
            }
            _mm256_storeu_si256(codes.add(8 * group).cast(), v);
        }
    }
}
