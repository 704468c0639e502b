//! One chunk: the bytes that HDF5 has in memory, and the Pumice stream that stands for them in the file. The stream
//! describes itself; only the byte order of the values is that of the dataset.
//!
//! Chunks at the edge of a dataset, and those that are not full yet, end with planes that HDF5 has filled: with the
//! fill value, or with zeros. This padding is not data: the range of a relative bound and the mean of a PSNR ignore it.

use std::ops::Range;

use bytemuck::Pod;
use pumice::backend::{Corner, for_each_run};
use pumice::{
    Config, DecodeOptions, Element, Error, ErrorBound, ErrorKind, Reader, Recent, Result, SliceSource, with_dtype,
};

use crate::cd_values::{ByteOrder, ChunkType, FilterOptions};

/// Most axes of a Pumice stream.
const MAX_STREAM_RANK: usize = 8;

/// Compresses the bytes of a chunk. Values that a stream of `recent` has restored keep their bits.
///
/// # Errors
/// If the size of the chunk is not that of `chunk_type`, or Pumice refuses the options.
pub fn encode(
    bytes: &[u8],
    chunk_type: &ChunkType,
    options: &FilterOptions,
    threads: usize,
    recent: &Recent,
) -> Result<Vec<u8>> {
    let expected = chunk_type.n_bytes();
    if expected != Some(bytes.len()) {
        return Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("a chunk of {} bytes, but chunks of {:?} have {expected:?}", bytes.len(), chunk_type.extents),
        ));
    }
    let unshuffled;
    let bytes = match chunk_type.shuffled {
        true => {
            unshuffled = transposed(bytes, chunk_type.dtype.size())?;
            &unshuffled
        }
        false => bytes,
    };
    with_dtype!(chunk_type.dtype, T => {
        let copied;
        let values: &[T] = match bytemuck::try_cast_slice(bytes) {
            Ok(values) if is_native(chunk_type.order) => values,
            _ => {
                copied = in_native_order::<T>(bytes, chunk_type.order)?;
                &copied
            }
        };
        let config = config(values, chunk_type, options)?.threads(threads);
        recent.compress(values, &stream_shape(&chunk_type.extents), &config)
    })
}

fn is_same<T: Element>(a: T, b: T) -> bool {
    a.to_bits_u64() == b.to_bits_u64()
}

/// Checks that a stream has the values of a chunk, and is long enough for these.
#[cfg(feature = "filter")]
pub(crate) fn check(stream: &[u8], chunk_type: &ChunkType, options: DecodeOptions) -> Result<()> {
    let reader = open(stream, chunk_type, options)?;
    reader.check_region(&whole(&reader))
}

fn open<'a>(stream: &'a [u8], chunk_type: &ChunkType, options: DecodeOptions) -> Result<Reader<&'a [u8]>> {
    let reader = Reader::new(stream, options)?;
    let (info, shape) = (reader.info(), stream_shape(&chunk_type.extents));
    if (info.dtype, &info.shape) == (chunk_type.dtype, &shape) {
        return Ok(reader);
    }
    Err(Error::new(
        ErrorKind::Corrupt,
        format!(
            "the chunk holds {:?} values of {}, but the dataset has {shape:?} of {}",
            info.shape, info.dtype, chunk_type.dtype
        ),
    ))
}

/// All values of a stream.
fn whole(reader: &Reader<&[u8]>) -> Vec<Range<usize>> {
    reader.info().shape.iter().map(|&n| 0..n).collect()
}

/// Decompresses a chunk into `out`, which must have the size of `chunk_type`.
///
/// # Errors
/// If the stream is damaged, has another type or shape, or needs more memory than the options allow.
pub fn decode(stream: &[u8], chunk_type: &ChunkType, out: &mut [u8], options: DecodeOptions) -> Result<()> {
    let reader = open(stream, chunk_type, options)?;
    if chunk_type.n_bytes() != Some(out.len()) {
        let message = format!("the chunk has {:?} bytes of values, but {} are wanted", chunk_type.n_bytes(), out.len());
        return Err(Error::new(ErrorKind::InvalidArgument, message));
    }
    let whole = whole(&reader);
    with_dtype!(chunk_type.dtype, T => match bytemuck::try_cast_slice_mut::<u8, T>(out) {
        Ok(values) => reader.read_region_into(&whole, values)?,
        Err(_) => out.copy_from_slice(bytemuck::cast_slice(&reader.read_region::<T>(&whole)?.data)),
    });
    if !is_native(chunk_type.order) {
        out.chunks_exact_mut(chunk_type.dtype.size()).for_each(<[u8]>::reverse);
    }
    if chunk_type.shuffled && !out.is_empty() {
        out.copy_from_slice(&transposed(out, out.len() / chunk_type.dtype.size())?);
    }
    Ok(())
}

