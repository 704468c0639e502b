//! The record of a conversion: attributes that say what was done to the values of a variable. With them is a checksum of
//! the values that they speak of, so that later changes are noticed.

use std::time::{Duration, SystemTime};

use pumice::backend::{Corner, for_each_run};
use pumice::{Element, ErrorBound};
use pumice_hdf5::files::{Object, Value};

use super::catalog::Plan;
use super::packing::Packing;
use super::variable::Outcome;
use crate::bounds::parts;
use crate::failure::{Failure, Result};
use crate::text::exact;

const BOUND: &str = "pumice_bound";
const PRESET: &str = "pumice_preset";
const VERSION: &str = "pumice_version";
const DATE: &str = "pumice_date";
const CHECKSUM: &str = "pumice_data_checksum";
const MAX_ERROR: &str = "pumice_max_abs_error";
const PACKING: &str = "pumice_packing";
const FILLS: &str = "pumice_fill_values";

/// The audit trail of the CF conventions: a global attribute to which every program adds a line, newest first.
pub(crate) const HISTORY: &str = "history";
/// Replaces the date, in seconds since 1970, so that the same input gives the same bytes.
const DATE_VARIABLE: &str = "SOURCE_DATE_EPOCH";
/// The last second of the year 9999.
const LAST_DATE: u64 = 253_402_300_799;

/// A checksum of an array that does not depend on how it is cut into chunks: the sum of a hash of each value and its
/// position (docs/hdf5.md). Parts can be added in any order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Checksum(u64);

impl Checksum {
    const NAME: &str = "splitmix64-sum";

    /// Adds the values of a box of an array of this shape; what lies outside of the array does not count.
    pub(crate) fn add_box<T: Element>(&mut self, shape: &[usize], start: &[usize], extents: &[usize], values: &[T]) {
        let inside =
            shape.iter().zip(start).zip(extents).map(|((shape, start), n)| shape.saturating_sub(*start).min(*n));
        let inside: Vec<usize> = inside.collect();
        if inside.contains(&0) {
            return;
        }
        let origin = vec![0; extents.len()];
        let (array, part) = (Corner { shape, start }, Corner { shape: extents, start: &origin });
        let added = for_each_run(array, part, &inside, |at, from, n| {
            let hashes = values[from..from + n].iter().zip(at as u64..);
            self.0 = hashes.fold(self.0, |sum, (value, position)| {
                sum.wrapping_add(splitmix64(splitmix64(position) ^ value.to_bits_u64()))
            });
            Ok(())
        });
        debug_assert!(added.is_ok(), "a sum in memory does not fail");
    }

    /// Adds the checksum of other parts of the same array.
    pub(crate) fn add(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }

    fn parse(text: &str) -> Option<Self> {
        let (name, digits) = text.split_once(':')?;
        let is_ours = name == Self::NAME && digits.len() == 16;
        u64::from_str_radix(digits, 16).ok().filter(|_| is_ours).map(Self)
    }
}

impl std::fmt::Display for Checksum {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{:016x}", Self::NAME, self.0)
    }
}

/// The output of the generator SplitMix64 for this state.
fn splitmix64(state: u64) -> u64 {
    let z = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}

/// What the attributes of a variable say.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Record {
    /// All bounds that were asked for, in the order of the conversions.
    pub(crate) bound: String,
    pub(crate) preset: String,
    pub(crate) version: String,
    pub(crate) date: String,
    /// NaN if it is not known.
    pub(crate) max_abs_error: f64,
    /// `None` if the attribute is missing or of an unknown kind.
    pub(crate) checksum: Option<Checksum>,
    /// How the values were packed; the bounds and the error are of unpacked ones.
    pub(crate) packing: Option<Packing>,
    /// The fill values that all conversions kept, if these were not those that the attributes of the variable declare.
    pub(crate) fills: Option<Vec<f64>>,
}

impl Record {
    pub(crate) const MAX_ERROR: &str = MAX_ERROR;

    /// The record in the attributes of a dataset, if there is one.
    pub(crate) fn of(object: &Object) -> Result<Option<Self>> {
        Self::of_values(|name| Ok(object.value(name)?))
    }

