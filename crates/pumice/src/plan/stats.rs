//! Value range and fill values, found in one pass over the data before the plan is made.
//!
//! A fill value is kept exactly and left out of the range. It is NaN; a value that the user names; a conventional one
//! ([`CONVENTIONAL`]) that occurs more often than ordinary values, or stands apart from them; or the least or greatest
//! value, if it occurs at least twice and the gap to the next value is large where it lies (beyond 1e15: of any size). To
//! take a value for a fill value can only tighten the bound.
//!
//! Further passes are needed only where the first suggests a fill value.

use super::MAX_FILLS;
use super::passes::{Blocks, SourcePasses, joined};
use crate::error::{Error, Result};
use crate::exec::{DefaultFloats, Workers};
use crate::io::{SliceSource, Source};
use crate::num::Real;

/// Most fill values of an array, and most values that a pass leaves out.
pub const MAX_NAMED: usize = 8;

/// Statistics of the data that the plan needs.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats<T> {
    /// Least and greatest finite value that is not a fill value; `None` if there is none.
    pub range: Option<(T, T)>,
    /// The fill values that occur, by their bits; if they are more than a stream has masks for, the most frequent first.
    pub fills: Vec<T>,
}

/// The results of the first pass over an array.
#[derive(Clone, Debug)]
pub struct FirstPass<T> {
    /// Least and greatest of the finite values whose bits are not those to skip. The sign of a zero does not matter.
    pub range: Option<(T, T)>,
    /// How often the bits of each value to skip occur.
    pub counts: [u64; MAX_NAMED],
    /// The NaN with the lowest index: its bits stand for all NaN that share them.
    pub first_nan: Option<T>,
    /// The finite ones of the values whose index is a multiple of the stride, in any order.
    pub samples: Vec<T>,
}

// Not derived: that would require `T: Default`.
impl<T> Default for FirstPass<T> {
    fn default() -> Self {
        Self { range: None, counts: [0; MAX_NAMED], first_nan: None, samples: Vec::new() }
    }
}

/// The results of a further pass over an array.
#[derive(Clone, Copy, Debug)]
pub struct SecondPass<T> {
    /// How often the bits of each value to skip occur.
    pub counts: [u64; MAX_NAMED],
    /// Least and greatest of the finite values whose bits are none of them. The sign of a zero does not matter.
    pub range: Option<(T, T)>,
}

/// Passes over all values of an array, wherever they are. The results must not depend on the order in which the values
/// are visited.
pub trait Passes<T> {
    /// Number of values.
    fn n_values(&self) -> usize;

    /// Range, NaN and samples, skipping at most [`MAX_NAMED`] values; the default of [`FirstPass`] for an array without
    /// values.
    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>>;

    /// Range, skipping at least one and at most [`MAX_NAMED`] values; only some arrays need this pass, and none without
    /// finite values.
    fn second(&self, skip: &[T]) -> Result<SecondPass<T>>;

    /// How often the bits of each of some values occur.
    fn counts(&self, values: &[T]) -> Result<Vec<u64>> {
        let mut counts = Vec::with_capacity(values.len());
        for values in values.chunks(MAX_NAMED) {
            counts.extend_from_slice(&self.second(values)?.counts[..values.len()]);
        }
        Ok(counts)
    }
}

/// Values that by convention mean "no data": those of CF and NetCDF, of GRIB, of integers, and their relatives. Those that
/// f32 and f64 round differently occur in both forms.
const CONVENTIONAL: [f64; 40] = [
    -999.0,
    -9999.0,
    -99_999.0,
    -999_999.0,
    999.0,
    9999.0,
    99_999.0,
    999_999.0,
    -999.9,
    -9999.9,
    999.9,
    9999.9,
    -999.25,
    -32_768.0,
    -32_767.0,
    32_767.0,
    65_535.0,
    -2_147_483_648.0,
    -2_147_483_647.0,
    2_147_483_647.0,
    1e10,
    -1e10,
    1e15,
    -1e15,
    1e20,
    -1e20,
    9.999e20,
    1e30,
    -1e30,
    1e34,
    -1e34,
    1e35,
    -1e35,
    1e36,
    -1e36,
    9.969_209_968_386_869e36,
    f32::MAX as f64,
    f32::MIN as f64,
    f64::MAX,
    f64::MIN,
];

