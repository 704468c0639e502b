//! Element types and shapes. [`Real`] is the one trait that the codec is generic over; [`with_dtype!`] is the one place
//! where a run-time type becomes a compile-time one.

pub(crate) mod logarithm;
pub(crate) mod simd;
mod value;

use std::fmt;

pub(crate) use value::{Int, Value};

/// Element type of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// Bytes per value.
    pub const fn size(self) -> usize {
        match self {
            DType::F32 => 4,
            DType::F64 => 8,
        }
    }

    /// `f32` or `f64`.
    pub const fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Calls generic code with the element type that a [`DType`] names: `with_dtype!(dtype, T => f::<T>(…))`.
#[macro_export]
macro_rules! with_dtype {
    ($dtype:expr, $T:ident => $body:expr) => {
        match $dtype {
            $crate::DType::F32 => {
                type $T = f32;
                $body
            }
            $crate::DType::F64 => {
                type $T = f64;
                $body
            }
            #[allow(unreachable_patterns, reason = "only other crates must expect more element types")]
            _ => unreachable!("every element type has an arm"),
        }
    };
}

mod sealed {
    /// The codec may rely on its own operations for every element type.
    pub trait Sealed: super::Value + crate::exec::scratch::Scratch {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// A floating-point element type: `f32` or `f64`.
pub trait Real:
    sealed::Sealed + Copy + Send + Sync + PartialOrd + fmt::Debug + fmt::Display + Default + 'static
{
    /// The run-time name of this type.
    const DTYPE: DType;

    /// Conversion to `f64`, exact.
    fn to_f64(self) -> f64;

    /// Conversion from `f64`, to nearest.
    fn from_f64(value: f64) -> Self;

    /// The bit pattern, zero-extended.
    fn to_bits_u64(self) -> u64;

    /// The value with this bit pattern (the low bits of it for `f32`).
    fn from_bits_u64(bits: u64) -> Self;

    /// Whether the value is neither NaN nor infinite.
    fn is_finite(self) -> bool {
        self.to_f64().is_finite()
    }

    /// Whether the value is NaN.
    fn is_nan(self) -> bool {
        self.to_f64().is_nan()
    }

    /// Appends the little-endian bytes of `values` to `out`.
    fn extend_le_bytes(values: &[Self], out: &mut Vec<u8>);

    /// Reads little-endian bytes into `out`; `bytes` must hold exactly `out.len()` values.
    fn copy_from_le_bytes(bytes: &[u8], out: &mut [Self]);
}

macro_rules! impl_real {
    ($T:ident, $dtype:expr, $U:ident) => {
        impl Real for $T {
            const DTYPE: DType = $dtype;

            #[inline(always)]
            fn to_f64(self) -> f64 {
                f64::from(self)
            }

            #[inline(always)]
            fn from_f64(value: f64) -> Self {
                value as $T
            }

            fn to_bits_u64(self) -> u64 {
                u64::from(self.to_bits())
            }

            fn from_bits_u64(bits: u64) -> Self {
                $T::from_bits(bits as $U)
            }

            fn extend_le_bytes(values: &[Self], out: &mut Vec<u8>) {
                // To set bytes first is quicker than to append them value by value.
                let start = out.len();
                out.resize(start + size_of_val(values), 0);
                for (bytes, value) in out[start..].as_chunks_mut().0.iter_mut().zip(values) {
                    *bytes = value.to_le_bytes();
                }
            }

            fn copy_from_le_bytes(bytes: &[u8], out: &mut [Self]) {
                assert_eq!(bytes.len(), size_of_val(out));
                for (value, b) in out.iter_mut().zip(bytes.as_chunks().0) {
                    *value = $T::from_le_bytes(*b);
                }
            }
        }
    };
}

impl_real!(f32, DType::F32, u32);
impl_real!(f64, DType::F64, u64);
