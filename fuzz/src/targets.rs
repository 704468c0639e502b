//! The targets. Each takes any bytes, never fails by itself, and panics if the library panics, answers with a kind of
//! error that decoding must not give, contradicts itself, or breaks a bound.

use std::ops::Range;
use std::sync::OnceLock;

use pumice::metrics::Guarantee;
use pumice::research::{self, Huffman};
use pumice::{
    Codebook, CodebookTrainer, Config, DecodeOptions, Element, Error, ErrorBound, ErrorKind, Info, Preset, Reader,
    Real, Salvage, Stable, StreamReader, Writer, metrics, with_dtype,
};
use pumice_testkit::check;
use twox_hash::XxHash3_64;

use crate::stream::{self, Repairs};

/// Most memory that a decode may take: small, so that executions stay fast and the limit is met often.
const MAX_BYTES: u64 = 1 << 18;
/// Smaller chunks are refused.
const MIN_CHUNK_BYTES: usize = 32_000;
/// Most values of a round trip, or of a row of it where it is chunked.
const MAX_VALUES: usize = 8192;

/// Header fields. Input: a selector, then the header from `dtype` to its last attribute; where the selector's high bit
/// is set, a stream as it is.
pub fn header(data: &[u8]) {
    let Some((&selector, fields)) = data.split_first() else { return };
    if selector & 0x80 != 0 {
        return examine(fields);
    }
    let mut bytes = stream::sealed_header(fields);
    let rows = stream::HeaderFacts::of(&bytes).map_or(1, |facts| facts.rows);
    stream::push_frame(0, rows, &[0; 128][..usize::from(selector)], &mut bytes);
    examine(&bytes);
}

/// Whole streams. Input: a selector whose low four bits say which checksums are repaired, then a stream.
pub fn container(data: &[u8]) {
    let Some((&selector, bytes)) = data.split_first() else { return };
    let mut bytes = bytes.to_vec();
    stream::reseal(&mut bytes, Repairs::from_bits(selector));
    examine(&bytes);
}

/// Payloads of the `fast` codec in a single-chunk stream that is valid otherwise. Input: see [`codec_input`].
pub fn codec(data: &[u8]) {
    payload(FAST, data);
}

/// Payloads of the codec of `small` and `max`, likewise.
pub fn small_codec(data: &[u8]) {
    payload(SMALL, data);
}

/// Payloads of the codec of `balanced`, likewise.
pub fn balanced_codec(data: &[u8]) {
    payload(BALANCED, data);
}

/// Payloads of chunks that are coded with a codebook, in a stream that has [`shared_codebook`].
pub fn shared_codec(data: &[u8]) {
    payload(SHARED, data);
}

/// Codebooks. Input: the bytes of one, whose checksum is repaired. Whatever is accepted codes and restores every array.
pub fn codebook(data: &[u8]) {
    let mut bytes = data.to_vec();
    if let Some(end) = bytes.len().checked_sub(8) {
        let checksum = XxHash3_64::oneshot(&bytes[..end]);
        bytes[end..].copy_from_slice(&checksum.to_le_bytes());
    }
    let codebook = match Codebook::from_bytes(&bytes) {
        Ok(codebook) => codebook,
        Err(e) => {
            return assert!(matches!(e.kind(), ErrorKind::Corrupt | ErrorKind::Unsupported), "{e}");
        }
    };
    assert_eq!(codebook.as_bytes(), bytes);
    let values: Vec<f32> = (0..600).map(|i| ((i * i) as f32 * 1e-3).sin() * (i % 97) as f32).collect();
    let config = Config::new(ErrorBound::Abs(0.01)).preset(Preset::Balanced).threads(1).codebook(&codebook);
    let stream = pumice::compress(&values, &[20, 30], &config).expect("a valid configuration");
    let restored = pumice::decompress::<f32>(&stream).expect("a stream of the library");
    check::verify(&values, &restored.data, 0.01, &[]).expect("the bound is kept");
}

