//! The `fast` codec: a chunk as a directory and independent tiles (docs/format.md, 6.1).
#![allow(unsafe_code)]

pub(crate) mod choose;
pub(crate) mod geometry;
mod holes;
mod lorenzo;
mod planes;
mod tile;

use std::marker::PhantomData;

use crate::codec::{ChunkCodec, ChunkContext, CodecId};
use crate::error::{Error, Result};
use crate::num::Real;
use crate::num::simd::portable::Portable;
use crate::num::simd::{Isa, MAX_LANES, SLACK, Simd};
use crate::plan::Quantizer;
use choose::{Run, RunSource, choose};
use geometry::{Predictor, TILE_VALUES, Tile, TileGrid};
use tile::{TileDecoder, TileEncoder, Workspace};

const PARAMETER_BYTES: usize = 8;
const TILES_PER_ANCHOR: usize = 32;

/// Size of all that precedes the tile bodies.
pub(crate) fn directory_bytes(n_tiles: usize) -> usize {
    (PARAMETER_BYTES + 4 * n_tiles.div_ceil(TILES_PER_ANCHOR) + 2 * n_tiles).next_multiple_of(4)
}

/// The first bytes of a payload.
pub(crate) fn parameters(predictor: Predictor, grid: [u8; 6]) -> [u8; PARAMETER_BYTES] {
    let [x_axes, y_axes, z_axes, tile_x, tile_y, tile_z] = grid;
    [predictor.to_byte(), x_axes, y_axes, z_axes, tile_x, tile_y, tile_z, 0]
}

/// Reads and checks the first bytes of a payload; also returns the bytes that follow.
pub(crate) fn read_parameters<'a>(payload: &'a [u8], extents: &[usize]) -> Result<(Predictor, TileGrid, &'a [u8])> {
    let (parameters, rest) = payload.split_first_chunk::<PARAMETER_BYTES>().ok_or_else(short)?;
    let [predictor, grid @ .., reserved] = *parameters;
    if reserved != 0 {
        return Err(Error::corrupt("chunk has a reserved byte set"));
    }
    Ok((Predictor::from_byte(predictor)?, TileGrid::from_bytes(grid, extents)?, rest))
}

pub(crate) fn short() -> Error {
    Error::corrupt("chunk is shorter than its directory")
}

/// The codec of the preset `fast`, and the fallback of the other presets.
pub(crate) struct Fast;

impl<T: Real> ChunkCodec<T> for Fast {
    const ID: CodecId = CodecId::Fast;
    /// Without a quantiser, values are stored exactly.
    type Settings<'a>
        = Option<Quantizer<T>>
    where
        T: 'a;

    fn min_payload_bytes(n_values: usize) -> usize {
        PARAMETER_BYTES.saturating_add(n_values.div_ceil(TILE_VALUES).saturating_mul(2))
    }

    /// Tiles are decoded one by one.
    fn decode_bytes(_: u64, _: &ChunkContext<'_, T>) -> u64 {
        0
    }

    fn encode(values: &[T], quantizer: Option<Quantizer<T>>, chunk: &ChunkContext<'_, T>, out: &mut Vec<u8>) -> bool {
        encode_on(Isa::detect(), &Encode { values, quantizer, chunk }, out);
        true
    }

    fn decode(payload: &[u8], chunk: &ChunkContext<'_, T>, out: &mut [T]) -> Result<()> {
        decode_on(Isa::detect(), &Decode { payload, chunk }, out)
    }
}

/// A chunk to encode.
struct Encode<'a, T> {
    values: &'a [T],
    quantizer: Option<Quantizer<T>>,
    chunk: &'a ChunkContext<'a, T>,
}

/// A chunk to decode.
struct Decode<'a, T> {
    payload: &'a [u8],
    chunk: &'a ChunkContext<'a, T>,
}

