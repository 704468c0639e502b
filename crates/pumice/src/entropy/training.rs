//! Counts of what chunks code, and the [`Codebook`] that suits them. Counts are sums, so that chunks may come in any order
//! from any number of threads.

use std::sync::{Mutex, PoisonError};

use super::codebook::{ALPHABET_SYMBOLS, CLASS_SYMBOLS, Codebook, N_CLASSES, OWN_BOOK_GROUPS, escape};
use super::huffman::{Lengths, packed};
use crate::error::{Error, Result};

/// Estimated bits of a literal: more than those of a class's own code, as the literals of all classes have one code.
const LITERAL_BITS: u64 = 7;
const N_ALPHABETS: usize = ALPHABET_SYMBOLS.len();

/// What was counted so far.
#[derive(Debug, Default)]
pub(crate) struct Training(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    classes: Vec<u64>,
    /// By class; empty before the first group.
    of_class: Vec<ClassCounts>,
}

/// What the groups of a class are coded as, by alphabet.
#[derive(Clone, Debug)]
struct ClassCounts {
    n_groups: u64,
    symbols: [[u64; 256]; N_ALPHABETS],
    literals: [[u64; 256]; N_ALPHABETS],
}

impl ClassCounts {
    const NONE: Self = Self { n_groups: 0, symbols: [[0; 256]; N_ALPHABETS], literals: [[0; 256]; N_ALPHABETS] };

    fn add(&mut self, other: &Self) {
        self.n_groups += other.n_groups;
        for i in 0..N_ALPHABETS {
            add(&mut self.symbols[i], &other.symbols[i]);
            add(&mut self.literals[i], &other.literals[i]);
        }
    }
}

fn add<N: Copy + Into<u64>>(sums: &mut [u64], counts: &[N]) {
    sums.iter_mut().zip(counts).for_each(|(sum, n)| *sum += (*n).into());
}

/// The groups of one class in a chunk: what they are as symbols of each alphabet, and the literals that this leaves.
pub(crate) struct ClassSample {
    pub(crate) class: u8,
    pub(crate) n_groups: usize,
    pub(crate) symbols: [[u32; 256]; N_ALPHABETS],
    pub(crate) literals: [[u32; 256]; N_ALPHABETS],
}

impl Training {
    /// Adds what one chunk codes: the symbols of classes, and the groups of each class.
    pub(crate) fn add_chunk(&self, class_symbols: &[u32], classes: &[ClassSample]) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        counts.classes.resize(CLASS_SYMBOLS, 0);
        add(&mut counts.classes, class_symbols);
        if counts.of_class.is_empty() {
            counts.of_class = vec![ClassCounts::NONE; N_CLASSES];
        }
        for sample in classes {
            let sum = &mut counts.of_class[usize::from(sample.class)];
            sum.n_groups += sample.n_groups as u64;
            for i in 0..N_ALPHABETS {
                add(&mut sum.symbols[i], &sample.symbols[i]);
                add(&mut sum.literals[i], &sample.literals[i]);
            }
        }
    }

    /// The codebook for what was added.
    pub(crate) fn finish(self) -> Result<Codebook> {
        let Counts { mut classes, mut of_class } = self.0.into_inner().unwrap_or_else(PoisonError::into_inner);
        if of_class.iter().all(|counts| counts.n_groups == 0) {
            return Err(Error::invalid(
                "a codebook needs values to be trained with that are neither constant nor stored without loss; add an \
                 array that varies by more than its bound",
            ));
        }
        let is_own = own_classes(&of_class);
        // Each class that has no book counts for the one whose book it uses.
        let first = is_own.iter().position(|is_own| *is_own).unwrap_or(1);
        for class in (1..N_CLASSES).rev().filter(|class| !is_own[*class]) {
            let counts = std::mem::replace(&mut of_class[class], ClassCounts::NONE);
            of_class[if class > 2 { class - 2 } else { first }].add(&counts);
        }
        let mut literals = [0; 256];
        let mut books = Vec::new();
        for class in (1..N_CLASSES).filter(|class| is_own[*class]) {
            let (alphabet, lengths) = best(&of_class[class]);
            add(&mut literals, &of_class[class].literals[alphabet]);
            books.push((class as u8, alphabet, lengths));
        }
        classes.iter_mut().chain(&mut literals).for_each(|n| *n += 1);
        Ok(Codebook::new(fit(&classes), books, fit(&literals)))
    }
}

/// The classes with enough groups for a book of their own; at least the one with the most.
fn own_classes(of_class: &[ClassCounts]) -> [bool; N_CLASSES] {
    let most = (1..N_CLASSES).rev().max_by_key(|class| of_class[*class].n_groups);
    std::array::from_fn(|class| {
        class > 0 && (of_class[class].n_groups >= OWN_BOOK_GROUPS as u64 || most == Some(class))
    })
}

/// The alphabet that codes these groups in the fewest bits, and its code.
fn best(counts: &ClassCounts) -> (usize, Lengths) {
    let of_alphabet = |alphabet: usize| {
        let mut symbols = counts.symbols[alphabet][..ALPHABET_SYMBOLS[alphabet]].to_vec();
        symbols[usize::from(escape(alphabet))] += 1;
        if alphabet == 0 {
            // Bytes between those that occur are as likely.
            let used = || (1..256).filter(|byte| counts.symbols[0][*byte] > 0);
            let range = used().next().unwrap_or(1)..used().next_back().map_or(1, |last| last + 1);
            symbols[range].iter_mut().for_each(|n| *n = (*n).max(1));
        }
        let lengths = fit(&symbols);
        let bits = bits_of(&lengths, &symbols);
        let n_literals: u64 = counts.literals[alphabet].iter().sum();
        (bits.saturating_add(LITERAL_BITS.saturating_mul(n_literals)), alphabet, lengths)
    };
    let (_, alphabet, lengths) = (0..N_ALPHABETS)
        .map(of_alphabet)
        .min_by_key(|(bits, alphabet, _)| (*bits, *alphabet))
        .expect("there are alphabets");
    (alphabet, lengths)
}

/// The lengths that suit these counts.
fn fit(counts: &[u64]) -> Lengths {
    let total: u64 = counts.iter().sum();
    // Down to 32 bits; what occurs keeps its code.
    let shift = (u64::BITS - total.leading_zeros()).saturating_sub(31);
    let scaled: Vec<u32> = counts.iter().map(|&n| (n >> shift).max(u64::from(n > 0)) as u32).collect();
    Lengths::fit(&scaled, packed::MAX_BITS)
}

/// The bits that symbols of these counts take, all of which have codes.
fn bits_of(lengths: &Lengths, counts: &[u64]) -> u64 {
    let used = counts.iter().zip(lengths.bits()).filter(|(n, _)| **n > 0);
    used.map(|(n, bits)| n.saturating_mul(u64::from(*bits))).fold(0, u64::saturating_add)
}
