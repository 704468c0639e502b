//! The probability of each token in each context: counts of tokens are clustered into a few static distributions, which
//! are stored compactly (docs/format.md, 7.7).
//!
//! Chunks may be small, so the size of the tables matters. A distribution is stored as logarithms of its frequencies,
//! each predicted from its neighbours and from the previous distribution, with a precision that depends on the number
//! of codes.

use super::binary::{AdaptiveBit, BitCoder, NumberModel};
use super::tokens::{ALPHABET, N_DIRECT, N_RAW};
use crate::error::{Error, Result};

// ---- Costs ----

/// How often each token occurs in one context.
pub(crate) type Counts = [u32; ALPHABET];

/// Logarithms and costs in bits have this many fractional bits.
pub(crate) const COST_BITS: u32 = 16;

/// Fractional parts of the logarithms of 1 to 2, each at the middle of its interval. They are integers, so that every
/// machine makes the same choices.
static LOG2_FRACTIONS: [u16; 1 << LOG2_INDEX_BITS] = {
    let mut all = [0; 1 << LOG2_INDEX_BITS];
    let mut i = 0;
    while i < all.len() {
        // Squaring doubles the logarithm: its next bit is whether the number passes 2.
        let mut x = (2 * (all.len() + i) as u64 + 1) << (30 - LOG2_INDEX_BITS);
        let mut bit = COST_BITS;
        while bit > 0 {
            bit -= 1;
            x = (x * x) >> 31;
            if x >> 32 != 0 {
                all[i] |= 1 << bit;
                x >>= 1;
            }
        }
        i += 1;
    }
    all
};
const LOG2_INDEX_BITS: u32 = 12;

/// log2 of a number, which is not 0.
#[inline(always)]
fn log2(x: u32) -> u32 {
    let zeros = x.leading_zeros();
    let index = (x << zeros) >> (31 - LOG2_INDEX_BITS) & ((1 << LOG2_INDEX_BITS) - 1);
    ((31 - zeros) << COST_BITS) + u32::from(LOG2_FRACTIONS[index as usize])
}

/// x log2(x), and 0 for 0.
#[inline(always)]
pub(crate) fn x_log2_x(x: u32) -> u64 {
    u64::from(x) * u64::from(log2(x | u32::from(x == 0)))
}

/// The number of tokens up to the last one that occurs.
fn n_used(counts: &Counts) -> usize {
    counts.iter().rposition(|&count| count != 0).map_or(0, |last| last + 1)
}

/// The bits that an ideal coder takes for tokens of these counts and their raw bits, without any tables.
pub(crate) fn cost_bits(counts: &[Counts]) -> u64 {
    let mut cost = 0;
    for counts in counts {
        let used = &counts[..n_used(counts)];
        let n: u32 = used.iter().sum();
        cost += x_log2_x(n) - used.iter().map(|&count| x_log2_x(count)).sum::<u64>();
        let n_raw: u64 = used.iter().zip(&N_RAW).map(|(&count, &n)| u64::from(count) * u64::from(n)).sum();
        cost += n_raw << COST_BITS;
    }
    cost >> COST_BITS
}

// ---- Clustering ----

/// A model has at most this many distributions, so that their tables stay in the second-level cache.
pub(crate) const MAX_DISTRIBUTIONS: usize = 48;
/// Estimated cost of storing a distribution, and the part of it per token.
const DISTRIBUTION_COST: u64 = 60 << COST_BITS;
const TOKEN_COST: u64 = 5 << (COST_BITS - 1);
/// Cost of storing that a context has another distribution than predicted.
const MAP_COST: u64 = 7 << COST_BITS;
/// Clusters, sorted by mean token, may merge if they are at most this many positions apart. More gained nothing in
/// experiments.
const REACH: usize = 2;
/// Within groups, a merge must lose this many times less than a table costs, since other groups may have closer
/// matches.
const CAUTION: u64 = 4;

/// Contexts that share a distribution.
#[derive(Clone)]
struct Cluster {
    counts: Counts,
    n_used: usize,
    n_tokens: u64,
    /// Cost of the tokens, without a table.
    cost: u64,
    /// The cluster that this one has merged into, or itself.
    parent: u8,
}

