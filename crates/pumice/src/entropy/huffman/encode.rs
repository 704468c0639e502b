//! Encodes symbols as streams of codes (docs/format.md, 8.3).

use super::{BLOCK, Classes, GROUP_SYMBOLS, Lengths, MAX_BITS, STREAM_GROUPS, STREAMS, Symbol, stream_start};
use crate::io::checksum::xxh3;
use crate::num::simd::{self, Kernel};

/// The code of each symbol.
#[derive(Clone, Debug)]
pub(crate) struct Codebook {
    /// The code, its first bit being the least significant one, above its length, which is the low byte. So lengths can
    /// be added without extracting them; the bits above are ignored.
    pub(super) codes: Vec<u32>,
    lengths: Lengths,
    longest: u32,
    id: u64,
}

impl Codebook {
    pub(crate) fn new(lengths: Lengths) -> Self {
        let mut next = lengths.first_codes();
        let mut codes = vec![0; lengths.bits.len().max(256)];
        for (code, &n_bits) in codes.iter_mut().zip(&lengths.bits) {
            if (1..=MAX_BITS as u8).contains(&n_bits) {
                let reversed = next[usize::from(n_bits)].reverse_bits() >> (32 - u32::from(n_bits));
                *code = reversed << 8 | u32::from(n_bits);
                next[usize::from(n_bits)] += 1;
            }
        }
        Self { codes, longest: lengths.longest(), id: xxh3(&lengths.bits), lengths }
    }

    pub(crate) fn lengths(&self) -> &Lengths {
        &self.lengths
    }

    /// Identifies a codebook: XXH3 of the code lengths of all symbols, a byte each, 255 for symbols without a code.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

/// Bytes of a stream, at most: a power of two.
const MAX_STREAM_BYTES: usize = 4096;
const _: () = assert!(STREAM_GROUPS * GROUP_SYMBOLS * MAX_BITS as usize / 8 <= MAX_STREAM_BYTES);

/// Appends the streams of symbols to `out`, and their lengths in bytes to `sizes`. Every symbol must have a code in the
/// codebook of its group.
pub(crate) fn encode<T: Symbol>(
    symbols: &[T],
    classes: Classes<'_>,
    codebooks: &[Codebook],
    out: &mut Vec<u8>,
    sizes: &mut Vec<u16>,
) {
    assert!(
        classes.are_valid(symbols.len(), |class| usize::from(class) < codebooks.len()),
        "each group has a codebook"
    );
    let has_code = |(i, symbol): (usize, &T)| {
        let class = match classes {
            Classes::Same(class) => class,
            Classes::PerGroup(classes) => classes[i / GROUP_SYMBOLS],
        };
        codebooks[usize::from(class)].lengths.bits.get((*symbol).into()).is_some_and(|n| *n != Lengths::NO_CODE)
    };
    debug_assert!(symbols.iter().enumerate().all(has_code), "each symbol has a code");
    simd::run(Encode { symbols, classes, codebooks, out, sizes });
}

pub(super) struct Encode<'a, T> {
    pub(super) symbols: &'a [T],
    pub(super) classes: Classes<'a>,
    pub(super) codebooks: &'a [Codebook],
    pub(super) out: &'a mut Vec<u8>,
    pub(super) sizes: &'a mut Vec<u16>,
}

impl<T: Symbol> Kernel for Encode<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut stream = StreamWriter::new();
        let same = self.classes.same();
        // Four codes, or for long ones two, and the bits left from before fit into 64 bits.
        let are_short = self.codebooks.iter().all(|codebook| codebook.longest <= 14);
        for (block, symbols) in self.symbols.chunks(BLOCK).enumerate() {
            for i in 0..STREAMS {
                let (start, end) = (stream_start(symbols.len(), i), stream_start(symbols.len(), i + 1));
                let classes = self.classes.from(&same, block * BLOCK + start);
                if are_short {
                    stream.put_all::<T, 4>(&symbols[start..end], classes, self.codebooks);
                } else {
                    stream.put_all::<T, 2>(&symbols[start..end], classes, self.codebooks);
                }
                let bytes = stream.finish();
                self.sizes.push(bytes.len() as u16);
                self.out.extend_from_slice(bytes);
            }
        }
    }
}

/// The bytes of a stream, and those that a store touches behind it.
struct StreamWriter {
    bytes: [u8; MAX_STREAM_BYTES + 8],
    n_bytes: usize,
    /// Bits that are not yet complete bytes, and their number.
    bits: u64,
    n_bits: u32,
}

impl StreamWriter {
    fn new() -> Self {
        Self { bytes: [0; MAX_STREAM_BYTES + 8], n_bytes: 0, bits: 0, n_bits: 0 }
    }

    /// Appends the codes of symbols; `AT_ONCE` of them have at most 56 bits.
    #[inline(always)]
    fn put_all<T: Symbol, const AT_ONCE: usize>(&mut self, symbols: &[T], classes: &[u8], codebooks: &[Codebook]) {
        for (symbols, &class) in symbols.chunks(GROUP_SYMBOLS).zip(classes) {
            let codes = T::codes(&codebooks[usize::from(class)]);
            match symbols.first_chunk::<GROUP_SYMBOLS>() {
                Some(symbols) => {
                    for i in 0..GROUP_SYMBOLS / AT_ONCE {
                        self.put(std::array::from_fn::<u32, AT_ONCE, _>(|k| symbols[i * AT_ONCE + k].code(codes)));
                    }
                }
                None => symbols.iter().for_each(|symbol| self.put([symbol.code(codes)])),
            }
        }
    }

    /// Appends codes, of which each is a number above its length.
    #[inline(always)]
    fn put<const N: usize>(&mut self, codes: [u32; N]) {
        // The codes are combined first and then appended, which shortens the dependency on the previous bits. Lengths
        // are the low bytes of sums; shifts take no more than six bits of them.
        let (mut bits, mut n) = (0, 0_u32);
        for code in codes {
            bits |= u64::from(code >> 8) << (n & 63);
            n = n.wrapping_add(code);
        }
        let bits = self.bits | bits << self.n_bits;
        let n = n.wrapping_add(self.n_bits) & 0xff;
        let to: &mut [u8; 8] = self.bytes[self.n_bytes % MAX_STREAM_BYTES..].first_chunk_mut().expect("8 more");
        *to = bits.to_le_bytes();
        self.bits = bits >> (n & 56);
        self.n_bits = n & 7;
        self.n_bytes += (n / 8) as usize;
    }

    /// Returns all bytes, the last padded with zeros, and starts the next stream.
    #[inline(always)]
    fn finish(&mut self) -> &[u8] {
        let n_bytes = self.n_bytes + usize::from(self.n_bits != 0);
        (self.bits, self.n_bits, self.n_bytes) = (0, 0, 0);
        &self.bytes[..n_bytes]
    }
}