/// Memory for `n` values, none of which is there yet.
pub(crate) fn room<V>(n: usize) -> Result<Vec<V>> {
    let mut all = Vec::new();
    let message = || format!("the system has no memory for {n} values of {} bytes; use smaller chunks", size_of::<V>());
    all.try_reserve_exact(n).map_err(|_| Error::new(ErrorKind::LimitExceeded, message()))?;
    Ok(all)
}

/// The bytes of a matrix of `n_rows` rows, column by column. HDF5's shuffle makes a row of each byte of a value: with as
/// many rows as a value has bytes this undoes it, with as many as there are values it does it.
fn transposed(bytes: &[u8], n_rows: usize) -> Result<Vec<u8>> {
    let n_columns = bytes.len() / n_rows;
    let mut columns = room(bytes.len())?;
    columns.resize(bytes.len(), 0);
    for (row, values) in bytes.chunks_exact(n_columns.max(1)).enumerate() {
        columns[row..].iter_mut().step_by(n_rows).zip(values).for_each(|(to, from)| *to = *from);
    }
    Ok(columns)
}

fn is_native(order: ByteOrder) -> bool {
    (order == ByteOrder::Big) == cfg!(target_endian = "big")
}

fn in_native_order<T: Element>(bytes: &[u8], order: ByteOrder) -> Result<Vec<T>> {
    let size = size_of::<T>();
    let mut values = room(bytes.len() / size)?;
    values.resize(bytes.len() / size, T::default());
    for (value, bytes) in values.iter_mut().zip(bytes.chunks_exact(size)) {
        let mut copy = [0; size_of::<f64>()];
        copy[..size].copy_from_slice(bytes);
        if order == ByteOrder::Big {
            copy[..size].reverse();
        }
        T::copy_from_le_bytes(&copy[..size], std::slice::from_mut(value));
    }
    Ok(values)
}

/// The extents with at most as many axes as a stream can have: drops axes of extent 1, then merges the slowest ones.
fn stream_shape(extents: &[usize]) -> Vec<usize> {
    if extents.len() <= MAX_STREAM_RANK {
        return extents.to_vec();
    }
    let mut shape: Vec<usize> = extents.iter().copied().filter(|&n| n != 1).collect();
    if shape.len() > MAX_STREAM_RANK {
        let merged = shape.drain(..=shape.len() - MAX_STREAM_RANK).product();
        shape.insert(0, merged);
    }
    shape
}

/// The options of Pumice for this chunk. Fill values are those that the user names and that of the dataset, as far as the
/// chunk holds them; Pumice finds others.
fn config<T: Element + Pod>(values: &[T], chunk_type: &ChunkType, options: &FilterOptions) -> Result<Config> {
    let fills: Vec<f64> = options.fills.iter().copied().chain(chunk_type.fill).collect();
    let of_bound = |bound| Config::new(bound).preset(options.preset).stable(options.stable).fills(&fills);
    let config = of_bound(options.bound);
    match (options.bound, options.range) {
        (ErrorBound::Rel(_), Some((lo, hi))) => return Ok(config.range(lo, hi)),
        (ErrorBound::Rel(_) | ErrorBound::Psnr(_), _) => {}
        _ => return Ok(config),
    }
    let named: Vec<T> = fills.iter().map(|fill| T::from_f64(*fill)).collect();
    let is_fill = |value: &T| named.iter().any(|fill| is_same(*fill, *value));
    let extents = data_extents(values, &chunk_type.extents, |value| value.to_bits_u64() == 0 || is_fill(value));
    if extents == chunk_type.extents {
        return Ok(config);
    }
    let start = vec![0; extents.len()];
    let of_shape = |shape| Corner { shape, start: &start };
    let mut data: Vec<T> = room(extents.iter().product())?;
    for_each_run(of_shape(&chunk_type.extents), of_shape(&extents), &extents, |at, _, n| {
        data.extend_from_slice(&values[at..at + n]);
        Ok(())
    })?;
    let range = pumice::value_range(&SliceSource::new(&data, &[data.len()])?, &fills, 1)?;
    let n_counted = data.iter().filter(|value| !is_fill(value)).count() as f64;
    Ok(match (options.bound, range) {
        (_, None) => of_bound(ErrorBound::Lossless),
        (ErrorBound::Rel(_), Some((lo, hi))) => config.range(lo, hi),
        // Errors in the padding, if there are any, count as well, so the PSNR of the data can only be higher.
        (ErrorBound::Psnr(db), Some((lo, hi))) => {
            of_bound(ErrorBound::L2((hi - lo) * n_counted.sqrt() * 10_f64.powf(-db / 20.0)))
        }
        _ => config,
    })
}

