//! The header (docs/format.md, section 2): all that decoding needs besides the frames. It does not depend on the
//! element type: `step` and `fills` are kept as bit patterns. A header that was read has passed every check of the
//! format.

use super::{FORMAT_VERSION, MAGIC};
use crate::codec::StreamParams;
use crate::entropy::Books;
use crate::entropy::codebook::Codebook;
use crate::error::{Error, ErrorKind, Result};
use crate::grid::{self, Block};
use crate::io::to_usize;
use crate::io::{Bytes, checksum, varint};
use crate::num::{DType, Real};
use crate::plan::{
    BoundKind, BoxLimit, ErrorBound, Limit, MAX_BIN, MAX_BIN_VALUES, MAX_BOXES, MAX_FILLS, MAX_RANK, Plan, Preset,
    Stable,
};

const SINGLE_CHUNK: u8 = 1;
const N_FILLS_SHIFT: u8 = 1;
const HAS_ATTRIBUTES: u8 = 8;
const IS_STABLE: u8 = 16;
const HAS_CODEBOOK: u8 = 32;
const KNOWN_FLAGS: u8 = 63;
const CHECKSUM_BYTES: usize = 4;
/// `bound_kind` of several bounds, boxes or bins.
const COMPOUND: u8 = 7;

/// The fields of the header.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Header {
    pub(crate) version: u8,
    pub(crate) min_reader_version: u8,
    pub(crate) dtype: DType,
    pub(crate) single_chunk: bool,
    pub(crate) preset: Preset,
    /// Whether all values lie on the lattice of the absolute bound, or are exact.
    pub(crate) stable: bool,
    /// Kind and `requested_bound`.
    pub(crate) bound: ErrorBound,
    /// Further bounds that also hold.
    pub(crate) also: Vec<ErrorBound>,
    /// Boxes with bounds of their own.
    pub(crate) boxes: Vec<BoxLimit>,
    /// Extents of bins; none if all values are kept.
    pub(crate) bin: Vec<usize>,
    /// The absolute bound that holds; 0 if lossless, infinite if there is none.
    pub(crate) abs_bound: f64,
    /// As stored: all extents if single-chunk, else all but the slowest.
    pub(crate) shape: Vec<usize>,
    /// Empty if single-chunk.
    pub(crate) chunk_shape: Vec<usize>,
    /// Bits of the quantisation step, zero-extended; `None` if no tile is quantised.
    pub(crate) step: Option<u64>,
    /// Bit patterns, zero-extended.
    pub(crate) fills: Vec<u64>,
    pub(crate) attributes: Vec<(String, String)>,
    /// What chunks of codec `shared` are coded with.
    pub(crate) codebook: Option<Codebook>,
}

impl Header {
    /// The header that stores `plan`.
    pub(crate) fn new<T: Real>(plan: &Plan<T>, single_chunk: bool) -> Self {
        Self {
            version: FORMAT_VERSION,
            min_reader_version: FORMAT_VERSION,
            dtype: T::DTYPE,
            single_chunk,
            preset: plan.preset,
            stable: plan.stable == Stable::On,
            bound: plan.bound,
            also: plan.also.clone(),
            boxes: plan.boxes.clone(),
            bin: plan.bin.clone(),
            abs_bound: plan.abs_bound,
            shape: if single_chunk { plan.shape.clone() } else { plan.shape[1..].to_vec() },
            chunk_shape: if single_chunk { Vec::new() } else { plan.chunk_shape.clone() },
            step: plan.step.map(T::to_bits_u64),
            fills: plan.fills.iter().map(|v| v.to_bits_u64()).collect(),
            attributes: plan.attributes.clone(),
            codebook: plan.books.codebook().cloned(),
        }
    }