    /// The record in attributes that `value` gives by their names, if there is one.
    pub(crate) fn of_values(value: impl Fn(&str) -> Result<Option<Value>>) -> Result<Option<Self>> {
        let text = |name: &str| -> Result<Option<String>> {
            Ok(match value(name)? {
                Some(Value::Texts(texts)) => texts.into_iter().next(),
                _ => None,
            })
        };
        let numbers = |name: &str| -> Result<Option<Vec<f64>>> {
            Ok(match value(name)? {
                Some(Value::Floats(numbers)) => Some(numbers),
                Some(Value::Integers(numbers)) => Some(numbers.into_iter().map(|number| number as f64).collect()),
                _ => None,
            })
        };
        let Some(bound) = text(BOUND)? else { return Ok(None) };
        Ok(Some(Self {
            bound,
            preset: text(PRESET)?.unwrap_or_default(),
            version: text(VERSION)?.unwrap_or_default(),
            date: text(DATE)?.unwrap_or_default(),
            max_abs_error: numbers(MAX_ERROR)?.and_then(|errors| errors.first().copied()).unwrap_or(f64::NAN),
            checksum: text(CHECKSUM)?.and_then(|text| Checksum::parse(&text)),
            packing: match numbers(PACKING)?.as_deref() {
                Some(&[scale, offset]) => Some(Packing { scale, offset }),
                _ => None,
            },
            fills: numbers(FILLS)?,
        }))
    }

    /// The record after a conversion. Errors add up only if the earlier record speaks of the values that were read.
    /// `None` if the earlier record still holds, as there are no new errors.
    pub(crate) fn after(plan: &Plan, outcome: &Outcome, earlier: Option<&Self>, date: &str) -> Option<Self> {
        let bound = described(plan);
        let is_lossless = plan.bounds == [ErrorBound::Lossless];
        let earlier = earlier.filter(|earlier| !earlier.is_lossless());
        let (bound, earlier_error) = match earlier {
            Some(earlier) if earlier.speaks_of(outcome.input_checksum, plan.packing) == Some(true) => {
                if is_lossless {
                    return earlier.extended(outcome.input_checksum, outcome.checksum);
                }
                (format!("{}, then {bound}", earlier.bound), earlier.max_abs_error)
            }
            Some(earlier) => (format!("{}, then unknown changes, then {bound}", earlier.bound), f64::NAN),
            None => (bound, 0.0),
        };
        Some(Self {
            bound,
            preset: plan.options.preset.name().into(),
            version: env!("CARGO_PKG_VERSION").into(),
            date: date.into(),
            // Rounded up, so that the sum is not too small.
            max_abs_error: match earlier_error {
                0.0 => outcome.max_abs_error,
                earlier => (earlier + outcome.max_abs_error).next_up(),
            },
            checksum: Some(outcome.checksum),
            packing: plan.packing,
            fills: kept_fills(plan, earlier),
        })
    }

    /// This record for an array that goes on with fill values, if it has another checksum than the stored values.
    pub(crate) fn extended(&self, stored: Checksum, whole: Checksum) -> Option<Self> {
        (self.checksum == Some(stored) && stored != whole).then(|| Self { checksum: Some(whole), ..self.clone() })
    }

    /// Whether Pumice has not changed any value.
    fn is_lossless(&self) -> bool {
        self.bound == parts(ErrorBound::Lossless).0
    }

    /// Whether values with this checksum and packing are those that the record speaks of; `None` if it has no checksum.
    pub(crate) fn speaks_of(&self, checksum: Checksum, packing: Option<Packing>) -> Option<bool> {
        if self.packing != packing {
            return Some(false);
        }
        self.checksum.map(|own| own == checksum)
    }

    /// The attributes that are strings.
    pub(crate) fn texts(&self) -> impl Iterator<Item = (&'static str, String)> {
        let checksum = self.checksum.map(|checksum| (CHECKSUM, checksum.to_string()));
        let fields = [(BOUND, &self.bound), (PRESET, &self.preset), (VERSION, &self.version), (DATE, &self.date)];
        fields.into_iter().map(|(name, text)| (name, text.clone())).chain(checksum)
    }