/// The extents of a chunk without the planes at the end of each axis that are nothing but padding.
fn data_extents<T>(values: &[T], extents: &[usize], is_padding: impl Fn(&T) -> bool) -> Vec<usize> {
    let kept = |axis: usize| {
        let inner: usize = extents[axis + 1..].iter().product();
        let outer: usize = extents[..axis].iter().product();
        let row = |o: usize, at: usize| &values[(o * extents[axis] + at) * inner..][..inner];
        let is_empty = |at: &usize| (0..outer).all(|o| row(o, *at).iter().all(&is_padding));
        extents[axis] - (0..extents[axis]).rev().take_while(is_empty).count()
    };
    (0..extents.len()).map(kept).collect()
}

#[cfg(test)]
mod tests {
    use pumice::{DType, Preset, Real};

    use super::*;

    static NOTHING: Recent = Recent::new(0);

    fn chunk_type(dtype: DType, extents: &[usize]) -> ChunkType {
        ChunkType { dtype, order: ByteOrder::Little, extents: extents.to_vec(), fill: None, shuffled: false }
    }

    fn bytes_of<T: Element>(values: &[T]) -> Vec<u8> {
        let mut bytes = Vec::new();
        T::extend_le_bytes(values, &mut bytes);
        bytes
    }

    /// The stream's bound, and the restored values.
    fn round_trip(values: &[f32], chunk: &ChunkType, options: &FilterOptions) -> (f64, Vec<f32>) {
        let stream = encode(&bytes_of(values), chunk, options, 1, &NOTHING).unwrap();
        let mut out = vec![0; values.len() * 4];
        decode(&stream, chunk, &mut out, DecodeOptions::new()).unwrap();
        let mut restored = vec![0.0; values.len()];
        f32::copy_from_le_bytes(&out, &mut restored);
        (pumice::inspect(&stream).unwrap().abs_bound, restored)
    }

    fn temperatures(n: usize) -> Vec<f32> {
        (0..n).map(|i| 285.0 + 5.0 * (i as f32 * 0.01).sin()).collect()
    }