    /// The plan for writing more chunks of this stream.
    pub(crate) fn plan<T: Real>(&self) -> Plan<T> {
        Plan {
            shape: std::iter::once(0).chain(self.shape.iter().copied()).collect(),
            chunk_shape: self.chunk_shape.clone(),
            preset: self.preset,
            stable: if self.stable { Stable::On } else { Stable::Off },
            bound: self.bound,
            also: self.also.clone(),
            boxes: self.boxes.clone(),
            bin: self.bin.clone(),
            abs_bound: self.abs_bound,
            step: self.step.map(T::from_bits_u64),
            fills: self.fills.iter().map(|&b| T::from_bits_u64(b)).collect(),
            more_fills: Vec::new(),
            is_streamed: true,
            books: Books::of_stream(self.codebook.clone()),
            attributes: self.attributes.clone(),
        }
    }

    /// The parameters that codecs need for decoding.
    pub(crate) fn stream_params<T: Real>(&self) -> StreamParams<T> {
        StreamParams {
            step: self.step.map(T::from_bits_u64),
            fills: self.fills.iter().map(|&b| T::from_bits_u64(b)).collect(),
            books: Books::of_stream(self.codebook.clone()),
            preset: self.preset,
            is_pointwise: [self.bound].iter().chain(&self.also).any(|bound| matches!(bound, ErrorBound::PwRel(_)))
                || self.boxes.iter().any(|given| given.limit.pointwise.is_finite()),
            has_regions: !self.boxes.is_empty() || !self.bin.is_empty(),
        }
    }

    /// The array's extents, given the rows of each segment (none for a single chunk).
    pub(crate) fn full_shape(&self, segments: &[usize]) -> Result<Vec<usize>> {
        let mut shape = Vec::with_capacity(MAX_RANK);
        if !self.single_chunk {
            let rows = segments.iter().try_fold(0usize, |sum, &rows| sum.checked_add(rows));
            shape.push(rows.ok_or_else(|| too_large("shape"))?);
        }
        shape.extend_from_slice(&self.shape);
        grid::checked_bytes(&shape, self.dtype.size()).ok_or_else(|| too_large("shape"))?;
        Ok(shape)
    }

