//! The codebook that chunks of the preset `balanced` share (docs/format.md, 9.6): all that a chunk otherwise builds and
//! stores for itself. It has codes for the symbols of classes, for those of the groups of each class, and for literals.
//!
//! Every chunk can be coded with every codebook. Symbols that it was not trained for have an escape instead of a code;
//! classes that it was not trained for use the book of another one. Bytes that were read have passed all checks that this
//! needs, so encoders cannot fail with them.

use std::fmt;
use std::sync::{Arc, OnceLock};

use super::huffman::{self, DecodeTables, Lengths, packed};
use crate::error::{Error, ErrorKind, Result};
use crate::io::{Bytes, checksum};

/// Number of classes of groups; those of class 0 have no symbols.
pub(crate) const N_CLASSES: usize = 1 + 2 * 32;
/// Symbols that code the classes.
pub(crate) const CLASS_SYMBOLS: usize = 2 + 2 * N_CLASSES;
/// Symbols of each alphabet of a book. That of alphabet 0 is the one of literals, too.
pub(crate) const ALPHABET_SYMBOLS: [usize; 5] = [256, 50, 82, 130, 65];
/// Bits of a book's head that say how many its lengths take; its alphabet is above them.
pub(crate) const SIZE_BITS: u32 = 13;
/// A class gets a book of its own from this many groups on.
pub(crate) const OWN_BOOK_GROUPS: usize = 64;

const MAGIC: [u8; 4] = *b"PUMB";
const VERSION: u8 = 1;
const CHECKSUM_BYTES: usize = 8;

/// The symbol that stands for those without a code: that of a wide difference in alphabet 0, of literals in others.
pub(crate) fn escape(alphabet: usize) -> u8 {
    if alphabet == 0 { 0 } else { (ALPHABET_SYMBOLS[alphabet] - 1) as u8 }
}

/// The code of some symbols.
#[derive(Debug)]
pub(crate) struct Book {
    alphabet: usize,
    codes: huffman::Codebook,
    /// What is coded in the place of each symbol: itself if it has a code, otherwise the escape.
    coded: [u8; 256],
    tables: OnceLock<DecodeTables<u8>>,
}

impl Book {
    fn new(alphabet: usize, lengths: Lengths) -> Self {
        let mut coded = [escape(alphabet); 256];
        for (symbol, coded) in (0..=255).zip(&mut coded) {
            if lengths.bits().get(usize::from(symbol)).is_some_and(|n_bits| *n_bits != Lengths::NO_CODE) {
                *coded = symbol;
            }
        }
        Self { alphabet, codes: huffman::Codebook::new(lengths), coded, tables: OnceLock::new() }
    }

    /// The number of the alphabet.
    pub(crate) fn alphabet(&self) -> usize {
        self.alphabet
    }

    /// What is coded in the place of each symbol.
    pub(crate) fn coded(&self) -> &[u8; 256] {
        &self.coded
    }

    /// The bits that symbols of these counts take, all of which have codes.
    pub(crate) fn bits(&self, counts: &[u32]) -> u64 {
        let lengths = self.codes.lengths().bits();
        counts
            .iter()
            .zip(lengths)
            .filter(|(count, _)| **count > 0)
            .map(|(n, bits)| u64::from(*n) * u64::from(*bits))
            .sum()
    }

    pub(crate) fn codes(&self) -> &huffman::Codebook {
        &self.codes
    }

    /// Tables for decoding, made at the first call.
    pub(crate) fn tables(&self) -> &DecodeTables<u8> {
        self.tables.get_or_init(|| DecodeTables::new(std::slice::from_ref(self.codes.lengths())))
    }
}

/// Huffman codes that the chunks of an array share, and arrays with each other, instead of building their own: for
/// [`Config::codebook`](crate::Config::codebook). A [`CodebookTrainer`](crate::CodebookTrainer) makes it.
///
/// A stream keeps a copy of its codebook, so that nothing else is needed to read it.
#[derive(Clone)]
pub struct Codebook(Arc<Books>);

struct Books {
    bytes: Vec<u8>,
    classes: Book,
    of_classes: Vec<Book>,
    literals: Book,
    /// Which of the books each class from 1 on has.
    book_of: [u8; N_CLASSES],
}