/// The codebook of the streams of [`shared_codec`]: it has classes with books and without, and several alphabets.
pub fn shared_codebook() -> &'static Codebook {
    static CODEBOOK: OnceLock<Codebook> = OnceLock::new();
    CODEBOOK.get_or_init(|| {
        let mut trainer = CodebookTrainer::new();
        let values: Vec<f32> =
            (0..40_000).map(|i| (i as f32 * 0.01).sin() + (i % 7) as f32 * (i / 4000) as f32 * 0.004).collect();
        trainer
            .add(&values, &[200, 200], &Config::new(ErrorBound::Abs(0.002)).threads(1))
            .expect("a valid configuration");
        trainer.finish().expect("values that vary")
    })
}

/// Payloads of the codec of `cuszplus`, likewise.
pub fn cuszplus_codec(data: &[u8]) {
    payload(CUSZPLUS, data);
}

/// Payloads of the codec of `ceaz`, likewise.
pub fn ceaz_codec(data: &[u8]) {
    payload(CEAZ, data);
}

/// Payloads of the codec of `cuszp2-plain` and `cuszp2-outlier`, likewise.
pub fn cuszp2_codec(data: &[u8]) {
    payload(CUSZP2, data);
}

/// Payloads of the codec of `ceresz2`, likewise.
pub fn ceresz2_codec(data: &[u8]) {
    payload(CERESZ2, data);
}

/// Payloads of the layers for bounds that differ from value to value, likewise. Input: a byte whose lowest bit says which
/// of them, then as for the others.
pub fn layers(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    examine(&forged(POINTWISE + which % 3, data));
}

/// Number of the layer for bounds relative to each value in a frame; those for regions and for changes come after it.
pub const POINTWISE: u8 = 8;
/// Number of the codec `fast` in a frame.
pub const FAST: u8 = 1;
/// The same of `small`.
pub const SMALL: u8 = 2;
/// The same of `balanced`.
pub const BALANCED: u8 = 3;
/// The same of chunks that are coded with a codebook.
pub const SHARED: u8 = 11;
/// The same of `cuszp2-plain` and `cuszp2-outlier`.
pub const CUSZP2: u8 = 4;
/// The same of `cuszplus`.
pub const CUSZPLUS: u8 = 5;
/// The same of `ceaz`.
pub const CEAZ: u8 = 6;
/// The same of `ceresz2`.
pub const CERESZ2: u8 = 7;

fn payload(codec: u8, data: &[u8]) {
    examine(&forged(codec, data));
}

fn forged(codec: u8, data: &[u8]) -> Vec<u8> {
    let mut input = Input(data);
    let layout = input.byte();
    let is_f64 = layout & 1 != 0;
    let is_lossless = layout & 8 != 0;
    let n_fills = (layout >> 1 & 3).min(2);
    // Which preset the header names does not matter to the decoder.
    let has_codebook = u8::from(codec == SHARED) << 5;
    let mut fields = vec![1 + u8::from(is_f64), 1 | n_fills << 1 | has_codebook, 1, u8::from(!is_lossless)];
    let rank = (layout >> 4).min(6);
    fields.push(rank);
    for _ in 0..rank {
        stream::push_varint(u64::from(u16::from_le_bytes(input.array()) & 0xfff), &mut fields);
    }
    if !is_lossless {
        let step = f64::from_le_bytes(input.array()).abs();
        let step = if step.is_finite() { step } else { 1.0 };
        fields.extend_from_slice(&1f64.to_le_bytes());
        match is_f64 {
            true => fields.extend_from_slice(&step.to_le_bytes()),
            false => fields.extend_from_slice(&(step as f32).min(f32::MAX).to_le_bytes()),
        }
    }
    for _ in 0..n_fills {
        let bits: [u8; 8] = input.array();
        fields.extend_from_slice(&bits[..if is_f64 { 8 } else { 4 }]);
    }
    if has_codebook != 0 {
        let codebook = shared_codebook().as_bytes();
        stream::push_varint(codebook.len() as u64, &mut fields);
        fields.extend_from_slice(codebook);
    }
    let mut bytes = stream::sealed_header(&fields);
    let rows = stream::HeaderFacts::of(&bytes).map_or(1, |facts| facts.rows);
    stream::push_frame(codec, rows, input.0, &mut bytes);
    bytes
}

