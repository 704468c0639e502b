//! Classic NetCDF files: CDF-1, CDF-2 (64-bit offsets) and CDF-5 (64-bit data). The header is read when a file is
//! opened, values box by box. Headers are not trusted: all sizes are checked against the file before they are used.
//!
//! Specified in the NetCDF User's Guide, "File Format Specifications". Numbers are big-endian, names and values in the
//! header are padded to 4 bytes. Variables along the unlimited dimension lie interleaved, record by record.

use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;

use pumice::{DType, Error, ErrorKind, ReadAt, Result};
use pumice_hdf5::files::{ElementType, Integer};

use super::variable::filled;
use crate::output::{run_length, run_starts};

const PAD: u64 = 4;
const DIMENSIONS: u32 = 10;
const VARIABLES: u32 = 11;
const ATTRIBUTES: u32 = 12;
/// Limit on the size of the header, far above that of any real one.
const MAX_HEADER_BYTES: u64 = 1 << 26;
/// The largest rank in HDF5.
const MAX_RANK: u64 = 32;

#[derive(Debug, PartialEq)]
pub(crate) struct Dimension {
    pub(crate) name: String,
    pub(crate) extent: usize,
    pub(crate) is_unlimited: bool,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Attribute {
    pub(crate) name: String,
    pub(crate) element: ElementType,
    /// Little-endian.
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug, PartialEq)]
pub(crate) struct Variable {
    pub(crate) name: String,
    /// Indices of its dimensions.
    pub(crate) dimensions: Vec<usize>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) element: ElementType,
    pub(crate) shape: Vec<usize>,
    pub(crate) is_record: bool,
    /// Offset of its values in the file.
    begin: u64,
    /// Bytes of all its values, or of those in one record.
    part_bytes: u64,
}

/// A file, or bytes for tests.
#[derive(Debug)]
pub(crate) struct Classic<R = File> {
    source: R,
    pub(crate) dimensions: Vec<Dimension>,
    pub(crate) attributes: Vec<Attribute>,
    pub(crate) variables: Vec<Variable>,
    /// Distance between the starts of two records.
    record_bytes: u64,
}

/// Whether a file with these first bytes is a classic NetCDF file.
pub(crate) fn is_classic(magic: &[u8]) -> bool {
    magic.starts_with(b"CDF")
}

fn corrupt(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Corrupt, message)
}

fn truncated(message: impl Into<String>) -> Error {
    Error::new(ErrorKind::Truncated, message)
}

impl<R: ReadAt> Classic<R> {
    pub(crate) fn open(source: R) -> Result<Self> {
        let mut header = Header { source: &source, at: 0, end: source.len()?, is_wide: false, has_wide_offsets: true };
        match header.bytes(4)?.as_slice() {
            b"CDF\x01" => header.has_wide_offsets = false,
            b"CDF\x02" => {}
            b"CDF\x05" => header.is_wide = true,
            _ => return Err(Error::unsupported("a NetCDF file of an unknown version")),
        }
        let file_bytes = header.end;
        let n_records = header.count()?;
        let n_records = (n_records != if header.is_wide { u64::MAX } else { u32::MAX.into() }).then_some(n_records);
        let mut dimensions = header.list(DIMENSIONS, Header::dimension)?;
        check_unique(dimensions.iter().map(|dimension| &dimension.name))?;
        if dimensions.iter().filter(|dimension| dimension.is_unlimited).count() > 1 {
            return Err(corrupt("two unlimited dimensions"));
        }
        let attributes = header.list(ATTRIBUTES, Header::attribute)?;
        let mut variables = header.list(VARIABLES, |header| header.variable(&dimensions))?;
        check_unique(variables.iter().map(|variable| &variable.name))?;
        let record_bytes = record_bytes(&variables)?;
        let n_records = count_records(&variables, n_records, record_bytes, file_bytes)?;
        let records = variables.iter_mut().filter(|variable| variable.is_record).map(|variable| &mut variable.shape[0]);
        let unlimited = dimensions.iter_mut().filter(|dimension| dimension.is_unlimited);
        records.chain(unlimited.map(|dimension| &mut dimension.extent)).for_each(|extent| *extent = n_records);
        if variables.iter().any(|variable| bytes_of(&variable.shape, variable.element).is_none()) {
            return Err(corrupt("a variable that is too large"));
        }
        Ok(Self { source, dimensions, attributes, variables, record_bytes })
    }

