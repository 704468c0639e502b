//! The entropy stage of the preset `max`: every code is coded as a few binary decisions, whose probabilities are those
//! of eight adaptive contexts, mixed by online logistic regression (docs/format.md, 7.8).
//!
//! Two small linear predictors do most of the work. From the codes around a point they predict its code and its
//! magnitude, and learn from each value. Contexts and the order of the decisions are relative to both predictions, so a
//! few tables suffice for codes of any magnitude. All arithmetic is on integers, so that every machine decodes the
//! same.

use super::bands::{Band, BandLayout, Level, class_dims};
use crate::codec::shared::dims::{AXES, AxisSet, Dims, X, axes_of, volume};
use crate::entropy::binary::{BinaryDecoder, BinaryEncoder, BitCoder, PROBABILITY_BITS};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, filled};

/// Log-odds lie between -`MAX_ODDS` and `MAX_ODDS`, in units of 3/512.
const MAX_ODDS: i32 = 2047;
const ZERO_ODDS: usize = MAX_ODDS as usize + 1;
/// Probabilities of a 1 for the log-odds `i - ZERO_ODDS`.
static SQUASH: [u16; 2 * ZERO_ODDS] = squash_table();
/// Log-odds of probabilities: a look-up table indexed with their leading 12 bits.
static STRETCH: [i16; 1 << 12] = stretch_table();

const fn squash_table() -> [u16; 2 * ZERO_ODDS] {
    let mut table = [1; 2 * ZERO_ODDS];
    // e^(3 i / 512), in units of 2^-32.
    let mut power = 1_u128 << 32;
    let mut i = 0;
    while i < ZERO_ODDS {
        let p = (power << PROBABILITY_BITS) / (power + (1 << 32));
        table[ZERO_ODDS + i] = p as u16;
        table[ZERO_ODDS - i] = ((1 << PROBABILITY_BITS) - p) as u16;
        power = power * 1_005_876_575 / 1_000_000_000;
        i += 1;
    }
    table
}

const fn stretch_table() -> [i16; 1 << 12] {
    const SQUASHED: [u16; 2 * ZERO_ODDS] = squash_table();
    let mut table = [0; 1 << 12];
    let mut at = 1;
    let mut i = 0;
    while i < table.len() {
        while at < 2 * ZERO_ODDS - 1 && (SQUASHED[at] as usize) < 16 * i + 8 {
            at += 1;
        }
        table[i] = (at as i32 - ZERO_ODDS as i32) as i16;
        i += 1;
    }
    table
}

#[inline(always)]
fn squash(odds: i32) -> i32 {
    i32::from(SQUASH[(odds.clamp(-MAX_ODDS, MAX_ODDS) + ZERO_ODDS as i32) as usize])
}

/// log2(1 + magnitude) in sixteenths, linear between powers of two.
#[inline(always)]
fn log_of(magnitude: u32) -> i32 {
    let v = u64::from(magnitude) + 1;
    let n = v.ilog2();
    (16 * n) as i32 + ((v << 4 >> n) as i32 & 15)
}

/// A probability in the upper 22 bits, and the number of bits it has seen in the lower 10. 0: never used.
type Counter = u32;
const SEEN_BITS: u32 = 10;
const SEEN: u32 = (1 << SEEN_BITS) - 1;
/// Beyond this many bits a counter forgets at a constant rate.
const MAX_SEEN: u32 = 255;
/// A counter starts from its prior with the weight of this many bits.
const PRIOR_SEEN: u32 = 2;

#[inline(always)]
fn learn(counter: Counter, bit: bool) -> Counter {
    let seen = counter & SEEN;
    let p = (counter >> SEEN_BITS) as i32;
    let target = if bit { (1 << 22) - 1 } else { 0 };
    let p = p + ((((target - p) >> 6) * RATES[seen as usize % RATES.len()]) >> 8);
    (p as u32) << SEEN_BITS | (seen + 1).min(MAX_SEEN)
}

/// Learning rates after n bits: 2^14 / (n + 1.5).
static RATES: [i32; MAX_SEEN as usize + 1] = rates();

const fn rates() -> [i32; MAX_SEEN as usize + 1] {
    let mut table = [0; MAX_SEEN as usize + 1];
    let mut n = 0;
    while n < table.len() {
        table[n] = (1 << 15) / (2 * n as i32 + 3);
        n += 1;
    }
    table
}