/// The input by which [`codec`] or [`small_codec`] sees this payload: a byte of flags and rank, u16 extents, the step as f64 unless it is
/// 0 (lossless), u64 fill bits, payload.
pub fn codec_input(is_f64: bool, shape: &[u16], step: f64, fills: &[u64], payload: &[u8]) -> Vec<u8> {
    let is_lossless = step == 0.0;
    let flags = u8::from(is_f64) | (fills.len() as u8) << 1 | u8::from(is_lossless) << 3;
    let mut out = vec![flags | (shape.len() as u8) << 4];
    shape.iter().for_each(|n| out.extend_from_slice(&n.to_le_bytes()));
    if !is_lossless {
        out.extend_from_slice(&step.to_le_bytes());
    }
    fills.iter().for_each(|bits| out.extend_from_slice(&bits.to_le_bytes()));
    out.extend_from_slice(payload);
    out
}

/// Huffman coding. Input: the number of symbols and of codebooks, then bytes that are symbols, that are codebooks, and that
/// are streams.
pub fn huffman(data: &[u8]) {
    let mut input = Input(data);
    let n_symbols = 1 + usize::from(u16::from_le_bytes(input.array())) % 1024;
    let n_codebooks = 1 + usize::from(input.byte() % 16);
    let n = usize::from(u16::from_le_bytes(input.array())) % (MAX_VALUES + 1);
    let max_bits = 10 + u32::from(input.byte() % 8);
    let bytes = input.0;
    let byte = |i: usize| if bytes.is_empty() { 0 } else { usize::from(bytes[i % bytes.len()]) };
    // Skewed, so that codes have many lengths.
    let symbols: Vec<u16> = (0..n).map(|i| (byte(i) * byte(i / 3 + 1) / 7 % n_symbols) as u16).collect();
    let n_groups = n.div_ceil(Huffman::GROUP);
    let classes: Vec<u8> = (0..n_groups).map(|i| (byte(7 * i) % n_codebooks) as u8).collect();
    let classes = if n_codebooks == 1 { &[][..] } else { &classes };
    let coder = Huffman::fit(&symbols, n_symbols, classes, max_bits);
    let (mut streams, mut sizes) = (Vec::new(), Vec::new());
    coder.encode(&symbols, &mut streams, &mut sizes);
    let n_used = coder.codebooks().count();
    let written = coder.write();
    let again = Huffman::read(&written, n_used, n_symbols, classes).expect("codebooks come back");
    assert!(coder.codebooks().eq(again.codebooks()));
    let mut back = vec![0; n];
    // Without symbols there is no code, and nothing to decode.
    if n > 0 {
        again.decode(&streams, &sizes, &mut back).expect("symbols come back");
        assert_eq!(back, symbols);
    }

    // What is accepted of hostile streams is what an encoder makes of it.
    if !streams.is_empty() {
        streams.iter_mut().enumerate().for_each(|(i, to)| *to ^= if byte(i + 5) < 4 { byte(i) as u8 } else { 0 });
        match again.decode(&streams, &sizes, &mut back) {
            Ok(()) => {
                let (mut same, mut same_sizes) = (Vec::new(), Vec::new());
                again.encode(&back, &mut same, &mut same_sizes);
                assert!(same == streams && same_sizes == sizes);
            }
            Err(error) => check_error(&error),
        }
    }
    match Huffman::read(bytes, n_used, n_symbols, classes) {
        Ok(hostile) => match hostile.decode(&streams, &sizes, &mut back) {
            Ok(()) => assert!(back.iter().all(|symbol| usize::from(*symbol) < n_symbols)),
            Err(error) => check_error(&error),
        },
        Err(error) => check_error(&error),
    }
}

/// Run lengths. Input: the number of symbols and of values, then bytes that are symbols, and that are runs.
pub fn run_length(data: &[u8]) {
    let mut input = Input(data);
    let n = usize::from(u16::from_le_bytes(input.array())) % (MAX_VALUES + 1);
    let n_values = usize::from(input.byte());
    let bytes = input.0;
    let symbols: Vec<u16> = (0..n).map(|i| bytes.get(i / 5).map_or(7, |byte| u16::from(*byte / 16))).collect();
    let (mut values, mut digits) = (Vec::new(), Vec::new());
    research::encode_runs(&symbols, &mut values, &mut digits);
    assert_eq!(values.len(), research::n_runs(&symbols));
    let mut back = vec![0; n];
    research::decode_runs(&values, &digits, &mut back).expect("runs come back");
    assert_eq!(back, symbols);

    let (hostile_values, hostile_digits) = bytes.split_at(n_values.min(bytes.len()));
    let hostile_values: Vec<u16> = hostile_values.iter().map(|value| u16::from(*value)).collect();
    match research::decode_runs(&hostile_values, hostile_digits, &mut back) {
        Ok(()) => {
            // Neighbours of hostile runs may be equal; decoded again they are the same.
            let (mut values, mut digits) = (Vec::new(), Vec::new());
            research::encode_runs(&back, &mut values, &mut digits);
            assert!(values.len() <= hostile_values.len());
        }
        Err(error) => check_error(&error),
    }
}

