//! Chunks that programs write themselves, by `H5Dwrite_chunk` and without the filter: the bytes that it would store.

use pumice::backend::{Corner, for_each_run};
use pumice::{DType, Error, ErrorKind, Recent, Result};

use crate::cd_values::{ByteOrder, CdValues, ChunkType};
use crate::chunk::{encode, room};

/// Compresses a chunk of a dataset that has these `cd_values`, both parts. `values` are the bytes of the part of the chunk that
/// lies within the dataset, of extents `count`, in the type and byte order of the dataset; the rest is padded as HDF5 does it.
/// Where HDF5's shuffle comes before the filter, they are not shuffled: the bytes are the same.
///
/// # Errors
/// If the parameters lack the dataset's part, `values` is no part of a chunk, or Pumice refuses the options.
pub fn encode_part(cd_values: &[u32], values: &[u8], count: &[usize], threads: usize) -> Result<Vec<u8>> {
    let CdValues { options, chunk_type } = CdValues::parse(cd_values)?;
    let chunk_type = chunk_type.ok_or_else(|| {
        invalid("the filter parameters lack type and shape of the chunks: take those of the created dataset".into())
    })?;
    let chunk_type = ChunkType { shuffled: false, ..chunk_type };
    let extents = &chunk_type.extents;
    if count.len() != extents.len() || count.iter().zip(extents).any(|(&n, &extent)| n == 0 || n > extent) {
        return Err(invalid(format!("{count:?} values are no part of a chunk of {extents:?}")));
    }
    let expected = count.iter().product::<usize>() * chunk_type.dtype.size();
    if values.len() != expected {
        return Err(invalid(format!("{count:?} values take {expected} bytes, not {}", values.len())));
    }
    let padded;
    let bytes = if count == extents.as_slice() {
        values
    } else {
        padded = padded_by_fill(values, count, &chunk_type)?;
        &padded
    };
    encode(bytes, &chunk_type, &options, threads, &Recent::new(0))
}

/// A whole chunk: the part, and the dataset's fill value, or zeros if it has none, for the rest.
fn padded_by_fill(part: &[u8], count: &[usize], chunk_type: &ChunkType) -> Result<Vec<u8>> {
    let ChunkType { dtype, order, extents, fill, .. } = chunk_type;
    let (size, fill) = (dtype.size(), fill.unwrap_or(0.0));
    let n_values = extents.iter().product();
    let mut pad = match dtype {
        DType::F32 => (fill as f32).to_le_bytes().to_vec(),
        _ => fill.to_le_bytes().to_vec(),
    };
    if *order == ByteOrder::Big {
        pad.reverse();
    }
    let mut chunk = room(n_values * size)?;
    (0..n_values).for_each(|_| chunk.extend_from_slice(&pad));
    let start = vec![0; extents.len()];
    let of_shape = |shape| Corner { shape, start: &start };
    for_each_run(of_shape(count), of_shape(extents), count, |from, to, n| {
        chunk[to * size..][..n * size].copy_from_slice(&part[from * size..][..n * size]);
        Ok(())
    })?;
    Ok(chunk)
}

fn invalid(message: String) -> Error {
    Error::new(ErrorKind::InvalidArgument, message)
}

#[cfg(test)]
mod tests {
    use pumice::{DecodeOptions, ErrorBound};

    use super::*;
    use crate::{FilterOptions, decode};

    fn cd_values(order: ByteOrder, shuffled: bool, fill: Option<f64>) -> CdValues {
        let chunk_type = ChunkType { dtype: DType::F32, order, extents: vec![4, 6], fill, shuffled };
        CdValues { options: FilterOptions::new(ErrorBound::Rel(1e-2)), chunk_type: Some(chunk_type) }
    }

    #[test]
    fn a_part_is_padded_in_the_byte_order_of_the_dataset() {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            for (fill, pad) in [(None, 0.0_f32), (Some(-9999.0), -9999.0), (Some(f64::NAN), f32::NAN)] {
                let bytes_of = |value: f32| match order {
                    ByteOrder::Little => value.to_le_bytes(),
                    ByteOrder::Big => value.to_be_bytes(),
                };
                let value = |row: usize, column: usize| (row * 10 + column) as f32;
                let part: Vec<u8> = (0..15).flat_map(|i| bytes_of(value(i / 5, i % 5))).collect();
                let within = |i: usize| i / 6 < 3 && i % 6 < 5;
                let chunk: Vec<u8> =
                    (0..24).flat_map(|i| bytes_of(if within(i) { value(i / 6, i % 6) } else { pad })).collect();
                let full = cd_values(order, false, fill);
                let chunk_type = full.chunk_type.clone().unwrap();
                let expected = encode(&chunk, &chunk_type, &full.options, 1, &Recent::new(0)).unwrap();
                for shuffled in [false, true] {
                    let stored = cd_values(order, shuffled, fill).to_vec();
                    assert_eq!(encode_part(&stored, &part, &[3, 5], 1).unwrap(), expected);
                    assert_eq!(encode_part(&stored, &chunk, &[4, 6], 2).unwrap(), expected);
                }
                let mut restored = vec![0; chunk.len()];
                decode(&expected, &chunk_type, &mut restored, DecodeOptions::new()).unwrap();
                assert_eq!(restored[5 * 4..6 * 4], bytes_of(pad));
            }
        }
    }

    #[test]
    fn what_is_no_part_of_a_chunk_is_refused() {
        let full = cd_values(ByteOrder::Little, false, None);
        let refused = |cd_values: &[u32], n_bytes: usize, count: &[usize]| {
            let error = encode_part(cd_values, &vec![0; n_bytes], count, 1).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidArgument);
            error.to_string()
        };
        let stored = full.to_vec();
        assert!(refused(&stored, 60, &[3, 5, 1]).contains("no part"));
        assert!(refused(&stored, 0, &[0, 5]).contains("no part"));
        assert!(refused(&stored, 20 * 5, &[5, 5]).contains("no part"));
        assert!(refused(&stored, 59, &[3, 5]).contains("60 bytes"));
        let of_user = CdValues { chunk_type: None, ..full }.to_vec();
        assert!(refused(&of_user, 60, &[3, 5]).contains("created dataset"));
    }
}
