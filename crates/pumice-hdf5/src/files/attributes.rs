//! Attributes: reads them, and copies them to another file, where object references point to the same paths. Datasets of
//! strings, variable-length sequences and references are copied in the same way.

use std::ffi::{CStr, c_char, c_int, c_void};

use pumice::{Error, Result};

use super::{
    BY_CREATION, BY_NAME, DEFAULT, Dataset, Group, INCREASING, Object, c_string, call, failure, library, text, zeros,
};
use crate::library::Hid;

/// Classes of datatypes.
const INTEGER: c_int = 0;
const FLOAT: c_int = 1;
pub(super) const STRING: c_int = 3;
pub(super) const COMPOUND: c_int = 6;
pub(super) const REFERENCE: c_int = 7;
pub(super) const SEQUENCE: c_int = 9;
const ARRAY: c_int = 10;

pub(super) const OBJECT_REFERENCE: c_int = 0;
const OBJECT_REFERENCE_BYTES: usize = 8;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// One string or several.
    Texts(Vec<String>),
    /// Integers that fit in 64 signed bits.
    Integers(Vec<i64>),
    /// Floating-point numbers.
    Floats(Vec<f64>),
    /// Anything else.
    Other,
}

/// `hvl_t`: a variable-length sequence in memory.
#[repr(C)]
pub(super) struct Sequence {
    pub(super) length: usize,
    pub(super) start: *mut c_void,
}

/// The values of an attribute or a dataset in memory, in their own type. Frees the sequences in them on drop.
struct Raw {
    datatype: Object,
    space: Object,
    n_values: usize,
    bytes: Vec<u64>,
}

impl Raw {
    /// Values of this type and dataspace; `read` gets the datatype and writes the values to the pointer.
    fn new(stored: &Object, space: Object, read: impl FnOnce(Hid, *mut c_void) -> Result<c_int>) -> Result<Self> {
        let ascending = 1;
        let datatype = call!(H5Tget_native_type(stored.id => Hid, ascending => c_int) -> Hid);
        let datatype = Object::new(datatype, || "cannot read a type".into())?;
        let n_values = usize::try_from(call!(H5Sget_simple_extent_npoints(space.id => Hid) -> i64)).unwrap_or(0);
        let size = call!(H5Tget_size(datatype.id => Hid) -> usize);
        let n_words = n_values.checked_mul(size).ok_or_else(|| Error::unsupported("too many values"))?.div_ceil(8);
        let mut raw = Self { datatype, space, n_values, bytes: zeros(n_words)? };
        if n_values > 0 && read(raw.datatype.id, raw.start())? < 0 {
            return Err(failure(|| "cannot read values"));
        }
        Ok(raw)
    }

    fn of_attribute(attribute: &Object) -> Result<Self> {
        let problem = || "cannot read an attribute".to_string();
        let stored = Object::new(call!(H5Aget_type(attribute.id => Hid) -> Hid), problem)?;
        let space = Object::new(call!(H5Aget_space(attribute.id => Hid) -> Hid), problem)?;
        Self::new(&stored, space, |datatype, pointer| {
            Ok(call!(H5Aread(attribute.id => Hid, datatype => Hid, pointer => *mut c_void) -> c_int))
        })
    }

    fn of_dataset(dataset: &Dataset) -> Result<Self> {
        let space = Object::new(call!(H5Dget_space(dataset.id => Hid) -> Hid), || "cannot read a shape".into())?;
        Self::new(dataset.datatype(), space, |datatype, pointer| {
            Ok(call!(H5Dread(
                dataset.id => Hid, datatype => Hid, DEFAULT => Hid, DEFAULT => Hid, DEFAULT => Hid, pointer => *mut c_void,
            ) -> c_int))
        })
    }

