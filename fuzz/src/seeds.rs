//! Inputs to start from: small streams of the library that between them use every feature, and the golden files.

use std::path::Path;
use std::sync::OnceLock;

use pumice::{Config, Element, ErrorBound, Preset, Stable, Writer};

use crate::{stream, targets};

/// Golden files above this size make slow seeds.
const MAX_GOLDEN_BYTES: usize = 3000;

/// A stream that the library wrote.
struct Sample {
    is_f64: bool,
    shape: Vec<usize>,
    fills: Vec<u64>,
    bytes: Vec<u8>,
}

/// Seeds of [`targets::header`].
pub fn header() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for bytes in samples().iter().map(|s| &s.bytes).chain(goldens()) {
        if let Some(header_bytes) = stream::HeaderFacts::of(bytes).map(|facts| facts.header_bytes) {
            seeds.push([&[0], &bytes[8..header_bytes - 4]].concat());
            seeds.push([&[0x80], &bytes[..bytes.len().min(header_bytes + 40)]].concat());
        }
    }
    seeds
}

/// Seeds of [`targets::container`].
pub fn container() -> Vec<Vec<u8>> {
    let all = samples().iter().map(|s| &s.bytes).chain(goldens());
    all.flat_map(|bytes| [15, 11, 7].map(|repairs| [&[repairs], &bytes[..]].concat())).collect()
}

/// Seeds of [`targets::codec`].
pub fn codec() -> Vec<Vec<u8>> {
    payloads(targets::FAST)
}

/// Seeds of [`targets::small_codec`].
pub fn small_codec() -> Vec<Vec<u8>> {
    payloads(targets::SMALL)
}

/// Seeds of [`targets::balanced_codec`].
pub fn balanced_codec() -> Vec<Vec<u8>> {
    payloads(targets::BALANCED)
}

/// Seeds of [`targets::shared_codec`].
pub fn shared_codec() -> Vec<Vec<u8>> {
    payloads(targets::SHARED)
}

/// Seeds of [`targets::codebook`].
pub fn codebook() -> Vec<Vec<u8>> {
    vec![targets::shared_codebook().as_bytes().to_vec()]
}

/// Seeds of [`targets::cuszplus_codec`].
pub fn cuszplus_codec() -> Vec<Vec<u8>> {
    payloads(targets::CUSZPLUS)
}

/// Seeds of [`targets::ceaz_codec`].
pub fn ceaz_codec() -> Vec<Vec<u8>> {
    payloads(targets::CEAZ)
}

/// Seeds of [`targets::huffman`].
pub fn huffman() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (n_symbols, n_codebooks, n) in
        [(1_u16, 1_u8, 100_u16), (2, 1, 4097), (1023, 1, 8192), (255, 15, 5000), (9, 3, 33)]
    {
        let mut seed = Vec::from((n_symbols - 1).to_le_bytes());
        seed.push(n_codebooks - 1);
        seed.extend(n.to_le_bytes());
        seed.push(3);
        seed.extend((0..300_u32).map(|i| (i * i / 7) as u8));
        seeds.push(seed);
    }
    seeds
}

/// Seeds of [`targets::run_length`].
pub fn run_length() -> Vec<Vec<u8>> {
    let runs: [&[u8]; 4] = [&[5, 6, 7, 0, 127, 128, 1], &[1, 127, 72], &[], &[9, 255, 255, 3]];
    let seed = |n: u16, n_values: u8, rest: &[u8]| [&n.to_le_bytes()[..], &[n_values], rest].concat();
    vec![seed(258, 3, runs[0]), seed(200, 1, runs[1]), seed(0, 0, runs[2]), seed(8000, 1, runs[3])]
}

/// Seeds of [`targets::cuszp2_codec`].
pub fn cuszp2_codec() -> Vec<Vec<u8>> {
    payloads(targets::CUSZP2)
}

/// Seeds of [`targets::ceresz2_codec`].
pub fn ceresz2_codec() -> Vec<Vec<u8>> {
    payloads(targets::CERESZ2)
}

fn payloads(codec: u8) -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for sample in samples() {
        let Some(payload) = stream::first_payload(&sample.bytes).filter(|(c, _)| *c == codec).map(|(_, p)| p) else {
            continue;
        };
        let shape: Vec<u16> = sample.shape.iter().map(|&n| n as u16).collect();
        // All others do nothing without a step.
        for step in if codec == targets::FAST { &[0.0, 0.02][..] } else { &[0.02] } {
            seeds.push(targets::codec_input(sample.is_f64, &shape, *step, &sample.fills, payload));
        }
    }
    seeds
}

/// Seeds of [`targets::layers`].
pub fn layers() -> Vec<Vec<u8>> {
    let of =
        |which: u8| payloads(targets::POINTWISE + which).into_iter().map(move |seed| [&[which], &seed[..]].concat());
    (0..3).flat_map(of).collect()
}

