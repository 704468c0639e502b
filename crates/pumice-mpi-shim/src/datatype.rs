//! What MPI's datatypes lay out in memory or in a file. `unsafe` is allowed for the functions that tell.
#![allow(unsafe_code, reason = "calls C functions of MPI")]

use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_int};
use std::sync::OnceLock;

use mpi_sys as ffi;
use pumice::DType;

/// What the values of a datatype are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Bytes, which may be anything.
    Bytes,
    Float(DType),
    /// Integers, complex numbers, a mixture.
    Other,
}

impl Kind {
    fn and(self, other: Self) -> Self {
        if self == other { self } else { Kind::Other }
    }

    /// Whether such values may be part of an array of this type.
    pub(crate) fn suits(self, dtype: DType) -> bool {
        self == Kind::Bytes || self == Kind::Float(dtype)
    }
}

/// Bytes of a datatype, in the order in which they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) offset: isize,
    pub(crate) len: usize,
}

/// A datatype, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) kind: Kind,
    /// Bytes that it has.
    pub(crate) size: usize,
    /// From one item to the next.
    pub(crate) extent: isize,
    pub(crate) segments: Vec<Segment>,
}

/// Types of more segments are not taken apart.
const MAX_SEGMENTS: usize = 1 << 24;

impl Layout {
    /// `None`: a kind of type that is not known here, such as a distributed array, or too many segments.
    pub(crate) fn of(datatype: ffi::MPI_Datatype) -> Option<Self> {
        let (mut n_integers, mut n_addresses, mut n_types, mut combiner) = (0, 0, 0, 0);
        // SAFETY: a datatype of the program, and four integers.
        let code = unsafe {
            ffi::PMPI_Type_get_envelope(datatype, &mut n_integers, &mut n_addresses, &mut n_types, &mut combiner)
        };
        (code == ffi::MPI_SUCCESS as c_int).then_some(())?;
        let combiner = *combiners().get(&combiner)?;
        if combiner == Combiner::Named {
            return Self::of_named(datatype);
        }
        let mut integers = vec![0; n_integers as usize];
        let mut addresses = vec![0; n_addresses as usize];
        // SAFETY: a constant of the library.
        let mut types = vec![unsafe { ffi::RSMPI_DATATYPE_NULL }; n_types as usize];
        // SAFETY: the lists have the lengths that the envelope gives.
        let code = unsafe {
            ffi::PMPI_Type_get_contents(
                datatype,
                n_integers,
                n_addresses,
                n_types,
                integers.as_mut_ptr(),
                addresses.as_mut_ptr(),
                types.as_mut_ptr(),
            )
        };
        (code == ffi::MPI_SUCCESS as c_int).then_some(())?;
        let parts: Option<Vec<Self>> = types.iter().map(|part| Self::of(*part)).collect();
        types.into_iter().for_each(free);
        let segments = combine(combiner, &integers, &addresses, parts.as_ref()?)?;
        let kinds = parts.iter().flatten().filter(|part| part.size > 0).map(|part| part.kind);
        let size = segments.iter().map(|segment| segment.len).sum();
        let extent = extent(datatype)?;
        Some(Self { kind: kinds.reduce(Kind::and).unwrap_or(Kind::Bytes), size, extent, segments })
    }

    fn of_named(datatype: ffi::MPI_Datatype) -> Option<Self> {
        let mut size = 0;
        // SAFETY: a datatype of the program, and one integer.
        let code = unsafe { ffi::PMPI_Type_size(datatype, &mut size) };
        let size = usize::try_from(size).ok().filter(|_| code == ffi::MPI_SUCCESS as c_int)?;
        let extent = extent(datatype)?;
        // Pairs of values have gaps.
        let kind = if extent == size as isize { kind_of_name(&name(datatype)?, size) } else { Kind::Other };
        Some(Self { kind, size, extent, segments: vec![Segment { offset: 0, len: size }] })
    }

    /// Whether several items are one run of bytes.
    pub(crate) fn is_dense(&self) -> bool {
        self.extent == self.size as isize && matches!(&self.segments[..], [one] if one.offset == 0)
    }
}