/// Where there are too few samples to compare gaps, a fill value lies this many times the range of the others away.
const FAR: f64 = 1000.0;
/// Values of at least this magnitude can be fill values at any distance.
const HUGE: f64 = 1e15;
/// Number of samples that decide whether a second pass is needed.
const N_SAMPLES: usize = 4096;
/// Fewest samples to which a gap is compared, if so many differ.
const MIN_NEAR: usize = 8;
/// Share of the samples to which a gap is compared: of a value that the samples hold at least twice, and of a rarer one.
const NEAR_SHARES: [usize; 2] = [64, 16];
/// A conventional value is a fill value if it occurs this many times more often than a neighbour at the distance of 1.
const FREQUENT: u64 = 4;

/// The range that [`ErrorBound::Rel`](crate::ErrorBound::Rel) refers to: least and greatest finite value that is not a
/// fill value; `None` if there is none. With [`Config::range`](crate::Config::range), the parts of a larger array can
/// share one bound. `fills` are those of [`Config::fills`](crate::Config::fills); others are found.
///
/// ```
/// use pumice::SliceSource;
/// let source = SliceSource::new(&[3.0f32, 1e20, 5.0, 1e20, f32::NAN], &[5])?;
/// assert_eq!(pumice::value_range(&source, &[], 1)?, Some((3.0, 5.0)));
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn value_range<T: Real>(source: &dyn Source<T>, fills: &[f64], threads: usize) -> Result<Option<(f64, f64)>> {
    let workers = Workers::new(threads)?;
    let range = scan(source, fills, &workers, &|_| ())?.range;
    Ok(range.map(|(lo, hi)| (lo.to_f64(), hi.to_f64())))
}

/// Scans all of `source`; `progress` is called with the number of bytes done so far.
pub(crate) fn scan<T: Real>(
    source: &dyn Source<T>,
    fills: &[f64],
    workers: &Workers,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Stats<T>> {
    decide(&SourcePasses { blocks: Blocks::new(source), workers, progress }, fills)
}

/// The fill values that the user gave, each once and without NaN, which is kept anyway.
pub(crate) fn given_fills<T: Real>(given: &[f64]) -> Result<Vec<T>> {
    let mut fills: Vec<T> = Vec::new();
    for &value in given.iter().filter(|value| !value.is_nan()) {
        let fill = T::from_f64(value);
        if value.is_finite() && !fill.is_finite() {
            return Err(Error::invalid(format!("the fill value {value} is beyond the range of {}", T::DTYPE)));
        }
        if !contains(&fills, fill) {
            fills.push(fill);
        }
    }
    if fills.len() > MAX_NAMED {
        return Err(Error::invalid(format!(
            "{} fill values are too many: give at most {MAX_NAMED}; NaN is kept without being given",
            fills.len()
        )));
    }
    Ok(fills)
}

fn contains<T: Real>(values: &[T], value: T) -> bool {
    values.iter().any(|other| other.bits() == value.bits())
}

/// Range and fill values, from one pass or several.
pub(crate) fn decide<T: Real>(passes: &impl Passes<T>, given: &[f64]) -> Result<Stats<T>> {
    let _floats = DefaultFloats::set();
    let stride = passes.n_values().div_ceil(N_SAMPLES).max(1);
    let named: Vec<T> = given_fills(given)?;
    let first = passes.first(&named, stride)?;
    let fills = named.iter().copied().zip(first.counts).filter(|(_, n)| *n > 0).collect();
    let mut samples = first.samples;
    samples.retain(|sample| !contains(&named, *sample));
    let range = first.range.map(without_sign_of_zero);
    let mut search = Search { passes, range, fills, samples };
    search.take_ends()?;
    search.take_conventional()?;
    let Search { range, mut fills, .. } = search;
    if fills.len() > MAX_FILLS {
        fills.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
    }
    let mut fills: Vec<T> = fills.into_iter().map(|(fill, _)| fill).collect();
    if let Some(nan) = first.first_nan
        && fills.len() < MAX_FILLS
    {
        fills.push(nan);
    }
    Ok(Stats { range, fills })
}

/// The conventional fill values of a chunk whose stream is already begun.
pub(crate) fn conventional_fills<T: Real>(values: &[T]) -> Vec<T> {
    let shape = [values.len()];
    let Ok(source) = SliceSource::new(values, &shape) else { return Vec::new() };
    let found = scan(&source, &[], &Workers::Serial, &|_| ());
    let fills = found.map_or_else(|_| Vec::new(), |stats| stats.fills);
    fills.into_iter().filter(|fill| is_conventional(*fill)).collect()
}

/// Which of two zeros is found first depends on the order of the search; the decisions must not.
fn without_sign_of_zero<T: Real>((lo, hi): (T, T)) -> (T, T) {
    (lo.fadd(T::default()), hi.fadd(T::default()))
}

fn is_conventional<T: Real>(value: T) -> bool {
    conventional::<T>().any(|known| known.bits() == value.bits())
}

/// Conventional fill values, as they are in T.
fn conventional<T: Real>() -> impl Iterator<Item = T> {
    let both = CONVENTIONAL.iter().flat_map(|&value| [value, f64::from(value as f32)]);
    both.map(T::from_f64).filter(|value| value.is_finite())
}

/// A search for fill values.
struct Search<'a, T, P> {
    passes: &'a P,
    /// Range of the values that are not known to be fill values.
    range: Option<(T, T)>,
    /// With their counts.
    fills: Vec<(T, u64)>,
    samples: Vec<T>,
}