const N_CONTEXTS: usize = 8;
/// An exclusive upper limit of the values of contexts.
const MAX_CONTEXTS: usize = 1024;

/// Kinds of decisions. The counters of a context's value fill one cache line.
const N_NODES: usize = 16;
/// Is the magnitude longer, in bits, than expected?
const LENGTH: usize = 0;
/// Then, is it longer than 1, 2, ... 5 or more bits beyond that?
const LONGER: usize = 0;
/// Otherwise, does it have the expected length, 1 bit less, or 2 or more bits less?
const SHORTER: usize = 5;
/// Is the value negative? Two nodes: for lengths of at most 1 bit beyond the expected one, and for others.
const SIGN: usize = 9;
/// Is the bit below the leading one set? By the length relative to the expected one: -1 or less, 0, 1, 2, 3 or more.
const MANTISSA: usize = 11;
/// Classes of the length relative to the expected one.
const N_CLASSES: usize = 5;

/// Grades of the expected size: 36 where the expected length is 0, 16 each where it is 1, 2, and 3 or more.
const N_GRADES: usize = GRADES_OF_ZERO + 3 * GRADES_OF_LENGTH;
const GRADES_OF_ZERO: usize = 36;
const GRADES_OF_LENGTH: usize = 16;

/// Initial probabilities of counters, in 1/256: averages over 32 fields at relative bounds of 1e-2 to 1e-4. They matter
/// for tiny chunks.
#[rustfmt::skip]
static PRIOR: [[u8; N_NODES]; 15] = [
    [3, 4, 83, 112, 154, 153, 153, 157, 154, 128, 128, 126, 124, 113, 68, 78],
    [3, 2, 68, 179, 188, 189, 153, 157, 154, 128, 128, 126, 124, 113, 60, 105],
    [4, 2, 90, 150, 188, 177, 153, 157, 154, 128, 128, 126, 124, 113, 68, 91],
    [9, 2, 77, 110, 173, 176, 153, 157, 154, 128, 128, 126, 124, 113, 65, 83],
    [19, 3, 46, 122, 174, 117, 153, 157, 154, 128, 128, 126, 124, 113, 46, 86],
    [38, 4, 20, 76, 156, 129, 153, 157, 154, 128, 128, 126, 124, 113, 32, 72],
    [81, 16, 11, 37, 103, 115, 153, 157, 154, 128, 128, 126, 124, 113, 28, 51],
    [140, 67, 29, 22, 49, 70, 153, 157, 154, 128, 128, 126, 124, 113, 54, 41],
    [196, 153, 81, 37, 30, 42, 153, 157, 154, 128, 128, 126, 124, 113, 88, 57],
    [171, 149, 75, 34, 32, 49, 153, 157, 154, 128, 128, 126, 124, 113, 83, 57],
    [205, 187, 126, 59, 36, 38, 156, 157, 154, 128, 128, 126, 124, 121, 108, 73],
    [182, 170, 99, 46, 34, 49, 133, 157, 154, 128, 128, 126, 124, 121, 98, 66],
    [206, 199, 140, 69, 37, 40, 136, 159, 154, 128, 128, 126, 126, 124, 113, 76],
    [182, 170, 101, 46, 30, 29, 124, 136, 154, 128, 128, 126, 125, 121, 100, 62],
    [204, 197, 139, 69, 33, 28, 127, 136, 153, 128, 128, 126, 127, 125, 112, 74],
];
/// The row of [`PRIOR`] for a grade.
fn prior(grade: usize) -> &'static [u8; N_NODES] {
    let row = match grade.checked_sub(GRADES_OF_ZERO) {
        None => grade / 4,
        Some(rest) => 9 + 2 * (rest / GRADES_OF_LENGTH) + usize::from(rest % GRADES_OF_LENGTH >= 12),
    };
    &PRIOR[row]
}

/// Weights of the contexts' log-odds; 1 is 2^14.
type Weights = [i16; N_CONTEXTS];
const WEIGHT_BITS: u32 = 14;
/// The initial weights average the contexts.
const FIRST_WEIGHT: i16 = 2048;

#[inline(always)]
fn mix(weights: &Weights, odds: &Weights) -> i32 {
    let sum: i32 = weights.iter().zip(odds).map(|(w, o)| i32::from(*w) * i32::from(*o)).sum();
    (sum >> WEIGHT_BITS).clamp(-MAX_ODDS, MAX_ODDS)
}