impl Cluster {
    fn new(counts: &Counts, parent: u8) -> Self {
        let n_used = n_used(counts);
        let (cost, n_tokens) = Self::cost(counts[..n_used].iter().copied());
        Self { counts: *counts, n_used, n_tokens, cost, parent }
    }

    /// The cost of tokens, and the number of different ones.
    #[inline(always)]
    fn cost(counts: impl Iterator<Item = u32>) -> (u64, u64) {
        let (mut n, mut n_tokens, mut sum) = (0, 0, 0);
        for count in counts {
            n += count;
            n_tokens += u64::from(count != 0);
            sum += x_log2_x(count);
        }
        (x_log2_x(n) - sum, n_tokens)
    }

    /// The gain of merging two clusters if tables were `caution` times cheaper.
    fn gain(&self, other: &Self, caution: u64) -> i64 {
        let n_used = self.n_used.max(other.n_used);
        let counts = self.counts[..n_used].iter().zip(&other.counts).map(|(a, b)| a + b);
        let (cost, n_tokens) = Self::cost(counts);
        let table = DISTRIBUTION_COST + (self.n_tokens + other.n_tokens - n_tokens) * TOKEN_COST;
        (self.cost + other.cost + table / caution) as i64 - cost as i64
    }

    /// The cost of tokens if they are coded with the distribution of this cluster.
    fn cost_of(&self, counts: &Counts) -> u64 {
        let log_n = log2(self.counts.iter().sum()) + (1 << COST_BITS);
        // Adds half a token of each kind, so that tokens that do not occur have a finite cost.
        let cost = |(&count, &own): (&u32, &u32)| u64::from(count) * u64::from(log_n.saturating_sub(log2(2 * own + 1)));
        counts[..n_used(counts)].iter().zip(&self.counts).map(cost).sum()
    }

    fn mean_token(&self) -> u64 {
        let n: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        let sum: u64 = (0_u64..).zip(&self.counts).map(|(token, &count)| token * u64::from(count)).sum();
        (sum << COST_BITS) / n.max(1)
    }
}

/// Merges clusters at most `reach` positions apart in `order`, the pair with the largest gain first, while there is a
/// gain or more than `cap` clusters are left. Clusters that merged into others are removed from `order`.
fn merge_clusters(clusters: &mut [Cluster], order: &mut Vec<u8>, reach: usize, cap: usize, caution: u64) {
    // Caches the gains of pairs by their initial positions, since most pairs do not change when others merge.
    let n = order.len();
    let mut position: Vec<usize> = (0..n).collect();
    let mut gains: Vec<Option<i64>> = vec![None; n * n];
    loop {
        let mut best = (if order.len() > cap { i64::MIN } else { 0 }, 0, 0);
        for i in 0..order.len() {
            for j in i + 1..order.len().min(i + 1 + reach) {
                let [a, b] = [i, j].map(|i| &clusters[usize::from(order[i])]);
                let gain = *gains[position[i] * n + position[j]].get_or_insert_with(|| a.gain(b, caution));
                if gain > best.0 {
                    best = (gain, i, j);
                }
            }
        }
        let (_, i, j) = best;
        if i == j {
            return;
        }
        let (into, from) = (order[i], usize::from(order.remove(j)));
        let mut counts = clusters[usize::from(into)].counts;
        counts.iter_mut().zip(&clusters[from].counts).for_each(|(sum, count)| *sum += count);
        clusters[usize::from(into)] = Cluster::new(&counts, into);
        clusters[from].parent = into;
        position.remove(j);
        for k in 0..n {
            gains[position[i] * n + k] = None;
            gains[k * n + position[i]] = None;
        }
    }
}

// ---- Distributions ----

/// Frequencies are multiples of 2^-12.
pub(crate) const SCALE_BITS: u32 = 12;
pub(crate) const SCALE: u32 = 1 << SCALE_BITS;

