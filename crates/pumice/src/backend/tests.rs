//! A slow and simple backend, compared with `compress` and `decompress`.

use super::*;
use crate::decompress::DecodeOptions;
use crate::error::{Error, ErrorKind};
use crate::grid::Corner;
use crate::io::ReadAt;
use crate::num::Value;
use crate::plan::{ErrorBound, Preset};
use crate::{compress, decompress};

/// Visits values one by one, the last first.
struct Backwards<'a, T>(&'a [T]);

fn range_of<T: Element>(values: impl Iterator<Item = T>) -> Option<(T, T)> {
    values.filter(|v| v.is_finite()).fold(None, |range, v| {
        let (lo, hi) = range.unwrap_or((v, v));
        Some((if v < lo { v } else { lo }, if v > hi { v } else { hi }))
    })
}

impl<T: Element> Backwards<'_, T> {
    fn counts(&self, skip: &[T]) -> [u64; MAX_NAMED] {
        let count = |skip: &T| self.0.iter().filter(|v| v.to_bits_u64() == skip.to_bits_u64()).count() as u64;
        std::array::from_fn(|i| skip.get(i).map_or(0, count))
    }
}

impl<T: Element> Passes<T> for Backwards<'_, T> {
    fn n_values(&self) -> usize {
        self.0.len()
    }

    fn first(&self, skip: &[T], stride: usize) -> Result<FirstPass<T>> {
        let is_counted = |v: &T| skip.iter().all(|skip| skip.to_bits_u64() != v.to_bits_u64());
        Ok(FirstPass {
            range: range_of(self.0.iter().rev().copied().filter(is_counted)),
            counts: self.counts(skip),
            first_nan: self.0.iter().copied().find(|v| v.is_nan()),
            samples: self.0.iter().step_by(stride).rev().copied().filter(|v| v.is_finite()).collect(),
        })
    }

    fn second(&self, skip: &[T]) -> Result<SecondPass<T>> {
        let is_counted = |v: &T| skip.iter().all(|skip| skip.to_bits_u64() != v.to_bits_u64());
        let range = range_of(self.0.iter().rev().copied().filter(is_counted));
        Ok(SecondPass { counts: self.counts(skip), range })
    }
}

/// The values of a chunk.
fn gathered<T: Element>(data: &[T], shape: &[usize], chunk: &ChunkBox) -> Vec<T> {
    let mut values = vec![T::default(); chunk.n_values()];
    let from = Corner { shape, start: &chunk.start };
    let to = Corner { shape: &chunk.extents, start: &vec![0; shape.len()] };
    grid::copy_block(data, from, &mut values, to, &chunk.extents);
    if let Some(offset) = chunk.offset {
        assert!(bits(&values) == bits(&data[offset..offset + values.len()]));
    }
    values
}

fn bits<T: Element>(values: &[T]) -> Vec<u64> {
    values.iter().map(|v| v.to_bits_u64()).collect()
}

