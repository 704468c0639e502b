//! Builds new HDF5 trees in memory, for formats that are not HDF5 but can be laid out as NetCDF-4 lays out its files.
//! Values are given as little-endian bytes.

use std::ffi::{c_char, c_int, c_uint, c_void};

use pumice::{DType, Error, Result};

use super::attributes::{COMPOUND, OBJECT_REFERENCE, Sequence, scalar};
use super::{DEFAULT, Dataset, Group, Integer, Object, TRUNCATE, c_string, call, failure, library};
use crate::library::Hid;

/// Tracks and indexes the creation order of links or attributes.
const TRACKED_AND_INDEXED: c_uint = 3;
const NULL_SPACE: c_int = 2;
pub(super) const UNLIMITED: u64 = u64::MAX;
/// The name of the file, which is never written. HDF5 would first read an existing file of this name.
const NOT_A_FILE: &std::ffi::CStr = c".pumice-tree-in-memory";
const MEMORY_STEP: usize = 1 << 16;

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ElementType {
    /// A byte of a string.
    Character,
    /// An integer.
    Integer(Integer),
    /// A floating-point number.
    Float(DType),
}

impl ElementType {
    /// Size of a value in bytes.
    pub fn size(self) -> usize {
        match self {
            ElementType::Character => 1,
            ElementType::Integer(kind) => kind.size,
            ElementType::Float(dtype) => dtype.size(),
        }
    }

    /// HDF5's little-endian datatype for it; the library owns the identifier.
    pub(super) fn id(self) -> Result<Hid> {
        let name = match self {
            ElementType::Character => "H5T_C_S1_g\0",
            ElementType::Integer(Integer { size: 1, is_signed: true }) => "H5T_STD_I8LE_g\0",
            ElementType::Integer(Integer { size: 1, is_signed: false }) => "H5T_STD_U8LE_g\0",
            ElementType::Integer(Integer { size: 2, is_signed: true }) => "H5T_STD_I16LE_g\0",
            ElementType::Integer(Integer { size: 2, is_signed: false }) => "H5T_STD_U16LE_g\0",
            ElementType::Integer(Integer { size: 4, is_signed: true }) => "H5T_STD_I32LE_g\0",
            ElementType::Integer(Integer { size: 4, is_signed: false }) => "H5T_STD_U32LE_g\0",
            ElementType::Integer(Integer { is_signed: true, .. }) => "H5T_STD_I64LE_g\0",
            ElementType::Integer(Integer { is_signed: false, .. }) => "H5T_STD_U64LE_g\0",
            ElementType::Float(DType::F32) => "H5T_IEEE_F32LE_g\0",
            ElementType::Float(_) => "H5T_IEEE_F64LE_g\0",
        };
        library()?.variable(name)
    }
}

/// Type and layout of a new dataset.
#[derive(Clone, Debug)]
pub struct Layout<'a> {
    /// The type of its values.
    pub element: ElementType,
    /// Extents, slowest axis first.
    pub shape: &'a [usize],
    /// Whether the first axis can grow; this needs chunks.
    pub is_extendible: bool,
    /// Extents of chunks.
    pub chunk: Option<&'a [usize]>,
    /// The bytes of the fill value.
    pub fill: Option<&'a [u8]>,
}

fn simple_space(shape: &[usize], is_extendible: bool) -> Result<Object> {
    if shape.is_empty() {
        return scalar();
    }
    let extents: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
    let mut most = extents.clone();
    if is_extendible {
        most[0] = UNLIMITED;
    }
    let rank = extents.len() as c_int;
    let id = call!(H5Screate_simple(rank => c_int, extents.as_ptr() => *const u64, most.as_ptr() => *const u64) -> Hid);
    Object::new(id, || format!("cannot create a dataspace of {shape:?}"))
}

impl Group {
    /// The root of a new file that exists in memory only, as long as the root is open.
    pub fn create_in_memory() -> Result<Self> {
        let access = Object::properties("H5P_CLS_FILE_ACCESS_ID_g\0")?;
        let in_a_file = 0;
        if call!(H5Pset_fapl_core(access.id => Hid, MEMORY_STEP => usize, in_a_file => c_uint) -> c_int) < 0 {
            return Err(failure(|| "cannot keep a file in memory"));
        }
        let properties = Object::properties("H5P_CLS_FILE_CREATE_ID_g\0")?;
        call!(H5Pset_link_creation_order(properties.id => Hid, TRACKED_AND_INDEXED => c_uint) -> c_int);
        call!(H5Pset_attr_creation_order(properties.id => Hid, TRACKED_AND_INDEXED => c_uint) -> c_int);
        let name = NOT_A_FILE.as_ptr();
        let id =
            call!(H5Fcreate(name => *const c_char, TRUNCATE => c_uint, properties.id => Hid, access.id => Hid) -> Hid);
        Self::root(id, "a tree in memory".as_ref())
    }

    /// Creates a dataset without values.
    pub fn create_dataset(&self, name: &str, layout: &Layout<'_>) -> Result<Dataset> {
        let (c_name, datatype) = (c_string(name)?, layout.element.id()?);
        let problem = || format!("cannot create {name}");
        let space = simple_space(layout.shape, layout.is_extendible)?;
        let properties = Object::properties("H5P_CLS_DATASET_CREATE_ID_g\0")?;
        properties.forget_times()?;
        call!(H5Pset_attr_creation_order(properties.id => Hid, TRACKED_AND_INDEXED => c_uint) -> c_int);
        if let Some(fill) = layout.fill {
            if fill.len() != layout.element.size() {
                return Err(Error::unsupported(format!("{name}: a fill value of {} bytes", fill.len())));
            }
            let pointer = fill.as_ptr().cast();
            if call!(H5Pset_fill_value(properties.id => Hid, datatype => Hid, pointer => *const c_void) -> c_int) < 0 {
                return Err(failure(problem));
            }
        }
        if let Some(chunk) = layout.chunk {
            let chunk: Vec<u64> = chunk.iter().map(|&n| n as u64).collect();
            let rank = chunk.len() as c_int;
            if call!(H5Pset_chunk(properties.id => Hid, rank => c_int, chunk.as_ptr() => *const u64) -> c_int) < 0 {
                return Err(failure(problem));
            }
        }
        let id = call!(H5Dcreate2(
            self.id => Hid, c_name.as_ptr() => *const c_char, datatype => Hid, space.id => Hid, DEFAULT => Hid,
            properties.id => Hid, DEFAULT => Hid,
        ) -> Hid);
        Dataset::new(Object::new(id, problem)?)
    }