    /// Appends the header; fails only if it would exceed 65535 bytes, which attributes and regions can cause.
    pub(crate) fn write_to(&self, out: &mut Vec<u8>) -> Result<()> {
        let start = out.len();
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&[self.version, self.min_reader_version, 0, 0]);
        out.push(dtype_code(self.dtype));
        let mut flags = (self.fills.len() as u8) << N_FILLS_SHIFT;
        flags |= if self.single_chunk { SINGLE_CHUNK } else { 0 };
        flags |= if self.attributes.is_empty() { 0 } else { HAS_ATTRIBUTES };
        flags |= if self.stable { IS_STABLE } else { 0 };
        flags |= if self.codebook.is_some() { HAS_CODEBOOK } else { 0 };
        out.push(flags);
        out.push(preset_code(self.preset));
        let is_compound = !self.also.is_empty() || !self.boxes.is_empty() || !self.bin.is_empty();
        let (bound_kind, requested_bound) = match is_compound {
            true => (COMPOUND, None),
            false => (self.bound.kind().code(), self.bound.value()),
        };
        out.push(bound_kind);
        out.push((self.shape.len() + usize::from(!self.single_chunk)) as u8);
        self.shape.iter().chain(&self.chunk_shape).for_each(|&n| varint::write_to(n as u64, out));
        if let Some(bound) = requested_bound {
            out.extend_from_slice(&bound.to_le_bytes());
        }
        if !is_compound && needs_abs_bound(self.bound) {
            out.extend_from_slice(&self.abs_bound.to_le_bytes());
        }
        if is_compound {
            self.write_compound(out);
        }
        let value_bytes = self.dtype.size();
        if bound_kind != 0 {
            out.extend_from_slice(&self.step.unwrap_or(0).to_le_bytes()[..value_bytes]);
        }
        self.fills.iter().for_each(|fill| out.extend_from_slice(&fill.to_le_bytes()[..value_bytes]));
        if !self.attributes.is_empty() {
            varint::write_to(self.attributes.len() as u64, out);
        }
        for text in self.attributes.iter().flat_map(|(key, value)| [key, value]) {
            varint::write_to(text.len() as u64, out);
            out.extend_from_slice(text.as_bytes());
        }
        if let Some(codebook) = &self.codebook {
            varint::write_to(codebook.as_bytes().len() as u64, out);
            out.extend_from_slice(codebook.as_bytes());
        }
        let header_bytes = u16::try_from(out.len() - start + CHECKSUM_BYTES).map_err(|_| {
            Error::invalid(
                "attributes, regions and codebook do not fit into a header of 65535 bytes; store fewer or shorter ones",
            )
        })?;
        out[start + 6..start + 8].copy_from_slice(&header_bytes.to_le_bytes());
        let header_checksum = checksum::xxh3(&out[start..]) as u32;
        out.extend_from_slice(&header_checksum.to_le_bytes());
        Ok(())
    }

    /// Writes the bounds, boxes and bins of a header of kind [`COMPOUND`].
    fn write_compound(&self, out: &mut Vec<u8>) {
        let write_bound = |bound: ErrorBound, out: &mut Vec<u8>| {
            out.push(bound.kind().code());
            bound.value().into_iter().for_each(|value| out.extend_from_slice(&value.to_le_bytes()));
        };
        varint::write_to(1 + self.also.len() as u64, out);
        [self.bound].iter().chain(&self.also).for_each(|bound| write_bound(*bound, out));
        out.extend_from_slice(&self.abs_bound.to_le_bytes());
        varint::write_to(self.boxes.len() as u64, out);
        for given in &self.boxes {
            given.block.start.iter().chain(&given.block.extents).for_each(|n| varint::write_to(*n as u64, out));
            write_bound(given.bound, out);
            if let ErrorBound::Rel(_) = given.bound {
                out.extend_from_slice(&given.limit.abs.to_le_bytes());
            }
        }
        varint::write_to(self.bin.len() as u64, out);
        self.bin.iter().for_each(|n| varint::write_to(*n as u64, out));
    }

    /// Reads the header at the front of `bytes` and returns it with its size.
    pub(crate) fn read_from(bytes: &[u8]) -> Result<(Self, usize)> {
        let header_bytes = peek_header_bytes(bytes)?;
        let all = bytes.get(..header_bytes).ok_or_else(|| Error::truncated("the stream ends within its header"))?;
        let (covered, stored) = all.split_at_checked(header_bytes.wrapping_sub(CHECKSUM_BYTES)).ok_or_else(bad_size)?;
        if (checksum::xxh3(covered) as u32).to_le_bytes() != stored {
            return Err(Error::corrupt("wrong checksum of the header: the stream cannot be decoded"));
        }
        let mut fields = Bytes::new(covered);
        let header = read_fields(&mut fields).map_err(|e| match e.kind() {
            // The checksum holds, so nothing was cut off: the header contradicts its own size.
            ErrorKind::Truncated => bad_size(),
            _ => e,
        })?;
        if fields.len() != 0 {
            return Err(bad_size());
        }
        Ok((header, header_bytes))
    }
}

/// Bytes that [`peek_header_bytes`] needs.
pub(crate) const PREFIX_BYTES: usize = 8;

/// Checks magic and version, and returns the size of the header that starts at the front of `bytes`.
pub(crate) fn peek_header_bytes(bytes: &[u8]) -> Result<usize> {
    let n = bytes.len().min(MAGIC.len());
    if bytes[..n] != MAGIC[..n] {
        return Err(Error::corrupt("not a Pumice stream (wrong magic)"));
    }
    let mut bytes = Bytes::new(bytes);
    bytes.take(MAGIC.len())?;
    let [version, min_reader_version] = bytes.array()?;
    if min_reader_version > FORMAT_VERSION {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "the stream has format version {version} and needs a reader of version {min_reader_version}; this \
                 release reads up to {FORMAT_VERSION}: use a newer release of Pumice"
            ),
        ));
    }
    Ok(usize::from(u16::from_le_bytes(bytes.array()?)))
}