fn assembled<T: Element>(data: &[T], shape: &[usize], config: &Config) -> Result<[Vec<u8>; 3]> {
    let stats = scan(&Backwards(data), config)?;
    let blueprint = Blueprint::new(config, shape, &stats)?;
    let mut payloads = Vec::new();
    for id in 0..blueprint.n_chunks() {
        let mut payload = Vec::new();
        let values = gathered(data, shape, &blueprint.chunk(id));
        payloads.push((blueprint.encode_on_cpu(id, &values, &mut payload)?, payload));
    }
    let mut one_by_one = Assembler::new(&blueprint, vec![1, 2, 3])?;
    for (codec, payload) in &payloads {
        // A device that fails at first.
        let failed = one_by_one.chunk(*codec, payload.len(), |_| Err(Error::device("on purpose")));
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Device);
        one_by_one.chunk(*codec, payload.len(), |out| {
            out.copy_from_slice(payload);
            Ok(())
        })?;
    }
    let mut in_batches = Assembler::new(&blueprint, Vec::new())?;
    for batch in payloads.chunks(5) {
        let sizes: Vec<_> = batch.iter().map(|(codec, payload)| (*codec, payload.len())).collect();
        in_batches.chunks(&sizes, |i, out| {
            out.copy_from_slice(&batch[i].1);
            Ok(())
        })?;
    }
    let known = payloads.iter().map(|(codec, payload)| {
        let (first, rest) = payload.split_at(payload.len() / HASH_BLOCK * HASH_BLOCK);
        let first: Vec<u64> = first.chunks(HASH_BLOCK).map(checksum::xxh3).collect();
        Payload { codec: *codec, n_bytes: payload.len(), hash: payload_hash(&first, rest) }
    });
    let known: Vec<Payload> = known.collect();
    assert!(blueprint.outline(&known[1..]).is_err());
    let outline = blueprint.outline(&known)?;
    let mut by_outline = vec![0; outline.n_bytes];
    outline.others.iter().for_each(|(at, part)| by_outline[*at..at + part.len()].copy_from_slice(part));
    outline.payloads.iter().zip(&payloads).for_each(|(at, (_, bytes))| by_outline[at.clone()].copy_from_slice(bytes));
    Ok([one_by_one.finish()?, in_batches.finish()?, by_outline])
}

/// Bytes that can only be read by a copy, such as those on a device.
struct CopyOnly<'a>(&'a [u8]);

impl ReadAt for CopyOnly<'_> {
    fn len(&self) -> Result<u64> {
        ReadAt::len(self.0)
    }

    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
        self.0.read_exact_at(buf, offset)
    }
}

/// Checks the frames of a stream by the hashes of its payloads alone.
fn checked_by_hashes(bytes: &[u8]) -> Result<()> {
    let frames = Frames::open_from(CopyOnly(bytes), &DecodeOptions::new())?;
    for id in 0..frames.n_chunks() {
        let payload = frames.frame(id)?.payload;
        frames.verify_hash(id, payload_hash(&[], &bytes[payload]))?;
        assert!(frames.verify_hash(id, 1).is_err() && frames.verify(id).is_ok());
    }
    Ok(())
}

fn decoded<T: Element>(bytes: &[u8]) -> Result<Vec<T>> {
    let frames = Frames::open(bytes, &DecodeOptions::new())?;
    let shape = &frames.info().shape;
    let mut data = vec![T::default(); grid::n_values(shape)];
    for id in 0..frames.n_chunks() {
        let frame = frames.frame(id)?;
        let chunk = frames.chunk(id);
        let mut values = vec![T::default(); chunk.n_values()];
        frames.decode_on_cpu(id, &mut values)?;
        frames.verify(id)?;
        if frame.codec == CodecId::Raw {
            assert_eq!(frame.payload.len(), size_of_val(&values[..]));
        }
        let to = Corner { shape, start: &chunk.start };
        let from = Corner { shape: &chunk.extents, start: &vec![0; shape.len()] };
        grid::copy_block(&values, from, &mut data, to, &chunk.extents);
    }
    Ok(data)
}

