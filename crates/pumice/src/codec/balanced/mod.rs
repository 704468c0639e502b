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
mod classes;
mod differences;
mod groups;
mod shared;

pub(crate) use shared::{Shared, encode};

use super::shared::integers::{self, Exceptions, Integers};
use super::shared::view::View;
use super::shared::{masks, padding};
use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::entropy::Books;
use crate::entropy::codebook::{CLASS_SYMBOLS, N_CLASSES, SIZE_BITS};
use crate::entropy::huffman::{self, Classes, Codebook, DecodeTables, Lengths, packed};
use crate::error::{Error, Result};
use crate::exec::{MEMORY_WAS_CHECKED, filled, scratch};
use crate::grid::n_values;
use crate::io::{Bytes, varint};
use crate::num::simd::{self, Kernel};
use crate::num::{Int, Real};
use crate::plan::Quantizer;
use alphabet::{Alphabet, Choose, Count, Gather, Scatter};
use classes::{Sorted, class_symbols, read_classes};
use differences::{Order, Position, Sums, Walk};
use groups::{GROUP, WIDE};

/// Values that are processed together: few enough to stay in the L1 cache.
const BLOCK: usize = 4096;
/// The most codebooks of a chunk: one for classes, one for each class, and one for literals.
const MAX_CODEBOOKS: usize = N_CLASSES + 1;
/// The codec of the preset `balanced`.
pub(crate) struct Balanced;

impl<T: Real> ChunkCodec<T> for Balanced {
    const ID: CodecId = CodecId::Balanced;
    type Settings<'a>
        = &'a Quantizer<T>
    where
        T: 'a;

    fn encode(values: &[T], quantizer: Self::Settings<'_>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        let split = Split::new(values, quantizer, chunk, out);
        let parts = &split.parts;

        let class_symbols = class_symbols(&parts.classes);
        if let Books::Counted(training) = chunk.books {
            shared::count(parts, &class_symbols, training);
        }
        let counts = simd::run(Count(&class_symbols));
        let mut coded = Coded::default();
        coded.push(Alphabet::Singles, &class_symbols, &counts[..CLASS_SYMBOLS]);
        let sorted = Sorted::new(&parts.classes).expect(MEMORY_WAS_CHECKED);
        let bytes = parts.bytes.as_chunks::<GROUP>().0;
        let mut symbols: Vec<u8> = scratch::take(parts.bytes.len());
        let mut rest = Vec::new();
        for (_, groups) in sorted.books() {
            let alphabet = simd::run(Choose { bytes, groups });
            let symbols = &mut symbols[..groups.len() * GROUP / alphabet.width()];
            let counts = simd::run(Gather { bytes, groups, alphabet, coded: None, symbols, rest: &mut rest });
            coded.push(alphabet, symbols, &counts[..alphabet.size()]);
        }
        if !rest.is_empty() {
            let counts = simd::run(Count(&rest));
            coded.push(Alphabet::Singles, &rest, &counts);
        }
        scratch::give(symbols);

        split.write_head(class_symbols.len(), rest.len(), out);
        coded.write_to(out);
        split.parts.write_tail(out);
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
        let mut bytes = Bytes::new(payload);
        let head = Head::read_from(&mut bytes, chunk, payload.len())?;
        let n_groups = out.len().div_ceil(GROUP);
        let mut coded = CodedReader::new(&mut bytes)?;

        let mut symbols: Vec<u8> = scratch::try_take(n_groups * GROUP)?;
        let class_symbols = &mut symbols[..head.n_class_symbols];
        coded.take_bytes(CLASS_SYMBOLS, class_symbols)?;
        let mut classes = filled(0, n_groups)?;
        read_classes(class_symbols, &mut classes)?;

        let sorted = Sorted::new(&classes)?;
        let mut books = Vec::with_capacity(N_CLASSES);
        let mut left_symbols = &mut symbols[..];
        for (_, groups) in sorted.books() {
            let alphabet = coded.take(|alphabet| {
                let (symbols, left) =
                    std::mem::take(&mut left_symbols).split_at_mut(groups.len() * GROUP / alphabet.width());
                left_symbols = left;
                (alphabet.size(), symbols)
            })?;
            books.push((groups, alphabet));
        }
        let mut rest: Vec<u8> = scratch::try_take(head.n_rest)?;
        if head.n_rest > 0 {
            coded.take_bytes(Alphabet::Singles.size(), &mut rest)?;
        }
        coded.finish()?;
        head.restore(&Decoded { classes: &classes, books, symbols: &symbols, rest: &rest }, bytes, chunk, out)?;
        scratch::give(rest);
        scratch::give(symbols);
        Ok(())
    }
}