impl Codebook {
    /// The codebook that [`Codebook::as_bytes`] gave. Bytes of any other origin are safe: they are refused if they are not
    /// those of a codebook.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self> {
        Self::parse(bytes).map_err(|e| match e.kind() {
            ErrorKind::Truncated => Error::corrupt("the codebook ends too early"),
            _ => e,
        })
    }

    /// All of it as bytes, which every machine and every later release reads.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0.bytes
    }

    /// Identifies it: the checksum of its bytes. Chunks name the codebook that they were coded with.
    pub fn id(&self) -> u32 {
        let checksum = self.0.bytes.last_chunk::<CHECKSUM_BYTES>().map_or(0, |bytes| u64::from_le_bytes(*bytes));
        checksum as u32
    }

    /// How many books of codes it has: those of classes, and those for classes and literals.
    pub fn n_books(&self) -> usize {
        2 + self.0.of_classes.len()
    }

    /// The codebook of these lengths: of the symbols of classes; of the groups of each class that has a book of its own,
    /// with their alphabet; of literals.
    pub(super) fn new(classes: Lengths, of_classes: Vec<(u8, usize, Lengths)>, literals: Lengths) -> Self {
        let mut own = 0_u64;
        of_classes.iter().for_each(|(class, ..)| own |= 1 << (class - 1));
        let (mut heads, mut packed) = (Vec::new(), Vec::new());
        let with_alphabets = of_classes.iter().map(|(_, alphabet, lengths)| (*alphabet, lengths));
        for (alphabet, lengths) in [(0, &classes)].into_iter().chain(with_alphabets).chain([(0, &literals)]) {
            let n_bits = packed::pack(lengths, &mut packed);
            heads.extend_from_slice(&(n_bits as u16 | (alphabet as u16) << SIZE_BITS).to_le_bytes());
        }
        let mut bytes = [&MAGIC[..], &[VERSION], &own.to_le_bytes(), &heads, &packed].concat();
        bytes.extend_from_slice(&checksum::xxh3(&bytes).to_le_bytes());
        Self(Arc::new(Books {
            bytes,
            classes: Book::new(0, classes),
            of_classes: of_classes.into_iter().map(|(_, alphabet, lengths)| Book::new(alphabet, lengths)).collect(),
            literals: Book::new(0, literals),
            book_of: book_of(own),
        }))
    }

    fn parse(all: &[u8]) -> Result<Self> {
        let wrong = |what: &str| Err(Error::corrupt(format!("codebook: {what}")));
        let (covered, stored) = all.split_last_chunk::<CHECKSUM_BYTES>().ok_or_else(|| Error::truncated(""))?;
        let mut bytes = Bytes::new(covered);
        if bytes.array()? != MAGIC {
            return wrong("these are not the bytes of a codebook (wrong magic)");
        }
        let version = bytes.u8()?;
        if version != VERSION {
            return Err(Error::unsupported(format!("codebook of version {version}: use a newer release")));
        }
        if checksum::xxh3(covered) != u64::from_le_bytes(*stored) {
            return wrong("wrong checksum");
        }
        let own = bytes.u64()?;
        if own == 0 {
            return wrong("no class has a book");
        }
        let n_books = own.count_ones() as usize;
        let heads: Vec<u16> =
            bytes.take(2 * (n_books + 2))?.as_chunks().0.iter().map(|h| u16::from_le_bytes(*h)).collect();
        let mut lengths = |head: u16, n_symbols: usize| {
            let n_bits = u32::from(head) & ((1 << SIZE_BITS) - 1);
            packed::unpack(bytes.take(n_bits.div_ceil(8) as usize)?, n_bits, n_symbols)
        };
        if [heads[0], heads[n_books + 1]].iter().any(|head| head >> SIZE_BITS != 0) {
            return wrong("classes or literals of a wrong alphabet");
        }
        let classes = lengths(heads[0], CLASS_SYMBOLS)?;
        let mut of_classes = Vec::with_capacity(n_books);
        for head in &heads[1..=n_books] {
            let alphabet = usize::from(head >> SIZE_BITS);
            let Some(&n_symbols) = ALPHABET_SYMBOLS.get(alphabet) else { return wrong("unknown alphabet") };
            let lengths = lengths(*head, n_symbols)?;
            if lengths.bits()[usize::from(escape(alphabet))] == Lengths::NO_CODE {
                return wrong("a book has no escape");
            }
            of_classes.push(Book::new(alphabet, lengths));
        }
        let literals = lengths(heads[n_books + 1], ALPHABET_SYMBOLS[0])?;
        if classes.bits().iter().chain(literals.bits()).any(|n_bits| *n_bits == Lengths::NO_CODE) {
            return wrong("a symbol of classes or literals has no code");
        }
        if bytes.len() != 0 {
            return wrong("bytes after the end");
        }
        let (classes, literals) = (Book::new(0, classes), Book::new(0, literals));
        Ok(Self(Arc::new(Books { bytes: all.to_vec(), classes, of_classes, literals, book_of: book_of(own) })))
    }

    /// The book of the symbols of classes.
    pub(crate) fn classes(&self) -> &Book {
        &self.0.classes
    }

    /// The book of literals.
    pub(crate) fn literals(&self) -> &Book {
        &self.0.literals
    }

    /// The books of groups, by the order of their classes.
    pub(crate) fn of_classes(&self) -> &[Book] {
        &self.0.of_classes
    }

    /// Which of [`Self::of_classes`] the groups of each class have; that of class 0 means nothing.
    pub(crate) fn book_of(&self) -> &[u8; N_CLASSES] {
        &self.0.book_of
    }
}

/// Which of the books each class has, given the classes that have books of their own, class c by bit c - 1. Others have
/// that of the class two below, which covers the same half octave; those that have none below have the first book.
fn book_of(own: u64) -> [u8; N_CLASSES] {
    let mut all = [0; N_CLASSES];
    let mut next = 0;
    for class in 1..N_CLASSES {
        if own >> (class - 1) & 1 != 0 {
            all[class] = next;
            next += 1;
        } else if class > 2 {
            all[class] = all[class - 2];
        }
    }
    all
}

impl PartialEq for Codebook {
    fn eq(&self, other: &Self) -> bool {
        self.0.bytes == other.0.bytes
    }
}

impl Eq for Codebook {}

impl fmt::Debug for Codebook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Codebook {{ id: {:08x}, {} books, {} bytes }}", self.id(), self.n_books(), self.0.bytes.len())
    }
}
