//! The codec of the preset `balanced` (docs/format.md, 9): differences of the quantised integers, in groups whose mean
//! magnitude selects a Huffman code.
//!
//! ```text
//! integers ─▶ differences  N-D Lorenzo along the axes that suit the chunk      (differences.rs)
//!          ─▶ groups       32 at a time: class, raw low bits, bytes            (groups.rs)
//!          ─▶ alphabet     symbols of 1, 2, 4, 8 or 32 bytes                   (alphabet.rs)
//!          ─▶ huffman      a codebook for each class with enough groups        (entropy/huffman)
//! ```
//!
//! All groups of a codebook are coded together, wherever they are in the chunk. So the decoder uses one look-up table
//! at a time, and each codebook has the alphabet that suits it. Runs of groups of zeros are coded as run lengths.

mod alphabet;
mod differences;
mod groups;

use super::shared::integers::{self, Exceptions, Integers};
use super::shared::view::View;
use super::shared::{masks, padding};
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::huffman::{self, Classes, Codebook, DecodeTables, Lengths, packed};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, filled, scratch};
use crate::io::{Bytes, varint};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::Quantizer;
use alphabet::{Alphabet, Choose, Count, Gather, Scatter};
use differences::{Order, Position, Sums, Walk};
use groups::{GROUP, N_CLASSES, WIDE};

/// Values that are processed together: few enough to stay in the L1 cache.
const BLOCK: usize = 4096;
/// Number of bits, in a codebook's head, of the size of its packed lengths; the alphabet is above them.
const SIZE_BITS: u32 = 13;
/// The most codebooks of a chunk: one for classes, one for each class, and one for literals.
const MAX_CODEBOOKS: usize = N_CLASSES + 1;
/// Symbols of classes: first the digits of the length of a run of empty groups, then the step from the last class that
/// was not 0.
const N_DIGITS: u8 = 2;
const CLASS_ALPHABET: usize = N_DIGITS as usize + 2 * N_CLASSES;
/// A class gets a codebook of its own from this many groups on.
const OWN_BOOK_GROUPS: usize = 64;
/// The codec of the preset `balanced`.
pub(crate) struct Balanced;

impl<T: Real> ChunkCodec<T> for Balanced {
    const ID: CodecId = CodecId::Balanced;
    type Settings<'a>
        = &'a Quantizer<T>
    where
        T: 'a;

    fn encode(values: &[T], quantizer: Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        let &ChunkContext { extents, fills, .. } = chunk;
        let start = out.len();
        let view = View::new(extents);
        let gathered = if view.is_plain() { None } else { Some(view.gather(values)) };
        let working = gathered.as_deref().unwrap_or(values);
        let (Integers { origin, values: mut integers, holes }, exceptions) =
            integers::quantize_with_fills(working, quantizer, fills);
        exceptions.write_to(working, &view.dims, fills.len(), out);
        let order = Order::choose(&integers, &view.dims);
        let walk = Walk::new(&view.dims, order);
        walk.fill_holes(&mut integers, &holes);
        let parts = simd::run(SplitGroups { integers: &integers, walk: &walk });
        scratch::give(integers);

        let class_symbols = class_symbols(&parts.classes);
        let counts = simd::run(Count(&class_symbols));
        let mut coded = Coded::default();
        coded.push(Alphabet::Singles, &class_symbols, &counts[..CLASS_ALPHABET]);
        let sorted = Sorted::new(&parts.classes).expect(MEMORY_WAS_CHECKED);
        let bytes = parts.bytes.as_chunks::<GROUP>().0;
        let mut symbols: Vec<u8> = scratch::take(parts.bytes.len());
        let mut rest = Vec::new();
        for groups in sorted.books() {
            let alphabet = simd::run(Choose { bytes, groups });
            let symbols = &mut symbols[..groups.len() * GROUP / alphabet.width()];
            let counts = simd::run(Gather { bytes, groups, alphabet, symbols, rest: &mut rest });
            coded.push(alphabet, symbols, &counts[..alphabet.size()]);
        }
        if !rest.is_empty() {
            let counts = simd::run(Count(&rest));
            coded.push(Alphabet::Singles, &rest, &counts);
        }
        scratch::give(symbols);
        scratch::give(parts.bytes);

        varint::write_to(origin.zigzag() as u64, out);
        out.push(order.to_bits());
        varint::write_to(class_symbols.len() as u64, out);
        varint::write_to(rest.len() as u64, out);
        coded.write_to(out);
        out.extend_from_slice(&parts.low);
        parts.wide.iter().for_each(|d| out.extend_from_slice(&d.to_le_bytes()));
        scratch::give(parts.low);
        padding::pad(out, start, values.len());
        true
    }