/// A chunk up to the symbols of its groups, whichever codes these have.
struct Split {
    origin: i64,
    order: Order,
    parts: Apart,
}

impl Split {
    /// Quantises values, writes those that have no integer, and splits the differences of the others.
    fn new<T: Real>(values: &[T], quantizer: &Quantizer<T>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> Self {
        let &ChunkContext { extents, fills, .. } = chunk;
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
        Self { origin, order, parts }
    }

    fn write_head(&self, n_class_symbols: usize, n_rest: usize, out: &mut Vec<u8>) {
        varint::write_to(self.origin.zigzag() as u64, out);
        out.push(self.order.to_bits());
        varint::write_to(n_class_symbols as u64, out);
        varint::write_to(n_rest as u64, out);
    }
}

/// What a payload has before its symbols.
struct Head<'a> {
    view: View,
    exceptions: Exceptions,
    exact: &'a [u8],
    origin: i64,
    order: Order,
    n_class_symbols: usize,
    /// Number of literals.
    n_rest: usize,
    payload_bytes: usize,
}

/// The symbols of a chunk, decoded.
struct Decoded<'a> {
    classes: &'a [u8],
    /// The groups of each book and the alphabet of their symbols, which are in the same order.
    books: Vec<(&'a [u32], Alphabet)>,
    symbols: &'a [u8],
    /// Literals.
    rest: &'a [u8],
}

impl<'a> Head<'a> {
    fn read_from<T: Real>(bytes: &mut Bytes<'a>, chunk: &ChunkContext<'_, T>, payload_bytes: usize) -> Result<Self> {
        let n_values = n_values(chunk.extents);
        let view = View::new(chunk.extents);
        let (exceptions, exact) = Exceptions::read_from::<T>(bytes, n_values, &view.dims, chunk.fills.len())?;
        let origin = (varint::read_from(bytes)? as i64).unzigzag();
        let order = Order::from_bits(bytes.u8()?)?;
        let n_class_symbols = varint::read_from(bytes)?;
        if n_class_symbols > n_values.div_ceil(GROUP) as u64 {
            return Err(Error::corrupt("chunk has more classes than groups"));
        }
        let n_rest = varint::read_from(bytes)?;
        if n_rest > n_values as u64 + GROUP as u64 {
            return Err(Error::corrupt("chunk has more literals than values"));
        }
        let (n_class_symbols, n_rest) = (n_class_symbols as usize, n_rest as usize);
        Ok(Self { view, exceptions, exact, origin, order, n_class_symbols, n_rest, payload_bytes })
    }

    /// Restores the values from the symbols and from the rest of the payload.
    fn restore<T: Real>(
        self,
        decoded: &Decoded<'_>,
        mut bytes: Bytes<'_>,
        chunk: &ChunkContext<'_, T>,
        out: &mut [T],
    ) -> Result<()> {
        let step = chunk.needed_step()?;
        let &Decoded { classes, ref books, symbols, rest } = decoded;
        let mut group_bytes: Vec<u8> = scratch::try_take(classes.len() * GROUP)?;
        let mut left = rest;
        let mut left_symbols = symbols;
        for &(groups, alphabet) in books {
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

        let n_low = classes.iter().map(|class| groups::low_bytes(*class)).sum();
        let low = bytes.take(n_low)?;
        let mut gathered = Vec::new();
        let working: &mut [T] = if self.view.is_plain() {
            &mut *out
        } else {
            gathered = filled(T::default(), out.len())?;
            &mut gathered
        };
        let walk = Walk::new(&self.view.dims, self.order);
        let sums = Sums::new(&walk, self.origin, step)?;
        let n_values = working.len();
        simd::run(JoinGroups { classes, bytes: &group_bytes, low, wide: &mut bytes, sums, out: working })?;
        padding::check_end(&bytes, self.payload_bytes, n_values)?;
        scratch::give(group_bytes);
        self.exceptions.restore(self.exact, chunk.fills, working);
        if !gathered.is_empty() {
            self.view.scatter(&gathered, out);
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

impl Apart {
    /// Appends what follows the symbols of groups.
    fn write_tail(self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.low);
        self.wide.iter().for_each(|d| out.extend_from_slice(&d.to_le_bytes()));
        scratch::give(self.bytes);
        scratch::give(self.low);
    }
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
