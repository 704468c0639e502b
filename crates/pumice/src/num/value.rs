//! What the codecs need of an element type: the integer type of the same size, the rounding constant, and exact
//! mappings of bits. All of it is specified in docs/format.md, section 6.3.

use std::fmt::Debug;

#[cfg(target_arch = "x86_64")]
use super::simd::Simd;

/// The signed integer as wide as an element type. All arithmetic wraps.
pub trait Int: Copy + Default + PartialEq + Debug + Send + Sync + 'static {
    /// Number of bits.
    const BITS: u32;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    /// Residual -> code.
    fn zigzag(self) -> Self;
    /// Code -> residual.
    fn unzigzag(self) -> Self;
    fn to_i64(self) -> i64;
    /// Keeps the low bits.
    fn from_i64(value: i64) -> Self;
    /// The bit pattern, zero-extended.
    fn to_u64(self) -> u64;
}

macro_rules! impl_int {
    ($I:ident, $U:ident) => {
        impl Int for $I {
            const BITS: u32 = $I::BITS;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }

            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }

            #[inline(always)]
            fn zigzag(self) -> Self {
                (self << 1) ^ (self >> ($I::BITS - 1))
            }

            #[inline(always)]
            fn unzigzag(self) -> Self {
                ((self as $U) >> 1) as $I ^ -(self & 1)
            }

            #[inline(always)]
            fn to_i64(self) -> i64 {
                i64::from(self)
            }

            #[inline(always)]
            fn from_i64(value: i64) -> Self {
                value as $I
            }

            #[inline(always)]
            fn to_u64(self) -> u64 {
                u64::from(self as $U)
            }
        }
    };
}

impl_int!(i32, u32);
impl_int!(i64, u64);

/// The codec's side of [`crate::Real`].
pub trait Value: Copy + Default + PartialOrd + Debug + Send + Sync + 'static {
    /// The integer of the same size.
    type Int: Int;
    /// Significant bits of the format, the hidden one included.
    const MANTISSA_BITS: u32;
    /// Vectors of this type with AVX2.
    #[cfg(target_arch = "x86_64")]
    type Avx2: Simd<Self>;
    /// Vectors of this type with AVX-512.
    #[cfg(target_arch = "x86_64")]
    type Avx512: Simd<Self>;
    /// 1.5 · 2^(MANTISSA_BITS - 1): adding it rounds to an integer, which is then in the low bits.
    const MAGIC: Self;
    /// 2^(MANTISSA_BITS - 2): adding MAGIC to an integer below it is exact.
    const MAX_QUANTUM: Self;

    /// Codes of predictors with feedback stay below this, so that they are exact in T and fit 32 bits.
    const MAX_CODE: Self;

    fn of_i32(value: i32) -> Self;
    fn fadd(self, other: Self) -> Self;
    fn fsub(self, other: Self) -> Self;
    fn fmul(self, other: Self) -> Self;
    fn fabs(self) -> Self;
    /// The bits as an integer.
    fn bits(self) -> Self::Int;
    /// The value with these bits.
    fn of_bits(bits: Self::Int) -> Self;
    /// The bits, mapped so that the order of integers is the order of values; loses nothing.
    fn to_ordered(self) -> Self::Int;
    /// Inverse of [`Value::to_ordered`].
    fn of_ordered(ordered: Self::Int) -> Self;
}

macro_rules! impl_value {
    ($T:ident, $I:ident, $magic:expr) => {
        impl Value for $T {
            type Int = $I;
            #[cfg(target_arch = "x86_64")]
            type Avx2 = super::simd::avx2::Avx2;
            #[cfg(target_arch = "x86_64")]
            type Avx512 = super::simd::avx512::Avx512;
            const MANTISSA_BITS: u32 = $T::MANTISSA_DIGITS;
            const MAGIC: Self = $magic;
            const MAX_QUANTUM: Self = (1_u64 << ($T::MANTISSA_DIGITS - 2)) as $T;

            const MAX_CODE: Self = (1_u64 << if $T::MANTISSA_DIGITS < 32 { 22 } else { 30 }) as $T;

            #[inline(always)]
            fn of_i32(value: i32) -> Self {
                value as $T
            }

            #[inline(always)]
            fn fadd(self, other: Self) -> Self {
                self + other
            }

            #[inline(always)]
            fn fsub(self, other: Self) -> Self {
                self - other
            }

            #[inline(always)]
            fn fmul(self, other: Self) -> Self {
                self * other
            }

            #[inline(always)]
            fn fabs(self) -> Self {
                self.abs()
            }

            #[inline(always)]
            fn bits(self) -> $I {
                self.to_bits() as $I
            }

            #[inline(always)]
            fn of_bits(bits: $I) -> Self {
                $T::from_bits(bits as _)
            }

            #[inline(always)]
            fn to_ordered(self) -> $I {
                let bits = self.bits();
                bits ^ ((bits >> ($I::BITS - 1)) & $I::MAX)
            }

            #[inline(always)]
            fn of_ordered(ordered: $I) -> Self {
                Self::of_bits(ordered ^ ((ordered >> ($I::BITS - 1)) & $I::MAX))
            }
        }
    };
}

impl_value!(f32, i32, 12_582_912.0);
impl_value!(f64, i64, 6_755_399_441_055_744.0);