/// Any array at any bound comes back within it. Input: flags, kind of values, rank, extents, bound, chunk extents,
/// then values.
pub fn round_trip(data: &[u8]) {
    let mut input = Input(data);
    let flags = input.byte();
    match flags & 1 {
        0 => round_trip_of::<f32>(flags, input),
        _ => round_trip_of::<f64>(flags, input),
    }
}

fn round_trip_of<T: Element>(flags: u8, mut input: Input<'_>) {
    let kind = input.byte();
    let rank = usize::from(input.byte() % 6);
    let mut shape: Vec<usize> = (0..rank).map(|_| usize::from(input.byte())).collect();
    if rank == 1 {
        shape[0] *= 17;
    }
    while shape.iter().product::<usize>() > MAX_VALUES {
        shape.iter_mut().for_each(|n| *n = n.div_ceil(2));
    }
    // A bound of any magnitude that the type has, and a few beyond.
    let exponent = i32::from(input.byte() as i8) * if T::DTYPE.size() == 4 { 1 } else { 8 } - 16;
    let bound = (1.0 + f64::from(input.byte()) / 256.0) * 2f64.powi(exponent.max(-1070));
    let mut config = match flags >> 1 & 3 {
        0 => Config::new(ErrorBound::Lossless),
        1 => Config::new(ErrorBound::Abs(bound)),
        3 if flags >> 7 != 0 => Config::new(ErrorBound::Psnr(f64::from(flags >> 4 & 7) * 18.0 + 3.0)),
        3 => Config::new(ErrorBound::PwRel(2f64.powi(-3 * (i32::from(flags >> 4 & 7)) - 1))),
        _ => Config::new(ErrorBound::Rel(2f64.powi(-(i32::from(flags >> 4) + 1)))),
    };
    // Mixing takes long, so it has the least share.
    let presets = [
        Preset::Fast,
        Preset::Small,
        Preset::Balanced,
        Preset::Max,
        Preset::Cuszp2Outlier,
        Preset::Cuszplus,
        Preset::Ceaz,
        Preset::Ceresz2,
    ];
    let preset = if kind & 0x78 == 0x60 { Preset::Cuszp2Plain } else { presets[usize::from(kind >> 3 & 7)] };
    let stable = match (config.bound(), flags >> 4 & 3) {
        (ErrorBound::Abs(_), 1) => Stable::On,
        (ErrorBound::Abs(_), 2) => Stable::Auto,
        _ => Stable::Off,
    };
    config = config.threads(1).preset(preset).stable(stable);
    if flags & 0x08 != 0 {
        config = config.fills(&[-9999.0]);
    }
    let is_chunked = kind & 0x80 != 0 && rank > 0 && !shape.contains(&0);
    if is_chunked {
        // Enough rows for two chunks of the least size, and one clipped.
        let row_bytes = shape[1..].iter().product::<usize>() * size_of::<T>();
        let mut chunk_shape = shape.clone();
        chunk_shape[0] = MIN_CHUNK_BYTES.div_ceil(row_bytes) + usize::from(input.byte() % 8);
        shape[0] = 2 * chunk_shape[0] + shape[0] % chunk_shape[0];
        config = config.chunk_shape(&chunk_shape);
    }
    let values: Vec<T> = values(kind & 7, shape.iter().product(), input);
    let bytes = match pumice::compress(&values, &shape, &config) {
        Ok(bytes) => bytes,
        Err(e) => panic!("{shape:?} {config:?}: {e}"),
    };
    if !is_chunked {
        let raw_bytes = values.len() * size_of::<T>();
        assert!(bytes.len() <= raw_bytes + raw_bytes / 1000 + 128, "{raw_bytes} bytes became {}", bytes.len());
    }
    let restored = pumice::decompress::<T>(&bytes).expect("what was compressed can be read");
    assert_eq!(restored.shape, shape);
    let info = pumice::inspect(&bytes).expect("what was compressed can be read");
    check_bound(&values, &restored.data, &info, config.bound());
    if info.stable {
        // What is not taken for a fill value moves to the lattice, so both have the same ones.
        let other = if preset == Preset::Fast { Preset::Small } else { Preset::Fast };
        let config = config.clone().preset(other).fills(&info.fills);
        let again = pumice::compress(&restored.data, &shape, &config).expect("the same bound");
        let again = pumice::decompress::<T>(&again).expect("what was compressed can be read").data;
        assert!(again.iter().zip(&restored.data).all(|(a, b)| a.to_bits_u64() == b.to_bits_u64()), "a copy differs");
    }
    if is_chunked && !values.is_empty() && matches!(config.bound(), ErrorBound::Abs(_) | ErrorBound::Lossless) {
        check_writer(&values, &shape, &config, &info);
    }
}