    /// Symbols, literals and bytes of groups; groups by class; sums along axes; streams.
    fn decode_bytes(payload_bytes: u64, chunk: &ChunkContext<'_, T>) -> u64 {
        let n = chunk.n_values();
        let view = View::new(chunk.extents);
        let of_view = if view.is_plain() { 0 } else { size_of::<T>() as u64 * n };
        let of_groups = 3 * n + n / 4 + huffman::decode_bytes(n);
        of_view + of_groups + Sums::<T>::most_bytes(&view.dims) + masks::decode_bytes(payload_bytes, chunk)
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        let &ChunkContext { extents, fills, .. } = chunk;
        let step = chunk.needed_step()?;
        let view = View::new(extents);
        let mut bytes = Bytes::new(payload);
        let (exceptions, exact) = Exceptions::read_from::<T>(&mut bytes, out.len(), &view.dims, fills.len())?;
        let origin = (varint::read_from(&mut bytes)? as i64).unzigzag();
        let order = Order::from_bits(bytes.u8()?)?;
        let n_groups = out.len().div_ceil(GROUP);
        let n_class_symbols = varint::read_from(&mut bytes)?;
        if n_class_symbols > n_groups as u64 {
            return Err(Error::corrupt("chunk has more classes than groups"));
        }
        let n_rest = varint::read_from(&mut bytes)?;
        if n_rest > out.len() as u64 + GROUP as u64 {
            return Err(Error::corrupt("chunk has more literals than values"));
        }
        let mut coded = CodedReader::new(&mut bytes)?;

        let mut symbols: Vec<u8> = scratch::try_take(n_groups * GROUP)?;
        let class_symbols = &mut symbols[..n_class_symbols as usize];
        coded.take_bytes(CLASS_ALPHABET, class_symbols)?;
        let mut classes = filled(0, n_groups)?;
        read_classes(&symbols[..n_class_symbols as usize], &mut classes)?;

        let sorted = Sorted::new(&classes)?;
        let mut books = Vec::with_capacity(N_CLASSES);
        let mut left_symbols = &mut symbols[..];
        for groups in sorted.books() {
            let alphabet = coded.take(|alphabet| {
                let (symbols, left) =
                    std::mem::take(&mut left_symbols).split_at_mut(groups.len() * GROUP / alphabet.width());
                left_symbols = left;
                (alphabet.size(), symbols)
            })?;
            books.push((groups, alphabet));
        }
        let mut rest: Vec<u8> = scratch::try_take(n_rest as usize)?;
        if n_rest > 0 {
            coded.take_bytes(Alphabet::Singles.size(), &mut rest)?;
        }
        coded.finish()?;

        let mut group_bytes: Vec<u8> = scratch::try_take(n_groups * GROUP)?;
        let mut left = &rest[..];
        let mut left_symbols = &symbols[..];
        for (groups, alphabet) in books {
            let (symbols, after) = left_symbols.split_at(groups.len() * GROUP / alphabet.width());
            left_symbols = after;
            let bytes = group_bytes.as_chunks_mut::<GROUP>().0;
            if !simd::run(Scatter { symbols, groups, alphabet, rest: &mut left, bytes }) {
                return Err(Error::corrupt("chunk has too few literals"));
            }
        }
        if !left.is_empty() {
            return Err(Error::corrupt("chunk has too many literals"));
        }
        scratch::give(rest);
        scratch::give(symbols);

        let n_low = classes.iter().map(|class| groups::low_bytes(*class)).sum();
        let low = bytes.take(n_low)?;
        let mut gathered = Vec::new();
        let working: &mut [T] = if view.is_plain() {
            &mut *out
        } else {
            gathered = filled(T::default(), out.len())?;
            &mut gathered
        };
        let walk = Walk::new(&view.dims, order);
        let sums = Sums::new(&walk, origin, step)?;
        let n_values = working.len();
        simd::run(JoinGroups { classes: &classes, bytes: &group_bytes, low, wide: &mut bytes, sums, out: working })?;
        padding::check_end(&bytes, payload.len(), n_values)?;
        scratch::give(group_bytes);
        exceptions.restore(exact, fills, working);
        if !gathered.is_empty() {
            view.scatter(&gathered, out);
        }
        Ok(())
    }
}

