//! Datasets: describes them, reads and writes boxes of values, and writes chunks that are already compressed.

use std::ffi::{c_char, c_int, c_uint, c_void};

use pumice::{DType, Element, Error, ErrorKind, Result};

use super::attributes::{REFERENCE, SEQUENCE, STRING};
use super::create::UNLIMITED;
use super::{DEFAULT, ElementType, Group, Object, c_string, call, failure, library, lock, zeros};
use crate::FILTER_ID;
use crate::cd_values::{ByteOrder, CdValues};
use crate::library::Hid;

const INTEGER_CLASS: c_int = 0;
const CHUNKED: c_int = 2;
const MAX_RANK: usize = 32;
/// Size of HDF5's cache of decoded chunks, which neighbouring boxes of a variable share.
const CACHE_BYTES: usize = 64 << 20;

/// An integer type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Integer {
    /// Size of a value in bytes: 1, 2, 4 or 8.
    pub size: usize,
    /// Whether it is signed.
    pub is_signed: bool,
}

/// An open dataset.
#[derive(Debug)]
pub struct Dataset {
    object: Object,
    datatype: Object,
    space: Object,
    /// Extents, slowest axis first; empty if it has no axes.
    shape: Vec<usize>,
}

impl std::ops::Deref for Dataset {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

impl Dataset {
    pub(super) fn new(object: Object) -> Result<Self> {
        let datatype = Object::new(call!(H5Dget_type(object.id => Hid) -> Hid), || "cannot read a type".into())?;
        let space = Object::new(call!(H5Dget_space(object.id => Hid) -> Hid), || "cannot read a shape".into())?;
        let mut extents = [0_u64; MAX_RANK];
        let (pointer, unwanted) = (extents.as_mut_ptr(), std::ptr::null_mut());
        let rank =
            call!(H5Sget_simple_extent_dims(space.id => Hid, pointer => *mut u64, unwanted => *mut u64) -> c_int);
        let rank = usize::try_from(rank).map_err(|_| failure(|| "cannot read a shape"))?;
        let shape = extents[..rank].iter().map(|&n| n as usize).collect();
        Ok(Self { object, datatype, space, shape })
    }

    /// Its path, for messages.
    fn name(&self) -> String {
        self.path().unwrap_or_else(|_| "a dataset".into())
    }

    /// Extents, slowest axis first.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Which axes can grow without limit.
    pub fn is_unlimited(&self) -> Result<Vec<bool>> {
        let mut most = [0_u64; MAX_RANK];
        let (unwanted, pointer) = (std::ptr::null_mut(), most.as_mut_ptr());
        call!(H5Sget_simple_extent_dims(self.space.id => Hid, unwanted => *mut u64, pointer => *mut u64) -> c_int);
        Ok(most[..self.shape.len()].iter().map(|&n| n == UNLIMITED).collect())
    }

    /// Number of values; 0 for a null dataspace.
    pub fn n_values(&self) -> u64 {
        let count = || -> Result<i64> { Ok(call!(H5Sget_simple_extent_npoints(self.space.id => Hid) -> i64)) };
        count().ok().and_then(|n| u64::try_from(n).ok()).unwrap_or(0)
    }

    pub(super) fn datatype(&self) -> &Object {
        &self.datatype
    }

    /// Whether the values point into the file: variable-length strings, sequences, references.
    pub fn has_pointers(&self) -> Result<bool> {
        let id = self.datatype.id;
        let has = |class: c_int| -> Result<bool> { Ok(call!(H5Tdetect_class(id => Hid, class => c_int) -> c_int) > 0) };
        let is_any_text = has(STRING)? && call!(H5Tis_variable_str(id => Hid) -> c_int) > 0;
        Ok(is_any_text || has(SEQUENCE)? || has(REFERENCE)?)
    }

    /// Element type and byte order, if Pumice compresses this type.
    pub fn float_type(&self) -> Option<(DType, ByteOrder)> {
        let library = library().ok()?;
        let _one_at_a_time = lock();
        library.element_type(self.datatype.id).ok()
    }

    /// The integer type, if it is one.
    pub fn integer_type(&self) -> Result<Option<Integer>> {
        if call!(H5Tget_class(self.datatype.id => Hid) -> c_int) != INTEGER_CLASS {
            return Ok(None);
        }
        let size = call!(H5Tget_size(self.datatype.id => Hid) -> usize);
        let is_signed = call!(H5Tget_sign(self.datatype.id => Hid) -> c_int) != 0;
        Ok(matches!(size, 1 | 2 | 4 | 8).then_some(Integer { size, is_signed }))
    }

    pub(super) fn creation_properties(&self) -> Result<Object> {
        Object::new(call!(H5Dget_create_plist(self.id => Hid) -> Hid), || "cannot read properties".into())
    }

