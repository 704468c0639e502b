//! The classes of groups as symbols, and the groups of each codebook (docs/format.md, 9.3 and 9.4).

use crate::entropy::codebook::{CLASS_SYMBOLS, N_CLASSES, OWN_BOOK_GROUPS};
use crate::error::{Error, Result};
use crate::exec::filled;

/// Symbols of classes: first the digits of the length of a run of empty groups, then the step from the last class that
/// was not 0.
const N_DIGITS: u8 = 2;
const _: () = assert!(CLASS_SYMBOLS == N_DIGITS as usize + 2 * N_CLASSES);

/// The symbols that stand for the classes of all groups.
pub(super) fn class_symbols(classes: &[u8]) -> Vec<u8> {
    let mut symbols = Vec::with_capacity(classes.len());
    let mut last = 1;
    let mut n_empty = 0_usize;
    let end_run = |n_empty: &mut usize, symbols: &mut Vec<u8>| {
        // Bijective base 2: digits 1 and 2, least significant first, so each length has one representation.
        while *n_empty > 0 {
            let is_even = n_empty.is_multiple_of(2);
            symbols.push(u8::from(is_even));
            *n_empty = (*n_empty - 1) / 2;
        }
    };
    for &class in classes {
        if class == 0 {
            n_empty += 1;
            continue;
        }
        end_run(&mut n_empty, &mut symbols);
        let rise = class as i8 - last as i8;
        symbols.push(N_DIGITS + ((rise << 1) ^ (rise >> 7)) as u8);
        last = class;
    }
    end_run(&mut n_empty, &mut symbols);
    symbols
}

/// Inverse of [`class_symbols`].
pub(super) fn read_classes(symbols: &[u8], classes: &mut [u8]) -> Result<()> {
    let wrong = || Error::corrupt("chunk has groups of unknown classes");
    let mut at = 0_usize;
    let mut last = 1_i32;
    let mut symbols = symbols.iter().copied().peekable();
    while let Some(symbol) = symbols.next() {
        if symbol >= N_DIGITS {
            let step = i32::from(symbol - N_DIGITS);
            last += (step >> 1) ^ -(step & 1);
            let class = u8::try_from(last).ok().filter(|class| (1..N_CLASSES as u8).contains(class));
            *classes.get_mut(at).ok_or_else(wrong)? = class.ok_or_else(wrong)?;
            at += 1;
            continue;
        }
        let (mut n_empty, mut power) = (1 + usize::from(symbol), 1);
        while let Some(digit) = symbols.next_if(|symbol| *symbol < N_DIGITS) {
            power = if power < 1 << 28 { 2 * power } else { return Err(wrong()) };
            n_empty += power * (1 + usize::from(digit));
        }
        if n_empty > classes.len() - at {
            return Err(wrong());
        }
        classes[at..at + n_empty].fill(0);
        at += n_empty;
    }
    if at == classes.len() { Ok(()) } else { Err(wrong()) }
}

/// The groups of each codebook, in ascending order. Codebooks are numbered by their lowest class.
pub(super) struct Sorted {
    groups: Vec<u32>,
    starts: [usize; N_CLASSES + 1],
}

impl Sorted {
    /// Each class that has enough groups has a codebook of its own.
    pub(super) fn new(classes: &[u8]) -> Result<Self> {
        let mut n_of_class = [0_usize; N_CLASSES];
        classes.iter().for_each(|class| n_of_class[usize::from(*class)] += 1);
        // A class with too few groups shares the codebook of the class two below, which covers the same half octave.
        let mut book_of: [u8; N_CLASSES] = std::array::from_fn(|class| class as u8);
        for class in 1..N_CLASSES {
            if n_of_class[class] < OWN_BOOK_GROUPS && class > 2 {
                book_of[class] = book_of[class - 2];
            }
        }
        Self::by_book(classes, &book_of)
    }

    /// The groups of each class have this codebook.
    pub(super) fn by_book(classes: &[u8], book_of: &[u8; N_CLASSES]) -> Result<Self> {
        let mut n_of_class = [0_usize; N_CLASSES];
        classes.iter().for_each(|class| n_of_class[usize::from(*class)] += 1);
        let mut starts = [0; N_CLASSES + 1];
        for class in 1..N_CLASSES {
            starts[usize::from(book_of[class]) + 1] += n_of_class[class];
        }
        (0..N_CLASSES).for_each(|book| starts[book + 1] += starts[book]);
        let mut next = starts;
        let mut groups = filled(0, starts[N_CLASSES])?;
        for (group, &class) in (0..).zip(classes).filter(|(_, class)| **class != 0) {
            let book = usize::from(book_of[usize::from(class)]);
            groups[next[book]] = group;
            next[book] += 1;
        }
        Ok(Self { groups, starts })
    }

    /// All codebooks that have groups, and these.
    pub(super) fn books(&self) -> impl Iterator<Item = (usize, &[u32])> + use<'_> {
        let all = self.starts.windows(2).map(|range| &self.groups[range[0]..range[1]]);
        all.enumerate().filter(|(_, groups)| !groups.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_back_and_no_run_is_too_long() {
        for classes in [
            vec![],
            vec![0; 1],
            vec![0; 100_000],
            vec![64, 1, 64, 0, 0, 0, 1, 0, 0, 33],
            (0..300).map(|i| (i * i % 65) as u8).collect(),
            (0..3000).map(|i| u8::from(i % 37 == 5) * 9).collect(),
        ] {
            let symbols = class_symbols(&classes);
            assert!(symbols.iter().all(|symbol| usize::from(*symbol) < CLASS_SYMBOLS));
            let mut back = vec![99; classes.len()];
            read_classes(&symbols, &mut back).unwrap();
            assert_eq!(back, classes);
            assert!(read_classes(&symbols, &mut vec![0; classes.len() + 1]).is_err());
            if !classes.is_empty() {
                assert!(read_classes(&symbols, &mut vec![0; classes.len() - 1]).is_err());
            }
        }
        assert!(class_symbols(&[0; 100_000]).len() < 17);
        // A run that never ends, and classes that do not exist.
        assert!(read_classes(&[1; 200], &mut [0; 1000]).is_err());
        assert!(read_classes(&[N_DIGITS + 1], &mut [0]).is_err());
        assert!(read_classes(&[N_DIGITS + 128], &mut [0]).is_err());
    }
}