    /// Replaces references into the file of `source` by references to the same paths in the file of `target`.
    fn translate(&mut self, source: &Object, target: &Object) -> Result<()> {
        let (datatype, start) = (self.datatype.id, self.start().cast::<u8>());
        let size = size_of_type(datatype)?;
        let mut translate = |reference: *mut u64| {
            let path = referenced(source, reference)?;
            // SAFETY: a reference within `self`, maybe unaligned; 0 is the null reference.
            unsafe { reference.write_unaligned(0) };
            let Some(path) = path else { return Ok(()) };
            let path = c_string(&path)?;
            let made = call!(H5Rcreate(
                reference.cast() => *mut c_void, target.id => Hid, path.as_ptr() => *const c_char, OBJECT_REFERENCE => c_int,
                -1 => Hid,
            ) -> c_int);
            if made < 0 {
                Err(Error::unsupported("a reference points to an object that was not copied"))
            } else {
                Ok(())
            }
        };
        // SAFETY: `bytes` holds this many values of this type and size.
        (0..self.n_values)
            .try_for_each(|i| unsafe { for_each_reference(datatype, start.add(i * size), &mut translate) })
    }

    fn start(&mut self) -> *mut c_void {
        self.bytes.as_mut_ptr().cast()
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let (datatype, space, pointer) = (self.datatype.id, self.space.id, self.start());
        let reclaim = || -> Result<c_int> {
            Ok(call!(H5Dvlen_reclaim(datatype => Hid, space => Hid, DEFAULT => Hid, pointer => *mut c_void) -> c_int))
        };
        // A failure only leaks memory.
        let _ = reclaim();
    }
}

fn class_of(datatype: Hid) -> Result<c_int> {
    Ok(call!(H5Tget_class(datatype => Hid) -> c_int))
}

fn size_of_type(datatype: Hid) -> Result<usize> {
    Ok(call!(H5Tget_size(datatype => Hid) -> usize))
}

fn base_of(datatype: Hid) -> Result<Object> {
    Object::new(call!(H5Tget_super(datatype => Hid) -> Hid), || "cannot read a type".into())
}

/// Calls `f` with each object reference in the value at `value`.
///
/// # Safety
/// `value` points to a value of this type, in HDF5's memory layout.
unsafe fn for_each_reference(datatype: Hid, value: *mut u8, f: &mut dyn FnMut(*mut u64) -> Result<()>) -> Result<()> {
    match class_of(datatype)? {
        REFERENCE if size_of_type(datatype)? == OBJECT_REFERENCE_BYTES => f(value.cast()),
        REFERENCE => Err(Error::unsupported("references to regions")),
        COMPOUND => {
            let n_members = call!(H5Tget_nmembers(datatype => Hid) -> c_int);
            for member in 0..u32::try_from(n_members).unwrap_or(0) {
                let offset = call!(H5Tget_member_offset(datatype => Hid, member => u32) -> usize);
                let inner = call!(H5Tget_member_type(datatype => Hid, member => u32) -> Hid);
                let inner = Object::new(inner, || "cannot read a type".into())?;
                // SAFETY: members lie within their compound value.
                unsafe { for_each_reference(inner.id, value.add(offset), f)? };
            }
            Ok(())
        }
        SEQUENCE | ARRAY => {
            let base = base_of(datatype)?;
            let step = size_of_type(base.id)?.max(1);
            let (start, n) = if class_of(datatype)? == SEQUENCE {
                // SAFETY: this is the memory layout of a sequence; it may be unaligned within a packed value.
                let Sequence { length, start } = unsafe { value.cast::<Sequence>().read_unaligned() };
                (start.cast::<u8>(), length)
            } else {
                (value, size_of_type(datatype)? / step)
            };
            // SAFETY: the array or sequence has this many values of the base type.
            (0..n).try_for_each(|i| unsafe { for_each_reference(base.id, start.add(i * step), f) })
        }
        _ => Ok(()),
    }
}