/// Row by row gives values within the bound too.
fn check_writer<T: Element>(values: &[T], shape: &[usize], config: &Config, info: &Info) {
    let mut writer = Writer::<T, _>::new(Vec::new(), &shape[1..], config).expect("the same configuration");
    for row in values.chunks(values.len() / shape[0]) {
        writer.write_rows(row).expect("rows of the right size");
    }
    let (bytes, _) = writer.finish().expect("memory is always writable");
    let restored = pumice::decompress::<T>(&bytes).expect("what was written can be read");
    assert_eq!(restored.shape, shape);
    check_bound(values, &restored.data, info, config.bound());
}

/// Values of one of several kinds, from the input as far as it goes and then going on in the same manner.
fn values<T: Element>(kind: u8, n: usize, mut input: Input<'_>) -> Vec<T> {
    let scale = 2f64.powi(i32::from(input.byte() as i8));
    let mut last = 0u64;
    let next = |i: usize| match kind {
        0 => T::from_bits_u64(u64::from_le_bytes(input.array())),
        1 => T::from_f64(f64::from(input.byte() as i8) * scale),
        2 => {
            last = last.wrapping_add(i64::from(input.byte() as i8) as u64);
            T::from_bits_u64(last)
        }
        3 => T::from_f64((i as f64 * 0.05).sin() * scale + f64::from(input.byte()) * scale / 4096.0),
        4 => match input.byte() {
            0..8 => T::from_f64(f64::NAN),
            8 => T::from_f64(f64::INFINITY),
            9 => T::from_f64(f64::NEG_INFINITY),
            10..64 => T::from_f64(-9999.0),
            64..80 => T::from_f64(-0.0),
            80..88 => T::from_bits_u64(u64::from_le_bytes(input.array())),
            byte => T::from_f64(f64::from(byte) * scale),
        },
        5 => T::from_bits_u64(u64::from(input.byte())),
        _ => T::from_f64(if input.byte() < 4 { 1e30 } else { i as f64 * scale }),
    };
    (0..n).map(next).collect()
}

fn check_bound<T: Element>(values: &[T], restored: &[T], info: &Info, asked: ErrorBound) {
    match asked {
        ErrorBound::Abs(e) => assert!(info.abs_bound <= e, "asked for {e:e}, got {:e}", info.abs_bound),
        ErrorBound::Rel(e) => {
            let finite = || values.iter().filter(|v| v.is_finite()).map(|v| v.to_f64());
            let range = finite().fold(f64::MIN, f64::max) - finite().fold(f64::MAX, f64::min);
            let most = (e * range.max(0.0)).next_up();
            assert!(info.abs_bound <= most, "asked for {most:e}, got {:e}", info.abs_bound);
        }
        ErrorBound::Psnr(db) => {
            let found = metrics::compare(values, restored, info.abs_bound, &info.fills);
            // Squares of huge values overflow here, not in the search.
            assert!(found.psnr >= db || !found.rmse.is_normal() || !(found.max - found.min).is_finite(), "{found:?}");
        }
        ErrorBound::PwRel(_) => {
            let found = Guarantee::of(info)
                .compare(std::slice::from_ref(&(0..values.len())), values, restored)
                .expect("there is memory to compare");
            assert!(found.bound_kept() && info.bound == asked, "{found:?}");
            return;
        }
        _ => assert_eq!(info.abs_bound, 0.0),
    }
    for (i, (x, y)) in values.iter().zip(restored).enumerate() {
        let is_fine = match x.is_finite() && info.abs_bound > 0.0 {
            true => y.is_finite() && check::is_within(x.to_f64(), y.to_f64(), info.abs_bound),
            false => x.to_bits_u64() == y.to_bits_u64(),
        };
        assert!(is_fine, "value {i}: {x:e} became {y:e} at bound {:e}", info.abs_bound, x = x.to_f64(), y = y.to_f64());
    }
}