/// All fields between `header_bytes` and `header_checksum`.
fn read_fields(bytes: &mut Bytes<'_>) -> Result<Header> {
    bytes.take(MAGIC.len())?;
    let [version, min_reader_version, _, _] = bytes.array()?;
    if min_reader_version == 0 || version < min_reader_version {
        return Err(Error::corrupt(format!(
            "format version {version} cannot need a reader of version {min_reader_version}"
        )));
    }
    let [dtype, flags, preset, bound_kind, rank] = bytes.array()?;
    let dtype = match dtype {
        1 => DType::F32,
        2 => DType::F64,
        other => return Err(Error::corrupt(format!("unknown element type {other}"))),
    };
    let n_fills = flags >> N_FILLS_SHIFT & 3;
    if flags & !KNOWN_FLAGS != 0 || usize::from(n_fills) > MAX_FILLS {
        return Err(Error::corrupt(format!("unknown flags {flags:#04x}")));
    }
    let single_chunk = flags & SINGLE_CHUNK != 0;
    let preset = match preset {
        1 => Preset::Fast,
        2 => Preset::Small,
        3 => Preset::Max,
        4 => Preset::Balanced,
        7 => Preset::Cuszplus,
        8 => Preset::Ceaz,
        5 => Preset::Cuszp2Plain,
        6 => Preset::Cuszp2Outlier,
        9 => Preset::Ceresz2,
        other => {
            return Err(Error::unsupported(format!("unknown preset {other}: use a newer release")));
        }
    };
    let rank = usize::from(rank);
    if rank > MAX_RANK || (rank == 0 && !single_chunk) {
        return Err(Error::corrupt(format!("invalid rank {rank}")));
    }
    let shape = read_extents(bytes, if single_chunk { rank } else { rank - 1 }, dtype, "shape")?;
    let chunk_shape = read_extents(bytes, if single_chunk { 0 } else { rank }, dtype, "chunk_shape")?;
    if chunk_shape.contains(&0) || (!single_chunk && shape.contains(&0)) {
        return Err(Error::corrupt("an extent of a chunked stream is zero"));
    }
    let compound = match bound_kind {
        COMPOUND => read_compound(bytes, rank, if single_chunk { &shape } else { &[] })?,
        _ => {
            let (bound, abs_bound) = read_bound(bytes, bound_kind)?;
            Compound { bounds: vec![bound], abs_bound, boxes: Vec::new(), bin: Vec::new() }
        }
    };
    let step = if bound_kind == 0 { None } else { read_step(bytes, dtype)? };
    let fills = (0..n_fills).map(|_| read_value_bits(bytes, dtype)).collect::<Result<_>>()?;
    let attributes = if flags & HAS_ATTRIBUTES != 0 { read_attributes(bytes)? } else { Vec::new() };
    let codebook = if flags & HAS_CODEBOOK != 0 { Some(read_codebook(bytes)?) } else { None };
    Ok(Header {
        version,
        min_reader_version,
        dtype,
        single_chunk,
        preset,
        stable: flags & IS_STABLE != 0,
        bound: compound.bounds[0],
        also: compound.bounds[1..].to_vec(),
        boxes: compound.boxes,
        bin: compound.bin,
        abs_bound: compound.abs_bound,
        shape,
        chunk_shape,
        step,
        fills,
        attributes,
        codebook,
    })
}

fn read_extents(bytes: &mut Bytes<'_>, n: usize, dtype: DType, what: &str) -> Result<Vec<usize>> {
    let mut extents = Vec::with_capacity(n);
    for _ in 0..n {
        let extent = varint::read_from(bytes)?;
        // Checked separately, since an extent of zero makes any product small.
        if extent >= 1 << 63 {
            return Err(too_large(what));
        }
        extents.push(to_usize(extent)?);
    }
    grid::checked_bytes(&extents, dtype.size()).ok_or_else(|| too_large(what))?;
    Ok(extents)
}

/// A requested bound, of this kind.
fn read_requested(bytes: &mut Bytes<'_>, bound_kind: u8) -> Result<ErrorBound> {
    match BoundKind::from_code(bound_kind) {
        Some(BoundKind::Lossless) => Ok(ErrorBound::Lossless),
        Some(kind) => Ok(ErrorBound::from_kind(kind, read_positive(bytes)?)),
        None => Err(Error::corrupt(format!("unknown kind of bound {bound_kind}"))),
    }
}