    #[test]
    fn both_byte_orders_and_any_alignment() {
        let values: Vec<f64> = (0..600).map(|i| f64::from(i).sqrt()).collect();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let chunk = ChunkType { order, ..chunk_type(DType::F64, &[20, 30]) };
            let mut bytes = bytes_of(&values);
            if order == ByteOrder::Big {
                bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            }
            for shift in 0..3 {
                let mut shifted = vec![0; shift];
                shifted.extend(&bytes);
                let stream =
                    encode(&shifted[shift..], &chunk, &FilterOptions::new(ErrorBound::Abs(0.0)), 1, &NOTHING).unwrap();
                let mut out = vec![0; shift + bytes.len()];
                decode(&stream, &chunk, &mut out[shift..], DecodeOptions::new()).unwrap();
                assert_eq!(out[shift..], bytes);
            }
        }
    }

    #[test]
    fn a_shuffle_before_the_filter_is_undone() {
        let values: Vec<f64> = (0..600).map(|i| f64::from(i).sqrt()).collect();
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let chunk = ChunkType { order, shuffled: true, ..chunk_type(DType::F64, &[20, 30]) };
            let mut bytes = bytes_of(&values);
            if order == ByteOrder::Big {
                bytes.chunks_exact_mut(8).for_each(<[u8]>::reverse);
            }
            // As HDF5 does it: first the first bytes of all values, then the second ones.
            let shuffle = |bytes: &[u8]| -> Vec<u8> { (0..4800).map(|i| bytes[i % 600 * 8 + i / 600]).collect() };
            let encode = |bytes: &[u8], chunk: &ChunkType| {
                super::encode(bytes, chunk, &FilterOptions::new(ErrorBound::Abs(1e-3)), 1, &Recent::new(0)).unwrap()
            };
            let stream = encode(&shuffle(&bytes), &chunk);
            let plain = ChunkType { shuffled: false, ..chunk.clone() };
            assert_eq!(stream, encode(&bytes, &plain));
            let (mut shuffled, mut restored) = (vec![0; 4800], vec![0; 4800]);
            decode(&stream, &chunk, &mut shuffled, DecodeOptions::new()).unwrap();
            decode(&stream, &plain, &mut restored, DecodeOptions::new()).unwrap();
            assert_eq!(shuffled, shuffle(&restored));
        }
    }

    #[test]
    fn padding_does_not_loosen_a_relative_bound() {
        let data = temperatures(60 * 40);
        let options = FilterOptions::new(ErrorBound::Rel(1e-2));
        let (alone, _) = round_trip(&data, &chunk_type(DType::F32, &[60, 40]), &options);
        assert!(alone < 0.11);
        for (pad, fill) in [(0.0, None), (1e20, Some(1e20)), (0.0, Some(1e20))] {
            let mut padded = vec![pad; 64 * 50];
            for (row, values) in data.chunks(40).enumerate() {
                padded[row * 50..row * 50 + 40].copy_from_slice(values);
            }
            let chunk = ChunkType { fill, ..chunk_type(DType::F32, &[64, 50]) };
            let (bound, restored) = round_trip(&padded, &chunk, &options);
            assert_eq!(bound, alone, "padded with {pad}, fill value {fill:?}");
            let is_within = |(a, b): (&f32, &f32)| f64::from((a - b).abs()) <= bound;
            assert!(padded.iter().zip(&restored).all(is_within));
            // The mean and the range of a PSNR are those of the data too.
            let (_, restored) = round_trip(&padded, &chunk, &FilterOptions::new(ErrorBound::Psnr(60.0)));
            let part = |all: &[f32]| all.chunks(50).take(60).flat_map(|row| row[..40].to_vec()).collect::<Vec<_>>();
            let found = pumice::metrics::compare(&part(&padded), &part(&restored), f64::INFINITY, &[]);
            assert!(found.psnr >= 60.0, "{}", found.psnr);
        }
        let nothing = vec![0.0; 64 * 50];
        assert_eq!(round_trip(&nothing, &chunk_type(DType::F32, &[64, 50]), &options).1, nothing);
    }

    #[test]
    fn a_declared_fill_value_does_not_hide_another() {
        let mut data = temperatures(2400);
        data[100..200].fill(1e20);
        let chunk = ChunkType { fill: Some(9.969_209_968_386_869e36), ..chunk_type(DType::F32, &[60, 40]) };
        let (bound, restored) = round_trip(&data, &chunk, &FilterOptions::new(ErrorBound::Rel(1e-2)));
        assert!(bound < 0.11, "{bound}");
        assert_eq!(restored[100..200], data[100..200]);
    }

    #[test]
    fn fill_values_that_nobody_names_come_back() {
        for fill in [-999.0, -9999.0, -32_768.0, 1e20, 9.969_21e36, -1e34, 9999.0, 99_999.0] {
            for n in [1, 3, 1000, 2400] {
                let mut data = temperatures(2400);
                data[..n].fill(fill);
                for bound in [ErrorBound::Rel(1e-3), ErrorBound::Abs(0.01), ErrorBound::PwRel(1e-4)] {
                    for preset in [Preset::Fast, Preset::Balanced, Preset::Small, Preset::Max] {
                        let options = FilterOptions { preset, ..FilterOptions::new(bound) };
                        let (_, restored) = round_trip(&data, &chunk_type(DType::F32, &[60, 40]), &options);
                        // A value that no convention knows must repeat, and be an extreme.
                        if n > 1 || fill != 9.969_21e36 {
                            assert_eq!(restored[..n], data[..n], "{bound} {preset:?}");
                            let largest = data.iter().zip(&restored).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
                            assert!(largest < 0.03, "{bound} {preset:?}: {largest}");
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn five_fill_values_in_a_chunk_come_back() {
        let named = [10.0, 20.0, 30.0, 40.0];
        let mut data = temperatures(2400);
        for (i, fill) in named.iter().chain(&[50.0]).enumerate() {
            data[100 * i..100 * i + 20].fill(*fill as f32);
        }
        let chunk = ChunkType { fill: Some(50.0), ..chunk_type(DType::F32, &[60, 40]) };
        for bound in [ErrorBound::Abs(3.0), ErrorBound::Rel(1e-2), ErrorBound::PwRel(0.1)] {
            for preset in [Preset::Fast, Preset::Balanced, Preset::Small, Preset::Max] {
                let options = FilterOptions { preset, fills: named.to_vec(), ..FilterOptions::new(bound) };
                let (abs_bound, restored) = round_trip(&data, &chunk, &options);
                assert!(!matches!(bound, ErrorBound::Rel(_)) || abs_bound < 0.11, "{abs_bound}");
                for i in 0..5 {
                    let part = 100 * i..100 * i + 20;
                    assert_eq!(restored[part.clone()], data[part], "{bound} {preset:?}");
                }
            }
        }
    }

    #[test]
    fn two_fill_values_in_a_chunk_come_back() {
        let mut data = temperatures(2400);
        data[100..200].fill(1e20);
        data[300..400].fill(-999.0);
        let chunk = ChunkType { fill: Some(1e20), ..chunk_type(DType::F32, &[60, 40]) };
        for bound in [
            ErrorBound::Abs(0.1),
            ErrorBound::Abs(30.0),
            ErrorBound::Rel(1e-3),
            ErrorBound::PwRel(1e-2),
            ErrorBound::Psnr(60.0),
            ErrorBound::L2(1.0),
        ] {
            let options = FilterOptions { fills: vec![-999.0], ..FilterOptions::new(bound) };
            let (_, restored) = round_trip(&data, &chunk, &options);
            assert_eq!((&restored[100..200], &restored[300..400]), (&data[100..200], &data[300..400]), "{bound:?}");
            let largest = data.iter().zip(&restored).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(largest < 31.0, "{bound:?}: {largest}");
        }
        let ratio = |ratio| FilterOptions { fills: vec![-999.0], ..FilterOptions::new(ErrorBound::Ratio(ratio)) };
        let (_, restored) = round_trip(&data, &chunk, &ratio(5.0));
        assert_eq!((&restored[100..200], &restored[300..400]), (&data[100..200], &data[300..400]));
        assert!(restored[400..].iter().zip(&data[400..]).all(|(a, b)| (a - b).abs() < 1.0));
        assert_eq!(
            encode(&bytes_of(&data), &chunk, &ratio(500.0), 1, &NOTHING).unwrap_err().kind(),
            ErrorKind::InvalidArgument
        );
    }

    #[test]
    fn a_range_is_taken_as_given() {
        let data = temperatures(2400);
        let options = FilterOptions {
            range: Some((0.0, 100.0)),
            preset: Preset::Fast,
            ..FilterOptions::new(ErrorBound::Rel(1e-3))
        };
        assert_eq!(round_trip(&data, &chunk_type(DType::F32, &[60, 40]), &options).0, 0.1);
    }

    #[test]
    fn many_axes_are_merged() {
        assert_eq!(stream_shape(&[2; 8]), [2; 8]);
        assert_eq!(stream_shape(&[1, 2, 1, 3, 1, 4, 1, 5, 1, 6]), [2, 3, 4, 5, 6]);
        assert_eq!(stream_shape(&[2; 10]), [8, 2, 2, 2, 2, 2, 2, 2]);
        let data = temperatures(1024);
        let (_, restored) =
            round_trip(&data, &chunk_type(DType::F32, &[2; 10]), &FilterOptions::new(ErrorBound::Lossless));
        assert_eq!(restored, data);
    }

    #[test]
    fn damage_and_wrong_sizes_are_errors() {
        let data = temperatures(2400);
        let chunk = chunk_type(DType::F32, &[60, 40]);
        let stream = encode(&bytes_of(&data), &chunk, &FilterOptions::new(ErrorBound::Abs(0.1)), 1, &NOTHING).unwrap();
        let mut out = vec![0; 9600];
        for at in 0..stream.len() {
            let mut damaged = stream.clone();
            damaged[at] ^= 0x40;
            assert!(decode(&damaged, &chunk, &mut out, DecodeOptions::new()).is_err(), "byte {at}");
            assert!(decode(&stream[..at], &chunk, &mut out, DecodeOptions::new()).is_err(), "{at} bytes");
        }
        let other = chunk_type(DType::F32, &[40, 60]);
        assert_eq!(decode(&stream, &other, &mut out, DecodeOptions::new()).unwrap_err().kind(), ErrorKind::Corrupt);
        assert!(encode(&[0; 9599], &chunk, &FilterOptions::new(ErrorBound::Lossless), 1, &NOTHING).is_err());
    }
}