/// The path of the object that a reference points to; `None` for the null reference.
fn referenced(file: &Object, reference: *mut u64) -> Result<Option<String>> {
    let object = call!(H5Rdereference2(
        file.id => Hid, DEFAULT => Hid, OBJECT_REFERENCE => c_int, reference.cast() => *const c_void,
    ) -> Hid);
    Object::new(object, || "a reference".into()).ok().map(|object| object.path()).transpose()
}

impl Object {
    fn attribute(&self, index: c_int, n: u64) -> Result<Option<Object>> {
        let id = call!(H5Aopen_by_idx(
            self.id => Hid, c".".as_ptr() => *const c_char, index => c_int, INCREASING => c_int, n => u64, DEFAULT => Hid,
            DEFAULT => Hid,
        ) -> Hid);
        Ok(Object::new(id, String::new).ok())
    }

    fn named_attribute(&self, name: &str) -> Result<Option<Object>> {
        let name = c_string(name)?;
        let exists = call!(H5Aexists(self.id => Hid, name.as_ptr() => *const c_char) -> c_int) > 0;
        let id = if exists {
            call!(H5Aopen(self.id => Hid, name.as_ptr() => *const c_char, DEFAULT => Hid) -> Hid)
        } else {
            -1
        };
        Ok(Object::new(id, String::new).ok())
    }

    fn attributes(&self) -> Result<Vec<(String, Object)>> {
        let index = if self.attribute(BY_CREATION, 0)?.is_some() { BY_CREATION } else { BY_NAME };
        let mut found = Vec::new();
        while let Some(attribute) = self.attribute(index, found.len() as u64)? {
            let name = text(|buffer, n| {
                Ok(call!(H5Aget_name(attribute.id => Hid, n => usize, buffer => *mut c_char) -> isize))
            })?;
            found.push((name, attribute));
        }
        Ok(found)
    }

    /// The value of an attribute, if there is one of this name.
    pub fn value(&self, name: &str) -> Result<Option<Value>> {
        self.named_attribute(name)?.map(|attribute| value_of(&attribute)).transpose()
    }

    /// Names and values of all attributes, and whether each is a single value.
    pub fn values(&self) -> Result<Vec<(String, Value, bool)>> {
        let attributes = self.attributes()?;
        let with_value = |(name, attribute): (String, Object)| {
            let space =
                Object::new(call!(H5Aget_space(attribute.id => Hid) -> Hid), || "cannot read an attribute".into())?;
            let is_single = call!(H5Sget_simple_extent_npoints(space.id => Hid) -> i64) == 1;
            Ok((name, value_of(&attribute)?, is_single))
        };
        attributes.into_iter().map(with_value).collect()
    }

    /// Copies all attributes. References, such as those between variables and their coordinates, point to the same paths
    /// in the other file, which must exist. Returns the names of attributes that cannot be copied.
    pub fn copy_attributes_from(&self, source: &Object) -> Result<Vec<String>> {
        let mut left_out = Vec::new();
        for (name, attribute) in source.attributes()? {
            match self.copy_attribute(&name, &attribute, source) {
                Err(e) if e.kind() == pumice::ErrorKind::Unsupported => left_out.push(name),
                copied => copied?,
            }
        }
        Ok(left_out)
    }

    fn copy_attribute(&self, name: &str, attribute: &Object, source: &Object) -> Result<()> {
        let mut raw = Raw::of_attribute(attribute)?;
        raw.translate(source, self)?;
        let stored = Object::new(call!(H5Aget_type(attribute.id => Hid) -> Hid), || format!("cannot read {name}"))?;
        let stored = Object::new(call!(H5Tcopy(stored.id => Hid) -> Hid), || format!("cannot read {name}"))?;
        let (space, datatype) = (raw.space.id, raw.datatype.id);
        self.write(name, stored.id, space, datatype, raw.start(), raw.n_values)
    }