    /// Extents of its chunks, if it has chunks.
    pub fn chunk_shape(&self) -> Result<Option<Vec<usize>>> {
        let properties = self.creation_properties()?;
        if call!(H5Pget_layout(properties.id => Hid) -> c_int) != CHUNKED {
            return Ok(None);
        }
        let mut extents = [0_u64; MAX_RANK];
        let pointer = extents.as_mut_ptr();
        let rank = call!(H5Pget_chunk(properties.id => Hid, MAX_RANK as c_int => c_int, pointer => *mut u64) -> c_int);
        let rank = usize::try_from(rank).map_err(|_| failure(|| "cannot read chunk extents"))?;
        Ok(Some(extents[..rank].iter().map(|&n| n as usize).collect()))
    }

    /// The fill value that its creator has set, if it holds floats.
    pub fn fill(&self) -> Result<Option<f64>> {
        let properties = self.creation_properties()?;
        let Some((dtype, order)) = self.float_type() else { return Ok(None) };
        let library = library()?;
        let _one_at_a_time = lock();
        let bytes = library.fill_bytes(properties.id, self.datatype.id)?;
        Ok(bytes.map(|bytes| crate::filter::fill_value(&bytes[..dtype.size()], order)))
    }

    /// The fill value as little-endian bytes of this type, which must be of the same class as that of the dataset; zeros
    /// where there is none.
    pub fn fill_bytes(&self, element: ElementType) -> Result<Vec<u8>> {
        let (properties, datatype) = (self.creation_properties()?, element.id()?);
        let mut bytes = vec![0_u8; element.size()];
        let pointer = bytes.as_mut_ptr().cast();
        let got = call!(H5Pget_fill_value(properties.id => Hid, datatype => Hid, pointer => *mut c_void) -> c_int);
        // An undefined fill value is a failure.
        Ok(if got < 0 { vec![0; element.size()] } else { bytes })
    }

    /// Size of its values in the file, in bytes.
    pub fn storage_bytes(&self) -> Result<u64> {
        Ok(call!(H5Dget_storage_size(self.id => Hid) -> u64))
    }

    /// Fills `out` with the values of a box, in C order, in this machine's byte order.
    pub fn read_box<T: Element>(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        let name = match T::DTYPE {
            DType::F32 => "H5T_NATIVE_FLOAT_g\0",
            _ => "H5T_NATIVE_DOUBLE_g\0",
        };
        let datatype = library()?.variable(name)?;
        self.transfer(start, extents, out.len(), |object, memory, file| {
            let values = out.as_mut_ptr().cast();
            Ok(call!(H5Dread(
                object => Hid, datatype => Hid, memory => Hid, file => Hid, DEFAULT => Hid, values => *mut c_void,
            ) -> c_int))
        })
    }

    /// The values of a box as little-endian bytes of this type, which must be of the same class as that of the dataset.
    pub fn read_bytes(&self, element: ElementType, start: &[usize], extents: &[usize]) -> Result<Vec<u8>> {
        let (n_values, datatype) = (extents.iter().product::<usize>(), element.id()?);
        let mut bytes: Vec<u8> = zeros(n_values * element.size())?;
        self.transfer(start, extents, n_values, |object, memory, file| {
            let values = bytes.as_mut_ptr().cast();
            Ok(call!(H5Dread(
                object => Hid, datatype => Hid, memory => Hid, file => Hid, DEFAULT => Hid, values => *mut c_void,
            ) -> c_int))
        })?;
        Ok(bytes)
    }

    /// Writes a box of values, given as little-endian bytes of this type.
    pub fn write_bytes(&self, element: ElementType, start: &[usize], extents: &[usize], bytes: &[u8]) -> Result<()> {
        let datatype = element.id()?;
        self.transfer(start, extents, bytes.len() / element.size(), |object, memory, file| {
            let values = bytes.as_ptr().cast();
            Ok(call!(H5Dwrite(
                object => Hid, datatype => Hid, memory => Hid, file => Hid, DEFAULT => Hid, values => *const c_void,
            ) -> c_int))
        })
    }