    /// Attaches dimension scales to the axes of datasets, all named relative to this group. Each pair is a dataset and the
    /// scales of its axes.
    pub fn attach_scales(&self, datasets: &[(String, Vec<String>)]) -> Result<()> {
        let mut uses: Vec<(&str, Vec<Use>)> = Vec::new();
        for (name, scales) in datasets {
            let dataset = self.reference(name)?;
            for (axis, scale) in scales.iter().enumerate() {
                let found = Use { dataset, axis: axis as c_int, zero: 0 };
                match uses.iter_mut().find(|(name, _)| name == scale) {
                    Some((_, list)) => list.push(found),
                    None => uses.push((scale, vec![found])),
                }
            }
            let mut references = scales.iter().map(|scale| self.reference(scale)).collect::<Result<Vec<_>>>()?;
            let lists: Vec<Sequence> =
                references.iter_mut().map(|r| Sequence { length: 1, start: std::ptr::from_mut(r).cast() }).collect();
            let base = library()?.variable("H5T_STD_REF_OBJ_g\0")?;
            let datatype =
                Object::new(call!(H5Tvlen_create(base => Hid) -> Hid), || "cannot create a datatype".into())?;
            self.at(name)?.set_list("DIMENSION_LIST", &datatype, lists.as_ptr().cast(), lists.len())?;
        }
        let datatype = use_type()?;
        uses.iter().try_for_each(|(scale, uses)| {
            self.at(scale)?.set_list("REFERENCE_LIST", &datatype, uses.as_ptr().cast(), uses.len())
        })
    }

    /// An object reference to a member of this group: a number that is unique to the object, whatever its name.
    pub fn reference(&self, name: &str) -> Result<u64> {
        let (c_name, mut reference) = (c_string(name)?, 0_u64);
        let pointer = (&raw mut reference).cast();
        let made = call!(H5Rcreate(
            pointer => *mut c_void, self.id => Hid, c_name.as_ptr() => *const c_char, OBJECT_REFERENCE => c_int, -1 => Hid,
        ) -> c_int);
        if made < 0 { Err(failure(|| format!("cannot refer to {name}"))) } else { Ok(reference) }
    }
}

/// An entry of the attribute REFERENCE_LIST: where a dimension scale is used.
#[repr(C)]
struct Use {
    dataset: u64,
    axis: c_int,
    /// Explicit padding, so that all bytes are initialised.
    zero: c_int,
}

fn use_type() -> Result<Object> {
    let id = call!(H5Tcreate(COMPOUND => c_int, size_of::<Use>() => usize) -> Hid);
    let datatype = Object::new(id, || "cannot create a datatype".into())?;
    let members = [
        (c"dataset", std::mem::offset_of!(Use, dataset), "H5T_STD_REF_OBJ_g\0"),
        (c"dimension", std::mem::offset_of!(Use, axis), "H5T_NATIVE_INT_g\0"),
    ];
    for (name, offset, member) in members {
        let member = library()?.variable(member)?;
        let name = name.as_ptr();
        call!(H5Tinsert(datatype.id => Hid, name => *const c_char, offset => usize, member => Hid) -> c_int);
    }
    Ok(datatype)
}

impl Object {
    /// Sets an attribute to a number.
    pub fn set_number(&self, name: &str, element: ElementType, bytes: &[u8]) -> Result<()> {
        if bytes.len() != element.size() {
            return Err(Error::unsupported(format!("{name}: a number of {} bytes", bytes.len())));
        }
        let (datatype, space) = (element.id()?, scalar()?);
        self.write(name, datatype, space.id, datatype, bytes.as_ptr().cast(), 1)
    }

    /// Sets an attribute to a list of values, or, for characters, to one string. `bytes` may be empty.
    pub fn set_values(&self, name: &str, element: ElementType, bytes: &[u8]) -> Result<()> {
        let n_values = bytes.len() / element.size();
        if n_values == 0 {
            let empty = Self::new(call!(H5Screate(NULL_SPACE => c_int) -> Hid), || "cannot create a dataspace".into())?;
            let datatype = element.id()?;
            return self.write(name, datatype, empty.id, datatype, bytes.as_ptr().cast(), 0);
        }
        if element == ElementType::Character {
            // Bytes that are neither ASCII nor UTF-8 are stored unchanged.
            return self.set_characters(name, bytes, !bytes.is_ascii() && std::str::from_utf8(bytes).is_ok());
        }
        let (datatype, space) = (element.id()?, simple_space(&[n_values], false)?);
        self.write(name, datatype, space.id, datatype, bytes.as_ptr().cast(), n_values)
    }

    /// Sets an attribute to a list of `n` values of a type, which `values` points to.
    fn set_list(&self, name: &str, datatype: &Object, values: *const c_void, n: usize) -> Result<()> {
        let space = simple_space(&[n], false)?;
        self.write(name, datatype.id, space.id, datatype.id, values, n)
    }
}