fn kind_of_name(name: &str, size: usize) -> Kind {
    match (name, size) {
        ("MPI_BYTE" | "MPI_PACKED" | "MPI_CHAR" | "MPI_SIGNED_CHAR" | "MPI_UNSIGNED_CHAR" | "MPI_CHARACTER", _)
        | ("MPI_UINT8_T" | "MPI_INT8_T", _) => Kind::Bytes,
        ("MPI_FLOAT" | "MPI_REAL4", 4) | ("MPI_REAL", 4) => Kind::Float(DType::F32),
        ("MPI_DOUBLE" | "MPI_DOUBLE_PRECISION" | "MPI_REAL8" | "MPI_REAL", 8) => Kind::Float(DType::F64),
        _ => Kind::Other,
    }
}

fn name(datatype: ffi::MPI_Datatype) -> Option<String> {
    let mut text = vec![0_u8; ffi::MPI_MAX_OBJECT_NAME as usize + 1];
    let mut n = 0;
    // SAFETY: the buffer has the size that MPI asks for, and ends with a NUL that MPI does not touch.
    let code = unsafe { ffi::PMPI_Type_get_name(datatype, text.as_mut_ptr().cast::<c_char>(), &mut n) };
    (code == ffi::MPI_SUCCESS as c_int).then_some(())?;
    Some(CStr::from_bytes_until_nul(&text).ok()?.to_string_lossy().into_owned())
}

fn extent(datatype: ffi::MPI_Datatype) -> Option<isize> {
    let (mut lower, mut extent) = (0, 0);
    // SAFETY: a datatype of the program, and two integers.
    let code = unsafe { ffi::PMPI_Type_get_extent(datatype, &mut lower, &mut extent) };
    (code == ffi::MPI_SUCCESS as c_int).then_some(extent)
}

