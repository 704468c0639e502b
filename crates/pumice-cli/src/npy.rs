//! NumPy's `.npy` files, versions 1 to 3: a short header that is a Python dictionary, then the values: f4 and f8 in any
//! byte order, in C or Fortran order. For other types, the error says how to convert them.

use std::fs::File;
use std::io::Read;
use std::ops::Range;

use pumice::{DType, Element, ErrorKind, FileSource, Source};

use crate::failure::{Failure, Result};
use crate::input::zeros;
use crate::layout::Layout;
use crate::output::Pieces;

/// First bytes of every `.npy` file.
pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Larger headers are damaged; NumPy itself refuses those above 10 kB.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// NumPy leaves room for the rows of an array to become so many digits.
const GROWTH_DIGITS: usize = 21;

/// How the values of a file lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    big_endian: bool,
    /// The first axis varies fastest.
    fortran: bool,
}

impl Order {
    /// Little-endian and in C order, as raw files are.
    pub(crate) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// The contents of the header, and the offset of the values.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) layout: Layout,
    pub(crate) order: Order,
    pub(crate) data_offset: u64,
}

/// Reads the header; `input` is positioned right after the magic.
pub(crate) fn read_header(input: &mut impl Read) -> Result<Header> {
    let mut version = [0; 2];
    input.read_exact(&mut version)?;
    let (length, prefix) = match version[0] {
        1 => {
            let mut bytes = [0; 2];
            input.read_exact(&mut bytes)?;
            (usize::from(u16::from_le_bytes(bytes)), 10)
        }
        2 | 3 => {
            let mut bytes = [0; 4];
            input.read_exact(&mut bytes)?;
            (u32::from_le_bytes(bytes) as usize, 12)
        }
        v => return Err(Failure::new(ErrorKind::Unsupported, format!("unknown .npy version {v}"))),
    };
    if length > MAX_HEADER_BYTES {
        return Err(damaged());
    }
    let mut text = vec![0; length];
    input.read_exact(&mut text)?;
    let (layout, order) = parse_dictionary(&String::from_utf8_lossy(&text))?;
    Ok(Header { layout, order, data_offset: (prefix + length) as u64 })
}