    /// Creates an attribute, or replaces it.
    pub(super) fn write(
        &self,
        name: &str,
        stored: Hid,
        space: Hid,
        memory: Hid,
        pointer: *const c_void,
        n_values: usize,
    ) -> Result<()> {
        self.remove_attribute(name)?;
        let c_name = c_string(name)?;
        let id = call!(H5Acreate2(
            self.id => Hid, c_name.as_ptr() => *const c_char, stored => Hid, space => Hid, DEFAULT => Hid, DEFAULT => Hid,
        ) -> Hid);
        let attribute = Object::new(id, || format!("cannot create the attribute {name}"))?;
        if n_values > 0 && call!(H5Awrite(attribute.id => Hid, memory => Hid, pointer => *const c_void) -> c_int) < 0 {
            return Err(failure(|| format!("cannot write the attribute {name}")));
        }
        Ok(())
    }

    /// Removes an attribute, if there is one of this name.
    pub fn remove_attribute(&self, name: &str) -> Result<()> {
        let c_name = c_string(name)?;
        if call!(H5Aexists(self.id => Hid, c_name.as_ptr() => *const c_char) -> c_int) > 0
            && call!(H5Adelete(self.id => Hid, c_name.as_ptr() => *const c_char) -> c_int) < 0
        {
            return Err(failure(|| format!("cannot remove the attribute {name}")));
        }
        Ok(())
    }

    /// Sets an attribute to a string.
    pub fn set_text(&self, name: &str, text: &str) -> Result<()> {
        // HDF5 has no strings of 0 bytes: the empty string is one NUL.
        self.set_characters(name, if text.is_empty() { &[0] } else { text.as_bytes() }, true)
    }

    /// Sets an attribute to a string of at least one byte.
    pub(super) fn set_characters(&self, name: &str, bytes: &[u8], is_utf8: bool) -> Result<()> {
        let datatype = call!(H5Tcopy(library()?.variable("H5T_C_S1_g\0")? => Hid) -> Hid);
        let datatype = Object::new(datatype, || "cannot create a datatype".into())?;
        let (size, charset) = (bytes.len(), c_int::from(is_utf8));
        call!(H5Tset_size(datatype.id => Hid, size => usize) -> c_int);
        call!(H5Tset_cset(datatype.id => Hid, charset => c_int) -> c_int);
        let space = scalar()?;
        self.write(name, datatype.id, space.id, datatype.id, bytes.as_ptr().cast(), 1)
    }
}

pub(super) fn scalar() -> Result<Object> {
    Object::new(call!(H5Screate(0 => c_int) -> Hid), || "cannot create a dataspace".into())
}

fn value_of(attribute: &Object) -> Result<Value> {
    value_in(Raw::of_attribute(attribute)?)
}

fn value_in(mut raw: Raw) -> Result<Value> {
    let datatype = raw.datatype.id;
    let (size, n, start) = (size_of_type(datatype)?, raw.n_values, raw.start().cast::<u8>());
    // SAFETY: `raw` has this many values of this size.
    let bytes = unsafe { std::slice::from_raw_parts(start, n * size) };
    let values = bytes.chunks_exact(size.max(1));
    match class_of(datatype)? {
        STRING if call!(H5Tis_variable_str(datatype => Hid) -> c_int) > 0 => {
            let text_at = |value: &[u8]| {
                let pointer = usize::from_ne_bytes(std::array::from_fn(|i| value[i])) as *const c_char;
                if pointer.is_null() {
                    return String::new();
                }
                // SAFETY: a variable-length string in memory is a pointer to its bytes, which end with a NUL.
                unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
            };
            Ok(Value::Texts(values.map(text_at).collect()))
        }
        STRING => {
            let text_of = |value: &[u8]| {
                let end = value.iter().position(|&b| b == 0).unwrap_or(value.len());
                String::from_utf8_lossy(&value[..end]).into_owned()
            };
            Ok(Value::Texts(values.map(text_of).collect()))
        }
        INTEGER => {
            let is_signed = call!(H5Tget_sign(datatype => Hid) -> c_int) != 0;
            let number = |value: &[u8]| {
                let negative = is_signed && value[size - 1] & 0x80 != 0;
                let number = i64::from_le_bytes(std::array::from_fn(|i| {
                    *value.get(i).unwrap_or(if negative { &0xff } else { &0 })
                }));
                (size <= 8 && (is_signed || number >= 0)).then_some(number)
            };
            Ok(values.map(number).collect::<Option<_>>().map_or(Value::Other, Value::Integers))
        }
        FLOAT => match size {
            4 => Ok(Value::Floats(values.map(|v| f32::from_ne_bytes(std::array::from_fn(|i| v[i])).into()).collect())),
            8 => Ok(Value::Floats(values.map(|v| f64::from_ne_bytes(std::array::from_fn(|i| v[i]))).collect())),
            _ => Ok(Value::Other),
        },
        _ => Ok(Value::Other),
    }
}