#[inline(always)]
fn train(weights: &mut Weights, odds: &Weights, error: i32) {
    let error = (error >> 1) as i16;
    for (w, o) in weights.iter_mut().zip(odds) {
        *w = w.saturating_add(((i32::from(*o) * i32::from(error) + (1 << 15)) >> 16) as i16);
    }
}

/// Counters of all contexts, and the weights that mix them. The result is the mean of two mixtures: one has weights for
/// each kind of decision, the other for each grade of the expected size.
struct Mixer {
    counters: Box<[[[Counter; N_NODES]; MAX_CONTEXTS]; N_CONTEXTS]>,
    /// Counters of the second bit below the leading one, which are not mixed.
    second: [[Counter; 2 * N_CLASSES]; N_GRADES],
    by_node: [Weights; N_NODES],
    /// The second set of each grade is for the bits below the leading one.
    by_grade: [[Weights; 2]; N_GRADES],
    /// Contexts, and grade of the expected size, of the value being coded.
    contexts: [usize; N_CONTEXTS],
    grade: usize,
}

impl Mixer {
    fn new() -> Self {
        let weights = [FIRST_WEIGHT; N_CONTEXTS];
        let counters = vec![[[0; N_NODES]; MAX_CONTEXTS]; N_CONTEXTS].into_boxed_slice();
        Self {
            counters: counters.try_into().expect("one table for each context"),
            second: [[1 << 31; 2 * N_CLASSES]; N_GRADES],
            by_node: [weights; N_NODES],
            by_grade: [[weights; 2]; N_GRADES],
            contexts: [0; N_CONTEXTS],
            grade: 0,
        }
    }

    /// Codes one decision and learns from it.
    #[inline(always)]
    fn bit<C: BitCoder>(&mut self, coder: &mut C, bit: bool, node: usize) -> bool {
        let node = node % N_NODES;
        let prior = u32::from(prior(self.grade)[node]) << 24 | PRIOR_SEEN;
        let mut counters = [0; N_CONTEXTS];
        let mut odds = [0; N_CONTEXTS];
        for k in 0..N_CONTEXTS {
            counters[k] = match self.counters[k][self.contexts[k] % MAX_CONTEXTS][node] {
                0 => prior,
                counter => counter,
            };
            odds[k] = STRETCH[(counters[k] >> 20) as usize];
        }
        let by_node = &mut self.by_node[node];
        let by_grade = &mut self.by_grade[self.grade % N_GRADES][usize::from(node >= MANTISSA)];
        let (odds_node, odds_grade) = (mix(by_node, &odds), mix(by_grade, &odds));
        let p_one = squash((odds_node + odds_grade) >> 1).clamp(16, (1 << PROBABILITY_BITS) - 16);
        let bit = coder.code(bit, p_one as u32);
        let target = if bit { (1 << PROBABILITY_BITS) - 1 } else { 0 };
        train(by_node, &odds, target - squash(odds_node));
        train(by_grade, &odds, target - squash(odds_grade));
        for k in 0..N_CONTEXTS {
            self.counters[k][self.contexts[k] % MAX_CONTEXTS][node] = learn(counters[k], bit);
        }
        bit
    }

    /// Codes a number of up to 32 bits and a sign. The length comes first, in steps from the expected one, so that
    /// large values take no more decisions than small ones.
    #[inline(always)]
    fn signed<C: BitCoder>(&mut self, coder: &mut C, value: i64, expected: usize) -> i64 {
        let magnitude = value.unsigned_abs();
        let true_length = (64 - magnitude.leading_zeros()) as usize;
        let mut length = expected;
        if self.bit(coder, true_length > length, LENGTH) {
            length += 1;
            while length < 32 && self.bit(coder, true_length > length, LONGER + (length - expected).min(5)) {
                length += 1;
            }
        } else {
            while length > 0 && !self.bit(coder, true_length >= length, SHORTER + (expected + 1 - length).min(3)) {
                length -= 1;
            }
        }
        if length == 0 {
            return 0;
        }
        let negative = self.bit(coder, value < 0, SIGN + usize::from(length > expected + 1));
        let class = (length + 1).saturating_sub(expected).min(N_CLASSES - 1);
        let mut all = 1;
        let mut left = length as u32 - 1;
        if left > 0 {
            left -= 1;
            let first = self.bit(coder, magnitude >> left & 1 != 0, MANTISSA + class);
            all = all << 1 | u64::from(first);
            if left > 0 {
                left -= 1;
                let counter = &mut self.second[self.grade % N_GRADES][2 * class + usize::from(first)];
                let p_one = (*counter >> 16).clamp(32, (1 << PROBABILITY_BITS) - 32);
                let second = coder.code(magnitude >> left & 1 != 0, p_one);
                *counter = learn(*counter, second);
                all = all << 1 | u64::from(second);
            }
            all = all << left | coder.raw(magnitude & ((1 << left) - 1), left);
        }
        if negative { -(all as i64) } else { all as i64 }
    }
}