    /// Reads or writes a box of `n_values` values: `transfer` is called with the dataset, and with the box in memory and in
    /// the file.
    fn transfer(
        &self,
        start: &[usize],
        extents: &[usize],
        n_values: usize,
        transfer: impl FnOnce(Hid, Hid, Hid) -> Result<c_int>,
    ) -> Result<()> {
        let inside = start.len() == self.shape.len()
            && extents.len() == self.shape.len()
            && start
                .iter()
                .zip(extents)
                .zip(&self.shape)
                .all(|((s, e), n)| s.checked_add(*e).is_some_and(|end| end <= *n));
        if !inside || extents.iter().product::<usize>() != n_values {
            let message = format!("a box of {extents:?} at {start:?} does not fit into {:?}", self.shape);
            return Err(Error::new(ErrorKind::InvalidArgument, message));
        }
        if n_values == 0 {
            return Ok(());
        }
        let name = || self.name();
        let (file, memory) = if self.shape.is_empty() {
            (None, None)
        } else {
            let start: Vec<u64> = start.iter().map(|&n| n as u64).collect();
            let extents: Vec<u64> = extents.iter().map(|&n| n as u64).collect();
            let file = Object::new(call!(H5Scopy(self.space.id => Hid) -> Hid), name)?;
            let null = std::ptr::null();
            let selected = call!(H5Sselect_hyperslab(
                file.id => Hid, 0 => c_int, start.as_ptr() => *const u64, null => *const u64, extents.as_ptr() => *const u64,
                null => *const u64,
            ) -> c_int);
            if selected < 0 {
                return Err(failure(name));
            }
            let rank = extents.len() as c_int;
            let memory =
                call!(H5Screate_simple(rank => c_int, extents.as_ptr() => *const u64, null => *const u64) -> Hid);
            (Some(file), Some(Object::new(memory, name)?))
        };
        let id = |space: &Option<Object>| space.as_ref().map_or(DEFAULT, |space| space.id);
        if transfer(self.id, id(&memory), id(&file))? < 0 { Err(failure(name)) } else { Ok(()) }
    }

    /// Writes a chunk that is already compressed; `start` is the position of its first value.
    pub fn write_chunk(&self, start: &[usize], bytes: &[u8]) -> Result<()> {
        let start: Vec<u64> = start.iter().map(|&n| n as u64).collect();
        let (buffer, size) = (bytes.as_ptr().cast(), bytes.len());
        let written = call!(H5Dwrite_chunk(
            self.id => Hid, DEFAULT => Hid, 0 => u32, start.as_ptr() => *const u64, size => usize, buffer => *const c_void,
        ) -> c_int);
        if written < 0 { Err(failure(|| format!("cannot write {}", self.name()))) } else { Ok(()) }
    }
}

impl Group {
    /// Opens a dataset for reading many boxes.
    pub fn dataset_with_cache(&self, name: &str) -> Result<Dataset> {
        let c_name = c_string(name)?;
        let properties = Object::properties("H5P_CLS_DATASET_ACCESS_ID_g\0")?;
        // A prime number of slots, as HDF5 advises; chunks that were read completely are evicted first.
        call!(H5Pset_chunk_cache(properties.id => Hid, 12_421 => usize, CACHE_BYTES => usize, 1.0 => f64) -> c_int);
        let id = call!(H5Dopen2(self.id => Hid, c_name.as_ptr() => *const c_char, properties.id => Hid) -> Hid);
        Dataset::new(Object::new(id, || format!("cannot open {name}"))?)
    }

    /// Creates a dataset with the properties of another, without values.
    pub fn create_like(&self, name: &str, like: &Dataset) -> Result<Dataset> {
        let properties = like.creation_properties()?;
        properties.forget_times()?;
        self.create(name, like, &properties)
    }

    /// Creates a dataset with type, shape and fill value of another, with these chunks and the Pumice filter only.
    pub fn create_filtered(
        &self,
        name: &str,
        like: &Dataset,
        chunk: &[usize],
        cd_values: &CdValues,
    ) -> Result<Dataset> {
        let cd_values = cd_values.to_vec();
        let properties = like.creation_properties()?;
        let chunk: Vec<u64> = chunk.iter().map(|&n| n as u64).collect();
        properties.forget_times()?;
        let all_filters = 0;
        call!(H5Premove_filter(properties.id => Hid, all_filters => c_int) -> c_int);
        let (rank, mandatory) = (chunk.len() as c_int, 0);
        let is_set = call!(H5Pset_chunk(properties.id => Hid, rank => c_int, chunk.as_ptr() => *const u64) -> c_int)
            >= 0
            && call!(H5Pset_filter(
                properties.id => Hid, FILTER_ID => c_int, mandatory => c_uint, cd_values.len() => usize, cd_values.as_ptr() => *const c_uint,
            ) -> c_int)
                >= 0;
        if !is_set {
            return Err(failure(|| format!("cannot set chunks and filter of {name}")));
        }
        self.create(name, like, &properties)
    }

    fn create(&self, name: &str, like: &Dataset, properties: &Object) -> Result<Dataset> {
        let c_name = c_string(name)?;
        // A named datatype belongs to its file; a copy of it has no name.
        let datatype = call!(H5Tcopy(like.datatype.id => Hid) -> Hid);
        let datatype = Object::new(datatype, || format!("cannot copy the type of {name}"))?;
        let id = call!(H5Dcreate2(
            self.id => Hid, c_name.as_ptr() => *const c_char, datatype.id => Hid, like.space.id => Hid, DEFAULT => Hid,
            properties.id => Hid, DEFAULT => Hid,
        ) -> Hid);
        Dataset::new(Object::new(id, || format!("cannot create {name}"))?)
    }
}