    /// The values of a box of a variable as little-endian bytes.
    pub(crate) fn read(&self, variable: &Variable, start: &[usize], extents: &[usize]) -> Result<Vec<u8>> {
        let region: Vec<Range<usize>> = start.iter().zip(extents).map(|(start, n)| *start..start + n).collect();
        let size = variable.element.size();
        let mut bytes = filled(0, extents.iter().product::<usize>() * size)?;
        if bytes.is_empty() {
            return Ok(bytes);
        }
        // With several record variables, the records of each are not contiguous; the values within a record are.
        let is_apart = variable.is_record && self.record_bytes != variable.part_bytes;
        let (records, n_outer) = if is_apart { (region[0].clone(), 1) } else { (0..1, 0) };
        let (shape, inner) = (&variable.shape[n_outer..], &region[n_outer..]);
        let offsets = records.flat_map(|record| {
            let begin = variable.begin + record as u64 * self.record_bytes;
            run_starts(shape, inner).map(move |at| begin + at * size as u64)
        });
        for (run, offset) in bytes.chunks_exact_mut(run_length(shape, inner) * size).zip(offsets) {
            self.source.read_exact_at(run, offset)?;
        }
        bytes.chunks_exact_mut(size).for_each(<[u8]>::reverse);
        Ok(bytes)
    }
}

fn check_unique<'a>(names: impl IntoIterator<Item = &'a String>) -> Result<()> {
    let mut seen = HashSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(name) => Err(corrupt(format!("{name} occurs twice"))),
        None => Ok(()),
    }
}

fn bytes_of(shape: &[usize], element: ElementType) -> Option<u64> {
    shape.iter().try_fold(element.size() as u64, |n, extent| n.checked_mul(*extent as u64))
}

fn padded(bytes: u64) -> Option<u64> {
    bytes.checked_next_multiple_of(PAD)
}

/// Distance between the starts of two records. A single record variable has no padding.
fn record_bytes(variables: &[Variable]) -> Result<u64> {
    let mut records = variables.iter().filter(|variable| variable.is_record).map(|variable| variable.part_bytes);
    match (records.next(), records.next()) {
        (Some(only), None) => Ok(only),
        (first, second) => {
            let all = first.into_iter().chain(second).chain(records);
            let sum = all.map(padded).try_fold(0, |sum: u64, bytes| sum.checked_add(bytes?));
            sum.ok_or_else(|| corrupt("a record that is too large"))
        }
    }
}

/// The number of records: the one stored in the header, or, if the file was written as a stream, as many as the file
/// holds. All values must be present. Only the unlimited dimension can have extent 0, so a record has at least one
/// byte.
fn count_records(variables: &[Variable], stored: Option<u64>, record_bytes: u64, file_bytes: u64) -> Result<usize> {
    let mut present = u64::MAX;
    for variable in variables {
        let after_first = variable.begin.checked_add(variable.part_bytes).and_then(|end| file_bytes.checked_sub(end));
        match after_first {
            Some(rest) if variable.is_record => present = present.min(rest / record_bytes + 1),
            None if variable.is_record => present = 0,
            None => return Err(truncated(format!("the file ends within {}", variable.name))),
            Some(_) => {}
        }
    }
    let has_records = variables.iter().any(|variable| variable.is_record);
    let n = match stored {
        Some(n) if has_records && n > present => {
            return Err(truncated(format!("the file has {present} of {n} records")));
        }
        Some(n) => n,
        None if has_records => present,
        None => 0,
    };
    usize::try_from(n).map_err(|_| corrupt("too many records"))
}

/// Reads a header from its start to its end.
struct Header<'a, R> {
    source: &'a R,
    at: u64,
    end: u64,
    /// Whether counts have 8 bytes (CDF-5), and whether offsets do.
    is_wide: bool,
    has_wide_offsets: bool,
}