impl Dataset {
    /// All values, if they are strings.
    pub fn texts(&self) -> Result<Option<Vec<String>>> {
        if class_of(self.datatype().id)? != STRING {
            return Ok(None);
        }
        Ok(match value_in(Raw::of_dataset(self)?)? {
            Value::Texts(texts) => Some(texts),
            _ => None,
        })
    }

    /// Whether the values are strings of one byte each, which is how NetCDF stores characters.
    pub fn has_characters(&self) -> Result<bool> {
        let id = self.datatype().id;
        Ok(class_of(id)? == STRING && size_of_type(id)? == 1 && call!(H5Tis_variable_str(id => Hid) -> c_int) == 0)
    }

    /// The path of the first dimension scale of each axis, as NetCDF-4 and h5py attach them.
    pub fn dimension_paths(&self) -> Result<Vec<Option<String>>> {
        let mut paths = vec![None; self.shape().len()];
        let Some(attribute) = self.named_attribute("DIMENSION_LIST")? else { return Ok(paths) };
        let mut raw = Raw::of_attribute(&attribute)?;
        if class_of(raw.datatype.id)? != SEQUENCE || raw.n_values != paths.len() {
            return Ok(paths);
        }
        let (size, datatype, start) = (size_of_type(raw.datatype.id)?, raw.datatype.id, raw.start().cast::<u8>());
        for (i, path) in paths.iter_mut().enumerate() {
            let mut find = |reference| {
                if path.is_none() {
                    *path = referenced(self, reference)?;
                }
                Ok(())
            };
            // SAFETY: `raw` has this many values of this type and size.
            unsafe { for_each_reference(datatype, start.add(i * size), &mut find)? };
        }
        Ok(paths)
    }
}

impl Group {
    /// Copies the values into a dataset that was created in this group before. For variable-length strings, sequences and
    /// references, which point into their file and cannot be copied as bytes.
    pub fn copy_pointers_from(&self, source: &Group, name: &str) -> Result<()> {
        let (from, to) = (source.dataset(name)?, self.dataset(name)?);
        let mut raw = Raw::of_dataset(&from)?;
        raw.translate(&from, &to)?;
        let (datatype, pointer) = (raw.datatype.id, raw.start());
        if raw.n_values == 0 {
            return Ok(());
        }
        let written = call!(H5Dwrite(
            to.id => Hid, datatype => Hid, DEFAULT => Hid, DEFAULT => Hid, DEFAULT => Hid, pointer => *const c_void,
        ) -> c_int);
        if written < 0 { Err(failure(|| format!("cannot write {name}"))) } else { Ok(()) }
    }

    /// Opens an object of this group's file by its path, for its attributes.
    pub fn at(&self, path: &str) -> Result<Object> {
        let c_path = c_string(path)?;
        let id = call!(H5Oopen(self.id => Hid, c_path.as_ptr() => *const c_char, DEFAULT => Hid) -> Hid);
        Object::new(id, || format!("cannot open {path}"))
    }
}