/// Opens, reads and salvages a stream in every way, from a pipe as well, and compares the answers.
fn examine(bytes: &[u8]) {
    let options = DecodeOptions::new().threads(1).max_bytes(MAX_BYTES);
    match Reader::new(bytes, options.clone()) {
        Ok(reader) => {
            check_info(reader.info(), bytes.len());
            with_dtype!(reader.info().dtype, T => read::<T>(&reader, bytes, &options));
        }
        Err(error) => check_error(&error),
    }
    match StreamReader::new(bytes, options.clone()) {
        Ok(stream) => with_dtype!(stream.dtype(), T => read_in_order::<T>(stream, bytes, &options)),
        Err(error) => check_error(&error),
    }
    salvage(bytes, options);
}

/// What a pipe gives is what the file gives.
fn read_in_order<T: Element>(stream: StreamReader<&[u8]>, bytes: &[u8], options: &DecodeOptions) {
    let mut values: Vec<T> = Vec::new();
    let add = |rows: &[T]| {
        values.extend_from_slice(rows);
        Ok(())
    };
    match stream.for_each_rows(add) {
        Ok(info) => {
            check_info(&info, bytes.len());
            // All rows together may be above the limit.
            match Reader::new(bytes, options.clone()).and_then(|reader| reader.read::<T>()) {
                Ok(array) => assert!(same(&array.data, &values)),
                Err(error) => assert_eq!(error.kind(), ErrorKind::LimitExceeded, "{error}"),
            }
        }
        Err(error) => check_error(&error),
    }
}

fn check_info(info: &Info, stream_bytes: usize) {
    let n_values = match info.shape.contains(&0) {
        true => 0,
        false => info.shape.iter().try_fold(1u64, |n, &extent| n.checked_mul(extent as u64)).expect("fits"),
    };
    assert_eq!(info.raw_bytes, n_values * info.dtype.size() as u64);
    assert_eq!(info.compressed_bytes, stream_bytes as u64);
    assert_eq!(info.chunk_shape.len(), info.shape.len());
    assert!(info.abs_bound >= 0.0 && info.bounds[0] == info.bound && info.regions.len() <= 1024);
    assert!(info.fills.len() <= 2);
}

fn check_error(error: &Error) {
    let kinds = [ErrorKind::Corrupt, ErrorKind::Truncated, ErrorKind::Unsupported, ErrorKind::LimitExceeded];
    assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
}

fn read<T: Element>(reader: &Reader<&[u8]>, bytes: &[u8], options: &DecodeOptions) {
    let shape = &reader.info().shape;
    let whole = match reader.read::<T>() {
        Ok(array) => array,
        Err(error) => return check_error(&error),
    };
    assert_eq!(&whole.shape, shape);
    assert!(whole.data.len() as u64 * size_of::<T>() as u64 <= MAX_BYTES);

    let mut again = vec![T::default(); whole.data.len()];
    pumice::decompress_into(bytes, &mut again, options).expect("it was read before");
    assert!(same(&whole.data, &again));

    // A region, chosen by what the stream looks like.
    let mut dice = bytes.iter().fold(bytes.len(), |sum, &b| sum.wrapping_mul(31).wrapping_add(usize::from(b)));
    let mut region: Vec<Range<usize>> = Vec::new();
    for &n in shape {
        let from = if n == 0 { 0 } else { dice % n };
        dice /= 7;
        region.push(from..from + (dice % (n - from + 1)));
        dice /= 5;
    }
    let part = reader.read_region::<T>(&region).expect("it was read before");
    assert!(same(&part.data, &check::cut(&whole.data, shape, &region)));
    if reader.n_chunks() > 0 {
        let id = dice as u64 % reader.n_chunks();
        let region = reader.chunk_region(id).expect("it exists");
        let chunk = reader.read_chunk::<T>(id).expect("it was read before");
        assert!(same(&chunk.data, &check::cut(&whole.data, shape, &region)));
    }

    let salvaged = pumice::salvage(bytes, options.clone()).expect("it was read before");
    assert!(salvaged.lost().next().is_none());
    assert!(same(&whole.data, &salvaged.read(T::default()).expect("it was read before").data));
}