/// Frequencies are stored as levels: 1 is a frequency of 1, and each 16 levels more double it. 0 is a token that does
/// not occur.
type Levels = [u8; ALPHABET];
const LEVELS_PER_OCTAVE: i32 = 16;
const MAX_LEVEL: i32 = 1 + LEVELS_PER_OCTAVE * SCALE_BITS as i32;
/// Levels are stored in steps of 2^0 to 2^4.
const MAX_STEP_LOG: u32 = 4;
/// The step and the last token that the first distribution is compared with.
const STEP_LOG: u32 = 4;
const LAST_TOKEN: usize = 20;
/// 2^16 times the powers of 2^(1/16).
const OCTAVE: [u32; LEVELS_PER_OCTAVE as usize] = [
    65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752, 92682, 96785, 101070, 105545, 110218, 115098, 120194,
    125515,
];
/// Fractional bits of [`excess`].
const EXCESS_BITS: u32 = 8;

/// How likely each token is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Distribution {
    levels: Levels,
    /// Log2 of the step of the levels.
    step_log: u32,
    /// Sum to 2^12.
    frequencies: [u16; ALPHABET],
}

impl Distribution {
    fn new(levels: Levels, step_log: u32) -> Self {
        Self { levels, step_log, frequencies: frequencies(&levels) }
    }

    /// Chooses levels for counts, given the previous distribution. They are not always the nearest ones: others may
    /// save more in the table than they cost in tokens.
    fn fit(counts: &Counts, before: Option<&Self>) -> Self {
        let n_used = n_used(counts);
        let n: u32 = counts.iter().sum();
        let n_tokens = counts.iter().filter(|&&count| count != 0).count();
        if n_tokens <= 1 {
            return Self::certain(n_used.saturating_sub(1));
        }
        // Rounding to steps of s levels costs n s^2 / 8850 bits, and halving s about one bit per token.
        let is_too_coarse = |step_log: u32| u64::from(n) << (2 * step_log) > 11_800 * n_tokens as u64;
        let step_log = (1..=MAX_STEP_LOG).rev().find(|&step_log| !is_too_coarse(step_log)).unwrap_or(0);
        let mut levels = [0; ALPHABET];
        let mut shape = Shape::new(before);
        for (token, &count) in counts[..n_used].iter().enumerate() {
            let predicted = shape.predict(token);
            levels[token] = match count {
                // The token may be missing by chance. Then a frequency of 1 is cheaper than storing that it is missing.
                0 if expected_count(n, predicted) < 2 * 16 => predicted as u8,
                0 => 0,
                _ => Self::choose_level(count, n, predicted, step_log),
            };
            shape.push(token, levels[token]);
        }
        Self::new(levels, step_log)
    }

    /// The level with the lowest total cost, of tokens and of the level itself, for a token that occurs `count` times
    /// among `n`.
    fn choose_level(count: u32, n: u32, predicted: i32, step_log: u32) -> u8 {
        let log = log2(count) as i32 - log2(n) as i32 + (SCALE_BITS << COST_BITS) as i32;
        let exact = 1 + div_round(log, COST_BITS - LEVELS_PER_OCTAVE.ilog2());
        let nearest = div_round(exact.max(1) - predicted, step_log);
        // In 1/16 bits: what these tokens cost more than at the exact level, what they cost all others (each token
        // expected too many takes log2(e) bits from them, for 1477 / 1024), and what the number of steps costs.
        let cost = |&steps: &i32| {
            let level = level_at(predicted, steps, step_log);
            let own = i64::from(count) * i64::from(exact - level);
            let others = (expected_count(n, level) - 16 * i64::from(count)) * 1477 / 1024;
            own + others + i64::from((steps.unsigned_abs() + 1).ilog2()) * 48
        };
        // Of all numbers of steps of the same length, that next to the target is best.
        let candidates = (0..8).map(|length| nearest.clamp(2 - (2 << length), (2 << length) - 2));
        let steps = candidates.min_by_key(cost).unwrap_or(nearest);
        // A level at the limit may be fewer steps away.
        let steps = div_round(level_at(predicted, steps, step_log) - predicted, step_log);
        level_at(predicted, steps, step_log) as u8
    }