fn read_positive(bytes: &mut Bytes<'_>) -> Result<f64> {
    let bound = f64::from_bits(bytes.u64()?);
    if bound.is_finite() && bound > 0.0 { Ok(bound) } else { Err(Error::corrupt(format!("invalid bound {bound}"))) }
}

/// A requested bound, and the absolute bound that results from it.
fn read_bound(bytes: &mut Bytes<'_>, bound_kind: u8) -> Result<(ErrorBound, f64)> {
    let bound = read_requested(bytes, bound_kind)?;
    let abs_bound = match bound {
        ErrorBound::Lossless => 0.0,
        ErrorBound::Abs(e) => e,
        ErrorBound::PwRel(_) => f64::INFINITY,
        ErrorBound::Rel(_) | ErrorBound::Psnr(_) | ErrorBound::L2(_) | ErrorBound::Ratio(_) => read_positive(bytes)?,
    };
    Ok((bound, abs_bound))
}

/// Whether the absolute bound is stored beside the requested bound.
fn needs_abs_bound(bound: ErrorBound) -> bool {
    !matches!(bound, ErrorBound::Lossless | ErrorBound::Abs(_) | ErrorBound::PwRel(_))
}

/// The fields of a header of kind [`COMPOUND`].
struct Compound {
    bounds: Vec<ErrorBound>,
    abs_bound: f64,
    boxes: Vec<BoxLimit>,
    bin: Vec<usize>,
}

/// Boxes must lie within the extents `known`, which are empty if the header does not have them all.
fn read_compound(bytes: &mut Bytes<'_>, rank: usize, known: &[usize]) -> Result<Compound> {
    let n_bounds = varint::read_from(bytes)?;
    if n_bounds == 0 {
        return Err(Error::corrupt("the header announces bounds and has none"));
    }
    // Grow as they are read: counts alone must not cause an allocation.
    let mut bounds = Vec::new();
    for _ in 0..n_bounds {
        let kind = bytes.u8()?;
        bounds.push(read_requested(bytes, kind)?);
    }
    let abs_bound = f64::from_bits(bytes.u64()?);
    if !(abs_bound >= 0.0 && abs_bound.is_sign_positive()) {
        return Err(Error::corrupt(format!("invalid bound {abs_bound}")));
    }
    let n_boxes = varint::read_from(bytes)?;
    if n_boxes > MAX_BOXES as u64 {
        return Err(Error::corrupt(format!("{n_boxes} regions are too many")));
    }
    let mut boxes = Vec::new();
    for _ in 0..n_boxes {
        let start = read_numbers(bytes, rank)?;
        let extents = read_numbers(bytes, rank)?;
        let fits = |axis: usize| {
            let end = start[axis].saturating_add(extents[axis]);
            extents[axis] > 0 && end < usize::MAX >> 1 && known.get(axis).is_none_or(|n| end <= *n)
        };
        if !(0..rank).all(fits) {
            return Err(Error::corrupt("a region does not lie within the array"));
        }
        let kind = bytes.u8()?;
        let (bound, abs_bound) = read_bound(bytes, kind)?;
        if bound.kind().is_target() {
            return Err(Error::corrupt("a region has a target"));
        }
        boxes.push(BoxLimit { block: Block { start, extents }, bound, limit: Limit::new(bound, abs_bound) });
    }
    let n_factors = varint::read_from(bytes)?;
    if n_factors != 0 && n_factors != rank as u64 {
        return Err(Error::corrupt("the bins have another number of axes than the array"));
    }
    let bin = read_numbers(bytes, n_factors as usize)?;
    let n_values = bin.iter().fold(1, |n: usize, factor| n.saturating_mul(*factor));
    if bin.iter().any(|n| !(1..=MAX_BIN).contains(n)) || n_values > MAX_BIN_VALUES {
        return Err(Error::corrupt(format!("impossible bins {bin:?}")));
    }
    Ok(Compound { bounds, abs_bound, boxes, bin })
}