/// Seeds of [`targets::round_trip`].
pub fn round_trip() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for flags in (0..8).chain([0x12, 0x13, 0x22, 0x4b, 0x94, 0xf5]) {
        for kind in (0..32).chain([0x80, 0x8b, 0x84]).chain((0x40..0x60).step_by(5)) {
            let rank = (flags ^ kind) % 5;
            let mut seed = vec![flags, kind, rank];
            seed.extend([7, 5, 13, 3, 2].iter().take(rank.into()));
            seed.extend([0xf8, 77, 4, 4, 4, 4, 4]);
            seed.extend((0..60u8).map(|i| i.wrapping_mul(37)));
            seeds.push(seed);
        }
    }
    seeds
}

fn samples() -> &'static [Sample] {
    static SAMPLES: OnceLock<Vec<Sample>> = OnceLock::new();
    SAMPLES.get_or_init(|| {
        let mut out = Vec::new();
        samples_of::<f32>(&mut out);
        samples_of::<f64>(&mut out);
        out
    })
}

fn samples_of<T: Element>(out: &mut Vec<Sample>) {
    small_samples::<T>(out);
    layer_samples::<T>(out);
    for row_shape in [&[][..], &[5], &[3, 7]] {
        let shape = [&[11], row_shape].concat();
        for preset in [Preset::Fast, Preset::Small, Preset::Balanced] {
            let (shape, bytes) = (shape.clone(), chunked::<T>(row_shape, preset));
            out.push(Sample { is_f64: size_of::<T>() == 8, shape, fills: vec![], bytes });
        }
    }
    let shapes: [&[usize]; 10] =
        [&[], &[0, 3], &[1], &[40], &[300], &[7, 13], &[20, 30], &[7, 13, 5], &[2, 3, 4, 5], &[2, 1, 3, 2, 2, 3]];
    for (k, shape) in shapes.into_iter().enumerate() {
        for content in 0..5 {
            let values: Vec<T> = (0..shape.iter().product()).map(|i| value(content, i)).collect();
            let bound = match (k + content) % 4 {
                0 => ErrorBound::Lossless,
                1 => ErrorBound::Rel(1e-2),
                _ => ErrorBound::Abs(0.01),
            };
            let preset = [Preset::Fast, Preset::Fast, Preset::Small][(k + 2 * content) % 3];
            let stable = if content == 3 { Stable::On } else { Stable::Off };
            let config = Config::new(bound).preset(preset).stable(stable).threads(1).fills(&[-9999.0]);
            let mut push = |bytes| {
                out.push(Sample { is_f64: size_of::<T>() == 8, shape: shape.to_vec(), fills: fills::<T>(), bytes });
            };
            push(pumice::compress(&values, shape, &config).expect("a valid configuration"));
            if content == 2 && !values.is_empty() && !shape.is_empty() && !matches!(bound, ErrorBound::Rel(_)) {
                let mut writer = Writer::new(Vec::new(), &shape[1..], &config).expect("a valid configuration");
                writer.write_rows(&values).expect("whole rows");
                push(writer.finish().expect("memory is writable").0);
            }
        }
    }
}

/// Payloads of `small` with tables, which takes 4096 values, and of `max`: each content with either predictor. And of
/// `balanced` and the presets of papers.
fn small_samples<T: Element>(out: &mut Vec<Sample>) {
    let shapes: [(Preset, &[usize]); 19] = [
        (Preset::Small, &[4100]),
        (Preset::Small, &[64, 65]),
        (Preset::Small, &[1400, 3]),
        (Preset::Small, &[4, 9, 10, 12]),
        (Preset::Balanced, &[4100]),
        (Preset::Balanced, &[30, 31]),
        (Preset::Balanced, &[4, 9, 10, 12]),
        (Preset::Max, &[700]),
        (Preset::Max, &[9, 10, 11]),
        (Preset::Cuszplus, &[4100]),
        (Preset::Cuszplus, &[9, 10, 11]),
        (Preset::Ceaz, &[4100]),
        (Preset::Ceaz, &[20, 50]),
        (Preset::Cuszp2Plain, &[300]),
        (Preset::Cuszp2Outlier, &[33]),
        (Preset::Cuszp2Outlier, &[9, 10, 11]),
        (Preset::Ceresz2, &[33]),
        (Preset::Ceresz2, &[9, 10, 11]),
        (Preset::Ceresz2, &[4200]),
    ];
    for (preset, shape) in shapes {
        for content in 0..7 {
            let values: Vec<T> = (0..shape.iter().product()).map(|i| value(content, i)).collect();
            // Few bits for each value, so that mutations reach every part.
            let bound = if content == 2 { 3e3 } else { 0.05 };
            let config = Config::new(ErrorBound::Abs(bound)).preset(preset).threads(1).fills(&[-9999.0]);
            let mut push = |config: &Config| {
                let bytes = pumice::compress(&values, shape, config).expect("a valid configuration");
                out.push(Sample { is_f64: size_of::<T>() == 8, shape: shape.to_vec(), fills: fills::<T>(), bytes });
            };
            push(&config);
            if preset == Preset::Balanced {
                push(&config.codebook(targets::shared_codebook()));
            }
        }
    }
}