/// Frees a type that `MPI_Type_get_contents` has given; named ones are not to be freed.
fn free(mut datatype: ffi::MPI_Datatype) {
    let (mut a, mut b, mut c, mut combiner) = (0, 0, 0, 0);
    // SAFETY: a datatype that the library has just given, and four integers.
    let code = unsafe { ffi::PMPI_Type_get_envelope(datatype, &mut a, &mut b, &mut c, &mut combiner) };
    if code == ffi::MPI_SUCCESS as c_int && combiners().get(&combiner) != Some(&Combiner::Named) {
        // SAFETY: a derived type that is ours.
        unsafe { ffi::PMPI_Type_free(&mut datatype) };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Combiner {
    Named,
    Dup,
    Contiguous,
    Vector,
    Hvector,
    Indexed,
    Hindexed,
    IndexedBlock,
    HindexedBlock,
    Struct,
    Subarray,
    Resized,
}

/// The numbers that the library has for combiners. They differ among libraries, and so do their names in the bindings: one
/// type of each kind is made and asked.
fn combiners() -> &'static HashMap<c_int, Combiner> {
    static NUMBERS: OnceLock<HashMap<c_int, Combiner>> = OnceLock::new();
    NUMBERS.get_or_init(|| {
        // SAFETY: constants of the library.
        let (byte, null) = unsafe { (ffi::RSMPI_UINT8_T, ffi::RSMPI_DATATYPE_NULL) };
        let (one, address) = ([1 as c_int], [1 as ffi::MPI_Aint]);
        let (one, address) = (one.as_ptr(), address.as_ptr());
        let c_order = ffi::MPI_ORDER_C as c_int;
        let zero = [0 as c_int];
        let mut numbers = HashMap::from([(number_of(byte), Combiner::Named)]);
        let mut probe = |combiner, make: &dyn Fn(*mut ffi::MPI_Datatype) -> c_int| {
            let mut made = null;
            if make(&mut made) == ffi::MPI_SUCCESS as c_int {
                // The first of those that share a number stays: a copy of a named type may be one itself.
                numbers.entry(number_of(made)).or_insert(combiner);
                // SAFETY: a derived type that is ours.
                unsafe { ffi::PMPI_Type_free(&mut made) };
            }
        };
        // SAFETY: each list has one entry, as announced, and lives until the end of this function.
        unsafe {
            probe(Combiner::Dup, &|t| ffi::PMPI_Type_dup(byte, t));
            probe(Combiner::Contiguous, &|t| ffi::PMPI_Type_contiguous(2, byte, t));
            probe(Combiner::Vector, &|t| ffi::PMPI_Type_vector(2, 1, 2, byte, t));
            probe(Combiner::Hvector, &|t| ffi::PMPI_Type_create_hvector(2, 1, 2, byte, t));
            probe(Combiner::Indexed, &|t| ffi::PMPI_Type_indexed(1, one, one, byte, t));
            probe(Combiner::Hindexed, &|t| ffi::PMPI_Type_create_hindexed(1, one, address, byte, t));
            probe(Combiner::IndexedBlock, &|t| ffi::PMPI_Type_create_indexed_block(1, 1, one, byte, t));
            probe(Combiner::HindexedBlock, &|t| ffi::PMPI_Type_create_hindexed_block(1, 1, address, byte, t));
            probe(Combiner::Struct, &|t| ffi::PMPI_Type_create_struct(1, one, address, &byte, t));
            probe(Combiner::Subarray, &|t| {
                ffi::PMPI_Type_create_subarray(1, one, one, zero.as_ptr(), c_order, byte, t)
            });
            probe(Combiner::Resized, &|t| ffi::PMPI_Type_create_resized(byte, 0, 4, t));
        }
        numbers
    })
}

fn number_of(datatype: ffi::MPI_Datatype) -> c_int {
    let (mut a, mut b, mut c, mut combiner) = (0, 0, 0, -1);
    // SAFETY: a datatype of the library, and four integers.
    unsafe { ffi::PMPI_Type_get_envelope(datatype, &mut a, &mut b, &mut c, &mut combiner) };
    combiner
}

/// The segments of a type from what it is made of, by the standard's list of contents.
fn combine(
    combiner: Combiner,
    integers: &[c_int],
    addresses: &[ffi::MPI_Aint],
    parts: &[Layout],
) -> Option<Vec<Segment>> {
    let part = parts.first()?;
    let count = |i: usize| integers.get(i).and_then(|n| usize::try_from(*n).ok());
    let integer = |i: usize| integers.get(i).map(|n| *n as isize);
    let address = |i: usize| addresses.get(i).copied();
    let mut out = Segments(Vec::new());
    match combiner {
        Combiner::Named => return None,
        Combiner::Dup | Combiner::Resized => out.items(part, 0, 1)?,
        Combiner::Contiguous => out.items(part, 0, count(0)?)?,
        Combiner::Vector => {
            let stride = integer(2)? * part.extent;
            (0..integer(0)?).try_for_each(|i| out.items(part, i * stride, count(1)?))?;
        }
        Combiner::Hvector => {
            let stride = address(0)?;
            (0..integer(0)?).try_for_each(|i| out.items(part, i * stride, count(1)?))?;
        }
        Combiner::Indexed => {
            let n = count(0)?;
            (1..=n).try_for_each(|i| out.items(part, integer(n + i)? * part.extent, count(i)?))?;
        }
        Combiner::Hindexed => (0..count(0)?).try_for_each(|i| out.items(part, address(i)?, count(i + 1)?))?,
        Combiner::IndexedBlock => {
            (0..count(0)?).try_for_each(|i| out.items(part, integer(i + 2)? * part.extent, count(1)?))?;
        }
        Combiner::HindexedBlock => (0..count(0)?).try_for_each(|i| out.items(part, address(i)?, count(1)?))?,
        Combiner::Struct => {
            (0..count(0)?).try_for_each(|i| out.items(parts.get(i)?, address(i)?, count(i + 1)?))?;
        }
        Combiner::Subarray => {
            let n = count(0)?;
            let list = |at: usize| (1..=n).map(|i| count(at * n + i)).collect::<Option<Vec<usize>>>();
            let (mut sizes, mut subsizes, mut starts) = (list(0)?, list(1)?, list(2)?);
            if integers.get(3 * n + 1) == Some(&(ffi::MPI_ORDER_FORTRAN as c_int)) {
                [&mut sizes, &mut subsizes, &mut starts].into_iter().for_each(|list| list.reverse());
            }
            let block = crate::boxes::Block { start: starts, extents: subsizes };
            block
                .rows(&sizes)
                .try_for_each(|row| out.items(part, row.start as isize * part.extent, row.len as usize))?;
        }
    }
    Some(out.0)
}

struct Segments(Vec<Segment>);

impl Segments {
    /// Appends items that follow each other.
    fn items(&mut self, part: &Layout, at: isize, n: usize) -> Option<()> {
        if part.is_dense() {
            return self.push(Segment { offset: at, len: part.size * n });
        }
        (0..n as isize).try_for_each(|i| {
            let at = at + i * part.extent;
            part.segments.iter().try_for_each(|s| self.push(Segment { offset: at + s.offset, len: s.len }))
        })
    }

    fn push(&mut self, segment: Segment) -> Option<()> {
        let n = self.0.len();
        match self.0.last_mut() {
            _ if segment.len == 0 => {}
            Some(last) if last.offset + last.len as isize == segment.offset => last.len += segment.len,
            _ if n == MAX_SEGMENTS => return None,
            _ => self.0.push(segment),
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(kind: Kind, extent: isize, segments: &[(isize, usize)]) -> Layout {
        let segments: Vec<Segment> =
            segments.iter().map(|(offset, len)| Segment { offset: *offset, len: *len }).collect();
        Layout { kind, size: segments.iter().map(|s| s.len).sum(), extent, segments }
    }

    fn pairs(segments: Option<Vec<Segment>>) -> Vec<(isize, usize)> {
        segments.unwrap().into_iter().map(|s| (s.offset, s.len)).collect()
    }

    #[test]
    fn segments_follow_the_contents_of_types() {
        let f64s = [layout(Kind::Float(DType::F64), 8, &[(0, 8)])];
        assert_eq!(pairs(combine(Combiner::Contiguous, &[5], &[], &f64s)), [(0, 40)]);
        assert_eq!(pairs(combine(Combiner::Vector, &[3, 2, 4], &[], &f64s)), [(0, 16), (32, 16), (64, 16)]);
        assert_eq!(pairs(combine(Combiner::Vector, &[3, 2, 2], &[], &f64s)), [(0, 48)]);
        assert_eq!(pairs(combine(Combiner::Hvector, &[2, 1], &[-20], &f64s)), [(0, 8), (-20, 8)]);
        assert_eq!(pairs(combine(Combiner::Indexed, &[2, 1, 3, 4, 0], &[], &f64s)), [(32, 8), (0, 24)]);
        assert_eq!(pairs(combine(Combiner::Hindexed, &[2, 1, 3], &[100, 4], &f64s)), [(100, 8), (4, 24)]);
        assert_eq!(pairs(combine(Combiner::IndexedBlock, &[2, 2, 1, 5], &[], &f64s)), [(8, 16), (40, 16)]);
        assert_eq!(pairs(combine(Combiner::HindexedBlock, &[2, 2], &[1, 50], &f64s)), [(1, 16), (50, 16)]);
        // 2 x 3 of 4 x 5 from (1, 2), in both orders.
        let (c, fortran) = (ffi::MPI_ORDER_C as c_int, ffi::MPI_ORDER_FORTRAN as c_int);
        let rows = [(56, 24), (96, 24)];
        assert_eq!(pairs(combine(Combiner::Subarray, &[2, 4, 5, 2, 3, 1, 2, c], &[], &f64s)), rows);
        assert_eq!(pairs(combine(Combiner::Subarray, &[2, 5, 4, 3, 2, 2, 1, fortran], &[], &f64s)), rows);
        // A type with a gap, and one of two kinds.
        let gaps = [layout(Kind::Bytes, 10, &[(0, 4), (6, 2)])];
        assert_eq!(pairs(combine(Combiner::Contiguous, &[2], &[], &gaps)), [(0, 4), (6, 2), (10, 4), (16, 2)]);
        let two = [f64s[0].clone(), gaps[0].clone()];
        assert_eq!(pairs(combine(Combiner::Struct, &[2, 1, 1], &[0, 8], &two)), [(0, 12), (14, 2)]);
        assert_eq!(combine(Combiner::Struct, &[3, 1, 1], &[0, 8], &two), None);
    }
}
