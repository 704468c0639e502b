//! Tokens, static histograms and rANS tables for the codes of the preset `small` (docs/format.md, 7.7).
//!
//! A code becomes a token and raw bits. Tokens are coded by rANS with one of a few distributions, chosen by context;
//! [`Model`] says which and is stored before them. What matters there is the size of the tables, since chunks may be
//! small: a distribution is stored as logarithms of its frequencies, each predicted from its neighbours and from a
//! distribution stored before it, and only as precisely as pays for the number of codes at hand.

#![allow(unsafe_code)]

use super::binary::{AdaptiveBit, BitCoder, NumberModel};
use super::scratch;
use crate::error::{Error, Result};

// ---- Tokens ----

/// The number of tokens: one for each code of up to [`MAX_DIRECT`], then four per octave of magnitude.
pub(crate) const ALPHABET: usize = N_DIRECT + 4 * 28;
/// Codes of this magnitude and less have a token of their own.
const MAX_DIRECT: u32 = 8;
const N_DIRECT: usize = 2 * MAX_DIRECT as usize + 1;

/// The token of a code, which is not `i32::MIN`.
#[inline(always)]
pub(crate) fn token_of(code: i32) -> u8 {
    let magnitude = code.unsigned_abs();
    let direct = (code << 1 ^ code >> 31) as u32;
    // A float has the exponent and the two bits below the leading one side by side. With at most 24 leading bits kept
    // the conversion is exact, and unlike a count of leading zeros it is a vector instruction everywhere.
    let cut = if magnitude >> 24 != 0 { 0xff } else { 0 };
    let float = ((magnitude & !cut) as i32 as f32).to_bits();
    let octaves = (float >> 21).wrapping_sub(4 * (127 + 3) - N_DIRECT as u32);
    (if magnitude <= MAX_DIRECT { direct } else { octaves }) as u8
}

/// How many raw bits follow a token.
#[inline(always)]
pub(crate) fn n_raw(token: u8) -> u32 {
    N_RAW[usize::from(token)]
}

/// The raw bits of a code: those of the magnitude that the token does not tell, and then the sign.
#[inline(always)]
pub(crate) fn raw_of(code: i32, token: u8) -> u32 {
    (code.unsigned_abs() << 1 | u32::from(code < 0)) & ((1 << n_raw(token)) - 1)
}

/// The code of a token and of its raw bits.
#[inline(always)]
pub(crate) fn code_of(token: u8, raw: u32) -> i32 {
    let magnitude = FIRST_CODE[usize::from(token)].wrapping_add((raw >> 1) as i32);
    let sign = (raw & 1) as i32;
    (magnitude ^ -sign).wrapping_add(sign)
}

/// The code of a direct token, or the least magnitude of another.
pub(crate) const fn code_of_token(token: usize) -> i32 {
    FIRST_CODE[token]
}

// 256 entries, so that no token is out of bounds.
static N_RAW: [u32; 256] = {
    let mut all = [0; 256];
    let mut token = N_DIRECT;
    while token < ALPHABET {
        all[token] = (token - N_DIRECT) as u32 / 4 + 2;
        token += 1;
    }
    all
};

/// The code of each direct token, and the least magnitude of the others.
static FIRST_CODE: [i32; 256] = {
    let mut all = [0; 256];
    let mut token = 0;
    while token < ALPHABET {
        all[token] = if token < N_DIRECT {
            (token >> 1) as i32 ^ -((token & 1) as i32)
        } else {
            (4 + (token - N_DIRECT) as i32 % 4) << ((token - N_DIRECT) / 4 + 1)
        };
        token += 1;
    }
    all
};

// ---- Costs ----

/// How often each token occurs in one context.
pub(crate) type Counts = [u32; ALPHABET];

/// Logarithms and costs in bits have this many fractional bits.
const COST_BITS: u32 = 16;