/// The fill values of streams whose user names one: theirs, and NaN.
fn fills<T: Element>() -> Vec<u64> {
    [-9999.0, f64::NAN].map(|v| T::from_f64(v).to_bits_u64()).to_vec()
}

/// Payloads of the layers, around both codecs.
fn layer_samples<T: Element>(out: &mut Vec<Sample>) {
    let shape = [13, 40];
    for preset in [Preset::Fast, Preset::Small] {
        for content in 0..7 {
            let values: Vec<T> = (0..13 * 40).map(|i| value(content, i)).collect();
            let inside = [2..9, 10..25];
            for config in [
                Config::new(ErrorBound::PwRel(0.05)),
                Config::new(ErrorBound::PwRel(0.05)).and(ErrorBound::Abs(0.5)),
                Config::new(ErrorBound::Abs(0.5)).region(&inside, ErrorBound::PwRel(0.05)),
                Config::new(ErrorBound::Abs(0.5)).bin(&[2, 3]).region(&inside, ErrorBound::Abs(0.05)),
            ] {
                let config = config.preset(preset).threads(1).fills(&[-9999.0]);
                let bytes = pumice::compress(&values, &shape, &config).expect("a valid configuration");
                out.push(Sample { is_f64: size_of::<T>() == 8, shape: shape.to_vec(), fills: fills::<T>(), bytes });
            }
            out.push(Sample {
                is_f64: size_of::<T>() == 8,
                shape: shape.to_vec(),
                fills: fills::<T>(),
                bytes: changed(&values, &shape, preset),
            });
        }
    }
}

/// A stream of which a box and a few scattered values were written again.
fn changed<T: Element>(values: &[T], shape: &[usize], preset: Preset) -> Vec<u8> {
    let config = Config::new(ErrorBound::Abs(0.5)).preset(preset).threads(1).fills(&[-9999.0]);
    let first = pumice::compress(values, shape, &config).expect("a valid configuration");
    let again = |stream: &[u8], is_new: &dyn Fn(usize) -> bool| {
        let mut values = pumice::decompress::<T>(stream).expect("a stream of the library").data;
        let others = (0..values.len()).filter(|i| is_new(*i)).map(|i| (i, value(5, i + 7)));
        others.for_each(|(i, other)| values[i] = other);
        pumice::update(stream, &values, &config).expect("a valid configuration")
    };
    again(&again(&first, &|i| i / 40 == 3), &|i| i % 23 == 5)
}

/// Three chunks along axis 0, the last one clipped, smaller than the library would make them. The second half of the
/// rows is a second segment.
fn chunked<T: Element>(row_shape: &[usize], preset: Preset) -> Vec<u8> {
    let config = Config::new(ErrorBound::Abs(0.01)).preset(preset).threads(1).attribute("units", "K");
    let row_values: usize = row_shape.iter().product();
    let mut first_value = 0;
    let chunks: Vec<Vec<u8>> = [4, 4, 3]
        .map(|rows| {
            let values: Vec<T> = (0..rows * row_values).map(|i| value(0, first_value + i)).collect();
            first_value += values.len();
            pumice::compress(&values, &[&[rows], row_shape].concat(), &config).expect("a valid configuration")
        })
        .into();
    stream::joined(&chunks, &[4, 7], &[&[4], row_shape].concat()).expect("streams of the library")
}

/// Smooth, with fill values and NaN, rough, constant, with spikes and infinities, wandering, or sparse.
fn value<T: Element>(content: usize, i: usize) -> T {
    let smooth = (i as f64 * 0.1).sin();
    let value = match content {
        0 => smooth,
        1 if i % 16 < 5 => -9999.0,
        1 if i % 61 == 7 => f64::NAN,
        1 => smooth * 3.0,
        2 => ((i as f64 * 12.9898).sin() * 43758.5453).fract() * 1e4,
        3 => 2.5,
        5 => ((i * i) as f64 * 0.003).sin() + (i / 37) as f64 * 0.3,
        6 if i.is_multiple_of(97) => 20.0,
        6 => 0.0,
        _ if i % 29 == 3 => 1e30,
        _ if i % 31 == 3 => f64::INFINITY,
        _ => smooth * 1e-3 + i as f64,
    };
    T::from_f64(value)
}

/// Golden files, where the checkout has them.
fn goldens() -> &'static [Vec<u8>] {
    static GOLDENS: OnceLock<Vec<Vec<u8>>> = OnceLock::new();
    GOLDENS.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../assets/golden/v1");
        let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.retain(|path| path.extension().is_some_and(|e| e == "pum"));
        paths.sort();
        let files = paths.iter().filter_map(|path| std::fs::read(path).ok());
        files.filter(|bytes| bytes.len() <= MAX_GOLDEN_BYTES).collect()
    })
}
