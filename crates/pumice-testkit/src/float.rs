//! Element types, as the tests see them.

/// Element type of a test array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DType {
    /// IEEE 754 binary32.
    F32,
    /// IEEE 754 binary64.
    F64,
}

impl DType {
    /// `f32` or `f64`.
    pub fn name(self) -> &'static str {
        match self {
            DType::F32 => "f32",
            DType::F64 => "f64",
        }
    }
}

/// `f32` or `f64`.
pub trait Float: Copy + PartialEq + std::fmt::Debug + Send + Sync + 'static {
    /// The run-time name of this type.
    const DTYPE: DType;
    /// Bits of a value.
    const BITS: u32;
    /// Bits of the stored significand.
    const MANTISSA_BITS: u32;
    /// The value with these bits, of which the low ones count.
    fn from_bits_u64(bits: u64) -> Self;
    /// The bits, zero-extended.
    fn to_bits_u64(self) -> u64;
    /// Rounds to nearest.
    fn from_f64(value: f64) -> Self;
    /// Exact.
    fn to_f64(self) -> f64;
    /// Appends the little-endian bytes of a value.
    fn put_le_bytes(self, out: &mut Vec<u8>);
}

macro_rules! float {
    ($T:ident, $U:ident, $dtype:expr) => {
        impl Float for $T {
            const DTYPE: DType = $dtype;
            const BITS: u32 = $U::BITS;
            const MANTISSA_BITS: u32 = $T::MANTISSA_DIGITS - 1;
            fn from_bits_u64(bits: u64) -> Self {
                $T::from_bits(bits as $U)
            }
            fn to_bits_u64(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn from_f64(value: f64) -> Self {
                value as $T
            }
            fn to_f64(self) -> f64 {
                f64::from(self)
            }
            fn put_le_bytes(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    };
}

float!(f32, u32, DType::F32);
float!(f64, u64, DType::F64);