/// Fractions of the logarithms of 1 to 2, each of the middle of its interval: integers, so that the same is chosen
/// on every machine.
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
fn x_log2_x(x: u32) -> u64 {
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
/// What a distribution costs to store, about, and how much of that is for each of its tokens.
const DISTRIBUTION_COST: u64 = 60 << COST_BITS;
const TOKEN_COST: u64 = 5 << (COST_BITS - 1);
/// What it costs that a context has another distribution than expected.
const MAP_COST: u64 = 7 << COST_BITS;
/// Of clusters sorted by their mean token those at most this far apart may merge. More was not found to gain anything.
const REACH: usize = 2;
/// Within groups, so much less than a table costs must be lost by merging: there may be closer matches in other groups.
const CAUTION: u64 = 4;

/// Contexts that share a distribution.
#[derive(Clone)]
struct Cluster {
    counts: Counts,
    n_used: usize,
    n_tokens: u64,
    /// What the tokens cost, without a table.
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

    /// What tokens cost, and how many different ones there are.
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

    /// What merging two clusters saves, with tables `caution` times cheaper than they are.
    fn gain(&self, other: &Self, caution: u64) -> i64 {
        let n_used = self.n_used.max(other.n_used);
        let counts = self.counts[..n_used].iter().zip(&other.counts).map(|(a, b)| a + b);
        let (cost, n_tokens) = Self::cost(counts);
        let table = DISTRIBUTION_COST + (self.n_tokens + other.n_tokens - n_tokens) * TOKEN_COST;
        (self.cost + other.cost + table / caution) as i64 - cost as i64
    }

    /// What tokens cost that are coded as if they were of this cluster.
    fn cost_of(&self, counts: &Counts) -> u64 {
        let log_n = log2(self.counts.iter().sum()) + (1 << COST_BITS);
        // With half a token more of each kind, so that those that do not occur here have a price.
        let cost = |(&count, &own): (&u32, &u32)| u64::from(count) * u64::from(log_n.saturating_sub(log2(2 * own + 1)));
        counts[..n_used(counts)].iter().zip(&self.counts).map(cost).sum()
    }

    fn mean_token(&self) -> u64 {
        let n: u64 = self.counts.iter().map(|&count| u64::from(count)).sum();
        let sum: u64 = (0_u64..).zip(&self.counts).map(|(token, &count)| token * u64::from(count)).sum();
        (sum << COST_BITS) / n.max(1)
    }
}

/// Merges clusters at most `reach` apart in `order`, the pair that gains most first, as long as anything is gained or
/// more than `cap` are left. Those that merge into others leave `order`.
fn merge_clusters(clusters: &mut [Cluster], order: &mut Vec<u8>, reach: usize, cap: usize, caution: u64) {
    // Gains of pairs by their first places, since most pairs come up again and again while others merge.
    let n = order.len();
    let mut place: Vec<usize> = (0..n).collect();
    let mut gains: Vec<Option<i64>> = vec![None; n * n];
    loop {
        let mut best = (if order.len() > cap { i64::MIN } else { 0 }, 0, 0);
        for i in 0..order.len() {
            for j in i + 1..order.len().min(i + 1 + reach) {
                let [a, b] = [i, j].map(|i| &clusters[usize::from(order[i])]);
                let gain = *gains[place[i] * n + place[j]].get_or_insert_with(|| a.gain(b, caution));
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
        place.remove(j);
        for k in 0..n {
            gains[place[i] * n + k] = None;
            gains[k * n + place[i]] = None;
        }
    }
}

// ---- Distributions ----

/// Frequencies are multiples of 2^-12.
pub(crate) const SCALE_BITS: u32 = 12;
const SCALE: u32 = 1 << SCALE_BITS;

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

    /// Chooses levels for counts, given the distribution before: not always the nearest ones, since those that are
    /// cheaper to store often cost the tokens less than they save.
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
                // It may be missing by chance. Then it is cheaper to let it occur than to say that it does not.
                0 if expected_count(n, predicted) < 2 * 16 => predicted as u8,
                0 => 0,
                _ => Self::choose_level(count, n, predicted, step_log),
            };
            shape.push(token, levels[token]);
        }
        Self::new(levels, step_log)
    }

    /// The level for a token that is `count` of `n` that is cheapest, together with what it costs itself.
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

    /// That of a token that is the only one.
    fn certain(token: usize) -> Self {
        let mut levels = [0; ALPHABET];
        levels[token] = 1;
        Self::new(levels, STEP_LOG)
    }

    fn last_token(&self) -> usize {
        self.levels.iter().rposition(|&level| level != 0).unwrap_or(0)
    }
}