/// Collects the symbols of several codebooks.
struct Coded {
    heads: Vec<u16>,
    lengths: Vec<u8>,
    sizes: Vec<u16>,
    streams: Vec<u8>,
}

impl Default for Coded {
    fn default() -> Self {
        let mut streams: Vec<u8> = scratch::take(0);
        streams.clear();
        Self { heads: Vec::new(), lengths: Vec::new(), sizes: Vec::new(), streams }
    }
}

impl Coded {
    /// Codes symbols with a codebook made for them.
    fn push(&mut self, alphabet: Alphabet, symbols: &[u8], counts: &[u32]) {
        let codebook = Codebook::new(Lengths::fit(counts, packed::MAX_BITS));
        let n_bits = packed::pack(codebook.lengths(), &mut self.lengths);
        self.heads.push(n_bits as u16 | (alphabet as u16) << SIZE_BITS);
        huffman::encode(symbols, Classes::Same(0), &[codebook], &mut self.streams, &mut self.sizes);
    }

    fn write_to(self, out: &mut Vec<u8>) {
        varint::write_to((self.sizes.len() / huffman::STREAMS) as u64, out);
        out.push(self.heads.len() as u8);
        self.heads.iter().for_each(|head| out.extend_from_slice(&head.to_le_bytes()));
        out.extend_from_slice(&self.lengths);
        self.sizes.iter().for_each(|size| out.extend_from_slice(&size.to_le_bytes()));
        out.extend_from_slice(&self.streams);
        scratch::give(self.streams);
    }
}

/// A chunk's differences, split into parts.
struct Apart {
    classes: Vec<u8>,
    /// Bytes of whole groups.
    bytes: Vec<u8>,
    low: Vec<u8>,
    wide: Vec<i32>,
}

struct SplitGroups<'a> {
    integers: &'a [i32],
    walk: &'a Walk,
}

impl Kernel for SplitGroups<'_> {
    type Output = Apart;

    #[inline(always)]
    fn run(self) -> Apart {
        let n_values = self.integers.len();
        let n_groups = n_values.div_ceil(GROUP);
        let mut low: Vec<u8> = scratch::take(0);
        low.clear();
        let mut all =
            Apart { classes: vec![0; n_groups], bytes: scratch::take(n_groups * GROUP), low, wide: Vec::new() };
        let mut position = Position::default();
        let mut block = [0; BLOCK];
        let mut low = [0; BLOCK * 4 + 8];
        let blocks = all.bytes.chunks_mut(BLOCK).zip(all.classes.chunks_mut(BLOCK / GROUP));
        for (at, (bytes, classes)) in (0..n_values).step_by(BLOCK).zip(blocks) {
            let n = BLOCK.min(n_values - at);
            self.walk.block(self.integers, at, &mut position, &mut block[..n]);
            block[n..].fill(0);
            let mut n_low = 0;
            let groups = block.as_chunks::<GROUP>().0.iter().zip(bytes.as_chunks_mut::<GROUP>().0);
            for ((group, bytes), class) in groups.zip(classes) {
                *class = groups::split(group, bytes, &mut low[n_low..], &mut all.wide);
                n_low += groups::low_bytes(*class);
            }
            all.low.extend_from_slice(&low[..n_low]);
        }
        all
    }
}