    /// The distribution of a single token.
    pub(crate) fn certain(token: usize) -> Self {
        let mut levels = [0; ALPHABET];
        levels[token] = 1;
        Self::new(levels, STEP_LOG)
    }

    /// The frequencies of all tokens; they sum to [`SCALE`].
    pub(crate) fn frequencies(&self) -> &[u16; ALPHABET] {
        &self.frequencies
    }

    fn last_token(&self) -> usize {
        self.levels.iter().rposition(|&level| level != 0).unwrap_or(0)
    }
}

/// x / 2^n, rounded.
fn div_round(x: i32, n: u32) -> i32 {
    (x + (1 << n >> 1)) >> n
}

/// The level that is `steps` from the predicted one.
fn level_at(predicted: i32, steps: i32, step_log: u32) -> i32 {
    (predicted + (steps << step_log)).clamp(1, MAX_LEVEL)
}

/// The frequency of a level minus 1, in units of 2^-8.
fn excess(level: u8) -> u64 {
    let above = usize::from(level.max(1) - 1);
    let frequency = OCTAVE[above % OCTAVE.len()] << (above / OCTAVE.len()) >> (16 - EXCESS_BITS);
    u64::from(frequency - (1 << EXCESS_BITS))
}

/// The expected count of a token of some level among `n`, in 1/16.
fn expected_count(n: u32, level: i32) -> i64 {
    let frequency = (1 << EXCESS_BITS) + excess(level as u8);
    ((u64::from(n) * frequency) >> (SCALE_BITS + EXCESS_BITS - 4)) as i64
}

/// Frequencies that sum to 2^12: each token that occurs gets 1, and of the rest a share in proportion to its excess.
fn frequencies(levels: &Levels) -> [u16; ALPHABET] {
    let n_tokens = levels.iter().filter(|&&level| level != 0).count() as u64;
    let rest = u64::from(SCALE) - n_tokens;
    let sum: u64 = levels.iter().map(|&level| excess(level)).sum();
    let mut all = [0; ALPHABET];
    let mut so_far = 0;
    let mut given = 0;
    for (frequency, &level) in all.iter_mut().zip(levels).filter(|(_, level)| **level != 0) {
        so_far += excess(level);
        // If all levels are 1, the first token gets the rest.
        let share = (so_far * rest).checked_div(sum).unwrap_or(rest) - given;
        *frequency = (1 + share) as u16;
        given += share;
    }
    all
}

/// Predicts the levels of a distribution, token by token, as densities: levels per code, not per token, since a token
/// of twice as many codes is twice as likely, all else being equal.
struct Shape {
    own: [i32; ALPHABET],
    reference: [i32; ALPHABET],
}

impl Shape {
    /// The density before the first token.
    const START: i32 = 160;
    /// The assumed decrease of densities where nothing is known.
    const FALL: i32 = 10;

    /// Predicts from `before`, the previous distribution, which probably has a similar shape.
    fn new(before: Option<&Distribution>) -> Self {
        let mut shape = Self { own: [Self::START; ALPHABET], reference: [0; ALPHABET] };
        (0..ALPHABET).for_each(|token| shape.push(token, before.map_or(0, |before| before.levels[token])));
        Self { own: shape.own, reference: shape.own }
    }

    /// The number of codes of a token, as levels.
    fn width(token: usize) -> i32 {
        // The first token that is not direct lacks magnitude 8.
        LEVELS_PER_OCTAVE * (N_RAW[token] as i32 - i32::from(token == N_DIRECT))
    }

    /// The density expected of a token from those before it: that of the code of the other sign, or the mean of the
    /// pair before.
    fn near(densities: &[i32; ALPHABET], token: usize) -> i32 {
        match token {
            0 => Self::START,
            _ if Self::is_second(token) || token == 1 || token > N_DIRECT => densities[token - 1],
            _ => (densities[token - 1] + densities[token - 2]) >> 1,
        }
    }

    /// Whether the token is that of a code whose negative came just before.
    fn is_second(token: usize) -> bool {
        token != 0 && token < N_DIRECT && token.is_multiple_of(2)
    }