/// Uniform in [0, 1).
fn noise(i: usize) -> f64 {
    ((i as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as f64 / (1 << 24) as f64
}

/// Waves with noise, and some special values.
fn field<T: Element>(n: usize, with_specials: bool) -> Vec<T> {
    let mut values: Vec<T> =
        (0..n).map(|i| T::from_f64((i as f64 * 0.003).sin() + (i as f64 * 0.1).cos() + 0.01 * noise(i))).collect();
    if with_specials && n > 0 {
        let specials = [f64::NAN, f64::INFINITY, -0.0, 0.0, 1e-40, -9999.0];
        (0..n).step_by(37).for_each(|i| values[i] = T::from_f64(specials[i % specials.len()]));
        values[n / 3..n / 2].fill(T::from_f64(-9999.0));
    }
    values
}

fn streams_are_those_of_compress<T: Element>() {
    let shapes: [(&[usize], Option<&[usize]>); 9] = [
        (&[], None),
        (&[1], None),
        (&[0], None),
        (&[4, 0, 3], None),
        (&[777], None),
        (&[40, 50, 30], None),
        (&[100, 40, 30], Some(&[30, 20, 30])),
        (&[7, 33, 20, 31], Some(&[2, 33, 20, 31])),
        (&[50_000], Some(&[9000])),
    ];
    let bounds = [
        Config::new(ErrorBound::Abs(1e-3)),
        Config::new(ErrorBound::Rel(1e-4)).attribute("units", "K"),
        Config::new(ErrorBound::Rel(1e-2)).and(ErrorBound::Abs(0.1)).fills(&[-9999.0]),
        Config::new(ErrorBound::Abs(1e-12)),
        Config::new(ErrorBound::Rel(1e-3)).fills(&[-9999.0, 0.0]),
        Config::new(ErrorBound::Lossless).fills(&[0.0]),
        Config::new(ErrorBound::Abs(0.5)).and(ErrorBound::Lossless),
    ];
    for (shape, chunk_shape) in shapes {
        for (preset, config) in [Preset::Fast, Preset::Balanced].iter().flat_map(|p| bounds.iter().map(move |b| (p, b)))
        {
            let config = config.clone().preset(*preset).threads(2);
            let config = chunk_shape.iter().fold(config, |config, chunk_shape| config.chunk_shape(chunk_shape));
            for with_specials in [false, true] {
                let data = field::<T>(grid::n_values(shape), with_specials);
                let expected = compress(&data, shape, &config).unwrap();
                for bytes in assembled(&data, shape, &config).unwrap() {
                    assert!(bytes == expected, "{shape:?} {preset:?} {config:?}");
                }
                let restored = decompress::<T>(&expected).unwrap().data;
                assert!(bits(&decoded::<T>(&expected).unwrap()) == bits(&restored), "{shape:?} {config:?}");
                checked_by_hashes(&expected).unwrap();
            }
        }
    }
}

#[test]
fn streams_are_those_of_compress_f32() {
    streams_are_those_of_compress::<f32>();
}

#[test]
fn streams_are_those_of_compress_f64() {
    streams_are_those_of_compress::<f64>();
}

#[test]
fn other_presets_are_read_as_well() {
    let data = field::<f32>(60_000, true);
    for preset in Preset::ALL {
        let config =
            Config::new(ErrorBound::Abs(1e-3)).and(ErrorBound::PwRel(0.1)).preset(*preset).chunk_shape(&[40, 300]);
        let bytes = compress(&data, &[200, 300], &config).unwrap();
        assert!(bits(&decoded::<f32>(&bytes).unwrap()) == bits(&decompress::<f32>(&bytes).unwrap().data));
    }
}

#[test]
fn the_blueprint_says_what_the_stream_says() {
    let data = field::<f32>(100_000, true);
    let config = Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Balanced).chunk_shape(&[30, 1000]);
    let stats = scan(&Backwards(&data), &config).unwrap();
    let blueprint = Blueprint::new(&config, &[100, 1000], &stats).unwrap();
    let bytes = compress(&data, &[100, 1000], &config).unwrap();
    let frames = Frames::open(&bytes, &DecodeOptions::new()).unwrap();
    assert_eq!((blueprint.shape(), blueprint.preset()), (&[100, 1000][..], Preset::Balanced));
    assert_eq!(blueprint.abs_bound(), frames.info().abs_bound);
    assert_eq!((blueprint.n_chunks(), frames.n_chunks()), (4, 4));
    assert_eq!(frames.step::<f32>().unwrap(), blueprint.quantizer().map(|q| q.step));
    assert_eq!(bits(&frames.fills::<f32>().unwrap()), bits(blueprint.fills()));
    assert_eq!(blueprint.fills()[0], -9999.0);
    for id in 0..4 {
        assert_eq!(blueprint.chunk(id), frames.chunk(id));
    }
    let last = blueprint.chunk(3);
    assert_eq!((last.start, last.extents, last.offset), (vec![90, 0], vec![10, 1000], Some(90_000)));
    assert_eq!(frames.step::<f64>().unwrap_err().kind(), ErrorKind::InvalidArgument);
    assert!(frames.fills::<f64>().is_err() && frames.decode_on_cpu(0, &mut [0.0_f64; 30_000]).is_err());
    assert!(frames.decode_on_cpu(0, &mut [0.0_f32; 5]).is_err());
    let limited = Frames::open(&bytes, &DecodeOptions::new().max_bytes(399_999));
    assert_eq!(limited.unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn what_only_the_cpu_does_is_unsupported() {
    let stats = scan(&Backwards(&[1.0_f32; 100]), &Config::new(ErrorBound::Lossless)).unwrap();
    let fast = |bound| Config::new(bound).preset(Preset::Fast);
    let mut configs = vec![
        fast(ErrorBound::Psnr(60.0)),
        fast(ErrorBound::L2(1.0)),
        fast(ErrorBound::Ratio(10.0)),
        fast(ErrorBound::PwRel(0.1)),
        fast(ErrorBound::Abs(0.1)).and(ErrorBound::PwRel(0.1)),
        fast(ErrorBound::Abs(0.1)).region(&[0..5, 0..5], ErrorBound::Lossless),
        fast(ErrorBound::Abs(0.1)).bin(&[2, 2]),
    ];
    let others = Preset::ALL.iter().filter(|p| !matches!(p, Preset::Fast | Preset::Balanced));
    configs.extend(others.map(|preset| Config::new(ErrorBound::Abs(0.1)).preset(*preset)));
    for config in configs {
        assert_eq!(
            Blueprint::new(&config, &[10, 10], &stats).unwrap_err().kind(),
            ErrorKind::Unsupported,
            "{config:?}"
        );
    }
    let impossible = Blueprint::new(&fast(ErrorBound::Abs(-1.0)), &[10, 10], &stats);
    assert_eq!(impossible.unwrap_err().kind(), ErrorKind::InvalidArgument);
}

#[test]
fn wrong_payloads_are_refused() {
    let data = field::<f32>(30_000, false);
    let config = Config::new(ErrorBound::Abs(1e-3)).preset(Preset::Fast).chunk_shape(&[10_000]);
    let blueprint = Blueprint::new(&config, &[30_000], &scan(&Backwards(&data), &config).unwrap()).unwrap();
    assert!(blueprint.encode_on_cpu(0, &data[..9999], &mut Vec::new()).is_err());
    let mut assembler = Assembler::new(&blueprint, Vec::new()).unwrap();
    let fill = |_: usize, _: &mut [u8]| Ok(());
    assert!(assembler.chunks(&[(CodecId::Raw, 100)], fill).is_err());
    assert!(assembler.chunks(&[(CodecId::Fast, 0)], fill).is_err());
    assert!(assembler.chunks(&[(CodecId::Raw, 40_000); 4], fill).is_err());
    assembler.chunks(&[(CodecId::Raw, 40_000); 2], fill).unwrap();
    assert!(assembler.finish().is_err(), "one is missing");
}

#[test]
fn damage_is_found() {
    let data = field::<f32>(24_000, true);
    for chunk_shape in [[8000], [24_000]] {
        let config = Config::new(ErrorBound::Abs(1e-2)).preset(Preset::Fast).chunk_shape(&chunk_shape);
        let bytes = compress(&data, &[24_000], &config).unwrap();
        for i in (0..bytes.len()).step_by(7).chain(0..200).chain(bytes.len() - 100..bytes.len()) {
            let mut damaged = bytes.clone();
            damaged[i] ^= 0x20;
            let kind = decoded::<f32>(&damaged).unwrap_err().kind();
            assert!(!matches!(kind, ErrorKind::Io | ErrorKind::Device), "byte {i}: {kind:?}");
            assert_eq!(checked_by_hashes(&damaged).unwrap_err().kind(), kind, "byte {i}");
            let frames = Frames::open(&damaged, &DecodeOptions::new());
            if let Ok(frames) = frames {
                assert!((0..frames.n_chunks()).any(|id| frames.verify(id).is_err()), "byte {i}");
            }
            assert!(decoded::<f32>(&bytes[..i]).is_err());
        }
    }
}

/// The parameters that follow from the documentation of [`FastSampling`].
fn chosen(values: &[f32], extents: &[usize], quantizer: Option<Quantizer<f32>>) -> [u8; 8] {
    const N: usize = FAST_MAX_LAG + FAST_RUN;
    let integers = |first: usize| -> [i64; N] {
        let mut last = 0;
        std::array::from_fn(|i| {
            let x = values[first + i];
            last = match quantizer {
                Some(quantizer) => quantizer.quantize(x).unwrap_or(last),
                None => x.to_ordered(),
            };
            last.into()
        })
    };
    let cost = |candidate: &FastCandidate, start: usize| -> u64 {
        let (first, [row, plane]) = (start - FAST_MAX_LAG, candidate.across);
        let minus = |a: [i64; N], b: [i64; N]| std::array::from_fn::<_, N, _>(|i| a[i] - b[i]);
        let mut run = integers(first);
        if row != 0 {
            run = minus(run, integers(first - row));
        }
        if plane != 0 {
            run = minus(run, minus(integers(first - plane), integers(first - plane - row)));
        }
        let difference = |i: usize| match candidate.axes & 9 {
            0 => run[i],
            1 => run[i] - run[i - candidate.lag],
            _ => run[i] - 2 * run[i - 1] + run[i - 2],
        };
        let code = |i: usize| {
            let r = difference(i) as i32;
            ((r << 1) ^ (r >> 31)) as u32
        };
        let width = |group: usize| 32 - (group..group + 8).fold(0, |all, i| all | code(i)).leading_zeros();
        (FAST_MAX_LAG..N).step_by(8).map(|group| u64::from(width(group))).sum()
    };
    let FastSampling { candidates, starts } = fast_sampling(extents);
    let price = |c: &&FastCandidate| c.price(starts.iter().map(|start| cost(c, *start as usize)).sum());
    candidates.iter().min_by_key(price).unwrap().parameters()
}

#[test]
fn sampling_leads_to_the_choice_of_the_encoder() {
    let mut seen = Vec::new();
    for extents in [&[9000][..], &[90, 100], &[20, 25, 30], &[4000, 3], &[2, 9, 40, 41], &[9, 5]] {
        let n = extents.iter().product();
        let row = extents[extents.len() - 1];
        let made = |f: &dyn Fn(usize) -> f64| (0..n).map(|i| f(i) as f32).collect::<Vec<f32>>();
        for data in [
            field(n, false),
            field(n, true),
            made(&|i| (i % 1000) as f64),
            made(&|i| 1e20 * (i as f64 * 0.003).sin()),
            made(&noise),
            made(&|i| noise(i % row)),
            made(&|i| noise(i % row) + noise(i / row)),
            made(&|i| 20.0 * (i % 3) as f64 + 0.1 * noise(i / 3)),
        ] {
            for bound in [ErrorBound::Abs(1e-3), ErrorBound::Abs(0.1), ErrorBound::Lossless] {
                let config = Config::new(bound).preset(Preset::Fast);
                let blueprint = Blueprint::new(&config, extents, &scan(&Backwards(&data), &config).unwrap()).unwrap();
                let mut payload = Vec::new();
                if blueprint.encode_on_cpu(0, &data, &mut payload).unwrap() == CodecId::Fast {
                    let parameters = chosen(&data, extents, blueprint.quantizer());
                    assert_eq!(payload[..8], parameters, "{extents:?} {bound:?}");
                    let n_tiles = FastCandidate::read_from(&payload, extents).unwrap().n_tiles;
                    assert!(payload.len() <= fast_payload_bound(n, n_tiles, 4));
                    seen.push(parameters[0]);
                }
            }
        }
    }
    seen.sort_unstable();
    seen.dedup();
    assert!(seen.len() > 4, "the choices differ: {seen:?}");
}