fn encode_on<T: Real>(isa: Isa, job: &Encode<'_, T>, out: &mut Vec<u8>) {
    assert_eq!(job.values.len(), job.chunk.extents.iter().product::<usize>());
    // SAFETY: `Isa` names only what the machine has.
    unsafe {
        match isa {
            Isa::Portable => job.run::<Portable>(out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => encode_avx2(job, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => encode_avx512(job, out),
        }
    }
}

fn decode_on<T: Real>(isa: Isa, job: &Decode<'_, T>, out: &mut [T]) -> Result<()> {
    assert_eq!(out.len(), job.chunk.extents.iter().product::<usize>());
    // SAFETY: `Isa` names only what the machine has.
    unsafe {
        match isa {
            Isa::Portable => job.run::<Portable>(out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => decode_avx2(job, out),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => decode_avx512(job, out),
        }
    }
}

// The same code, compiled once for each instruction set: everything that it calls is inlined here.

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn encode_avx2<T: Real>(job: &Encode<'_, T>, out: &mut Vec<u8>) {
    // SAFETY: the caller guarantees the instruction set.
    unsafe { job.run::<T::Avx2>(out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
unsafe fn decode_avx2<T: Real>(job: &Decode<'_, T>, out: &mut [T]) -> Result<()> {
    // SAFETY: as above.
    unsafe { job.run::<T::Avx2>(out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512dq")]
#[target_feature(enable = "avx512vbmi,avx512vbmi2,avx512bitalg,gfni")]
unsafe fn encode_avx512<T: Real>(job: &Encode<'_, T>, out: &mut Vec<u8>) {
    // SAFETY: as above.
    unsafe { job.run::<T::Avx512>(out) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx512f,avx512bw,avx512vl,avx512dq")]
#[target_feature(enable = "avx512vbmi,avx512vbmi2,avx512bitalg,gfni")]
unsafe fn decode_avx512<T: Real>(job: &Decode<'_, T>, out: &mut [T]) -> Result<()> {
    // SAFETY: as above.
    unsafe { job.run::<T::Avx512>(out) }
}

impl<T: Real> Encode<'_, T> {
    /// # Safety
    /// The machine has instruction set S.
    #[inline(always)]
    unsafe fn run<S: Simd<T>>(&self, out: &mut Vec<u8>) {
        let (predictor, grid) = choose(self.chunk.extents, &Sampler { job: self, isa: PhantomData::<S> });
        let n_tiles = grid.n_tiles();
        let start = out.len();
        out.extend_from_slice(&parameters(predictor, grid.to_bytes()));
        let anchors_at = out.len();
        let words_at = anchors_at + 4 * n_tiles.div_ceil(TILES_PER_ANCHOR);
        let bodies_at = start + directory_bytes(n_tiles);
        out.resize(bodies_at, 0);

        let encoder = TileEncoder { predictor, quantizer: self.quantizer, fills: self.chunk.fills };
        let mut work = Workspace::new();
        let mut tiles = grid.tiles().enumerate().peekable();
        while let Some((i, tile)) = tiles.next() {
            let next = tiles.peek().map_or(tile.offset, |(_, next)| next.offset);
            let body_at = out.len();
            if i.is_multiple_of(TILES_PER_ANCHOR) {
                let anchor = u32::try_from((body_at - bodies_at) / 4).expect("chunks are limited to 16 GiB");
                out[anchors_at + i / TILES_PER_ANCHOR * 4..][..4].copy_from_slice(&anchor.to_le_bytes());
            }
            // SAFETY: the caller has S; the grid's tiles lie within the chunk.
            unsafe { encoder.encode::<S>(self.values, &tile, next, &mut work, out) };
            let words = u16::try_from((out.len() - body_at) / 4).expect("a tile is never larger than raw");
            out[words_at + 2 * i..][..2].copy_from_slice(&words.to_le_bytes());
        }
    }
}

/// Samples a chunk with instruction set S, which the machine has.
struct Sampler<'a, S, T> {
    job: &'a Encode<'a, T>,
    isa: PhantomData<S>,
}

impl<S: Simd<T>, T: Real> RunSource<T> for Sampler<'_, S, T> {
    #[inline(always)]
    fn run(&self, first: usize) -> Run<T::Int> {
        let mut run: Run<T::Int> = [T::Int::default(); _];
        let values = &self.job.values[first..first + run.len()];
        let Some(quantizer) = &self.job.quantizer else {
            run.iter_mut().zip(values).for_each(|(q, x)| *q = x.to_ordered());
            return run;
        };
        let mut undecided = 0;
        for at in (0..run.len()).step_by(MAX_LANES) {
            // SAFETY: the machine has S; a run is a whole number of the widest vectors.
            undecided |= unsafe { quantizer.quantize_run::<S>(&values[at..at + MAX_LANES], run[at..].as_mut_ptr()) };
        }
        if undecided != 0 {
            // A value that cannot be quantised gets the integer before it, as `quantize_with_holes` does.
            let mut last = T::Int::default();
            for (q, x) in run.iter_mut().zip(values) {
                last = quantizer.quantize(*x).unwrap_or(last);
                *q = last;
            }
        }
        run
    }
}

impl<T: Real> Decode<'_, T> {
    /// # Safety
    /// The machine has instruction set S.
    #[inline(always)]
    unsafe fn run<S: Simd<T>>(&self, out: &mut [T]) -> Result<()> {
        let &ChunkContext { extents, wanted, step, fills, .. } = self.chunk;
        let directory = Directory::read_from(self.payload, extents)?;
        let decoder = TileDecoder { predictor: directory.predictor, step, fills };
        let mut work = Workspace::new();
        let mut at = 0;
        let part = wanted.map(|wanted| directory.grid.part(extents, wanted));
        let mut tiles = directory.grid.tiles().enumerate().peekable();
        while let Some((i, tile)) = tiles.next() {
            let next = tiles.peek().map_or(tile.offset, |(_, next)| next.offset);
            let body = directory.body(i, &mut at)?;
            if part.as_ref().is_some_and(|part| !tile.touches(part)) {
                continue;
            }
            // SAFETY: the caller has S; the grid's tiles lie within the chunk.
            unsafe { decode_tile::<S, T>(&decoder, body, &directory, at, (&tile, next), &mut work, out)? };
        }
        if at != directory.bodies.len() {
            return Err(Error::corrupt("chunk has bytes after its last tile"));
        }
        Ok(())
    }
}

/// Decodes a tile whose body ends at offset `end`. A body near the end of the payload is first copied, since the
/// decoder may read up to `SLACK` bytes beyond it.
///
/// # Safety
/// The machine has instruction set S; `tile` lies within `out`.
#[inline(always)]
unsafe fn decode_tile<S: Simd<T>, T: Real>(
    decoder: &TileDecoder<'_, T>,
    body: &[u8],
    directory: &Directory<'_>,
    end: usize,
    (tile, next): (&Tile, usize),
    work: &mut Workspace<T>,
    out: &mut [T],
) -> Result<()> {
    if end + SLACK <= directory.bodies.len() {
        // SAFETY: the caller's contract; the slack was just checked.
        return unsafe { decoder.decode::<S>(body, tile, next, work, out) };
    }
    let mut copy = Vec::with_capacity(body.len() + SLACK);
    copy.extend_from_slice(body);
    copy.resize(body.len() + SLACK, 0);
    // SAFETY: as above.
    unsafe { decoder.decode::<S>(&copy[..body.len()], tile, next, work, out) }
}

/// Everything in front of the tile bodies, checked.
struct Directory<'a> {
    predictor: Predictor,
    grid: TileGrid,
    anchors: &'a [[u8; 4]],
    tile_words: &'a [[u8; 2]],
    bodies: &'a [u8],
}

impl<'a> Directory<'a> {
    fn read_from(payload: &'a [u8], extents: &[usize]) -> Result<Self> {
        let (predictor, grid, rest) = read_parameters(payload, extents)?;
        let n_tiles = grid.n_tiles();
        let (anchors, rest) = rest.split_at_checked(4 * n_tiles.div_ceil(TILES_PER_ANCHOR)).ok_or_else(short)?;
        let (tile_words, rest) = rest.split_at_checked(2 * n_tiles).ok_or_else(short)?;
        let (padding, bodies) = rest.split_at_checked(2 * (n_tiles % 2)).ok_or_else(short)?;
        if padding.iter().any(|b| *b != 0) {
            return Err(Error::corrupt("chunk has a reserved byte set"));
        }
        Ok(Self { predictor, grid, anchors: anchors.as_chunks().0, tile_words: tile_words.as_chunks().0, bodies })
    }

    /// The body of tile `i`, which starts at `at`; moves `at` to its end.
    #[inline(always)]
    fn body(&self, i: usize, at: &mut usize) -> Result<&'a [u8]> {
        if i.is_multiple_of(TILES_PER_ANCHOR)
            && u32::from_le_bytes(self.anchors[i / TILES_PER_ANCHOR]) as usize * 4 != *at
        {
            return Err(Error::corrupt("chunk has a wrong anchor"));
        }
        let n_bytes = 4 * usize::from(u16::from_le_bytes(self.tile_words[i]));
        let body = self.bodies.get(*at..*at + n_bytes);
        *at += n_bytes;
        body.ok_or_else(|| Error::corrupt("chunk is shorter than its tiles"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fields that together need every kind of tile, width and predictor.
    fn fields<T: Real>() -> Vec<(Vec<usize>, Vec<T>)> {
        let mut state = 7_u64;
        let mut random = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 11) as f64 / (1_u64 << 53) as f64 - 0.5
        };
        let shapes: [&[usize]; 6] = [&[9000], &[70, 131], &[17, 33, 65], &[3, 9, 40, 41], &[3000, 3], &[5]];
        let mut all = Vec::new();
        for shape in shapes {
            let n: usize = shape.iter().product();
            for scale in [0.0, 1e-3, 0.05, 10.0, 1e5, 1e30] {
                let mut sum = 0.0;
                let mut values: Vec<T> = Vec::with_capacity(n);
                for i in 0..n {
                    sum += random() * scale;
                    values.push(T::from_f64(sum + (i as f64 / 50.0).sin()));
                }
                all.push((shape.to_vec(), values.clone()));
                for special in [f64::NAN, f64::INFINITY, 1e20, -1e-40, -0.0] {
                    values[(random().abs() * n as f64) as usize] = T::from_f64(special);
                }
                values[n / 3..n / 2].fill(T::from_f64(1e20));
                all.push((shape.to_vec(), values));
            }
        }
        all
    }

    fn all_instruction_sets_agree<T: Real>() {
        let fills = [T::from_f64(1e20), T::from_f64(f64::NAN)];
        for (extents, values) in fields::<T>() {
            for bound in [Some(1e-6), Some(1e-3), Some(0.3), None] {
                let quantizer = bound.and_then(|bound| Quantizer::<T>::new(bound, Some(2.0)));
                let step = quantizer.map(|q| q.step);
                let mut expected = Vec::new();
                let chunk = ChunkContext { step, fills: &fills, ..ChunkContext::new(&extents) };
                let job = Encode { values: &values, quantizer, chunk: &chunk };
                encode_on(Isa::Portable, &job, &mut expected);
                let back = Decode { payload: &expected, chunk: &chunk };
                let mut restored = vec![T::default(); values.len()];
                decode_on(Isa::Portable, &back, &mut restored).expect("own payloads decode");
                for (x, y) in values.iter().zip(&restored) {
                    let exact = x.to_bits_u64() == y.to_bits_u64();
                    let within = bound.is_some_and(|b| (x.to_f64() - y.to_f64()).abs() <= b);
                    assert!(exact || within, "{x} became {y}");
                }
                for isa in Isa::available() {
                    let mut payload = Vec::new();
                    encode_on(isa, &job, &mut payload);
                    assert!(payload == expected, "{} encodes {extents:?} otherwise", isa.name());
                    let mut again = vec![T::default(); values.len()];
                    decode_on(isa, &back, &mut again).expect("own payloads decode");
                    let equal = again.iter().zip(&restored).all(|(a, b)| a.to_bits_u64() == b.to_bits_u64());
                    assert!(equal, "{} decodes {extents:?} otherwise", isa.name());
                }
            }
        }
    }

    #[test]
    fn all_instruction_sets_agree_f32() {
        all_instruction_sets_agree::<f32>();
    }

    #[test]
    fn all_instruction_sets_agree_f64() {
        all_instruction_sets_agree::<f64>();
    }

    #[test]
    fn a_wanted_box_is_decoded() {
        let (extents, values) = fields::<f32>().swap_remove(28);
        let quantizer = Quantizer::new(1e-3, None);
        let (mut payload, mut whole) = (Vec::new(), vec![0.0; values.len()]);
        let chunk = ChunkContext { step: quantizer.map(|q| q.step), ..ChunkContext::new(&extents) };
        Fast::encode(&values, quantizer, &chunk, &mut payload);
        Fast::decode(&payload, &chunk, &mut whole).unwrap();
        let wanted = [5..9, 20..21, 0..65];
        let mut part = vec![f32::NAN; values.len()];
        Fast::decode(&payload, &ChunkContext { wanted: Some(&wanted), ..chunk }, &mut part).unwrap();
        for z in wanted[0].clone() {
            for x in wanted[2].clone() {
                let at = (z * 33 + 20) * 65 + x;
                assert_eq!(part[at].to_bits(), whole[at].to_bits());
            }
        }
        assert!(part.iter().any(|v| v.is_nan()), "tiles that are not wanted are left alone");
    }
}