    fn predict(&self, token: usize) -> i32 {
        let slope = self.reference[token] - Self::near(&self.reference, token);
        // Only a part of the difference, since distributions differ and small counts are noisy.
        (Self::near(&self.own, token) + ((3 * slope) >> 2) + Self::width(token)).clamp(1, MAX_LEVEL)
    }

    fn push(&mut self, token: usize, level: u8) {
        self.own[token] = match level {
            0 => Self::near(&self.own, token) - if Self::is_second(token) { 0 } else { Self::FALL },
            level => i32::from(level) - Self::width(token),
        };
    }
}

// ---- The model and its bytes ----

/// The distributions, and which contexts use them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    map: Vec<u8>,
    distributions: Vec<Distribution>,
}

impl Model {
    /// Chooses distributions for at most 256 contexts, of which each `per_group` after one another are of rising
    /// magnitude. There are less than 2^32 tokens in all.
    pub(crate) fn fit(counts: &[Counts], per_group: usize) -> Self {
        let numbers: Vec<u8> = (0..=u8::MAX).take(counts.len()).collect();
        assert_eq!(numbers.len(), counts.len(), "contexts are numbered by bytes");
        let mut clusters: Vec<Cluster> =
            counts.iter().zip(&numbers).map(|(counts, &i)| Cluster::new(counts, i)).collect();
        let mut order = Vec::new();
        for group in numbers.chunks(per_group) {
            let mut group: Vec<u8> = group.iter().copied().filter(|&i| clusters[usize::from(i)].n_used != 0).collect();
            merge_clusters(&mut clusters, &mut group, 1, usize::MAX, CAUTION);
            order.append(&mut group);
        }
        order.sort_by_cached_key(|&i| clusters[usize::from(i)].mean_token());
        merge_clusters(&mut clusters, &mut order, REACH, MAX_DISTRIBUTIONS, 1);
        // In this order each distribution resembles the previous one, and mean tokens within a group increase.
        order.sort_by_cached_key(|&i| clusters[usize::from(i)].mean_token());

        let mut map = Vec::with_capacity(counts.len());
        let mut merged = vec![[0; ALPHABET]; order.len().max(1)];
        for (counts, &i) in counts.iter().zip(&numbers) {
            let mut root = i;
            while clusters[usize::from(root)].parent != root {
                root = clusters[usize::from(root)].parent;
            }
            let predicted = predict_number(&map, per_group, merged.len());
            // The best cluster of a context with few tokens is noise; storing it would cost more than it saves.
            let cost = |number: usize| clusters[usize::from(order[number])].cost_of(counts);
            let is_worth_it = |&number: &usize| number != predicted && cost(predicted) > cost(number) + MAP_COST;
            let number = order.iter().position(|&i| i == root).filter(is_worth_it).unwrap_or(predicted);
            merged[number].iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            map.push(number as u8);
        }
        let mut model = Self { map, distributions: Vec::with_capacity(merged.len()) };
        for counts in &merged {
            let distribution = Distribution::fit(counts, model.distributions.last());
            model.distributions.push(distribution);
        }
        model
    }

    /// The distribution of each context.
    pub(crate) fn map(&self) -> &[u8] {
        &self.map
    }

    pub(crate) fn distributions(&self) -> &[Distribution] {
        &self.distributions
    }

    /// Writes this model.
    pub(crate) fn write(&self, coder: &mut impl BitCoder, per_group: usize) {
        let written = Self::code(coder, self, self.map.len(), per_group);
        debug_assert!(written.is_ok_and(|written| written == *self));
    }

    /// Reads the model of `n_contexts` contexts.
    pub(crate) fn read(coder: &mut impl BitCoder, n_contexts: usize, per_group: usize) -> Result<Self> {
        Self::code(coder, &Self::default(), n_contexts, per_group)
    }

