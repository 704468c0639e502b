//! AVX-512 with VBMI2 and GFNI: Ice Lake, Zen 4 and later.
//!
//! `vgf2p8affineqb` transposes eight 8x8 bit matrices in one instruction, and `vpcompressb` / `vpexpandb` drop and
//! restore the planes that a group does not need, so that 64 codes of one byte are packed in a handful of instructions.
#![allow(unsafe_code)]
// SAFETY of the `unsafe` blocks in this file: the instruction set is there and pointers are valid, by the contract of
// `Simd`.
#![allow(clippy::undocumented_unsafe_blocks)]

use std::arch::x86_64::*;

use super::{SUPER, Simd, read_groups, write_groups};

#[derive(Clone, Copy)]
pub struct Avx512;

/// Whether this machine has everything the kernels below use.
pub(crate) fn detected() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512dq")
        && is_x86_feature_detected!("avx512cd")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx512bitalg")
        && is_x86_feature_detected!("gfni")
        && is_x86_feature_detected!("popcnt")
}

impl Simd<f32> for Avx512 {
    const LANES: usize = 16;
    type F = __m512;
    type I = __m512i;

    #[inline(always)]
    unsafe fn load(from: *const f32) -> __m512 {
        unsafe { _mm512_loadu_ps(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f32, v: __m512) {
        unsafe { _mm512_storeu_ps(to, v) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f32, n: usize) -> __m512 {
        unsafe { _mm512_maskz_loadu_ps(first(n) as u16, from) }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f32, n: usize, v: __m512) {
        unsafe { _mm512_mask_storeu_ps(to, first(n) as u16, v) }
    }

    #[inline(always)]
    unsafe fn keep_first(v: __m512i, n: usize) -> __m512i {
        unsafe { _mm512_maskz_mov_epi32(first(n) as u16, v) }
    }

    #[inline(always)]
    unsafe fn load_int(from: *const i32) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_int(to: *mut i32, v: __m512i) {
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> __m512 {
        unsafe { _mm512_set1_ps(value) }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i32) -> __m512i {
        unsafe { _mm512_set1_epi32(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_mul_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_add_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512, b: __m512) -> __m512 {
        unsafe { _mm512_sub_ps(a, b) }
    }

    #[inline(always)]
    unsafe fn bits(v: __m512) -> __m512i {
        unsafe { _mm512_castps_si512(v) }
    }

    #[inline(always)]
    unsafe fn of_bits(v: __m512i) -> __m512 {
        unsafe { _mm512_castsi512_ps(v) }
    }

    #[inline(always)]
    unsafe fn add_int(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_int(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi32(a, b) }
    }

    #[inline(always)]
    unsafe fn zigzag(v: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(_mm512_add_epi32(v, v), _mm512_srai_epi32::<31>(v)) }
    }

    #[inline(always)]
    unsafe fn unzigzag(v: __m512i) -> __m512i {
        unsafe {
            let odd = _mm512_and_si512(v, _mm512_set1_epi32(1));
            let sign = _mm512_sub_epi32(_mm512_setzero_si512(), odd);
            _mm512_xor_si512(_mm512_srli_epi32::<1>(v), sign)
        }
    }

    #[inline(always)]
    unsafe fn of_ordered(v: __m512i) -> __m512 {
        unsafe {
            let magnitude = _mm512_srli_epi32::<1>(_mm512_srai_epi32::<31>(v));
            _mm512_castsi512_ps(_mm512_xor_si512(v, magnitude))
        }
    }

    #[inline(always)]
    unsafe fn over_lanes(d: __m512, tolerance: __m512) -> u32 {
        unsafe { _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(_mm512_abs_ps(d), tolerance).into() }
    }

    #[inline(always)]
    unsafe fn equal_lanes(a: __m512i, b: __m512i) -> u32 {
        unsafe { _mm512_cmpeq_epi32_mask(a, b).into() }
    }

    #[inline(always)]
    unsafe fn nudge(s: __m512, d: __m512, tolerance: __m512) -> __m512 {
        unsafe {
            let over = _mm512_cmp_ps_mask::<_CMP_NLE_UQ>(_mm512_abs_ps(d), tolerance);
            let positive = _mm512_cmp_ps_mask::<_CMP_GT_OQ>(d, _mm512_setzero_ps());
            let one = _mm512_mask_blend_ps(positive, _mm512_set1_ps(-1.0), _mm512_set1_ps(1.0));
            _mm512_mask_add_ps(s, over, s, one)
        }
    }

    #[inline(always)]
    unsafe fn shift_in(before: __m512i, v: __m512i) -> __m512i {
        unsafe { _mm512_alignr_epi32::<15>(v, before) }
    }

    #[inline(always)]
    unsafe fn prefix_sum(v: __m512i) -> __m512i {
        unsafe {
            let zero = _mm512_setzero_si512();
            // Two steps inside each quarter, where shifts are cheap, two across quarters.
            let v = _mm512_add_epi32(v, _mm512_bslli_epi128::<4>(v));
            let v = _mm512_add_epi32(v, _mm512_bslli_epi128::<8>(v));
            let total = _mm512_shuffle_epi32::<0xFF>(v);
            let v = _mm512_add_epi32(v, _mm512_alignr_epi32::<12>(total, zero));
            // Quarter 2 still lacks quarter 0, and quarter 3 lacks quarters 0 and 1: the total of quarter 0, 0 + 1.
            let total = _mm512_shuffle_epi32::<0xFF>(v);
            _mm512_add_epi32(v, _mm512_alignr_epi32::<8>(total, zero))
        }
    }

    #[inline(always)]
    unsafe fn broadcast_last(v: __m512i) -> __m512i {
        unsafe { _mm512_permutexvar_epi32(_mm512_set1_epi32(15), v) }
    }

    #[inline(always)]
    unsafe fn pack(codes: *const i32, out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe {
            let c: [__m512i; 4] = [0, 1, 2, 3].map(|i| _mm512_loadu_si512(codes.add(16 * i).cast()));
            let all = _mm512_or_si512(_mm512_or_si512(c[0], c[1]), _mm512_or_si512(c[2], c[3]));
            if _mm512_test_epi32_mask(all, _mm512_set1_epi32(!0xFF)) == 0 {
                return pack_one_byte(low_bytes_of::<0>(&c), out, widths);
            }
            let low = [planes_of(low_bytes_of::<0>(&c)), planes_of(low_bytes_of::<8>(&c))];
            if _mm512_test_epi32_mask(all, _mm512_set1_epi32(!0xFFFF)) == 0 {
                return pack_two_bytes(low[0], low[1], out, widths);
            }
            let high = [planes_of(low_bytes_of::<16>(&c)), planes_of(low_bytes_of::<24>(&c))];
            let planes = [low[0], low[1], high[0], high[1]].map(|v| qwords(v));
            write_groups(&planes, out, widths)
        }
    }

    #[inline(always)]
    unsafe fn unpack(planes: *const u8, widths: &[u8; 8], codes: *mut i32) {
        unsafe {
            let w = u64::from_le_bytes(*widths);
            let put = |i: usize, v: __m512i| _mm512_storeu_si512(codes.add(16 * i).cast(), v);
            // A width of 9 or more in any byte: bit 3 with a lower bit, or a higher bit.
            if wider_than_8(w) == 0 {
                let bytes = unpack_one_byte(planes, w);
                for i in 0..4 {
                    put(i, _mm512_cvtepu8_epi32(quarter(bytes, i)));
                }
            } else if wider_than_16(w) == 0 {
                let (low, high) = unpack_two_bytes(planes, widths);
                for i in 0..4 {
                    let high = _mm512_slli_epi32::<8>(_mm512_cvtepu8_epi32(quarter(high, i)));
                    put(i, _mm512_or_si512(_mm512_cvtepu8_epi32(quarter(low, i)), high));
                }
            } else {
                let mut groups = [[0; 8]; 4];
                read_groups(planes, widths, &mut groups);
                let bytes = groups.map(|planes| codes_of(_mm512_loadu_si512(planes.as_ptr().cast())));
                for i in 0..4 {
                    let [a, b, c, d] = bytes.map(|v| _mm512_cvtepu8_epi32(quarter(v, i)));
                    let low = _mm512_or_si512(a, _mm512_slli_epi32::<8>(b));
                    let high = _mm512_or_si512(_mm512_slli_epi32::<16>(c), _mm512_slli_epi32::<24>(d));
                    put(i, _mm512_or_si512(low, high));
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn least_byte(bytes: u64) -> u8 {
        unsafe { super::avx2::least_byte(bytes) }
    }

    #[inline(always)]
    unsafe fn pack_bytes(codes: &[u8; SUPER], out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe { pack_one_byte(_mm512_loadu_si512(codes.as_ptr().cast()), out, widths) }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(planes: *const u8, widths: &[u8; 8], codes: &mut [u8; SUPER]) {
        unsafe {
            let bytes = unpack_one_byte(planes, u64::from_le_bytes(*widths));
            _mm512_storeu_si512(codes.as_mut_ptr().cast(), bytes);
        }
    }
}

impl Simd<f64> for Avx512 {
    const LANES: usize = 8;
    type F = __m512d;
    type I = __m512i;

    #[inline(always)]
    unsafe fn load(from: *const f64) -> __m512d {
        unsafe { _mm512_loadu_pd(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut f64, v: __m512d) {
        unsafe { _mm512_storeu_pd(to, v) }
    }

    #[inline(always)]
    unsafe fn load_first(from: *const f64, n: usize) -> __m512d {
        unsafe { _mm512_maskz_loadu_pd(first(n) as u8, from) }
    }

    #[inline(always)]
    unsafe fn store_first(to: *mut f64, n: usize, v: __m512d) {
        unsafe { _mm512_mask_storeu_pd(to, first(n) as u8, v) }
    }

    #[inline(always)]
    unsafe fn keep_first(v: __m512i, n: usize) -> __m512i {
        unsafe { _mm512_maskz_mov_epi64(first(n) as u8, v) }
    }

    #[inline(always)]
    unsafe fn load_int(from: *const i64) -> __m512i {
        unsafe { _mm512_loadu_si512(from.cast()) }
    }

    #[inline(always)]
    unsafe fn store_int(to: *mut i64, v: __m512i) {
        unsafe { _mm512_storeu_si512(to.cast(), v) }
    }

    #[inline(always)]
    unsafe fn splat(value: f64) -> __m512d {
        unsafe { _mm512_set1_pd(value) }
    }

    #[inline(always)]
    unsafe fn splat_int(value: i64) -> __m512i {
        unsafe { _mm512_set1_epi64(value) }
    }

    #[inline(always)]
    unsafe fn mul(a: __m512d, b: __m512d) -> __m512d {
        unsafe { _mm512_mul_pd(a, b) }
    }

    #[inline(always)]
    unsafe fn add(a: __m512d, b: __m512d) -> __m512d {
        unsafe { _mm512_add_pd(a, b) }
    }

    #[inline(always)]
    unsafe fn sub(a: __m512d, b: __m512d) -> __m512d {
        unsafe { _mm512_sub_pd(a, b) }
    }

    #[inline(always)]
    unsafe fn bits(v: __m512d) -> __m512i {
        unsafe { _mm512_castpd_si512(v) }
    }

    #[inline(always)]
    unsafe fn of_bits(v: __m512i) -> __m512d {
        unsafe { _mm512_castsi512_pd(v) }
    }

    #[inline(always)]
    unsafe fn add_int(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_add_epi64(a, b) }
    }

    #[inline(always)]
    unsafe fn sub_int(a: __m512i, b: __m512i) -> __m512i {
        unsafe { _mm512_sub_epi64(a, b) }
    }

    #[inline(always)]
    unsafe fn zigzag(v: __m512i) -> __m512i {
        unsafe { _mm512_xor_si512(_mm512_add_epi64(v, v), _mm512_srai_epi64::<63>(v)) }
    }

    #[inline(always)]
    unsafe fn unzigzag(v: __m512i) -> __m512i {
        unsafe {
            let odd = _mm512_and_si512(v, _mm512_set1_epi64(1));
            let sign = _mm512_sub_epi64(_mm512_setzero_si512(), odd);
            _mm512_xor_si512(_mm512_srli_epi64::<1>(v), sign)
        }
    }

    #[inline(always)]
    unsafe fn of_ordered(v: __m512i) -> __m512d {
        unsafe {
            let magnitude = _mm512_srli_epi64::<1>(_mm512_srai_epi64::<63>(v));
            _mm512_castsi512_pd(_mm512_xor_si512(v, magnitude))
        }
    }

    #[inline(always)]
    unsafe fn over_lanes(d: __m512d, tolerance: __m512d) -> u32 {
        unsafe { _mm512_cmp_pd_mask::<_CMP_NLE_UQ>(_mm512_abs_pd(d), tolerance).into() }
    }

    #[inline(always)]
    unsafe fn equal_lanes(a: __m512i, b: __m512i) -> u32 {
        unsafe { _mm512_cmpeq_epi64_mask(a, b).into() }
    }

    #[inline(always)]
    unsafe fn nudge(s: __m512d, d: __m512d, tolerance: __m512d) -> __m512d {
        unsafe {
            let over = _mm512_cmp_pd_mask::<_CMP_NLE_UQ>(_mm512_abs_pd(d), tolerance);
            let positive = _mm512_cmp_pd_mask::<_CMP_GT_OQ>(d, _mm512_setzero_pd());
            let one = _mm512_mask_blend_pd(positive, _mm512_set1_pd(-1.0), _mm512_set1_pd(1.0));
            _mm512_mask_add_pd(s, over, s, one)
        }
    }

    #[inline(always)]
    unsafe fn shift_in(before: __m512i, v: __m512i) -> __m512i {
        unsafe { _mm512_alignr_epi64::<7>(v, before) }
    }

    #[inline(always)]
    unsafe fn prefix_sum(v: __m512i) -> __m512i {
        unsafe {
            let zero = _mm512_setzero_si512();
            let v = _mm512_add_epi64(v, _mm512_bslli_epi128::<8>(v));
            let total = _mm512_unpackhi_epi64(v, v);
            let v = _mm512_add_epi64(v, _mm512_alignr_epi64::<6>(total, zero));
            let total = _mm512_unpackhi_epi64(v, v);
            _mm512_add_epi64(v, _mm512_alignr_epi64::<4>(total, zero))
        }
    }

    #[inline(always)]
    unsafe fn broadcast_last(v: __m512i) -> __m512i {
        unsafe { _mm512_permutexvar_epi64(_mm512_set1_epi64(7), v) }
    }

    #[inline(always)]
    unsafe fn pack(codes: *const i64, out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe {
            let c: [__m512i; 8] = std::array::from_fn(|i| _mm512_loadu_si512(codes.add(8 * i).cast()));
            let all = c.iter().fold(_mm512_setzero_si512(), |all, v| _mm512_or_si512(all, *v));
            if _mm512_test_epi64_mask(all, _mm512_set1_epi64(!0xFF)) == 0 {
                return pack_one_byte(low_bytes_of_qwords::<0>(&c), out, widths);
            }
            let low = [planes_of(low_bytes_of_qwords::<0>(&c)), planes_of(low_bytes_of_qwords::<8>(&c))];
            if _mm512_test_epi64_mask(all, _mm512_set1_epi64(!0xFFFF)) == 0 {
                return pack_two_bytes(low[0], low[1], out, widths);
            }
            let middle = [planes_of(low_bytes_of_qwords::<16>(&c)), planes_of(low_bytes_of_qwords::<24>(&c))];
            if _mm512_test_epi64_mask(all, _mm512_set1_epi64(!0xFFFF_FFFF)) == 0 {
                let planes = [low[0], low[1], middle[0], middle[1]].map(|v| qwords(v));
                return write_groups(&planes, out, widths);
            }
            let high = [
                planes_of(low_bytes_of_qwords::<32>(&c)),
                planes_of(low_bytes_of_qwords::<40>(&c)),
                planes_of(low_bytes_of_qwords::<48>(&c)),
                planes_of(low_bytes_of_qwords::<56>(&c)),
            ];
            let planes = [low[0], low[1], middle[0], middle[1], high[0], high[1], high[2], high[3]];
            write_groups(&planes.map(|v| qwords(v)), out, widths)
        }
    }

    #[inline(always)]
    unsafe fn unpack(planes: *const u8, widths: &[u8; 8], codes: *mut i64) {
        unsafe {
            let w = u64::from_le_bytes(*widths);
            let put = |i: usize, v: __m512i| _mm512_storeu_si512(codes.add(8 * i).cast(), v);
            if wider_than_8(w) == 0 {
                let bytes = unpack_one_byte(planes, w);
                for i in 0..8 {
                    put(i, _mm512_cvtepu8_epi64(eighth(bytes, i)));
                }
            } else if wider_than_16(w) == 0 {
                let (low, high) = unpack_two_bytes(planes, widths);
                for i in 0..8 {
                    let high = _mm512_slli_epi64::<8>(_mm512_cvtepu8_epi64(eighth(high, i)));
                    put(i, _mm512_or_si512(_mm512_cvtepu8_epi64(eighth(low, i)), high));
                }
            } else {
                let mut groups = [[0; 8]; 8];
                read_groups(planes, widths, &mut groups);
                let bytes = groups.map(|planes| codes_of(_mm512_loadu_si512(planes.as_ptr().cast())));
                for i in 0..8 {
                    let mut v = _mm512_setzero_si512();
                    for byte in (0..8).rev() {
                        let wide = _mm512_cvtepu8_epi64(eighth(bytes[byte], i));
                        v = _mm512_or_si512(_mm512_slli_epi64::<8>(v), wide);
                    }
                    put(i, v);
                }
            }
        }
    }

    #[inline(always)]
    unsafe fn least_byte(bytes: u64) -> u8 {
        unsafe { super::avx2::least_byte(bytes) }
    }

    #[inline(always)]
    unsafe fn pack_bytes(codes: &[u8; SUPER], out: *mut u8, widths: &mut [u8; 8]) -> usize {
        unsafe { <Avx512 as Simd<f32>>::pack_bytes(codes, out, widths) }
    }

    #[inline(always)]
    unsafe fn unpack_bytes(planes: *const u8, widths: &[u8; 8], codes: &mut [u8; SUPER]) {
        unsafe { <Avx512 as Simd<f32>>::unpack_bytes(planes, widths, codes) }
    }
}

/// The low `n` bits, at most 16.
#[inline(always)]
fn first(n: usize) -> u32 {
    (1 << n) - 1
}

#[inline(always)]
unsafe fn qwords(v: __m512i) -> [u64; 8] {
    unsafe {
        let mut out = [0; 8];
        _mm512_storeu_si512(out.as_mut_ptr().cast(), v);
        out
    }
}

#[inline(always)]
unsafe fn quarter(v: __m512i, i: usize) -> __m128i {
    unsafe {
        match i {
            0 => _mm512_extracti32x4_epi32::<0>(v),
            1 => _mm512_extracti32x4_epi32::<1>(v),
            2 => _mm512_extracti32x4_epi32::<2>(v),
            _ => _mm512_extracti32x4_epi32::<3>(v),
        }
    }
}

#[inline(always)]
unsafe fn eighth(v: __m512i, i: usize) -> __m128i {
    unsafe {
        let pair = quarter(v, i / 2);
        if i.is_multiple_of(2) { pair } else { _mm_unpackhi_epi64(pair, pair) }
    }
}

/// Byte `SHIFT / 8` of 64 codes of 32 bits.
#[inline(always)]
unsafe fn low_bytes_of<const SHIFT: u32>(c: &[__m512i; 4]) -> __m512i {
    unsafe {
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| _mm512_cvtepi32_epi8(_mm512_srli_epi32::<SHIFT>(c[i])));
        let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(a), b);
        let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(c), d);
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }
}

/// Byte `SHIFT / 8` of 64 codes of 64 bits.
#[inline(always)]
unsafe fn low_bytes_of_qwords<const SHIFT: u32>(c: &[__m512i; 8]) -> __m512i {
    unsafe {
        let pair = |i: usize| {
            let low = _mm512_cvtepi64_epi8(_mm512_srli_epi64::<SHIFT>(c[2 * i]));
            let high = _mm512_cvtepi64_epi8(_mm512_srli_epi64::<SHIFT>(c[2 * i + 1]));
            _mm_unpacklo_epi64(low, high)
        };
        let low = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(pair(0)), pair(1));
        let high = _mm256_inserti128_si256::<1>(_mm256_castsi128_si256(pair(2)), pair(3));
        _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
    }
}

/// Reverses the bytes of each group: the instruction counts matrix rows from the other end.
#[inline(always)]
unsafe fn reverse_bytes(v: __m512i) -> __m512i {
    unsafe {
        let order = _mm_set_epi64x(0x0809_0A0B_0C0D_0E0F, 0x0001_0203_0405_0607);
        _mm512_shuffle_epi8(v, _mm512_broadcast_i32x4(order))
    }
}

/// Eight 8x8 bit matrices transposed; applied twice, this gives the input again.
#[inline(always)]
unsafe fn transpose_8(v: __m512i) -> __m512i {
    unsafe {
        // Byte j of the first operand selects bit j of every row of the second.
        let unit = _mm512_set1_epi64(0x8040_2010_0804_0201_u64 as i64);
        _mm512_gf2p8affine_epi64_epi8::<0>(unit, reverse_bytes(v))
    }
}

#[inline(always)]
unsafe fn planes_of(codes: __m512i) -> __m512i {
    unsafe { transpose_8(codes) }
}

#[inline(always)]
unsafe fn codes_of(planes: __m512i) -> __m512i {
    unsafe { transpose_8(planes) }
}

/// In each field of 8 bits, all bits below the highest set one.
#[inline(always)]
fn fill_down_8(m: u64) -> u64 {
    let m = m | ((m >> 1) & 0x7F7F_7F7F_7F7F_7F7F);
    let m = m | ((m >> 2) & 0x3F3F_3F3F_3F3F_3F3F);
    m | ((m >> 4) & 0x0F0F_0F0F_0F0F_0F0F)
}

/// As [`fill_down_8`] for fields of 16 bits.
#[inline(always)]
fn fill_down_16(m: u64) -> u64 {
    let m = m | ((m >> 1) & 0x7FFF_7FFF_7FFF_7FFF);
    let m = m | ((m >> 2) & 0x3FFF_3FFF_3FFF_3FFF);
    let m = m | ((m >> 4) & 0x0FFF_0FFF_0FFF_0FFF);
    m | ((m >> 8) & 0x00FF_00FF_00FF_00FF)
}

#[inline(always)]
unsafe fn pack_one_byte(codes: __m512i, out: *mut u8, widths: &mut [u8; 8]) -> usize {
    unsafe {
        let planes = planes_of(codes);
        let keep = fill_down_8(_mm512_test_epi8_mask(planes, planes));
        _mm512_storeu_si512(out.cast(), _mm512_maskz_compress_epi8(keep, planes));
        let counts = _mm_popcnt_epi8(_mm_cvtsi64_si128(keep as i64));
        *widths = (_mm_cvtsi128_si64(counts) as u64).to_le_bytes();
        keep.count_ones() as usize
    }
}

#[inline(always)]
unsafe fn unpack_one_byte(planes: *const u8, widths: u64) -> __m512i {
    unsafe {
        // (1 << width) - 1 in each byte.
        let table = _mm_set_epi64x(0xFF, 0x7F3F_1F0F_0703_0100);
        let keep = _mm_cvtsi128_si64(_mm_shuffle_epi8(table, _mm_cvtsi64_si128(widths as i64))) as u64;
        let planes = _mm512_maskz_expand_epi8(keep, _mm512_loadu_si512(planes.cast()));
        codes_of(planes)
    }
}

/// Groups 0 to 3, and 4 to 7, of `low` and `high` side by side.
#[inline(always)]
unsafe fn interleave(low: __m512i, high: __m512i) -> (__m512i, __m512i) {
    unsafe {
        let first = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
        let second = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
        (_mm512_permutex2var_epi64(low, first, high), _mm512_permutex2var_epi64(low, second, high))
    }
}

#[inline(always)]
unsafe fn pack_two_bytes(low: __m512i, high: __m512i, out: *mut u8, widths: &mut [u8; 8]) -> usize {
    unsafe {
        let (first, second) = interleave(low, high);
        let keep_first = fill_down_16(_mm512_test_epi8_mask(first, first));
        let keep_second = fill_down_16(_mm512_test_epi8_mask(second, second));
        let n_first = keep_first.count_ones() as usize;
        _mm512_storeu_si512(out.cast(), _mm512_maskz_compress_epi8(keep_first, first));
        _mm512_storeu_si512(out.add(n_first).cast(), _mm512_maskz_compress_epi8(keep_second, second));
        let counts = _mm_popcnt_epi16(_mm_set_epi64x(keep_second as i64, keep_first as i64));
        let counts = _mm_cvtsi128_si64(_mm_cvtepi16_epi8(counts)) as u64;
        *widths = counts.to_le_bytes();
        n_first + keep_second.count_ones() as usize
    }
}

/// The low and the high bytes of 64 codes.
#[inline(always)]
unsafe fn unpack_two_bytes(planes: *const u8, widths: &[u8; 8]) -> (__m512i, __m512i) {
    unsafe {
        let widths = _mm_cvtepu8_epi16(_mm_loadl_epi64(widths.as_ptr().cast()));
        // (1 << width) - 1 in each field of 16 bits; a shift by 16 gives 0, less 1 is all ones.
        let keep = _mm_sub_epi16(_mm_sllv_epi16(_mm_set1_epi16(1), widths), _mm_set1_epi16(1));
        let keep_first = _mm_cvtsi128_si64(keep) as u64;
        let keep_second = _mm_extract_epi64::<1>(keep) as u64;
        let first = _mm512_maskz_expand_epi8(keep_first, _mm512_loadu_si512(planes.cast()));
        let at = planes.add(keep_first.count_ones() as usize);
        let second = _mm512_maskz_expand_epi8(keep_second, _mm512_loadu_si512(at.cast()));
        let low = _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14);
        let high = _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15);
        let low = _mm512_permutex2var_epi64(first, low, second);
        let high = _mm512_permutex2var_epi64(first, high, second);
        (codes_of(low), codes_of(high))
    }
}

/// Not 0 if any of eight widths is above 8. Widths are at most 64.
#[inline(always)]
fn wider_than_8(widths: u64) -> u64 {
    (widths + 0x7777_7777_7777_7777) & 0x8080_8080_8080_8080
}

/// Not 0 if any of eight widths is above 16.
#[inline(always)]
fn wider_than_16(widths: u64) -> u64 {
    (widths + 0x6F6F_6F6F_6F6F_6F6F) & 0x8080_8080_8080_8080
}