/// x / 2^n, rounded.
fn div_round(x: i32, n: u32) -> i32 {
    (x + (1 << n >> 1)) >> n
}

/// The level so many steps from the predicted one.
fn level_at(predicted: i32, steps: i32, step_log: u32) -> i32 {
    (predicted + (steps << step_log)).clamp(1, MAX_LEVEL)
}

/// What the frequency of a level has above 1, in units of 2^-8.
fn excess(level: u8) -> u64 {
    let above = usize::from(level.max(1) - 1);
    let frequency = OCTAVE[above % OCTAVE.len()] << (above / OCTAVE.len()) >> (16 - EXCESS_BITS);
    u64::from(frequency - (1 << EXCESS_BITS))
}

/// How many of `n` tokens a token of some level stands for, in 1/16.
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
        // Where all levels are 1, the first token gets everything.
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
    /// Densities fall by so much where nothing is known of them.
    const FALL: i32 = 10;

    /// For the distribution after `before`, which is likely to be of a similar shape.
    fn new(before: Option<&Distribution>) -> Self {
        let mut shape = Self { own: [Self::START; ALPHABET], reference: [0; ALPHABET] };
        (0..ALPHABET).for_each(|token| shape.push(token, before.map_or(0, |before| before.levels[token])));
        Self { own: shape.own, reference: shape.own }
    }

    /// The number of codes of a token, as levels.
    fn width(token: usize) -> i32 {
        // The magnitude 8 is missing from the first token that is not direct.
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
        // Not all of it, since these distributions differ and small counts are chance.
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

/// Which contexts have which distributions.
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
        // In this order each distribution is much like the one before it, and those of a group rise.
        order.sort_by_cached_key(|&i| clusters[usize::from(i)].mean_token());

        let mut map = Vec::with_capacity(counts.len());
        let mut merged = vec![[0; ALPHABET]; order.len().max(1)];
        for (counts, &i) in counts.iter().zip(&numbers) {
            let mut root = i;
            while clusters[usize::from(root)].parent != root {
                root = clusters[usize::from(root)].parent;
            }
            let predicted = predict_number(&map, per_group, merged.len());
            // Contexts of few tokens are where chance put them; to say so would cost more than it is worth.
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

    /// Reads the model of so many contexts.
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

/// The distribution expected of the next context: as far above that of the last one as in the group before.
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

/// What is learnt from one distribution to the next.
#[derive(Default)]
struct TableCoder {
    last_token: NumberModel,
    step_log: NumberModel,
    /// By whether the two tokens above occur, and whether the token did in the distribution before.
    occurs: [AdaptiveBit; 8],
    /// By whether the token is the second of a pair, and by how far the one before was off.
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

// ---- rANS ----

/// States lie in 2^16..2^32; below, a word is read.
pub(crate) const LEAST_STATE: u32 = 1 << 16;

/// What encoding a token takes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct EncodeEntry {
    /// 2^44 / frequency, rounded up.
    reciprocal: u64,
    frequency: u16,
    start: u16,
}

impl EncodeEntry {
    const RECIPROCAL_BITS: u32 = 44;

    fn new(start: u16, frequency: u16) -> Self {
        // A token without a frequency is not encoded.
        let reciprocal = (1_u64 << Self::RECIPROCAL_BITS).div_ceil(u64::from(frequency.max(1)));
        Self { reciprocal, frequency, start }
    }
}

/// The entries of all distributions, and behind them those of one that is certain of token 0.
#[derive(Debug)]
pub(crate) struct EncodeTable {
    entries: Vec<[EncodeEntry; ALPHABET]>,
}

impl EncodeTable {
    pub(crate) fn new(model: &Model) -> Self {
        let entries = |distribution: &Distribution| {
            let mut start = 0;
            distribution.frequencies.map(|frequency| {
                let entry = EncodeEntry::new(start, frequency);
                start += frequency;
                entry
            })
        };
        Self { entries: model.distributions.iter().chain([&Distribution::certain(0)]).map(entries).collect() }
    }

    /// The entries of a distribution.
    #[inline(always)]
    pub(crate) fn distribution(&self, number: u8) -> &[EncodeEntry; ALPHABET] {
        &self.entries[usize::from(number)]
    }
}

/// Encodes a token, which must have a frequency. Tokens are encoded last to first.
#[inline(always)]
pub(crate) fn encode_step(state: &mut u32, entry: &EncodeEntry, words: &mut WordWriter) {
    let frequency = u32::from(entry.frequency);
    let mut x = *state;
    // That is x >= frequency * 2^20, which may be 2^32.
    let is_full = x >> (32 - SCALE_BITS) >= frequency;
    words.put_if(is_full, x as u16);
    x >>= if is_full { 16 } else { 0 };
    // With x < frequency * 2^20 the product is below 2^64 and the quotient is exact: the reciprocal is too large by less
    // than 1, which makes less than x / 2^44 < 1 / frequency.
    let quotient = ((u64::from(x) * entry.reciprocal) >> EncodeEntry::RECIPROCAL_BITS) as u32;
    *state = x + u32::from(entry.start) + quotient * (SCALE - frequency);
}

/// Tables of all distributions after one another, and of one that is certain of token 0. Each has 4096 entries: the
/// token in bits 0..8, its frequency less 1 in bits 8..20, and the distance from its start in bits 20..32.
#[derive(Debug)]
pub(crate) struct DecodeTable {
    entries: Vec<u32>,
}

impl DecodeTable {
    pub(crate) fn new(model: &Model) -> Self {
        let mut entries = Vec::with_capacity((model.distributions.len() + 1) << SCALE_BITS);
        for distribution in model.distributions.iter().chain([&Distribution::certain(0)]) {
            for (token, &frequency) in (0_u32..).zip(&distribution.frequencies).filter(|(_, f)| **f != 0) {
                let frequency = u32::from(frequency);
                let first = token | (frequency - 1) << 8;
                entries.extend((0..frequency).map(|i| first | i << (8 + SCALE_BITS)));
            }
        }
        Self { entries }
    }

    pub(crate) fn entries(&self) -> &[u32] {
        &self.entries
    }

    /// Where the entries of a distribution begin.
    #[inline(always)]
    pub(crate) fn base(number: u8) -> usize {
        usize::from(number) << SCALE_BITS
    }
}

/// Decodes a token; [`WordReader::refill`] must follow.
///
/// # Safety
/// `base` is where the entries of a distribution begin.
#[inline(always)]
pub(crate) unsafe fn decode_step(state: &mut u32, entries: &[u32], base: usize) -> u8 {
    let slot = base + (*state & (SCALE - 1)) as usize;
    debug_assert!(slot < entries.len());
    // SAFETY: the caller's contract; a slot is less than a table.
    let entry = unsafe { *entries.get_unchecked(slot) };
    let frequency = (entry >> 8 & (SCALE - 1)) + 1;
    *state = frequency * (*state >> SCALE_BITS) + (entry >> (8 + SCALE_BITS));
    entry as u8
}

/// Collects words last to first.
#[derive(Debug)]
pub(crate) struct WordWriter {
    words: Vec<u16>,
    first: usize,
}

impl WordWriter {
    /// Has room for the words of `n_tokens` tokens.
    pub(crate) fn new(n_tokens: usize) -> Self {
        // One more than that, so that a word that is not wanted can be written anyway.
        Self { words: scratch::take(n_tokens + 1), first: n_tokens + 1 }
    }

    #[inline(always)]
    fn put_if(&mut self, is_wanted: bool, word: u16) {
        self.words[self.first - 1] = word;
        self.first -= usize::from(is_wanted);
    }

    /// Appends the words, little-endian, as a decoder reads them.
    pub(crate) fn finish(self, out: &mut Vec<u8>) {
        out.extend(self.words[self.first..].iter().flat_map(|word| word.to_le_bytes()));
        scratch::give(self.words);
    }
}

/// Reads words; beyond the end there are zeros.
#[derive(Clone, Debug)]
pub(crate) struct WordReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> WordReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// The next four words, if there are as many.
    #[inline(always)]
    pub(crate) fn next_four(&self) -> Option<u64> {
        self.bytes.get(self.at..)?.first_chunk().map(|words| u64::from_le_bytes(*words))
    }

    /// Moves on by `n` words.
    #[inline(always)]
    pub(crate) fn skip(&mut self, n: usize) {
        self.at += 2 * n;
    }

    /// Brings a state back into its range.
    #[inline(always)]
    pub(crate) fn refill(&mut self, state: &mut u32) {
        let word = self.bytes.get(self.at..self.at + 2).map_or(0, |word| u16::from_le_bytes([word[0], word[1]]));
        let is_low = *state < LEAST_STATE;
        *state = if is_low { *state << 16 | u32::from(word) } else { *state };
        self.at += 2 * usize::from(is_low);
    }

    /// Checks that all words were read, and no more.
    pub(crate) fn finish(self) -> Result<()> {
        if self.at == self.bytes.len() { Ok(()) } else { Err(Error::corrupt("tokens have the wrong length")) }
    }
}

// ---- Raw bits ----

/// Appends bits to a buffer, the least significant first; [`RawWriter::finish`] must be called.
#[derive(Debug)]
pub(crate) struct RawWriter<'a> {
    out: &'a mut Vec<u8>,
    bits: u64,
    n_bits: u32,
}