    /// Codes a model, which a decoder ignores, and returns it.
    fn code(coder: &mut impl BitCoder, given: &Self, n_contexts: usize, per_group: usize) -> Result<Self> {
        let n_given = given.distributions.len().max(1) as u64 - 1;
        let n_distributions = NumberModel::default().code(coder, n_given) + 1;
        if n_distributions > MAX_DISTRIBUTIONS as u64 {
            return Err(Error::corrupt("model has too many distributions"));
        }
        let mut model = Self::default();
        let mut tables = TableCoder::default();
        for i in 0..n_distributions as usize {
            let distribution = tables.code(coder, given.distributions.get(i), model.distributions.last())?;
            model.distributions.push(distribution);
        }
        let mut rises = [NumberModel::default(), NumberModel::default()];
        for i in 0..n_contexts {
            let predicted = predict_number(&model.map, per_group, model.distributions.len()) as i64;
            let rise = i64::from(given.map.get(i).copied().unwrap_or(0)) - predicted;
            let rise = rises[usize::from(i < per_group)].code_signed(coder, rise);
            let number = usize::try_from(predicted.saturating_add(rise)).ok();
            let number = number.filter(|&number| number < model.distributions.len());
            let number = number.ok_or_else(|| Error::corrupt("context has a distribution that does not exist"))?;
            model.map.push(number as u8);
        }
        Ok(model)
    }
}

/// The distribution predicted for the next context: as far above that of the last one as in the previous group.
fn predict_number(map: &[u8], per_group: usize, n_distributions: usize) -> usize {
    let at = |i: usize| i64::from(map[i]);
    let n = map.len();
    let predicted = match n {
        0 => 0,
        _ if n < per_group => at(n - 1),
        _ if n.is_multiple_of(per_group) => at(n - per_group),
        _ => at(n - 1) + at(n - per_group) - at(n - per_group - 1),
    };
    predicted.clamp(0, n_distributions as i64 - 1) as usize
}

/// Adaptive models that are shared by all distributions.
#[derive(Default)]
struct TableCoder {
    last_token: NumberModel,
    step_log: NumberModel,
    /// Context: whether the next two tokens occur, and whether the token occurs in the previous distribution.
    occurs: [AdaptiveBit; 8],
    /// Context: whether the token is the second of a pair, and the prediction error of the previous one.
    steps: [NumberModel; 6],
}