    /// The attributes that are lists of numbers; `None` where there is none.
    pub(crate) fn lists(&self) -> [(&'static str, Option<Vec<f64>>); 2] {
        let packing = self.packing.map(|Packing { scale, offset }| vec![scale, offset]);
        [(PACKING, packing), (FILLS, self.fills.clone())]
    }
}

/// The fill values that this conversion and those before it kept, if they are not those that attributes declare.
fn kept_fills(plan: &Plan, earlier: Option<&Record>) -> Option<Vec<f64>> {
    let before = match earlier {
        Some(earlier) => earlier.fills.as_ref().or(plan.replaced_fills.as_ref())?,
        None => return plan.replaced_fills.is_some().then(|| plan.options.fills.clone()),
    };
    Some(before.iter().copied().filter(|fill| plan.options.fills.contains(fill)).collect())
}

/// The bounds of a conversion as text.
fn described(plan: &Plan) -> String {
    let words = plan.bounds.iter().map(|bound| match (parts(*bound), plan.shown_range) {
        ((kind, Some(value)), Some((lo, hi))) if matches!(bound, ErrorBound::Rel(_)) => {
            format!("{kind} {} of the range {} to {}", exact(value), exact(lo), exact(hi))
        }
        ((kind, Some(value)), _) => format!("{kind} {}", exact(value)),
        ((kind, None), _) => kind.into(),
    });
    let words = words.collect::<Vec<_>>().join(" and ");
    // What is lossless is so for packed and unpacked values alike.
    let is_lossless = plan.bounds == [ErrorBound::Lossless];
    if plan.packing.is_some() && !is_lossless { format!("{words}, of unpacked values") } else { words }
}

/// The date of this conversion, in UTC.
pub(crate) fn date() -> Result<String> {
    let time = match std::env::var(DATE_VARIABLE) {
        Err(_) => SystemTime::now(),
        Ok(text) => match text.trim().parse() {
            Ok(seconds) if seconds <= LAST_DATE => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds),
            _ => return Err(Failure::invalid(format!("{DATE_VARIABLE}={text} is not a number of seconds since 1970"))),
        },
    };
    Ok(humantime::format_rfc3339_seconds(time).to_string())
}

/// The history of a file with the line of this conversion in it, as CDO and NCO write it.
pub(crate) fn history(line: &str, earlier: Option<&str>) -> String {
    match earlier.filter(|text| !text.is_empty()) {
        Some(earlier) => format!("{line}\n{earlier}"),
        None => line.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_splitmix64() {
        // The first outputs for the seed 1234567, as published with the algorithm.
        assert_eq!(splitmix64(1_234_567), 6_457_827_717_110_365_317);
        assert_eq!(splitmix64(1_234_567_u64.wrapping_add(0x9e37_79b9_7f4a_7c15)), 3_203_168_211_198_807_973);
    }

    #[test]
    fn a_checksum_does_not_depend_on_chunks_but_on_values_and_places() {
        let values: Vec<f32> = (0..24).map(|i| i as f32 / 7.0).collect();
        let whole = |values: &[f32]| {
            let mut sum = Checksum::default();
            sum.add_box(&[4, 6], &[0, 0], &[4, 6], values);
            sum
        };
        let mut parts = Checksum::default();
        for start in [[2, 4], [0, 0], [2, 0], [0, 4]] {
            let extents = [2, if start[1] == 0 { 4 } else { 2 }];
            let rows = (start[0]..start[0] + 2).flat_map(|y| (start[1]..start[1] + extents[1]).map(move |x| y * 6 + x));
            let part: Vec<f32> = rows.map(|i| values[i]).collect();
            let mut sum = Checksum::default();
            sum.add_box(&[4, 6], &start, &extents, &part);
            parts.add(sum);
        }
        assert_eq!(parts, whole(&values));
        let mut longer = Checksum::default();
        longer.add_box(&[4, 6], &[0, 0], &[5, 6], &[values.as_slice(), &[7.0; 6]].concat());
        longer.add_box(&[4, 6], &[5, 0], &[1, 6], &[7.0_f32; 6]);
        assert_eq!(parts, longer, "what lies outside does not count");
        assert_eq!(Checksum::parse(&parts.to_string()), Some(parts));
        assert_eq!(Checksum::parse("xxh3:0000000000000000"), None);
        let mut swapped = values.clone();
        swapped.swap(3, 4);
        assert_ne!(whole(&swapped), parts);
        let mut signed = values;
        signed[0] = -0.0;
        assert_ne!(whole(&signed), parts);
    }
}