/// The header of a version 1 file for this layout, padded as NumPy does: there is room for more rows, so that its size
/// does not depend on their number, and values start at a multiple of 64 bytes.
pub(crate) fn header_bytes(layout: &Layout) -> Vec<u8> {
    let extents: String = layout.shape.iter().map(|n| format!("{n}, ")).collect();
    // In Python, a tuple of one element ends with a comma.
    let extents = if layout.shape.len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
    let size = layout.dtype.size();
    let mut text = format!("{{'descr': '<f{size}', 'fortran_order': False, 'shape': ({extents}), }}");
    if let Some(rows) = layout.shape.first() {
        text += &" ".repeat(GROWTH_DIGITS - rows.to_string().len());
    }
    let unpadded = 10 + text.len() + 1;
    text += &" ".repeat(unpadded.next_multiple_of(64) - unpadded);
    text.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

/// Calls `write` with the values, which start at an offset of `file`, as a raw file has them: bytes, and their offset
/// there. The layout is that of the header. Blocks of so many bytes are brought into order at a time.
pub(crate) fn for_each_plain<T: Element>(
    (file, data_offset): (&File, u64),
    layout: &Layout,
    order: Order,
    block_bytes: usize,
    mut write: impl FnMut(&[u8], u64) -> Result<()>,
) -> Result<()> {
    // In Fortran order, the file is the transposed array in C order.
    let shape = &layout.shape;
    let in_file = |extents: &[usize]| -> Vec<usize> {
        if order.fortran { extents.iter().rev().copied().collect() } else { extents.to_vec() }
    };
    let source = FileSource::new(file.try_clone()?, data_offset, &in_file(shape), layout.dtype)?;
    if shape.contains(&0) {
        return Ok(());
    }
    let block = block(shape, block_bytes / size_of::<T>(), order.fortran);
    let n_values = block.iter().product();
    let mut values: Vec<T> = zeros(n_values)?;
    let mut turned: Vec<T> = zeros(if order.fortran { n_values } else { 0 })?;
    let mut pieces = Pieces::new();
    for region in regions(shape, &block) {
        let start: Vec<usize> = region.iter().map(|range| range.start).collect();
        let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
        let n_values = extents.iter().product();
        source.read_box(&in_file(&start), &in_file(&extents), &mut values[..n_values])?;
        if order.fortran {
            transpose(&values[..n_values], &extents, &mut turned);
            std::mem::swap(&mut values, &mut turned);
        }
        pieces.for_each_of_box(shape, &region, &values[..n_values], |bytes, offset| {
            if order.big_endian {
                bytes.chunks_exact_mut(size_of::<T>()).for_each(<[u8]>::reverse);
            }
            write(bytes, offset)
        })?;
    }
    Ok(())
}

/// Extents of the blocks in which an array is brought into order, at most so many values. From Fortran order, runs in the
/// file and runs in the result are about as long as each other.
fn block(shape: &[usize], most: usize, fortran: bool) -> Vec<usize> {
    let mut block = vec![1; shape.len()];
    let mut grow = |axis: usize, most: usize| {
        let others = block.iter().product::<usize>() / block[axis];
        block[axis] = shape[axis].min((most / others).max(block[axis]));
        block[axis] == shape[axis]
    };
    // The last axes make runs in C order, the first ones runs in Fortran order.
    let _ = (0..shape.len()).rev().all(|axis| grow(axis, if fortran { most.isqrt() } else { most }));
    let _ = (0..shape.len()).all(|axis| grow(axis, most));
    block
}

/// The blocks of an array; those at its ends are smaller.
fn regions(shape: &[usize], block: &[usize]) -> impl Iterator<Item = Vec<Range<usize>>> {
    let counts: Vec<usize> = shape.iter().zip(block).map(|(extent, step)| extent.div_ceil(*step)).collect();
    (0..counts.iter().product()).map(move |i| {
        let at = pumice::metrics::position(i, &counts).into_iter();
        at.zip(shape.iter().zip(block)).map(|(i, (extent, step))| i * step..(i * step + step).min(*extent)).collect()
    })
}

/// The array of these extents in C order, given in Fortran order.
fn transpose<T: Copy>(values: &[T], extents: &[usize], out: &mut [T]) {
    let mut strides = vec![1; extents.len()];
    for axis in 1..extents.len() {
        strides[axis] = strides[axis - 1] * extents[axis - 1];
    }
    let mut position = vec![0; extents.len()];
    let mut at = 0;
    for value in &mut out[..values.len()] {
        *value = values[at];
        for axis in (0..extents.len()).rev() {
            position[axis] += 1;
            at += strides[axis];
            if position[axis] < extents[axis] {
                break;
            }
            at -= strides[axis] * extents[axis];
            position[axis] = 0;
        }
    }
}

fn parse_dictionary(text: &str) -> Result<(Layout, Order)> {
    let (dtype, big_endian) = parse_descr(entry(text, "descr")?)?;
    let fortran_order = entry(text, "fortran_order")?.starts_with("True");
    let shape = parse_shape(entry(text, "shape")?)?;
    // With at most one extent above 1, both orders have the same bytes.
    let fortran = fortran_order && shape.iter().filter(|&&n| n != 1).count() > 1;
    Ok((Layout { dtype, shape }, Order { big_endian, fortran }))
}

/// The text after `'key':` in the dictionary.
fn entry<'a>(text: &'a str, key: &str) -> Result<&'a str> {
    let after = |quote: char| text.split_once(&format!("{quote}{key}{quote}")).map(|(_, rest)| rest);
    let rest = after('\'').or_else(|| after('"')).ok_or_else(damaged)?;
    Ok(rest.trim_start().strip_prefix(':').ok_or_else(damaged)?.trim_start())
}

/// The element type, and whether it is big-endian.
fn parse_descr(text: &str) -> Result<(DType, bool)> {
    let quoted = text.strip_prefix(['\'', '"']).and_then(|t| t.split(['\'', '"']).next());
    match quoted {
        Some("<f4") => Ok((DType::F32, false)),
        Some("<f8") => Ok((DType::F64, false)),
        Some(">f4") => Ok((DType::F32, true)),
        Some(">f8") => Ok((DType::F64, true)),
        Some(d) => {
            let failure = Failure::new(
                ErrorKind::Unsupported,
                format!("the .npy file holds values of type '{d}', not 32-bit or 64-bit floats (f4, f8)"),
            );
            Err(match d.trim_start_matches(['<', '>', '|', '=']).chars().next() {
                Some('c') => failure.hint("save both parts: numpy.save(path, numpy.stack([array.real, array.imag]))"),
                Some('i' | 'u') if !d.ends_with(['1', '2']) => {
                    failure.hint("convert it: numpy.save(path, array.astype('f8')), exact up to 2**53")
                }
                Some('f') if !d.ends_with('2') => failure.hint("convert it: numpy.save(path, array.astype('f8'))"),
                Some('i' | 'u' | 'b' | 'f') => {
                    failure.hint("convert it: numpy.save(path, array.astype('f4')), exactly")
                }
                _ => failure.hint("only numbers can be compressed"),
            })
        }
        None => Err(Failure::new(ErrorKind::Unsupported, "the .npy file holds records, not plain numbers")
            .hint("save each field separately: numpy.save(path, numpy.ascontiguousarray(array['name']))")),
    }
}

fn parse_shape(text: &str) -> Result<Vec<usize>> {
    let inner = text.strip_prefix('(').and_then(|t| t.split_once(')')).ok_or_else(damaged)?.0;
    let extents = inner.split(',').map(|n| n.trim().trim_end_matches('L')).filter(|n| !n.is_empty());
    extents.map(|n| n.parse().map_err(|_| damaged())).collect()
}