impl TableCoder {
    /// Codes the distribution after `before`.
    fn code(
        &mut self,
        coder: &mut impl BitCoder,
        given: Option<&Distribution>,
        before: Option<&Distribution>,
    ) -> Result<Distribution> {
        let last_before = before.map_or(LAST_TOKEN, Distribution::last_token) as i64;
        let last = given.map_or(0, Distribution::last_token) as i64;
        let last = last_before.saturating_add(self.last_token.code_signed(coder, last - last_before));
        let last = usize::try_from(last).ok().filter(|&last| last < ALPHABET);
        let last = last.ok_or_else(|| Error::corrupt("distribution has a token that does not exist"))?;

        let given_levels = given.map_or([0; ALPHABET], |given| given.levels);
        let mut levels = [0; ALPHABET];
        levels[last] = 1;
        for token in (0..last).rev() {
            let above = |by: usize| usize::from(levels.get(token + by).is_none_or(|&level| level != 0));
            let occurred = before.is_none_or(|before| before.levels[token] != 0);
            let context = 4 * above(1) + 2 * above(2) + usize::from(occurred);
            levels[token] = u8::from(coder.bit(&mut self.occurs[context], given_levels[token] != 0));
        }
        if levels.iter().map(|&level| u32::from(level)).sum::<u32>() == 1 {
            return Ok(Distribution::certain(last));
        }

        let step_log_before = i64::from(before.map_or(STEP_LOG, |before| before.step_log));
        let change = i64::from(given.map_or(0, |given| given.step_log)) - step_log_before;
        let change = self.step_log.code_signed(coder, change);
        let step_log = u32::try_from(step_log_before.saturating_add(change)).ok();
        let step_log = step_log.filter(|&step_log| step_log <= MAX_STEP_LOG);
        let step_log = step_log.ok_or_else(|| Error::corrupt("distribution has a step that does not exist"))?;
        let mut shape = Shape::new(before);
        let mut off = 0;
        for token in 0..=last {
            if levels[token] != 0 {
                let predicted = shape.predict(token);
                let steps = div_round(i32::from(given_levels[token]) - predicted, step_log);
                let number_model = &mut self.steps[3 * usize::from(Shape::is_second(token)) + off];
                let steps = number_model.code_signed(coder, i64::from(steps));
                if steps.unsigned_abs() > MAX_LEVEL as u64 {
                    return Err(Error::corrupt("frequency is out of range"));
                }
                off = steps.unsigned_abs().min(2) as usize;
                levels[token] = level_at(predicted, steps as i32, step_log) as u8;
            }
            shape.push(token, levels[token]);
        }
        Ok(Distribution::new(levels, step_log))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entropy::binary::{BinaryDecoder, BinaryEncoder};
    use crate::entropy::tokens::tests::Random;
    use crate::entropy::tokens::token_of;

    fn counts_of(codes: impl IntoIterator<Item = i32>) -> Counts {
        let mut counts = [0; ALPHABET];
        codes.into_iter().for_each(|code| counts[usize::from(token_of(code))] += 1);
        counts
    }

    fn geometric(n: usize, mean: f64, seed: u64) -> Counts {
        let mut random = Random(seed);
        counts_of((0..n).map(|_| random.code(mean)))
    }

    fn write(model: &Model, per_group: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut encoder = BinaryEncoder::new(&mut bytes);
        model.write(&mut encoder, per_group);
        encoder.finish();
        bytes
    }

    /// Fits a model, checks its round trip, and returns it with its size in bytes.
    fn fit_and_check(counts: &[Counts], per_group: usize) -> (Model, usize) {
        let model = Model::fit(counts, per_group);
        let bytes = write(&model, per_group);
        let mut decoder = BinaryDecoder::new(&bytes);
        assert_eq!(Model::read(&mut decoder, counts.len(), per_group).unwrap(), model);
        decoder.finish().unwrap();

        assert!((1..=MAX_DISTRIBUTIONS).contains(&model.distributions.len()));
        for distribution in &model.distributions {
            assert_eq!(distribution.frequencies.iter().map(|&f| u32::from(f)).sum::<u32>(), SCALE);
        }
        assert_eq!(model.map.len(), counts.len());
        for (counts, &number) in counts.iter().zip(&model.map) {
            let frequencies = &model.distributions[usize::from(number)].frequencies;
            assert!(counts.iter().zip(frequencies).all(|(&count, &frequency)| count == 0 || frequency != 0));
        }
        (model, bytes.len())
    }

    #[test]
    fn logarithms_are_close() {
        for x in (1..5000).chain([1 << 20, (1 << 24) - 1, u32::MAX]) {
            let exact = f64::from(x).log2();
            assert!((f64::from(log2(x)) / 65536.0 - exact).abs() < 2e-4, "{x}");
        }
        assert_eq!(x_log2_x(0), 0);
        let mut counts = [0; ALPHABET];
        counts[..4].fill(1 << 20);
        counts[17] = 0;
        assert_eq!(cost_bits(&[counts, counts]), 4 << 22);
        counts = [0; ALPHABET];
        counts[20] = 100;
        assert_eq!(cost_bits(&[counts]), 200);
    }

    #[test]
    fn models_come_back() {
        let mut random = Random(5);
        let mut cases: Vec<(Vec<Counts>, usize)> = vec![
            (vec![], 1),
            (vec![[0; ALPHABET]; 7], 3),
            (vec![[1; ALPHABET]; 7], 7),
            (vec![[u32::MAX >> 16; ALPHABET]; 256], 16),
        ];
        for token in [0, 5, ALPHABET - 1] {
            let mut counts = [0; ALPHABET];
            counts[token] = 1 << 20;
            cases.push((vec![counts; 3], 2));
            counts[token / 2] += 1;
            cases.push((vec![[0; ALPHABET], counts, [0; ALPHABET]], 3));
        }
        for i in 0..60 {
            let mut counts = [0; ALPHABET];
            for count in &mut counts {
                *count = random.next() >> (random.next() % 32)
                    & if i % 2 == 0 { random.next() } else { u32::MAX }
                    & 0xff_ffff;
            }
            cases.push((vec![counts], 1));
            // Sparse and of any level, so that limits and steps meet in many ways.
            let steep = |token: usize| {
                if random.next().is_multiple_of(4) { 1 << (random.next() % 24) >> (token / 9) } else { 0 }
            };
            cases.push((vec![std::array::from_fn(steep)], 1));
        }
        let means = [0.05, 0.3, 1.0, 3.0, 10.0, 100.0, 1e5, 1e8];
        for n in [1, 10, 100, 10_000] {
            let contexts = |group: u64| means.map(|mean| geometric(n, mean, group));
            cases.push(((0..20).flat_map(contexts).collect(), means.len()));
        }
        for (counts, per_group) in &cases {
            fit_and_check(counts, *per_group);
        }
    }

    #[test]
    fn distributions_that_differ_stay_apart_up_to_a_limit() {
        let means: Vec<f64> = (0..200).map(|i| 1.07_f64.powi(i)).collect();
        let counts: Vec<Counts> = means.iter().map(|&mean| geometric(200_000, mean, 1)).collect();
        let (model, _) = fit_and_check(&counts, 50);
        assert_eq!(model.distributions.len(), MAX_DISTRIBUTIONS);
        assert!(model.map.is_sorted());
        let alike: Vec<Counts> = (0..60).map(|seed| geometric(3000, 2.0, seed)).collect();
        assert_eq!(fit_and_check(&alike, 20).0.distributions.len(), 1);
    }

    #[test]
    fn tables_are_small() {
        for (n, limit) in [(100, 2.5), (1000, 2.5), (10_000, 4.5), (100_000, 6.0)] {
            for mean in [0.5, 3.0, 30.0, 1000.0] {
                let counts = [geometric(n, mean, 7)];
                let (model, n_bytes) = fit_and_check(&counts, 1);
                let cost =
                    |(&count, &frequency): (&u32, &u16)| f64::from(count) * (12.0 - f64::from(frequency.max(1)).log2());
                let actual: f64 = counts[0].iter().zip(&model.distributions[0].frequencies).map(cost).sum();
                let (ideal, n_tokens) = Cluster::cost(counts[0].iter().copied());
                let lost = actual - ideal as f64 / 65536.0;
                let n_tokens = n_tokens as f64;
                assert!(
                    8.0 * n_bytes as f64 <= 32.0 + limit * n_tokens,
                    "{n} {mean}: {n_bytes} bytes, {n_tokens} tokens"
                );
                assert!(lost <= 2.0 * n_tokens + 0.001 * actual, "{n} {mean}: {lost} bits lost of {actual}");
            }
        }
    }

    #[test]
    fn hostile_models_are_refused_or_valid() {
        let counts: Vec<Counts> = (0..40).map(|i| geometric(3000, f64::from(i + 1), 3)).collect();
        let good = write(&Model::fit(&counts, 10), 10);
        let mut random = Random(9);
        let mut n_refused = 0;
        for i in 0..3000 {
            let bytes: Vec<u8> = match i % 3 {
                0 => (0..random.next() % 300).map(|_| random.next() as u8).collect(),
                1 => good[..random.next() as usize % good.len()].to_vec(),
                _ => {
                    let mut bytes = good.clone();
                    bytes[random.next() as usize % good.len()] ^= 1 << (random.next() % 8);
                    bytes
                }
            };
            let mut decoder = BinaryDecoder::new(&bytes);
            match Model::read(&mut decoder, 40, 10).and_then(|model| decoder.finish().map(|()| model)) {
                Ok(model) => {
                    assert!(
                        model
                            .distributions
                            .iter()
                            .all(|d| d.frequencies.iter().map(|&f| u32::from(f)).sum::<u32>() == SCALE)
                    );
                    assert!(model.map.iter().all(|&number| usize::from(number) < model.distributions.len()));
                }
                Err(_) => n_refused += 1,
            }
        }
        assert!(n_refused > 1000);
    }
}
