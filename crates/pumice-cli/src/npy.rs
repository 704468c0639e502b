//! NumPy's `.npy` files, versions 1 to 3: a short header that is a Python dictionary, then the values. Supported are
//! little-endian f4 and f8 in C order; for others, the error says how to convert them.

use std::io::Read;

use pumice::{DType, ErrorKind};

use crate::failure::{Failure, Result};
use crate::layout::Layout;

/// First bytes of every `.npy` file.
pub(crate) const MAGIC: &[u8; 6] = b"\x93NUMPY";

/// Larger headers are damaged; NumPy itself refuses those above 10 kB.
const MAX_HEADER_BYTES: usize = 1 << 20;

/// The contents of the header, and the offset of the values.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) layout: Layout,
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
    let layout = parse_dictionary(&String::from_utf8_lossy(&text))?;
    Ok(Header { layout, data_offset: (prefix + length) as u64 })
}

/// The header of a version 1 file for this layout, padded as NumPy does: values start at a multiple of 64 bytes.
pub(crate) fn header_bytes(layout: &Layout) -> Vec<u8> {
    let extents: String = layout.shape.iter().map(|n| format!("{n}, ")).collect();
    // In Python, a tuple of one element ends with a comma.
    let extents = if layout.shape.len() == 1 { extents.trim_end() } else { extents.trim_end_matches(", ") };
    let size = layout.dtype.size();
    let mut text = format!("{{'descr': '<f{size}', 'fortran_order': False, 'shape': ({extents}), }}");
    let unpadded = 10 + text.len() + 1;
    text += &" ".repeat(unpadded.next_multiple_of(64) - unpadded);
    text.push('\n');
    let mut out = MAGIC.to_vec();
    out.extend([1, 0]);
    out.extend((text.len() as u16).to_le_bytes());
    out.extend(text.as_bytes());
    out
}

fn parse_dictionary(text: &str) -> Result<Layout> {
    let dtype = parse_descr(entry(text, "descr")?)?;
    let fortran_order = entry(text, "fortran_order")?.starts_with("True");
    let shape = parse_shape(entry(text, "shape")?)?;
    // With at most one extent above 1, both orders have the same bytes.
    if fortran_order && shape.iter().filter(|&&n| n != 1).count() > 1 {
        return Err(Failure::new(ErrorKind::Unsupported, "the .npy file is in Fortran order")
            .hint("convert it: numpy.save(path, numpy.ascontiguousarray(array))"));
    }
    Ok(Layout { dtype, shape })
}

/// The text after `'key':` in the dictionary.
fn entry<'a>(text: &'a str, key: &str) -> Result<&'a str> {
    let after = |quote: char| text.split_once(&format!("{quote}{key}{quote}")).map(|(_, rest)| rest);
    let rest = after('\'').or_else(|| after('"')).ok_or_else(damaged)?;
    Ok(rest.trim_start().strip_prefix(':').ok_or_else(damaged)?.trim_start())
}

fn parse_descr(text: &str) -> Result<DType> {
    let quoted = text.strip_prefix(['\'', '"']).and_then(|t| t.split(['\'', '"']).next());
    match quoted {
        Some("<f4") => Ok(DType::F32),
        Some("<f8") => Ok(DType::F64),
        Some(d @ (">f4" | ">f8")) => Err(Failure::new(ErrorKind::Unsupported, "the .npy file is big-endian")
            .hint(format!("convert it: numpy.save(path, array.astype('<{}'))", &d[1..]))),
        Some(d) => {
            Err(Failure::new(ErrorKind::Unsupported, format!("the .npy file holds values of type '{d}', not f4 or f8"))
                .hint("convert it: numpy.save(path, array.astype('<f4'))"))
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
    fn other_types_and_orders_are_unsupported() {
        for text in [
            "{'descr': '>f4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<i4', 'fortran_order': False, 'shape': (2,)}",
            "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
            "{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}",
        ] {
            assert_eq!(read(&with_text(1, text)).unwrap_err().kind(), ErrorKind::Unsupported, "{text}");
        }
        let column = read(&with_text(1, "{'descr': '<f4', 'fortran_order': True, 'shape': (1, 3)}")).unwrap();
        assert_eq!(column.layout.shape, [1, 3]);
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