impl<R: ReadAt> Header<'_, R> {
    fn bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        if n > self.end - self.at {
            return Err(truncated("the header ends too early"));
        }
        if n > MAX_HEADER_BYTES {
            return Err(Error::unsupported(format!("an attribute of {n} bytes")));
        }
        let mut bytes = vec![0; n as usize];
        self.source.read_exact_at(&mut bytes, self.at)?;
        self.at += n;
        Ok(bytes)
    }

    fn padded_bytes(&mut self, n: u64) -> Result<Vec<u8>> {
        let mut bytes = self.bytes(padded(n).ok_or_else(|| truncated("the header ends too early"))?)?;
        bytes.truncate(n as usize);
        Ok(bytes)
    }

    fn number(&mut self, is_wide: bool) -> Result<u64> {
        let bytes = self.bytes(if is_wide { 8 } else { 4 })?;
        Ok(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn count(&mut self) -> Result<u64> {
        self.number(self.is_wide)
    }

    fn tag(&mut self) -> Result<u32> {
        Ok(self.number(false)? as u32)
    }

    fn list<T>(&mut self, tag: u32, mut member: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        let (found, n) = (self.tag()?, self.count()?);
        if found != tag && (found != 0 || n != 0) {
            return Err(corrupt(format!("expected a list with tag {tag}, found tag {found}")));
        }
        // Each member takes at least one byte, so a count that is too large stops at the end of the file.
        (0..n).map(|_| member(self)).collect()
    }

    fn name(&mut self) -> Result<String> {
        let n = self.count()?;
        let name = String::from_utf8(self.padded_bytes(n)?).map_err(|_| corrupt("a name that is not UTF-8"))?;
        if matches!(name.as_str(), "" | "." | "..") || name.contains(['/', '\0']) {
            return Err(corrupt(format!("{name:?} is not a valid name")));
        }
        Ok(name)
    }

    fn element(&mut self) -> Result<ElementType> {
        let integer = |size, is_signed| ElementType::Integer(Integer { size, is_signed });
        Ok(match self.tag()? {
            1 => integer(1, true),
            2 => ElementType::Character,
            3 => integer(2, true),
            4 => integer(4, true),
            5 => ElementType::Float(DType::F32),
            6 => ElementType::Float(DType::F64),
            7 if self.is_wide => integer(1, false),
            8 if self.is_wide => integer(2, false),
            9 if self.is_wide => integer(4, false),
            10 if self.is_wide => integer(8, true),
            11 if self.is_wide => integer(8, false),
            other => return Err(corrupt(format!("unknown element type {other}"))),
        })
    }

    fn dimension(&mut self) -> Result<Dimension> {
        let (name, extent) = (self.name()?, self.count()?);
        let extent = usize::try_from(extent).map_err(|_| corrupt(format!("{name} is too long")))?;
        Ok(Dimension { name, extent, is_unlimited: extent == 0 })
    }

    fn attribute(&mut self) -> Result<Attribute> {
        let (name, element, n) = (self.name()?, self.element()?, self.count()?);
        let n_bytes = n.checked_mul(element.size() as u64).ok_or_else(|| truncated("the header ends too early"))?;
        let mut bytes = self.padded_bytes(n_bytes)?;
        bytes.chunks_exact_mut(element.size()).for_each(<[u8]>::reverse);
        Ok(Attribute { name, element, bytes })
    }

    fn variable(&mut self, known: &[Dimension]) -> Result<Variable> {
        let (name, rank) = (self.name()?, self.count()?);
        if rank > MAX_RANK {
            return Err(Error::unsupported(format!("{name} has more than {MAX_RANK} axes")));
        }
        let ids = (0..rank).map(|_| self.count()).collect::<Result<Vec<_>>>()?;
        let dimensions: Vec<usize> = ids.into_iter().map(|id| usize::try_from(id).unwrap_or(usize::MAX)).collect();
        if dimensions.iter().any(|id| *id >= known.len()) {
            return Err(corrupt(format!("{name} has an unknown dimension")));
        }
        let is_unlimited = |id: &usize| known[*id].is_unlimited;
        if dimensions.iter().skip(1).any(is_unlimited) {
            return Err(corrupt(format!("the unlimited dimension of {name} is not its first")));
        }
        let is_record = dimensions.first().is_some_and(is_unlimited);
        let attributes = self.list(ATTRIBUTES, Self::attribute)?;
        let element = self.element()?;
        // The stored size overflows for large variables; the shape gives the right one.
        let (_, begin) = (self.count()?, self.number(self.has_wide_offsets)?);
        let shape: Vec<usize> = dimensions.iter().map(|id| known[*id].extent).collect();
        let part_bytes = bytes_of(&shape[usize::from(is_record)..], element);
        let part_bytes = part_bytes.ok_or_else(|| corrupt(format!("{name} is too large")))?;
        Ok(Variable { name, dimensions, attributes, element, shape, is_record, begin, part_bytes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: u64 = 3;
    const DOUBLE: u64 = 6;
    const STREAM: u64 = u64::MAX;

    /// Builds a header byte by byte.
    struct Writer {
        bytes: Vec<u8>,
        version: u8,
    }

    impl Writer {
        fn number(&mut self, n: u64, is_wide: bool) {
            self.bytes.extend(&n.to_be_bytes()[if is_wide { 0 } else { 4 }..]);
        }

        fn counts(&mut self, counts: &[u64]) {
            counts.iter().for_each(|n| self.number(*n, self.version == 5));
        }

        fn tag(&mut self, tag: u64) {
            self.number(tag, false);
        }

        fn text(&mut self, text: &str) {
            self.counts(&[text.len() as u64]);
            self.bytes.extend(text.bytes());
            self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        }

        fn variable(&mut self, name: &str, dimensions: &[u64], element: u64, begin: u64) {
            self.text(name);
            self.counts(&[dimensions.len() as u64]);
            self.counts(dimensions);
            // No attributes.
            self.tag(0);
            self.counts(&[0]);
            self.tag(element);
            self.counts(&[0]);
            self.number(begin, self.version != 1);
        }
    }

    /// Two records of `s(time, x)`, three shorts, and of `d(time)`; `c(x)` is not along the unlimited dimension.
    fn file(version: u8, n_records: u64, has_two_records: bool) -> Vec<u8> {
        let header = |begin: u64| {
            let mut header = Writer { bytes: vec![b'C', b'D', b'F', version], version };
            header.counts(&[n_records]);
            header.tag(DIMENSIONS.into());
            header.counts(&[2]);
            header.text("time");
            header.counts(&[0]);
            header.text("x");
            header.counts(&[3]);
            header.tag(ATTRIBUTES.into());
            header.counts(&[1]);
            header.text("title");
            header.tag(2);
            header.text("hello");
            header.tag(VARIABLES.into());
            header.counts(&[if has_two_records { 3 } else { 2 }]);
            header.variable("c", &[1], SHORT, begin);
            header.variable("s", &[0, 1], SHORT, begin + 8);
            if has_two_records {
                header.variable("d", &[0], DOUBLE, begin + 16);
            }
            header.bytes
        };
        let mut bytes = header(header(0).len() as u64);
        let shorts = |from: u16| (from..from + 3).flat_map(u16::to_be_bytes);
        bytes.extend(shorts(1).chain([0; 2]));
        for record in 0..2_u16 {
            bytes.extend(shorts(10 * (record + 1)));
            if has_two_records {
                bytes.extend([0; 2].into_iter().chain(f64::from(record).to_be_bytes()));
            }
        }
        bytes
    }

    fn shorts<R: ReadAt>(file: &Classic<R>, at: usize, start: &[usize], extents: &[usize]) -> Vec<u16> {
        let bytes = file.read(&file.variables[at], start, extents).unwrap();
        bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b)).collect()
    }

    #[test]
    fn all_versions_give_the_same_contents() {
        for version in [1, 2, 5] {
            let file = Classic::open(file(version, 2, true)).unwrap();
            let dimensions: Vec<_> =
                file.dimensions.iter().map(|d| (d.name.as_str(), d.extent, d.is_unlimited)).collect();
            assert_eq!(dimensions, [("time", 2, true), ("x", 3, false)]);
            assert_eq!(
                (file.attributes[0].name.as_str(), file.attributes[0].bytes.as_slice()),
                ("title", &b"hello"[..])
            );
            assert_eq!(shorts(&file, 0, &[0], &[3]), [1, 2, 3]);
            assert_eq!(shorts(&file, 1, &[0, 0], &[2, 3]), [10, 11, 12, 20, 21, 22]);
            assert_eq!(shorts(&file, 1, &[0, 1], &[2, 2]), [11, 12, 21, 22]);
            assert_eq!(shorts(&file, 1, &[1, 2], &[1, 1]), [22]);
            let doubles = file.read(&file.variables[2], &[0], &[2]).unwrap();
            assert_eq!(doubles, [0.0, 1.0].map(f64::to_le_bytes).concat());
        }
    }

    #[test]
    fn the_only_record_variable_has_no_padding() {
        for n_records in [2, STREAM] {
            let file = Classic::open(file(1, n_records, false)).unwrap();
            assert_eq!(shorts(&file, 1, &[0, 0], &[2, 3]), [10, 11, 12, 20, 21, 22]);
        }
    }

    #[test]
    fn records_of_a_stream_are_counted() {
        for version in [1, 2, 5] {
            let mut bytes = file(version, STREAM, true);
            assert_eq!(Classic::open(bytes.clone()).unwrap().dimensions[0].extent, 2);
            bytes.pop();
            assert_eq!(Classic::open(bytes).unwrap().dimensions[0].extent, 1);
        }
    }

    #[test]
    fn every_truncation_is_detected() {
        for version in [1, 2, 5] {
            let bytes = file(version, 2, true);
            for n in 0..bytes.len() {
                let kind = Classic::open(bytes[..n].to_vec()).unwrap_err().kind();
                assert_eq!(kind, ErrorKind::Truncated, "{n} of {}", bytes.len());
            }
        }
    }

    #[test]
    fn damaged_headers_give_errors_or_values_of_the_file() {
        let (mut n_read, mut n_refused) = (0, 0);
        for (version, n_records) in [(1, 2), (2, STREAM), (5, 2), (5, STREAM)] {
            let bytes = file(version, n_records, true);
            for at in 0..bytes.len() {
                for change in [0x01, 0x02, 0x04, 0x10, 0x7f, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= change;
                    let Ok(file) = Classic::open(damaged) else {
                        n_refused += 1;
                        continue;
                    };
                    for variable in &file.variables {
                        let values = file.read(variable, &vec![0; variable.shape.len()], &variable.shape).unwrap();
                        assert!(values.len() <= bytes.len(), "byte {at} ^ {change:#x}");
                    }
                    n_read += 1;
                }
            }
        }
        assert!(n_read > 1000 && n_refused > 1000, "{n_read} {n_refused}");
    }
}