impl<T: Real, P: Passes<T>> Search<'_, T, P> {
    fn values(&self) -> Vec<T> {
        self.fills.iter().map(|(fill, _)| *fill).collect()
    }

    /// Takes ends of the range as long as they are fill values.
    fn take_ends(&mut self) -> Result<()> {
        while let Some((lo, hi)) = self.range {
            let mut ends = vec![lo, hi];
            ends.truncate(if lo < hi { 2 } else { 1 });
            ends.retain(|end| self.is_suspicious(*end, (lo, hi)));
            // Most ends occur once, which is quickly found.
            if ends.iter().any(|end| !is_conventional(*end)) {
                let counts = self.passes.counts(&ends)?;
                let mut counts = counts.into_iter();
                ends.retain(|end| counts.next().is_some_and(|n| n >= 2) || is_conventional(*end));
            }
            let mut skip = self.values();
            let n_known = skip.len();
            skip.extend(&ends);
            if ends.is_empty() || skip.len() > MAX_NAMED {
                break;
            }
            let found = self.passes.second(&skip)?;
            let ends: Vec<(T, u64)> = ends.into_iter().zip(found.counts[n_known..].iter().copied()).collect();
            let inner = found.range.map(without_sign_of_zero);
            // Each end is compared with all other values: also with the other end, unless both are fill values.
            let taken: Vec<(T, u64)> = match ends[..] {
                [a, b] if self.is_fill(a, inner, 2) && self.is_fill(b, inner, 2) => ends,
                [a, b] if self.is_fill(b, joined(inner, Some((a.0, a.0))), 1) => vec![b],
                [a, b] if self.is_fill(a, joined(inner, Some((b.0, b.0))), 1) => vec![a],
                [a] if self.is_fill(a, inner, 1) => ends,
                _ => break,
            };
            let is_taken = |end: &T| taken.iter().any(|(fill, _)| fill.bits() == end.bits());
            let kept = [lo, hi]
                .into_iter()
                .filter(|end| !is_taken(end))
                .fold(None, |range, end| joined(range, Some((end, end))));
            self.range = joined(inner, kept);
            self.fills.extend(&taken);
            self.samples.retain(|sample| !is_taken(sample));
        }
        Ok(())
    }

    /// Takes the conventional values within the range that are frequent.
    fn take_conventional(&mut self) -> Result<()> {
        let Some((lo, hi)) = self.range else { return Ok(()) };
        let mut within: Vec<T> = Vec::new();
        let is_within = |value: &T| lo <= *value && *value <= hi && value.to_f64().abs() < HUGE;
        for value in conventional::<T>().filter(is_within) {
            if !contains(&within, value) {
                within.push(value);
            }
        }
        let mut is_end_taken = false;
        if within.is_empty() {
            return Ok(());
        }
        let counts = self.passes.counts(&within)?;
        for (value, n) in within.into_iter().zip(counts).filter(|(_, n)| *n >= 2) {
            let distance = (value.to_f64().abs() / f64::from(1 << 20)).max(1.0);
            let neighbours = [-distance, distance].map(|d| T::from_f64(value.to_f64() + d));
            let least = self.passes.counts(&neighbours)?.into_iter().min().unwrap_or(0);
            if self.fills.len() < MAX_NAMED && n > FREQUENT * least {
                self.fills.push((value, n));
                is_end_taken |= value.bits() == lo.bits() || value.bits() == hi.bits();
            }
        }
        if is_end_taken {
            self.range = self.passes.second(&self.values())?.range.map(without_sign_of_zero);
        }
        Ok(())
    }

    /// The samples strictly between the ends of a range.
    fn inside(&self, (lo, hi): (T, T)) -> impl Iterator<Item = T> {
        self.samples.iter().copied().filter(move |sample| *sample > lo && *sample < hi)
    }

    /// Whether an end of the range may be a fill value, as far as the samples tell.
    fn is_suspicious(&self, end: T, range: (T, T)) -> bool {
        if end.to_f64().abs() >= HUGE || is_conventional(end) {
            return true;
        }
        let (lo, hi) = (range.0.to_f64(), range.1.to_f64());
        let (mut least, mut greatest, mut n_inside) = (f64::INFINITY, f64::NEG_INFINITY, 0);
        for sample in self.inside(range).map(T::to_f64) {
            (least, greatest) = (least.min(sample), greatest.max(sample));
            n_inside += 1;
        }
        let is_least = end.to_f64() == lo;
        let gap = if is_least { least - lo } else { hi - greatest };
        if n_inside < MIN_NEAR {
            return lo < hi && (n_inside < 2 || gap >= FAR * (greatest - least));
        }
        let is_near = |sample: &T| {
            let sample = sample.to_f64();
            if is_least { sample <= least + gap } else { sample >= greatest - gap }
        };
        self.inside(range).filter(is_near).count() >= self.n_near(end, n_inside)
    }

    /// The number of samples to which the gap at `end` is compared.
    fn n_near(&self, end: T, n_inside: usize) -> usize {
        let n_equal = self.samples.iter().filter(|sample| sample.bits() == end.bits()).count();
        (n_inside / NEAR_SHARES[usize::from(n_equal < 2)]).max(MIN_NEAR)
    }

    /// Whether a value that occurs n times is a fill value, given the range of all others, and the number of values that
    /// are taken at once.
    fn is_fill(&self, (end, n): (T, u64), others: Option<(T, T)>, n_taken: usize) -> bool {
        let is_conventional = is_conventional(end);
        let Some(others) = others else { return is_conventional };
        let [value, a, b] = [end, others.0, others.1].map(T::to_f64);
        let (gap, spread) = (if value > b { value - b } else { a - value }, b - a);
        let is_huge = value.abs() >= HUGE && a.abs() < HUGE && b.abs() < HUGE;
        if !(gap > 0.0) {
            return false;
        }
        if is_conventional {
            // A value at less than 1 from its neighbour is compared with that by frequency.
            return gap >= spread || (n >= 2 && (is_huge || (gap > 1.0 && value.abs() < HUGE)));
        }
        let has_mask = self.fills.len() + n_taken <= MAX_FILLS;
        has_mask && n >= 2 && (is_huge || (spread > 0.0 && (gap >= FAR * spread || self.is_apart(end, gap, others))))
    }

    /// Whether the gap between an end and the next value is at least as large as the distance over which the nearest
    /// samples spread, each counted once.
    fn is_apart(&self, end: T, gap: f64, others: (T, T)) -> bool {
        let (a, b) = others;
        let mut inside: Vec<T> = self.samples.iter().copied().filter(|sample| *sample >= a && *sample <= b).collect();
        let n_near = self.n_near(end, inside.len());
        inside.sort_unstable_by(|x, y| x.to_f64().total_cmp(&y.to_f64()));
        inside.dedup_by(|x, y| x == y);
        if end > b {
            inside.reverse();
        }
        let n_near = n_near.min(inside.len());
        n_near >= MIN_NEAR && gap >= (inside[n_near - 1].to_f64() - inside[0].to_f64()).abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scanned(values: &[f32], fills: &[f64]) -> Stats<f32> {
        let shape = [values.len()];
        scan(&SliceSource::new(values, &shape).unwrap(), fills, &Workers::Serial, &|_| {}).unwrap()
    }

    fn ramp(n: usize) -> Vec<f32> {
        (0..n).map(|i| i as f32 / n as f32).collect()
    }

    /// Waves with noise: a field without two equal values.
    fn waves(n: usize) -> Vec<f32> {
        let noise = |i: usize| ((i as u32).wrapping_mul(0x9E37_79B9) >> 8) as f32 / (1 << 24) as f32;
        (0..n).map(|i| 285.0 + 15.0 * (i as f32 * 1e-3).sin() + noise(i)).collect()
    }

    #[test]
    fn finds_fill_values() {
        let mut values = ramp(10_000);
        assert_eq!(scanned(&values, &[]).fills, []);
        values[17] = 7e6;
        assert_eq!(scanned(&values, &[]).fills, [], "a single spike is data");
        values[9000] = 7e6;
        let stats = scanned(&values, &[]);
        assert_eq!(stats.fills, [7e6]);
        assert_eq!(stats.range, Some((0.0, 0.9999)));
        for v in &mut values[5000..5100] {
            *v = -12.0;
        }
        let stats = scanned(&values, &[]);
        assert_eq!(stats.fills, [-12.0, 7e6]);
        let without = scanned(&values[100..8000], &[]);
        assert_eq!(without.fills, [-12.0]);
        assert_eq!(scanned(&[-9999.0; 20], &[]).range, None, "nothing but a fill value");
    }

    #[test]
    fn finds_conventional_values_wherever_they_repeat() {
        for fill in [-999.0, -9999.0, -32_768.0, 1e20, 9.969_21e36, -1e34, 9999.0, 99_999.0, -3.402_823_5e38] {
            for step in [2, 100, 5000, 50_000] {
                let mut values = waves(50_000);
                let plain = scanned(&values, &[]).range.unwrap();
                values.iter_mut().skip(step / 2).step_by(step).for_each(|value| *value = fill);
                let stats = scanned(&values, &[]);
                let is_conventional = fill != 9.969_21e36;
                if step < 50_000 || is_conventional {
                    assert_eq!(stats.fills, [fill], "each {step}th");
                    let (lo, hi) = stats.range.unwrap();
                    assert!(plain.0 <= lo && hi <= plain.1, "{fill}: {lo} to {hi}");
                }
            }
        }
        // Within the range of the others, where it is more frequent than its neighbours.
        let mut values: Vec<f32> = waves(50_000).iter().map(|value| (value - 285.0) * 1000.0).collect();
        values[70] = -999.0;
        values[4000] = -999.0;
        assert_eq!(scanned(&values, &[]).fills, [-999.0]);
        let integers: Vec<f32> = values.iter().map(|value| (value / 14.0).round()).collect();
        assert_eq!(scanned(&integers, &[]).fills, []);
        // Three of them.
        values[80..90].fill(9999.0);
        values[100..110].fill(-32_768.0);
        values[120..122].fill(1e20);
        values[130] = f32::NAN;
        assert_eq!(scanned(&values, &[]).fills, [-32_768.0, 9999.0, 1e20, -999.0]);
    }

    #[test]
    fn finds_repeated_extremes_that_are_near() {
        for fill in [0.0, -1.0, 262.5, 310.0, 320.0] {
            for n in [2, 500, 20_000] {
                let mut values = waves(50_000);
                let plain = scanned(&values, &[]).range;
                values[7000..7000 + n].fill(fill);
                let stats = scanned(&values, &[]);
                // A rare value must be farther away.
                if n == 20_000 || !(260.0..315.0).contains(&fill) {
                    assert_eq!((&stats.fills[..], stats.range), (&[fill][..], plain), "{n} times");
                }
            }
        }
        // One on each side.
        let mut values = waves(50_000);
        values[1500..1900].fill(-1.0);
        values[2500..2900].fill(900.0);
        assert_eq!(scanned(&values, &[]).fills, [-1.0, 900.0]);
    }

    #[test]
    fn values_at_a_limit_are_data() {
        let clipped: Vec<f32> = waves(50_000).iter().map(|value| (value - 285.0).clamp(0.0, 12.0)).collect();
        assert_eq!(scanned(&clipped, &[]).fills, []);
        assert_eq!(scanned(&clipped, &[]).range, Some((0.0, 12.0)));
        let rain: Vec<f32> = waves(50_000).iter().map(|value| ((value - 295.0) / 6.0).exp() - 1.0).collect();
        let rain: Vec<f32> = rain.iter().map(|value| value.max(0.0)).collect();
        assert_eq!(scanned(&rain, &[]).fills, []);
        let levels: Vec<f32> = waves(50_000).iter().map(|value| value.round()).collect();
        assert_eq!(scanned(&levels, &[]).fills, []);
    }

    #[test]
    fn keeps_real_values() {
        let binary: Vec<f32> = (0..1000).map(|i| (i % 2) as f32).collect();
        assert_eq!(scanned(&binary, &[]).fills, []);
        assert_eq!(scanned(&vec![3e30; 1000], &[]).fills, []);
        let masses: Vec<f32> = (0..1000).map(|i| 1e30 * (1.0 + (i % 10) as f32)).collect();
        assert_eq!(scanned(&masses, &[]).fills, []);
    }

    #[test]
    fn nan_and_given_fill() {
        let mut values = ramp(5000);
        values[3] = f32::from_bits(0x7FC0_1234);
        values[40] = f32::NAN;
        values[50] = 0.25;
        values[51] = f32::INFINITY;
        let stats = scanned(&values, &[]);
        assert_eq!(stats.fills.len(), 1);
        assert_eq!(stats.fills[0].to_bits(), 0x7FC0_1234);
        assert_eq!(stats.range, Some((0.0, 0.9998)));
        let stats = scanned(&values, &[0.0]);
        assert_eq!(stats.fills[0], 0.0);
        assert_eq!(stats.range.unwrap().0, 1.0 / 5000.0);
        let stats = scanned(&values, &[0.0, f64::from(4999_f32 / 5000.0)]);
        assert_eq!(stats.fills, [0.0, 4999.0 / 5000.0]);
        assert_eq!(stats.range, Some((1.0 / 5000.0, 4998.0 / 5000.0)));
        assert!(scanned(&[f32::NAN; 8], &[]).range.is_none());
        assert!(scanned(&[], &[]).range.is_none());
    }

    #[test]
    fn several_values_are_given() {
        // Each counts once in the type of the array; NaN is always kept.
        assert_eq!(given_fills::<f32>(&[1e20, f64::from(1e20_f32), f64::NAN]).unwrap(), [1e20]);
        let many: Vec<f64> = (0..9).map(f64::from).collect();
        assert_eq!(given_fills::<f64>(&many[1..]).unwrap(), many[1..]);
        let message = given_fills::<f32>(&many).unwrap_err().to_string();
        assert!(message.contains("at most 8"), "{message}");
        assert!(given_fills::<f32>(&[1.0, 1e300]).is_err());
        // Those that do not occur cost nothing; the others are in the order of their frequency, and out of the range.
        let mut values = ramp(5000);
        values[10..12].fill(0.5);
        values[20..50].fill(-0.1);
        values[60..65].fill(1.1);
        let stats = scanned(&values, &[17.0, 0.5, 1.1, -0.1, -9999.0]);
        assert_eq!(stats.fills, [-0.1, 1.1, 0.5]);
        assert_eq!(stats.range, Some((0.0, 0.9998)));
        // Others are found as well.
        values[70] = 1e20;
        assert_eq!(scanned(&values, &[17.0, -0.1, 1.1]).fills, [-0.1, 1.1, 1e20]);
    }

    #[test]
    fn the_sign_of_a_zero_does_not_matter() {
        for zeros in [[0.0, -0.0], [-0.0, 0.0], [-0.0, -0.0]] {
            let mut values = vec![1e20; 10];
            values[3..5].copy_from_slice(&zeros);
            let stats = scanned(&values, &[]);
            assert_eq!(stats.range.map(|(lo, hi)| (lo.to_bits(), hi.to_bits())), Some((0, 0)));
            assert_eq!(stats.fills, [1e20]);
        }
    }
}