fn read_numbers(bytes: &mut Bytes<'_>, n: usize) -> Result<Vec<usize>> {
    (0..n).map(|_| to_usize(varint::read_from(bytes)?)).collect()
}

/// The step's bits; a step of +0 means that there is none.
fn read_step(bytes: &mut Bytes<'_>, dtype: DType) -> Result<Option<u64>> {
    let bits = read_value_bits(bytes, dtype)?;
    let step = value_as_f64(dtype, bits);
    if step.is_finite() && step.is_sign_positive() {
        return Ok((step > 0.0).then_some(bits));
    }
    Err(Error::corrupt(format!("invalid step {step}")))
}

fn read_value_bits(bytes: &mut Bytes<'_>, dtype: DType) -> Result<u64> {
    Ok(match dtype {
        DType::F32 => u64::from(u32::from_le_bytes(bytes.array()?)),
        DType::F64 => bytes.u64()?,
    })
}

fn read_attributes(bytes: &mut Bytes<'_>) -> Result<Vec<(String, String)>> {
    let n_attributes = varint::read_from(bytes)?;
    if n_attributes == 0 {
        return Err(Error::corrupt("the header announces attributes and has none"));
    }
    let mut text = || {
        let n = to_usize(varint::read_from(bytes)?)?;
        let text = std::str::from_utf8(bytes.take(n)?);
        text.map(str::to_owned).map_err(|_| Error::corrupt("an attribute is not UTF-8"))
    };
    // Grows as it reads: the count alone must not cause an allocation.
    let mut attributes = Vec::new();
    for _ in 0..n_attributes {
        attributes.push((text()?, text()?));
    }
    Ok(attributes)
}

fn read_codebook(bytes: &mut Bytes<'_>) -> Result<Codebook> {
    let n = to_usize(varint::read_from(bytes)?)?;
    Codebook::from_bytes(bytes.take(n)?)
}

/// The value with these bits, for display and checks.
pub(crate) fn value_as_f64(dtype: DType, bits: u64) -> f64 {
    match dtype {
        DType::F32 => f32::from_bits_u64(bits).to_f64(),
        DType::F64 => f64::from_bits(bits),
    }
}

fn dtype_code(dtype: DType) -> u8 {
    match dtype {
        DType::F32 => 1,
        DType::F64 => 2,
    }
}

fn preset_code(preset: Preset) -> u8 {
    match preset {
        Preset::Fast => 1,
        Preset::Small => 2,
        Preset::Max => 3,
        Preset::Balanced => 4,
        Preset::Cuszplus => 7,
        Preset::Ceaz => 8,
        Preset::Cuszp2Plain => 5,
        Preset::Cuszp2Outlier => 6,
        Preset::Ceresz2 => 9,
    }
}

fn too_large(what: &str) -> Error {
    Error::corrupt(format!("the product of `{what}` is 2^63 bytes or more"))
}