/// A coded value as input of the predictors: its code, clamped to the range of their arithmetic, and the logarithm of
/// its magnitude.
#[derive(Clone, Copy, Default)]
struct Tap {
    code: i16,
    size: i16,
}

impl Tap {
    #[inline(always)]
    fn new(code: i32) -> Self {
        Self { code: code.clamp(-2047, 2047) as i16, size: log_of(code.unsigned_abs()) as i16 }
    }
}

/// Inputs of a predictor, at the indices below.
type Taps = [i16; N_TAPS];
const N_TAPS: usize = 16;
/// One and two positions before in the row.
const W: usize = 0;
const WW: usize = 1;
/// In the row before, at the same index and the two next to it; then two rows before.
const N: usize = 2;
const NW: usize = 3;
const NE: usize = 4;
const NN: usize = 5;
/// In the plane before: the same position, and the sums of both neighbours along X and along Y.
const B: usize = 6;
const BX: usize = 7;
const BY: usize = 8;
/// In the volume before.
const T: usize = 9;
/// The sums of the two points between which this one lies, along its first, second, and other odd axes; in bands
/// without odd axes, three and four positions before in the row.
const PARENT: usize = 10;
/// The sum of the four nearest points of the last earlier band whose set of odd axes differs in two axes.
const SIBLING: usize = 13;
/// Sizes only: the recent average, and a constant.
const RECENT: usize = 14;
const CONSTANT: usize = 15;

#[derive(Clone, Copy, Default)]
struct Neighbours {
    codes: Taps,
    sizes: Taps,
}

#[inline(always)]
fn dot(a: &Taps, b: &Taps) -> i32 {
    a.iter().zip(b).map(|(a, b)| i32::from(*a) * i32::from(*b)).sum()
}

/// A step of least mean squares; the caller normalises `gain`.
#[inline(always)]
fn follow(weights: &mut Taps, taps: &Taps, gain: i32, shift: u32) {
    let gain = gain.clamp(-32767, 32767) as i16;
    for (w, t) in weights.iter_mut().zip(taps) {
        let step = (i32::from(*t) * i32::from(gain) + (1 << (shift - 1))) >> shift;
        *w = w.saturating_add(step.clamp(-32767, 32767) as i16);
    }
}

/// The linear predictors of the bands with one set of odd axes. A weight of 1 is 2^13.
#[derive(Clone, Copy)]
struct Predictor {
    mean: Taps,
    size: Taps,
    /// Recent average of the bits saved by subtracting the mean, in units of 2^-14.
    saving: i32,
}

/// The mean is subtracted only if this saves a quarter of a bit, since it smears the peak of the distribution at 0.
const MIN_SAVING: i32 = 1 << 12;

/// The predictions for a value.
struct Expected {
    /// Its code, in 1/256.
    mean: i32,
    /// The part of it that is subtracted from the code.
    whole: i32,
    /// The logarithm of the magnitude that remains, as of [`log_of`], in 1/256.
    size: i32,
    /// Its length in bits.
    length: usize,
}

impl Predictor {
    fn new() -> Self {
        let mut size = [0; N_TAPS];
        for (position, weight) in [(W, 1750), (N, 1750), (B, 750), (SIBLING, 200), (RECENT, 1250)] {
            size[position] = weight;
        }
        size[PARENT..SIBLING].fill(625);
        Self { mean: [0; N_TAPS], size, saving: 0 }
    }

    #[inline(always)]
    fn expect(&self, near: &Neighbours) -> Expected {
        let mean = dot(&self.mean, &near.codes) >> 5;
        let size = (dot(&self.size, &near.sizes) >> 9).clamp(0, 30 * 256);
        let whole = if self.saving > MIN_SAVING { (mean + 128) >> 8 } else { 0 };
        Expected { mean, whole, size, length: (size - 128).max(0) as usize >> 8 }
    }

