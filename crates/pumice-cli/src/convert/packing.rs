//! Packed variables: the attributes `scale_factor` and `add_offset` say how readers compute the values that users see,
//! `stored * scale_factor + add_offset`. Bounds refer to those.

use pumice::ErrorBound;
use pumice_hdf5::files::{Object, Value};

use crate::failure::Result;

/// How stored values become unpacked ones.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Packing {
    pub(crate) scale: f64,
    pub(crate) offset: f64,
}

impl Packing {
    /// The packing that the attributes of a variable declare, if they do.
    pub(crate) fn of(object: &Object) -> Result<Option<Self>> {
        Self::of_values(|name| Ok(object.value(name)?))
    }

    /// The packing that attributes declare, which `value` gives by their names.
    pub(crate) fn of_values(value: impl Fn(&str) -> Result<Option<Value>>) -> Result<Option<Self>> {
        let number = |name: &str| -> Result<Option<f64>> {
            Ok(match value(name)? {
                Some(Value::Floats(values)) if values.len() == 1 => Some(values[0]),
                Some(Value::Integers(values)) if values.len() == 1 => Some(values[0] as f64),
                _ => None,
            })
        };
        let (scale, offset) = (number("scale_factor")?, number("add_offset")?);
        let packing = Self { scale: scale.unwrap_or(1.0), offset: offset.unwrap_or(0.0) };
        let is_usual = packing.scale.is_finite() && packing.scale != 0.0 && packing.offset.is_finite();
        let is_identity = packing == Self { scale: 1.0, offset: 0.0 };
        Ok((is_usual && !is_identity).then_some(packing))
    }

    /// The largest bound of stored values that keeps this one of unpacked values.
    pub(crate) fn stored_bound(self, bound: f64) -> f64 {
        // The quotient is rounded by at most half of the distance to the number below it.
        let quotient = (bound / self.scale.abs()).min(f64::MAX);
        if self.scale.abs() == 1.0 { quotient } else { quotient.next_down().max(0.0) }
    }

    /// The error of unpacked values for one of stored values, rounded up.
    pub(crate) fn unpacked_error(self, error: f64) -> f64 {
        let product = error * self.scale.abs();
        if error == 0.0 || self.scale.abs() == 1.0 { product } else { product.next_up() }
    }

    /// A range of stored values, unpacked.
    pub(crate) fn unpack(self, (lo, hi): (f64, f64)) -> (f64, f64) {
        let (a, b) = (lo * self.scale + self.offset, hi * self.scale + self.offset);
        (a.min(b), a.max(b))
    }

    /// Whether a bound means the same for unpacked values as some bound does for stored ones.
    pub(crate) fn allows(self, bound: ErrorBound) -> bool {
        !matches!(bound, ErrorBound::PwRel(_)) || self.offset == 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_of_stored_values_is_never_too_large() {
        for scale in [0.1, -0.3, 7.0, 1e-300, 3e300, 1.0] {
            let packing = Packing { scale, offset: 5.0 };
            for bound in [1.0, 0.1, 1e-3, 1e300, 5e-324] {
                let stored = packing.stored_bound(bound);
                assert!(stored >= 0.0 && stored * scale.abs() <= bound, "{bound} / {scale}");
                assert!(packing.unpacked_error(stored) <= bound.next_up(), "{bound} / {scale}");
            }
        }
        assert_eq!(Packing { scale: -2.0, offset: 1.0 }.unpack((0.0, 3.0)), (-5.0, 1.0));
    }
}