fn damaged() -> Failure {
    Failure::new(ErrorKind::Corrupt, "the .npy header is damaged")
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn read(bytes: &[u8]) -> Result<Header> {
        read_header(&mut bytes.strip_prefix(MAGIC.as_slice()).expect("starts with the magic"))
    }

    fn with_text(version: u8, text: &str) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([version, 0]);
        match version {
            1 => bytes.extend((text.len() as u16).to_le_bytes()),
            _ => bytes.extend((text.len() as u32).to_le_bytes()),
        }
        bytes.extend(text.as_bytes());
        bytes
    }

    #[test]
    fn written_headers_are_read_back() {
        for shape in [vec![], vec![7], vec![0, 3], vec![30, 192, 288]] {
            let layout = Layout { dtype: DType::F64, shape };
            let bytes = header_bytes(&layout);
            let header = read(&bytes).unwrap();
            assert_eq!(header.layout, layout);
            assert_eq!(header.data_offset, bytes.len() as u64);
            assert_eq!(bytes.len() % 64, 0);
        }
        let one = header_bytes(&Layout { dtype: DType::F32, shape: vec![7] });
        assert!(String::from_utf8_lossy(&one).contains("'descr': '<f4', 'fortran_order': False, 'shape': (7,), }"));
    }

    #[test]
    fn versions_two_and_three_are_read() {
        for version in [2, 3] {
            let header =
                read(&with_text(version, "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }\n")).unwrap();
            assert_eq!(header.layout, Layout { dtype: DType::F32, shape: vec![2, 3] });
        }
    }

    #[test]
    fn other_types_are_unsupported() {
        for text in [
            "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '|S4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
        ] {
            assert_eq!(read(&with_text(1, text)).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
        }
        let column = read(&with_text(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3)}")).unwrap();
        assert_eq!(column.layout.shape, [1, 3]);
        assert!(column.order.is_plain());
    }

    #[test]
    fn blocks_cover_the_array_with_long_runs_in_both_orders() {
        for shape in [&[3, 4, 5][..], &[60], &[2, 30], &[30, 2], &[1, 1, 7, 2]] {
            for (most, fortran) in [1, 4, 7, 25, 100].into_iter().flat_map(|most| [(most, true), (most, false)]) {
                let block = block(shape, most, fortran);
                let mut positions = Vec::new();
                for region in regions(shape, &block) {
                    let extents: Vec<usize> = region.iter().map(ExactSizeIterator::len).collect();
                    let n: usize = extents.iter().product();
                    assert!(n <= most);
                    positions.extend((0..n).map(|i| {
                        let inside = pumice::metrics::position(i, &extents);
                        region.iter().zip(inside).map(|(range, i)| range.start + i).collect::<Vec<_>>()
                    }));
                }
                positions.sort();
                let n = shape.iter().product();
                assert!(positions.into_iter().eq((0..n).map(|i| pumice::metrics::position(i, shape))), "{block:?}");
            }
        }
        assert_eq!(block(&[1000, 5000, 5000], 1 << 22, true), [1000, 2, 2048]);
        assert_eq!(block(&[1000, 5000, 5000], 1 << 22, false), [1, 838, 5000]);
        assert_eq!(regions(&[], &[]).collect::<Vec<_>>(), [vec![]]);
    }

    #[test]
    fn fortran_order_is_undone() {
        // Element (i, j, k) is the (i + 3 j + 12 k)th of the file.
        let layout = Layout { dtype: DType::F32, shape: vec![3, 4, 5] };
        let position = |at: usize| (at / 20, at / 5 % 4, at % 5);
        let expected: Vec<f32> = (0..60).map(position).map(|(i, j, k)| (i + 3 * j + 12 * k) as f32).collect();
        let mut file = tempfile::tempfile().unwrap();
        (0..60).for_each(|i| file.write_all(&(i as f32).to_be_bytes()).unwrap());
        for block_bytes in [4, 30, 64, 100, 1000] {
            let mut found = vec![0; 240];
            let order = Order { big_endian: true, fortran: true };
            let write = |bytes: &[u8], offset: u64| {
                found[offset as usize..][..bytes.len()].copy_from_slice(bytes);
                Ok(())
            };
            for_each_plain::<f32>((&file, 0), &layout, order, block_bytes, write).unwrap();
            let expected: Vec<u8> = expected.iter().flat_map(|value| value.to_le_bytes()).collect();
            assert_eq!(found, expected, "{block_bytes}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        assert_eq!(read(&with_text(1, "{}")).unwrap_err().kind(), ErrorKind::Corrupt);
        assert_eq!(
            read(&with_text(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (x)}")).unwrap_err().kind(),
            ErrorKind::Corrupt
        );
        let mut short = with_text(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)}");
        short.pop();
        assert_eq!(read(&short).unwrap_err().kind(), ErrorKind::Truncated);
    }
}