    #[inline(always)]
    fn learn(&mut self, near: &Neighbours, expected: &Expected, code: i32, size: i32) {
        let rounded = (expected.mean + 128) >> 8;
        if rounded != 0 {
            let saved = log_of(code.unsigned_abs()) - log_of(code.wrapping_sub(rounded).unsigned_abs());
            self.saving += ((saved << 10) - self.saving) >> 7;
        }
        let gain = ((16 * size - expected.size) << 11) / (dot(&near.sizes, &near.sizes) / 2 + 300);
        follow(&mut self.size, &near.sizes, gain, 9);
        let error = ((i64::from(code) << 8) - i64::from(expected.mean)).clamp(-(1 << 20), 1 << 20) as i32;
        let gain = (error << 10) / (dot(&near.codes, &near.codes) / 2 + 32);
        follow(&mut self.mean, &near.codes, gain, 10);
    }
}

/// The adaptive state of a chunk.
struct Model {
    mixer: Mixer,
    predictors: [Predictor; 1 << AXES],
    /// The average size of the last values, in 1/256.
    recent: i32,
}

impl Model {
    fn new() -> Self {
        Self { mixer: Mixer::new(), predictors: [Predictor::new(); 1 << AXES], recent: 0 }
    }

    /// Codes one value and learns from it.
    #[inline(always)]
    fn code<C: BitCoder>(&mut self, coder: &mut C, odd: AxisSet, near: &mut Neighbours, code: i32) -> i32 {
        near.sizes[RECENT] = (self.recent >> 4) as i16;
        near.sizes[CONSTANT] = 16;
        let predictor = &mut self.predictors[usize::from(odd) % (1 << AXES)];
        let expected = predictor.expect(near);
        self.mixer.grade = grade(expected.size, expected.length);
        self.mixer.contexts = contexts(odd, near, &expected, self.mixer.grade);
        let rest = i64::from(code) - i64::from(expected.whole);
        let rest = self.mixer.signed(coder, rest, expected.length);
        let code = (rest + i64::from(expected.whole)) as i32;
        let size = log_of(rest.unsigned_abs() as u32);
        self.recent += ((size << 4) - self.recent) >> 3;
        predictor.learn(near, &expected, code, size);
        code
    }
}

/// The grade of a size, in 1/256, relative to the expected length.
#[inline(always)]
fn grade(size: i32, length: usize) -> usize {
    if length == 0 {
        (log_of(size as u32) as usize / 4).min(GRADES_OF_ZERO - 1)
    } else {
        let within = ((size - 256 * length as i32 + 128) >> 5).clamp(0, GRADES_OF_LENGTH as i32 - 1);
        GRADES_OF_ZERO + (length - 1).min(2) * GRADES_OF_LENGTH + within as usize
    }
}

/// The contexts of a value. The expected size summarises the magnitudes better than any tested set of contexts of
/// single neighbours. So contexts pair it, or its length, with the signs of the neighbours and of the mean.
#[inline(always)]
fn contexts(odd: AxisSet, near: &Neighbours, expected: &Expected, grade_of_size: usize) -> [usize; N_CONTEXTS] {
    let length = expected.length;
    let half = (1 << length) >> 1;
    let code = |position: usize| (((i32::from(near.codes[position]) + half) >> length).clamp(-2, 2) + 2) as usize;
    let sign = |code: i32| (code.signum() + 1) as usize;
    let sign_of = |position: usize| sign(i32::from(near.codes[position]));
    // The rest of the mean, scaled by the expected length, in `n` steps of 2^shift; the middle one is around 0.
    let left = (expected.mean - (expected.whole << 8)) >> length;
    let mean = |n: i32, shift: u32| ((left + (n << shift) / 2) >> shift).clamp(0, n - 1) as usize;
    let size = |position: usize| i32::from(near.sizes[position]);
    let around = 2 * (2 * size(W) + 2 * size(N) + size(NW) + size(NE) + size(WW) + size(NN));
    let scale = length.min(3);
    [
        usize::from(odd),
        ((code(W) * 5 + code(N)) * 5 + code(B)) * 4 + scale,
        ((code(PARENT) * 5 + code(PARENT + 1)) * 5 + code(PARENT + 2)) * 4 + scale,
        mean(64, 3) * 14 + grade_of_size / 6,
        ((mean(7, 6) * 5 + code(W)) * 5 + code(N)) * 4 + scale,
        (mean(16, 4) * 3 + sign(expected.mean)) * 21 + grade_of_size / 4,
        grade(around, length) * 5 + mean(5, 5),
        (((sign_of(W) * 3 + sign_of(N)) * 3 + sign_of(B)) * 3 + sign_of(PARENT)) * 11 + grade_of_size / 8,
    ]
}