impl<'a> RawWriter<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, bits: 0, n_bits: 0 }
    }

    /// Appends a number of `n` bits, of which there are at most 32.
    #[inline(always)]
    pub(crate) fn put(&mut self, value: u32, n: u32) {
        self.bits |= u64::from(value) << self.n_bits;
        self.n_bits += n;
        if self.n_bits >= 32 {
            self.out.extend_from_slice(&(self.bits as u32).to_le_bytes());
            self.bits >>= 32;
            self.n_bits -= 32;
        }
    }

    /// Writes what is left, filled up to a byte.
    pub(crate) fn finish(self) {
        self.out.extend_from_slice(&self.bits.to_le_bytes()[..self.n_bits.div_ceil(8) as usize]);
    }
}

/// Reads bits; beyond the end there are zeros.
#[derive(Debug)]
pub(crate) struct RawReader<'a> {
    bytes: &'a [u8],
    at: usize,
    bits: u64,
    n_bits: u32,
}

impl<'a> RawReader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, bits: 0, n_bits: 0 }
    }

    /// The next `n` bits, of which there are at most 32.
    #[inline(always)]
    pub(crate) fn get(&mut self, n: u32) -> u32 {
        if self.n_bits < n {
            self.refill();
        }
        let value = self.bits & ((1 << n) - 1);
        self.bits >>= n;
        self.n_bits -= n;
        value as u32
    }

    #[inline(always)]
    fn refill(&mut self) {
        let next = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).copied();
        let next = next.unwrap_or_else(|| {
            let mut last = [0; 8];
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            last[..rest.len()].copy_from_slice(rest);
            last
        });
        // Whole bytes only; the bits above them come again with the next refill.
        self.bits |= u64::from_le_bytes(next) << self.n_bits;
        let n_bytes = (63 - self.n_bits) / 8;
        self.at += n_bytes as usize;
        self.n_bits += 8 * n_bytes;
    }

    /// Checks that all bits were read, up to the last byte, whose rest is 0, and no more.
    pub(crate) fn finish(self) -> Result<()> {
        let n_read = 8 * self.at - self.n_bits as usize;
        if n_read.div_ceil(8) == self.bytes.len() && self.bits == 0 {
            Ok(())
        } else {
            Err(Error::corrupt("raw bits have the wrong length"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::binary::{Decoder, Encoder};
    use super::*;

    /// Random numbers below 2^32.
    struct Random(u64);

    impl Random {
        fn next(&mut self) -> u32 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (self.0 >> 32) as u32
        }

        /// Of a two-sided geometric distribution of about this mean magnitude.
        fn code(&mut self, mean: f64) -> i32 {
            let magnitude = -(f64::from(self.next()) + 0.5).ln() + 32.0 * std::f64::consts::LN_2;
            let magnitude = (magnitude * mean + 0.5) as i32;
            if self.next() & 1 == 0 { magnitude } else { -magnitude }
        }
    }

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
        let mut encoder = Encoder::new(&mut bytes);
        model.write(&mut encoder, per_group);
        encoder.finish();
        bytes
    }

    /// Fits a model, checks that it comes back from its bytes, and returns it and their number.
    fn fit_and_check(counts: &[Counts], per_group: usize) -> (Model, usize) {
        let model = Model::fit(counts, per_group);
        let bytes = write(&model, per_group);
        let mut decoder = Decoder::new(&bytes);
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
    fn codes_come_back() {
        let check = |code: i32| {
            let token = token_of(code);
            let raw = raw_of(code, token);
            assert!(usize::from(token) < ALPHABET && u64::from(raw) < 1 << n_raw(token), "{code}");
            assert_eq!(code_of(token, raw), code);
        };
        (-(1 << 20)..=1 << 20).for_each(check);
        for e in 20..31 {
            for near in [1_i64 << e, 5 << (e - 2), 6 << (e - 2), 7 << (e - 2), 2 << e] {
                let codes = (near - 300..near + 300).filter_map(|code| i32::try_from(code).ok());
                codes.for_each(|code| [code, -code].into_iter().for_each(check));
            }
        }
        assert_eq!([0, -1, 1, -8, 8, 9, -9, 10, 16].map(token_of), [0, 1, 2, 15, 16, 17, 17, 18, 21]);
        assert_eq!(usize::from(token_of(i32::MAX)), ALPHABET - 1);
        assert_eq!((n_raw(16), n_raw(17), n_raw(128)), (0, 2, 29));
        assert_eq!(raw_of(-9, 17), 0b11);
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
            let mut decoder = Decoder::new(&bytes);
            match Model::read(&mut decoder, 40, 10).and_then(|model| decoder.finish().map(|()| model)) {
                Ok(model) => {
                    assert_eq!(DecodeTable::new(&model).entries.len(), (model.distributions.len() + 1) << SCALE_BITS);
                    assert!(model.map.iter().all(|&number| usize::from(number) < model.distributions.len()));
                }
                Err(_) => n_refused += 1,
            }
        }
        assert!(n_refused > 1000);
    }

    /// Encodes tokens of distributions with four states in turn and decodes them.
    fn check_states(model: &Model, tokens: &[(u8, u8)]) -> usize {
        let table = EncodeTable::new(model);
        let mut words = WordWriter::new(tokens.len());
        let mut states = [LEAST_STATE; 4];
        for (i, &(number, token)) in tokens.iter().enumerate().rev() {
            encode_step(&mut states[i % 4], &table.distribution(number)[usize::from(token)], &mut words);
        }
        let mut bytes = Vec::new();
        words.finish(&mut bytes);

        let table = DecodeTable::new(model);
        let mut words = WordReader::new(&bytes);
        for (i, &(number, token)) in tokens.iter().enumerate() {
            let state = &mut states[i % 4];
            // SAFETY: the table has this number.
            let decoded = unsafe { decode_step(state, table.entries(), DecodeTable::base(number)) };
            assert_eq!(decoded, token);
            words.refill(state);
        }
        assert_eq!(states, [LEAST_STATE; 4]);
        words.finish().unwrap();
        bytes.len()
    }

    #[test]
    fn tokens_come_back() {
        let counts = [geometric(10_000, 0.3, 1), geometric(10_000, 500.0, 2), geometric(100, 0.01, 3)];
        let mut only = [0; ALPHABET];
        only[77] = 1000;
        let contexts: Vec<Counts> = counts.into_iter().chain([only]).collect();
        let (model, _) = fit_and_check(&contexts, 4);
        let certain = (model.distributions.len() as u8, 0);
        assert_eq!(check_states(&model, &vec![(model.map[3], 77); 100_000]), 0);
        assert_eq!(check_states(&model, &vec![certain; 1000]), 0);

        let mut random = Random(4);
        let mut tokens = Vec::new();
        for _ in 0..200_000 {
            let context = random.next() as usize % 5;
            let Some(&number) = model.map.get(context) else {
                tokens.push(certain);
                continue;
            };
            let frequencies = &model.distributions[usize::from(number)].frequencies;
            let mut slot = (random.next() % SCALE) as u16;
            let token = frequencies.iter().position(|&frequency| {
                let is_here = slot < frequency;
                slot = slot.wrapping_sub(frequency);
                is_here
            });
            tokens.push((number, token.unwrap() as u8));
        }
        let bits = |&(number, token): &(u8, u8)| {
            let frequency = model.distributions.get(usize::from(number)).map(|d| d.frequencies[usize::from(token)]);
            12.0 - f64::from(frequency.unwrap_or(4096)).log2()
        };
        let ideal = tokens.iter().map(bits).sum::<f64>() / 8.0;
        let n_bytes = check_states(&model, &tokens) as f64;
        assert!((n_bytes - ideal).abs() < 0.001 * ideal + 16.0, "{n_bytes} {ideal}");
    }

    #[test]
    fn encoding_steps_are_exact() {
        let mut random = Random(8);
        for frequency in 1..=SCALE as u16 {
            let start = (random.next() % (SCALE + 1 - u32::from(frequency))) as u16;
            let entry = EncodeEntry::new(start, frequency);
            let end = u64::from(frequency) << 20;
            let random_states: [u64; 4] = std::array::from_fn(|_| u64::from(random.next()).max(1 << 16) % end);
            for x in [1 << 16, end - 1, end - u64::from(frequency), end / 2].into_iter().chain(random_states) {
                let x = x.max(1 << 16) as u32;
                let (f, mut state) = (u32::from(frequency), x);
                encode_step(&mut state, &entry, &mut WordWriter::new(1));
                assert_eq!(state, ((x / f) << SCALE_BITS) + x % f + u32::from(start), "{x} {f}");
            }
        }
    }

    #[test]
    fn raw_bits_come_back_and_zeros_follow() {
        let mut random = Random(6);
        for n in [0, 1, 2, 3, 50, 1000] {
            let numbers = (0..n).map(|_| {
                let n_bits = random.next() % 33;
                ((u64::from(random.next()) & ((1 << n_bits) - 1)) as u32, n_bits)
            });
            let numbers: Vec<(u32, u32)> = numbers.collect();
            let mut bytes = Vec::new();
            let mut writer = RawWriter::new(&mut bytes);
            numbers.iter().for_each(|&(number, n_bits)| writer.put(number, n_bits));
            writer.finish();
            let read = |bytes: &[u8]| {
                let mut reader = RawReader::new(bytes);
                let all: Vec<u32> = numbers.iter().map(|&(_, n_bits)| reader.get(n_bits)).collect();
                reader.finish().map(|()| all)
            };
            let wanted: Vec<u32> = numbers.iter().map(|&(number, _)| number).collect();
            assert_eq!(read(&bytes).unwrap(), wanted);
            if let Some((_, shorter)) = bytes.split_last() {
                read(shorter).unwrap_err();
            }
            bytes.push(0);
            read(&bytes).unwrap_err();
        }
        let mut reader = RawReader::new(&[0xff]);
        assert_eq!([32, 32, 32].map(|n| reader.get(n)), [0xff, 0, 0]);
    }
}