fn bad_size() -> Error {
    Error::corrupt("`header_bytes` does not match the header")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// rank 3, trailing extents 10 × 7, chunks of 4 × 5 × 7.
    pub(crate) fn chunked_header() -> Header {
        Header {
            version: 1,
            min_reader_version: 1,
            dtype: DType::F64,
            single_chunk: false,
            preset: Preset::Fast,
            stable: false,
            bound: ErrorBound::Rel(1e-3),
            also: Vec::new(),
            boxes: Vec::new(),
            bin: Vec::new(),
            abs_bound: 0.25,
            shape: vec![10, 7],
            chunk_shape: vec![4, 5, 7],
            step: Some(0.5f64.to_bits()),
            fills: vec![f64::NAN.to_bits(), 1e20f64.to_bits()],
            attributes: vec![("name".into(), "θ".into()), (String::new(), String::new())],
            codebook: None,
        }
    }

    /// An array without elements.
    pub(crate) fn single_header() -> Header {
        Header {
            dtype: DType::F32,
            single_chunk: true,
            bound: ErrorBound::Abs(0.25),
            shape: vec![0, 1 << 40, 1 << 40],
            chunk_shape: vec![],
            step: Some(u64::from(0.5f32.to_bits())),
            fills: vec![u64::from((-9999f32).to_bits())],
            ..chunked_header()
        }
    }

    /// The bytes with the checksum recomputed.
    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let n = bytes.len() - CHECKSUM_BYTES;
        let sum = checksum::xxh3(&bytes[..n]) as u32;
        bytes[n..].copy_from_slice(&sum.to_le_bytes());
        bytes
    }

    #[test]
    fn round_trip() {
        let lossless = Header { bound: ErrorBound::Lossless, abs_bound: 0.0, step: None, ..chunked_header() };
        let scalar = Header { shape: vec![], ..single_header() };
        let exact = Header { step: None, ..chunked_header() };
        let psnr = Header { bound: ErrorBound::Psnr(60.0), ..chunked_header() };
        let l2 = Header { bound: ErrorBound::L2(1e-3), ..single_header() };
        let ratio = Header { bound: ErrorBound::Ratio(12.5), ..chunked_header() };
        let stable = Header { stable: true, ..single_header() };
        for header in [stable, chunked_header(), single_header(), lossless, scalar, exact, psnr, l2, ratio] {
            let mut out = Vec::new();
            header.write_to(&mut out).unwrap();
            let n = out.len();
            out.extend_from_slice(b"frame");
            assert_eq!(Header::read_from(&out).unwrap(), (header, n));
        }
    }

    #[test]
    fn damage_and_truncation() {
        let mut out = Vec::new();
        chunked_header().write_to(&mut out).unwrap();
        for i in 0..out.len() {
            assert_eq!(Header::read_from(&out[..i]).unwrap_err().kind(), ErrorKind::Truncated);
            let mut damaged = out.clone();
            damaged[i] ^= 0x04;
            assert!(Header::read_from(&damaged).is_err(), "byte {i}");
        }
    }

    #[test]
    fn refuses_wrong_fields_under_a_good_checksum() {
        let mut out = Vec::new();
        chunked_header().write_to(&mut out).unwrap();
        // (offset, value): version, min_reader_version twice, dtype, flags, preset, bound_kind, rank twice, chunk
        // extent, bound sign, abs_bound
        for (at, value) in [
            (4, 0),
            (5, 0),
            (5, 2),
            (8, 3),
            (9, 64),
            (9, 44),
            (10, 200),
            (11, 3),
            (12, 9),
            (12, 2),
            (15, 0),
            (25, 0xbf),
            (33, 0x7f),
        ] {
            let mut damaged = out.clone();
            damaged[at] = value;
            if at == 33 {
                damaged[32] = 0xf0; // abs_bound = infinity or NaN
            }
            assert!(Header::read_from(&resealed(damaged)).is_err(), "byte {at} = {value}");
        }
        let mut negative_zero = Vec::new();
        Header { step: Some(1 << 63), ..chunked_header() }.write_to(&mut negative_zero).unwrap();
        assert_eq!(Header::read_from(&negative_zero).unwrap_err().kind(), ErrorKind::Corrupt);
        let newer = {
            let mut d = out.clone();
            d[4] = 9;
            d[5] = 2;
            resealed(d)
        };
        assert_eq!(Header::read_from(&newer).unwrap_err().kind(), ErrorKind::Unsupported);
        let longer = {
            let mut d = out.clone();
            d.push(0);
            d[6] += 1;
            resealed(d)
        };
        assert_eq!(Header::read_from(&longer).unwrap_err().kind(), ErrorKind::Corrupt);
    }

    #[test]
    fn refuses_huge_products_and_attributes() {
        let huge = Header { shape: vec![1 << 30, 1 << 30], ..chunked_header() };
        let mut out = Vec::new();
        huge.write_to(&mut out).unwrap();
        assert_eq!(Header::read_from(&out).unwrap_err().kind(), ErrorKind::Corrupt);
        let too_long = Header { attributes: vec![("x".repeat(70_000), String::new())], ..chunked_header() };
        assert_eq!(too_long.write_to(&mut Vec::new()).unwrap_err().kind(), ErrorKind::InvalidArgument);
    }
}