/// A row of an array; indices beyond the end are those of the last row.
fn row<'a>(array: &'a [Tap], dims: &Dims, at: [usize; X]) -> &'a [Tap] {
    let start = (0..X).fold(0, |start, a| start * dims[a] + at[a].min(dims[a] - 1)) * dims[X];
    &array[start..start + dims[X]]
}

/// Adds row[x + dx] to the input `position` of each value x from `from` on, where dx is -1, 0 or 1; beyond the ends of
/// the row, its first or last value.
fn add(row: &[Tap], from: usize, dx: isize, near: &mut [Neighbours], position: usize) {
    let put = |(near, tap): (&mut Neighbours, &Tap)| {
        near.codes[position] += tap.code;
        near.sizes[position] += tap.size;
    };
    let last = row.len() - 1;
    let (before, start) = match from.checked_add_signed(dx) {
        Some(start) => (&[][..], start.min(last)),
        None => (&row[..1], 0),
    };
    let rest = before.iter().chain(&row[start..]).chain(row[last..].iter().cycle());
    near.iter_mut().zip(rest).for_each(put);
}

/// Values of a row whose neighbours are collected at a time, since these take far more memory than the values.
const RUN: usize = 1 << 12;

/// A pass over the bands, encoding or decoding.
struct Pass<'a> {
    layout: &'a BandLayout,
    /// All codes up to the current one.
    taps: Vec<Tap>,
    /// The codes on the grid of the next coarser level.
    coarse: Vec<Tap>,
    /// The neighbours of the current values: at most [`RUN`] of one row.
    near: Vec<Neighbours>,
}

impl<'a> Pass<'a> {
    fn new(layout: &'a BandLayout) -> Result<Self> {
        Ok(Self { layout, taps: filled(Tap::default(), layout.n_values)?, coarse: Vec::new(), near: Vec::new() })
    }

    /// Builds the coarse grid of a level, whose bands come next.
    fn enter(&mut self, band: &Band, level: &Level) -> Result<()> {
        let mut grid = filled(Tap::default(), volume(&level.coarse))?;
        match self.layout.levels.get(band.level + 1) {
            None => grid.copy_from_slice(&self.taps[..volume(&level.coarse)]),
            Some(coarser) => self.layout.merge(coarser, &self.coarse, &self.taps, &mut grid),
        }
        self.coarse = grid;
        Ok(())
    }

    /// Collects the neighbours of a run, which starts at `from` in its row, in its own band.
    fn gather_own(&mut self, band: &Band, at: [usize; X], from: usize) {
        let near = &mut self.near[..];
        let own = &self.taps[band.offset..];
        let [t, z, y] = at;
        let row = |at| row(own, &band.dims, at);
        if y > 0 {
            let north = row([t, z, y - 1]);
            add(north, from, 0, near, N);
            add(north, from, -1, near, NW);
            add(north, from, 1, near, NE);
        }
        if y > 1 {
            add(row([t, z, y - 2]), from, 0, near, NN);
        }
        if z > 0 {
            let back = row([t, z - 1, y]);
            add(back, from, 0, near, B);
            add(back, from, -1, near, BX);
            add(back, from, 1, near, BX);
            add(row([t, z - 1, y.saturating_sub(1)]), from, 0, near, BY);
            add(row([t, z - 1, y + 1]), from, 0, near, BY);
        }
        if t > 0 {
            add(row([t - 1, z, y]), from, 0, near, T);
        }
    }