/// The symbols that stand for the classes of all groups.
fn class_symbols(classes: &[u8]) -> Vec<u8> {
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
fn read_classes(symbols: &[u8], classes: &mut [u8]) -> Result<()> {
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
struct Sorted {
    groups: Vec<u32>,
    starts: [usize; N_CLASSES + 1],
}

impl Sorted {
    fn new(classes: &[u8]) -> Result<Self> {
        let mut n_of_class = [0_usize; N_CLASSES];
        classes.iter().for_each(|class| n_of_class[usize::from(*class)] += 1);
        // A class with too few groups shares the codebook of the class two below, which covers the same half octave.
        let mut book_of: [usize; N_CLASSES] = std::array::from_fn(|class| class);
        for class in 1..N_CLASSES {
            if n_of_class[class] < OWN_BOOK_GROUPS && class > 2 {
                book_of[class] = book_of[class - 2];
            }
        }
        let mut starts = [0; N_CLASSES + 1];
        for class in 1..N_CLASSES {
            starts[book_of[class] + 1] += n_of_class[class];
        }
        (0..N_CLASSES).for_each(|book| starts[book + 1] += starts[book]);
        let mut next = starts;
        let mut groups = filled(0, starts[N_CLASSES])?;
        for (group, &class) in (0..).zip(classes).filter(|(_, class)| **class != 0) {
            let book = book_of[usize::from(class)];
            groups[next[book]] = group;
            next[book] += 1;
        }
        Ok(Self { groups, starts })
    }

    /// The groups of all codebooks that have any.
    fn books(&self) -> impl Iterator<Item = &[u32]> {
        self.starts.windows(2).map(|range| &self.groups[range[0]..range[1]]).filter(|groups| !groups.is_empty())
    }
}

/// Reads what [`Coded`] wrote, one codebook after the other.
struct CodedReader<'a> {
    heads: &'a [[u8; 2]],
    lengths: Bytes<'a>,
    sizes: &'a [[u8; 2]],
    streams: Bytes<'a>,
}

impl<'a> CodedReader<'a> {
    fn new(bytes: &mut Bytes<'a>) -> Result<Self> {
        let too_long = || Error::corrupt("chunk has more streams than bytes");
        let n_blocks = varint::read_from(bytes)?;
        let n_codebooks = usize::from(bytes.u8()?);
        if n_codebooks > MAX_CODEBOOKS {
            return Err(Error::corrupt("chunk has too many codebooks"));
        }
        let heads = bytes.take(2 * n_codebooks)?.as_chunks().0;
        let n_lengths = heads.iter().map(|head| packed_bytes(*head)).sum();
        let lengths = Bytes::new(bytes.take(n_lengths)?);
        let n_sizes = usize::try_from(n_blocks).ok().and_then(|n| n.checked_mul(2 * huffman::STREAMS));
        let sizes = bytes.take(n_sizes.ok_or_else(too_long)?)?.as_chunks().0;
        let n_streams = sizes.iter().map(|size| usize::from(u16::from_le_bytes(*size))).sum();
        Ok(Self { heads, lengths, sizes, streams: Bytes::new(bytes.take(n_streams)?) })
    }

    /// Reads the symbols of the next codebook. `destination` gets the alphabet and returns the number of symbols and
    /// where to write them.
    fn take<'s>(&mut self, destination: impl FnOnce(Alphabet) -> (usize, &'s mut [u8])) -> Result<Alphabet> {
        let (head, heads) = self.heads.split_first().ok_or_else(|| Error::corrupt("chunk has too few codebooks"))?;
        self.heads = heads;
        let number = usize::from(u16::from_le_bytes(*head) >> SIZE_BITS);
        let alphabet =
            *Alphabet::ALL.get(number).ok_or_else(|| Error::corrupt("chunk has symbols of an unknown alphabet"))?;
        let (n_symbols, symbols) = destination(alphabet);
        let n_bits = u32::from(u16::from_le_bytes(*head)) & ((1 << SIZE_BITS) - 1);
        let lengths = packed::unpack(self.lengths.take(packed_bytes(*head))?, n_bits, n_symbols)?;
        let (sizes, after) = self
            .sizes
            .split_at_checked(huffman::n_streams(symbols.len()))
            .ok_or_else(|| Error::corrupt("chunk has too few streams"))?;
        self.sizes = after;
        let sizes: Vec<u16> = sizes.iter().map(|size| u16::from_le_bytes(*size)).collect();
        let n_bytes = sizes.iter().map(|size| usize::from(*size)).sum();
        let tables = DecodeTables::new(std::slice::from_ref(&lengths));
        huffman::decode(self.streams.take(n_bytes)?, &sizes, Classes::Same(0), &tables, symbols)?;
        Ok(alphabet)
    }

    /// Reads symbols that are single bytes: classes or literals.
    fn take_bytes(&mut self, n_symbols: usize, symbols: &mut [u8]) -> Result<()> {
        match self.take(|_| (n_symbols, symbols))? {
            Alphabet::Singles => Ok(()),
            _ => Err(Error::corrupt("chunk has symbols of the wrong alphabet")),
        }
    }

    /// Checks that all codebooks and streams were used.
    fn finish(self) -> Result<()> {
        if self.heads.is_empty() && self.sizes.is_empty() {
            Ok(())
        } else {
            Err(Error::corrupt("chunk has too many codebooks or streams"))
        }
    }
}