fn salvage(bytes: &[u8], options: DecodeOptions) {
    match pumice::salvage(bytes, options) {
        Ok(salvaged) => {
            let info = salvaged.info();
            check_info(info, bytes.len());
            // The list of what is lost may be long.
            if info.n_chunks <= 256 {
                // Saturating: an extent of 0 may stand behind huge ones.
                let volume =
                    |region: &[Range<usize>]| region.iter().fold(1, |n: u64, r| n.saturating_mul(r.len() as u64));
                let mut covered: u64 = salvaged.lost().map(|(_, region)| volume(&region)).sum();
                let add = |region: &[Range<usize>], n: usize| {
                    assert_eq!(volume(region), n as u64);
                    covered += n as u64;
                    Ok(())
                };
                let each = with_dtype!(info.dtype, T => each_chunk::<T>(&salvaged, add));
                match each {
                    Ok(()) => assert_eq!(covered * info.dtype.size() as u64, info.raw_bytes),
                    Err(error) => check_error(&error),
                }
            }
            let read = with_dtype!(info.dtype, T => salvaged.read(T::from_f64(f64::NAN)).map(drop));
            read.unwrap_or_else(|error| check_error(&error));
        }
        Err(error) => check_error(&error),
    }
}

fn each_chunk<T: Element>(
    salvaged: &Salvage<&[u8]>,
    mut f: impl FnMut(&[Range<usize>], usize) -> pumice::Result<()> + Send,
) -> pumice::Result<()> {
    salvaged.for_each_chunk::<T>(|region, values| f(region, values.len()))
}

/// Bit for bit; the payload of a NaN that the quantiser's formula gives is not specified.
fn same<T: Element>(a: &[T], b: &[T]) -> bool {
    let equal = |(x, y): (&T, &T)| x.to_bits_u64() == y.to_bits_u64() || x.is_nan() && y.is_nan();
    a.len() == b.len() && a.iter().zip(b).all(equal)
}

/// Bytes that go on as zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    fn array<const N: usize>(&mut self) -> [u8; N] {
        let mut out = [0; N];
        let n = N.min(self.0.len());
        out[..n].copy_from_slice(&self.0[..n]);
        self.0 = &self.0[n..];
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codec_targets_see_valid_streams() {
        let data: Vec<f32> = (0..600).map(|i| (i as f32 * 0.1).sin()).collect();
        let alike: Vec<f32> = (0..600).map(|i| 5.0 * ((i as f32 * 0.01).sin() + (i % 7) as f32 * 0.02)).collect();
        let presets = [
            (Preset::Fast, FAST),
            (Preset::Small, SMALL),
            (Preset::Balanced, BALANCED),
            (Preset::Balanced, SHARED),
            (Preset::Cuszp2Outlier, CUSZP2),
            (Preset::Ceresz2, CERESZ2),
        ];
        for (preset, expected) in presets {
            let config = Config::new(ErrorBound::Abs(0.01)).preset(preset);
            let config = if expected == SHARED { config.codebook(shared_codebook()) } else { config };
            // Values like those that the codebook was trained with: for others a chunk prefers its own codes.
            let data = if expected == SHARED { &alike } else { &data };
            let stream = pumice::compress(data, &[20, 30], &config).unwrap();
            let (codec, payload) = stream::first_payload(&stream).unwrap();
            assert_eq!(codec, expected);
            let input = codec_input(false, &[20, 30], 0.02, &[], payload);
            let forged = super::forged(codec, &input);
            assert_eq!(pumice::decompress::<f32>(&forged).unwrap().shape, [20, 30]);
        }
    }
}