    /// Collects the neighbours of a run in the coarse grid and in earlier bands of its level.
    fn gather_level(&mut self, level: &Level, band: &Band, at: [usize; X], from: usize) {
        let near = &mut self.near[..];
        // Moves a row's position along an axis. A step along X does not change the row, and is returned.
        let moved = |a: usize, step: isize, at: &mut [usize; X]| match at.get_mut(a) {
            Some(i) => {
                *i = i.saturating_add_signed(step);
                0
            }
            None => step,
        };
        for (k, a) in axes_of(band.odd).enumerate() {
            let dims = class_dims(&level.grid, level.active, band.odd & !(1 << a));
            let array = match level.parent(band.odd, 1 << a) {
                None => &self.coarse[..],
                Some(parent) => &self.taps[self.layout.bands[parent].offset..],
            };
            let mut next = at;
            let dx = moved(a, 1, &mut next);
            add(row(array, &dims, at), from, 0, near, PARENT + k.min(2));
            add(row(array, &dims, next), from, dx, near, PARENT + k.min(2));
        }
        let mut before = self.layout.bands[level.bands.clone()].iter().rev().filter(|other| other.offset < band.offset);
        if let Some(sibling) = before.find(|other| (other.odd ^ band.odd).count_ones() == 2) {
            for pick in 0..4 {
                let mut position = at;
                let mut dx = 0;
                for (k, a) in axes_of(sibling.odd ^ band.odd).enumerate() {
                    // Along the axis this point is between i and i + 1 where it is odd, otherwise between i - 1 and i.
                    let step = (pick >> k & 1) - isize::from(sibling.odd >> a & 1 != 0);
                    dx += moved(a, step, &mut position);
                }
                add(row(&self.taps[sibling.offset..], &sibling.dims, position), from, dx, near, SIBLING);
            }
        }
    }

    /// Codes all bands; calls `check` after each run.
    fn run<C: BitCoder>(
        &mut self,
        coder: &mut C,
        masked: Option<&[bool]>,
        codes: &mut [i32],
        check: impl Fn(&C) -> Result<()>,
    ) -> Result<()> {
        let mut model = Model::new();
        for (b, band) in self.layout.bands.iter().enumerate() {
            let level = self.layout.levels.get(band.level);
            if let Some(level) = level
                && level.bands.start == b
            {
                self.enter(band, level)?;
            }
            let [_, n_z, n_y, n_x] = band.dims;
            for r in 0..volume(&band.dims) / n_x.max(1) {
                let at = [r / n_y / n_z, r / n_y % n_z, r % n_y];
                let mut west = [Tap::default(); 4];
                for from in (0..n_x).step_by(RUN) {
                    self.near.clear();
                    self.near.resize(RUN.min(n_x - from), Neighbours::default());
                    self.gather_own(band, at, from);
                    if let Some(level) = level {
                        self.gather_level(level, band, at, from);
                    }
                    self.code_run(&mut model, coder, masked, codes, (band, r * n_x + from), &mut west);
                    check(coder)?;
                }
            }
        }
        Ok(())
    }

    /// Codes the run of a band that starts at value `start`; `west` are the values before it in its row.
    fn code_run<C: BitCoder>(
        &mut self,
        model: &mut Model,
        coder: &mut C,
        masked: Option<&[bool]>,
        codes: &mut [i32],
        (band, start): (&Band, usize),
        west: &mut [Tap; 4],
    ) {
        let positions = if band.odd == 0 { &[W, WW, PARENT, PARENT + 1][..] } else { &[W, WW] };
        for (i, near) in (band.offset + start..).zip(&mut self.near) {
            if masked.is_some_and(|masked| masked[i]) {
                codes[i] = 0;
            } else {
                for (tap, position) in west.iter().zip(positions) {
                    near.codes[*position] = tap.code;
                    near.sizes[*position] = tap.size;
                }
                codes[i] = model.code(coder, band.odd, near, codes[i]);
            }
            self.taps[i] = Tap::new(codes[i]);
            *west = [self.taps[i], west[0], west[1], west[2]];
        }
    }
}

/// Appends the codes of all bands, except masked ones, which are 0.
pub(crate) fn encode(layout: &BandLayout, codes: &[i32], masked: Option<&[bool]>, out: &mut Vec<u8>) {
    let mut encoder = BinaryEncoder::new(out);
    let pass = Pass::new(layout).and_then(|mut pass| pass.run(&mut encoder, masked, &mut codes.to_vec(), |_| Ok(())));
    pass.expect(MEMORY_WAS_CHECKED);
    encoder.finish();
}

/// The most memory that [`decode`] takes for so many codes: taps, and those of coarse grids, which have half of the codes
/// or less.
pub(crate) fn decode_bytes(n_values: u64) -> u64 {
    7 * n_values
}