/// Size in bytes of the packed lengths of a codebook.
fn packed_bytes(head: [u8; 2]) -> usize {
    usize::from(u16::from_le_bytes(head) & ((1 << SIZE_BITS) - 1)).div_ceil(8)
}

struct JoinGroups<'a, 'w, T> {
    classes: &'a [u8],
    bytes: &'a [u8],
    low: &'a [u8],
    wide: &'a mut Bytes<'w>,
    sums: Sums<'a, T>,
    out: &'a mut [T],
}

impl<T: Real> Kernel for JoinGroups<'_, '_, T> {
    type Output = Result<()>;

    #[inline(always)]
    fn run(mut self) -> Result<()> {
        let mut block = [0; BLOCK];
        let mut low = self.low;
        // The last low bits are copied, since the decoder reads up to 8 bytes beyond them.
        let mut last = [0; 4 * GROUP + 8];
        let blocks = self.classes.chunks(BLOCK / GROUP).zip(self.bytes.chunks(BLOCK));
        for (out, (classes, bytes)) in self.out.chunks_mut(BLOCK).zip(blocks) {
            let groups = block.as_chunks_mut::<GROUP>().0.iter_mut().zip(bytes.as_chunks::<GROUP>().0);
            for ((group, bytes), &class) in groups.zip(classes) {
                if class == 0 {
                    *group = [0; GROUP];
                    continue;
                }
                let n_low = groups::low_bytes(class);
                if low.len() >= n_low + 8 {
                    groups::join(class, bytes, low, group);
                } else {
                    last[..n_low].copy_from_slice(&low[..n_low]);
                    groups::join(class, bytes, &last, group);
                }
                low = &low[n_low..];
                let n_wide: u8 = bytes.iter().map(|byte| u8::from(*byte == WIDE)).sum();
                if n_wide > 0 {
                    for (d, _) in group.iter_mut().zip(bytes).filter(|(_, byte)| **byte == WIDE) {
                        *d = i32::from_le_bytes(self.wide.array()?);
                    }
                }
            }
            self.sums.block(&mut block[..out.len()], out);
        }
        self.sums.finish();
        Ok(())
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
            assert!(symbols.iter().all(|symbol| usize::from(*symbol) < CLASS_ALPHABET));
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