/// Decodes what [`encode`] appended.
pub(crate) fn decode(layout: &BandLayout, bytes: &[u8], masked: Option<&[bool]>, codes: &mut [i32]) -> Result<()> {
    let mut decoder = BinaryDecoder::new(bytes);
    Pass::new(layout)?.run(&mut decoder, masked, codes, |decoder| match decoder.is_past_end() {
        true => Err(Error::corrupt("mixed codes end too early")),
        false => Ok(()),
    })?;
    decoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layouts() -> Vec<BandLayout> {
        let dims = [
            [1, 1, 1, 1],
            [1, 1, 1, 700],
            [1, 1, 2, 2 * RUN + 1],
            [1, 1, 30, 41],
            [1, 9, 11, 13],
            [5, 8, 9, 10],
            [4, 2, 5, 1],
        ];
        let all = dims.into_iter().flat_map(|dims| {
            [8, 12, 14, 15, 4]
                .into_iter()
                .map(move |active| BandLayout::interpolation(dims, active))
                .chain([BandLayout::lattice(dims)])
        });
        all.collect()
    }

    /// Codes of about `bits` bits, in runs of zeros and of others.
    fn noise(n: usize, bits: u32) -> Vec<i32> {
        let mut state = 1_u64;
        let next = |i: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let code = (state >> 32) as u32 as i32 >> (32 - bits).min(31) >> ((state >> 8) % 3);
            if (i / 16).is_multiple_of(3) { 0 } else { code.max(-i32::MAX) }
        };
        (0..n).map(next).collect()
    }

    fn round_trip(layout: &BandLayout, codes: &[i32], masked: Option<&[bool]>) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode(layout, codes, masked, &mut bytes);
        let mut again = Vec::new();
        encode(layout, codes, masked, &mut again);
        assert_eq!(bytes, again);
        let mut back = vec![7; codes.len()];
        decode(layout, &bytes, masked, &mut back).unwrap();
        assert_eq!(back, codes);
        bytes
    }

    #[test]
    fn codes_of_all_sizes_come_back() {
        for layout in layouts() {
            for bits in [1, 2, 5, 12, 20, 32] {
                round_trip(&layout, &noise(layout.n_values, bits), None);
            }
            let extremes: Vec<i32> =
                (0..layout.n_values).map(|i| [i32::MAX, -i32::MAX, 0, -1][i * i % 7 % 4]).collect();
            round_trip(&layout, &extremes, None);
        }
    }

    #[test]
    fn masked_codes_cost_nothing() {
        for layout in layouts() {
            let masked: Vec<bool> = (0..layout.n_values).map(|i| i / 5 % 2 == 0).collect();
            let mut codes = noise(layout.n_values, 6);
            codes.iter_mut().zip(&masked).filter(|(_, masked)| **masked).for_each(|(code, _)| *code = 0);
            round_trip(&layout, &codes, Some(&masked));
            let all = vec![true; layout.n_values];
            assert!(round_trip(&layout, &vec![0; layout.n_values], Some(&all)).is_empty());
        }
    }

    #[test]
    fn predictable_codes_are_small() {
        let layout = BandLayout::lattice([1, 1, 64, 64]);
        assert!(round_trip(&layout, &vec![0; 4096], None).len() < 16);
        let waves: Vec<i32> = (0..4096).map(|i| (i / 64 + i) % 16 - 8).collect();
        assert!(round_trip(&layout, &waves, None).len() < 1024);
    }

    #[test]
    fn damage_never_panics() {
        for layout in layouts().iter().filter(|layout| layout.n_values > 600) {
            let mut bytes = Vec::new();
            encode(layout, &noise(layout.n_values, 9), None, &mut bytes);
            let mut codes = vec![0; layout.n_values];
            decode(layout, &bytes[..bytes.len() / 2], None, &mut codes).unwrap_err();
            for n in 0..bytes.len().min(40) {
                let _ = decode(layout, &bytes[..n], None, &mut codes);
            }
            for i in 0..bytes.len().min(40) {
                let mut damaged = bytes.clone();
                damaged[i * 7 % bytes.len()] ^= 1 << (i % 8);
                let _ = decode(layout, &damaged, None, &mut codes);
            }
            for byte in [0, 0x55, 0xff] {
                let _ = decode(layout, &vec![byte; 2000], None, &mut codes);
            }
        }
    }
}
