//! Reads and writes HDF5 files through a libhdf5 that is loaded at run time, so that a program needs none to build or to
//! start.
//!
//! A libhdf5 need not be thread-safe. Every call from here holds one lock, so that threads can share these types.

mod attributes;
mod create;
mod dataset;
mod filters;

use std::ffi::{CStr, CString, OsString, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use pumice::{Error, ErrorKind, Result};

pub use attributes::Value;
pub use create::{ElementType, Layout};
pub use dataset::{Dataset, Integer};

use crate::filter::{FilterClass, filter_class};
use crate::library::{Hid, Library, function};

/// The environment variable with the file of the libhdf5 to use.
const PATH_VARIABLE: &str = "PUMICE_LIBHDF5";
/// The names to try without it: those of Debian, those of conda and others, newest first, and those of macOS.
const NAMES: [&CStr; 13] = [
    c"libhdf5_serial.so.310",
    c"libhdf5_serial.so.103",
    c"libhdf5.so.320",
    c"libhdf5.so.310",
    c"libhdf5.so.200",
    c"libhdf5.so.103",
    c"libhdf5_serial.so",
    c"libhdf5.so",
    c"libhdf5_openmpi.so.103",
    c"libhdf5_mpich.so.103",
    c"libhdf5.dylib",
    c"/opt/homebrew/lib/libhdf5.dylib",
    c"/usr/local/lib/libhdf5.dylib",
];

const DEFAULT: Hid = 0;
const READ_ONLY: c_uint = 0;
const TRUNCATE: c_uint = 2;
const BY_NAME: c_int = 0;
const BY_CREATION: c_int = 1;
const INCREASING: c_int = 0;
const OUTERMOST_FIRST: c_int = 1;
const COPY_WITHOUT_ATTRIBUTES: c_uint = 0x10;
const COPY_MERGING_TYPES: c_uint = 0x20;

fn lock() -> MutexGuard<'static, ()> {
    static LOCK: Mutex<()> = Mutex::new(());
    LOCK.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Calls a function of the library: `call!(H5Gopen2(id => Hid, …) -> Hid)`.
macro_rules! call {
    ($name:ident($($value:expr => $arg:ty),* $(,)?) -> $out:ty) => {{
        let function = $crate::library::function!($crate::files::library()?, fn $name($($arg),*) -> $out)?;
        let _one_at_a_time = $crate::files::lock();
        // SAFETY: the lock lets one thread at a time into the library. `Object` keeps identifiers open, strings end with a
        // NUL, and pointers are to as much memory as the arguments beside them say.
        unsafe { function($($value),*) }
    }};
}
use call;

/// The library of this process, loaded on first use.
fn library() -> Result<&'static Library> {
    static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
    let load = || load(std::env::var_os(PATH_VARIABLE).filter(|path| !path.is_empty()), &NAMES);
    LIBRARY.get_or_init(load).as_ref().map_err(|message| Error::unsupported(message.clone()))
}

/// Loads the given library, or else the first of these names that can be loaded.
fn load(given: Option<OsString>, names: &[&CStr]) -> std::result::Result<Library, String> {
    let library = match &given {
        Some(path) => CString::new(path.as_encoded_bytes()).ok().and_then(|path| Library::load(&path)),
        None => names.iter().find_map(|name| Library::load(name)),
    };
    let library = library.ok_or_else(|| match given {
        Some(path) => format!("{PATH_VARIABLE}={} cannot be loaded as a library", path.display()),
        None => format!(
            "HDF5 and NetCDF-4 files need the HDF5 library, which was not found: install libhdf5-103-1 (Debian), hdf5 (conda, \
             Homebrew), or name its file by {PATH_VARIABLE}"
        ),
    })?;
    let prepared = || -> Result<bool> {
        // At exit the library would write files once more that could not be closed, and crash. All others are closed.
        let no_exit_handler = function!(library, fn H5dont_atexit() -> c_int)?;
        let open = function!(library, fn H5open() -> c_int)?;
        let silence = function!(library, fn H5Eset_auto2(Hid, *const c_void, *const c_void) -> c_int)?;
        let register = function!(library, fn H5Zregister(*const FilterClass) -> c_int)?;
        let _one_at_a_time = lock();
        // SAFETY: null pointers turn printing off, as documented; the filter's class is constant.
        Ok(unsafe {
            no_exit_handler();
            open() >= 0 && silence(DEFAULT, std::ptr::null(), std::ptr::null()) >= 0 && register(filter_class()) >= 0
        })
    };
    match prepared() {
        Ok(true) => Ok(library),
        Ok(false) => Err("the HDF5 library refuses the filter".into()),
        Err(e) => Err(format!("{e}: it is older than HDF5 1.10, or not HDF5")),
    }
}

/// Version of the library.
pub fn version() -> Result<[u32; 3]> {
    let mut version = [0; 3];
    let [a, b, c] = version.each_mut().map(std::ptr::from_mut);
    call!(H5get_libversion(a => *mut c_uint, b => *mut c_uint, c => *mut c_uint) -> c_int);
    Ok(version)
}

/// One entry of the library's error stack, as `H5E_error2_t` starts.
#[repr(C)]
struct Entry {
    class: Hid,
    major: Hid,
    minor: Hid,
    line: c_uint,
    function: *const c_char,
    file: *const c_char,
    description: *const c_char,
}

/// The error stack of the last call: its messages from the outermost to the innermost, and whether a filter failed on
/// bytes that were read.
#[derive(Default)]
struct Stack {
    messages: Vec<String>,
    /// "Data filters" and "read failed", as the library numbers them.
    of_filters: Option<(Hid, Hid)>,
    is_of_filter: bool,
}

impl Stack {
    fn read() -> Self {
        type Collect = unsafe extern "C" fn(c_uint, *const Entry, *mut c_void) -> c_int;
        unsafe extern "C" fn collect(_: c_uint, entry: *const Entry, stack: *mut c_void) -> c_int {
            // SAFETY: HDF5 passes an entry of its stack, whose texts end with a NUL, and the pointer named below.
            unsafe {
                let (entry, stack) = (&*entry, &mut *stack.cast::<Stack>());
                stack.is_of_filter |= stack.of_filters == Some((entry.major, entry.minor));
                if !entry.description.is_null() {
                    stack.messages.push(CStr::from_ptr(entry.description).to_string_lossy().into_owned());
                }
            }
            0
        }
        let numbers = |library: &Library| -> Result<(Hid, Hid)> {
            Ok((library.variable("H5E_PLINE_g\0")?, library.variable("H5E_READERROR_g\0")?))
        };
        let mut stack = Stack { of_filters: library().and_then(numbers).ok(), ..Self::default() };
        let pointer = (&raw mut stack).cast();
        let walk = || -> Result<c_int> {
            Ok(
                call!(H5Ewalk2(DEFAULT => Hid, OUTERMOST_FIRST => c_int, collect => Collect, pointer => *mut c_void) -> c_int),
            )
        };
        // Without a stack there are no messages.
        let _ = walk();
        stack
    }

    /// What the outermost and the innermost message say.
    fn why(&self) -> String {
        match self.messages.as_slice() {
            [first, .., last] => format!("{first} ({})", system_message(last)),
            [only] => system_message(only).into(),
            [] => "the HDF5 library does not say why".into(),
        }
    }
}

/// What the system said, where HDF5 quotes it among numbers and addresses; otherwise the whole message.
fn system_message(message: &str) -> &str {
    let quoted = message.split_once("error message = '").and_then(|(_, rest)| rest.split_once('\''));
    quoted.map_or(message, |(quoted, _)| quoted)
}

/// The library's last failure as an error. Reads the error stack before it asks what failed, since calls for a name clear
/// the stack.
fn failure<D: std::fmt::Display>(what: impl FnOnce() -> D) -> Error {
    let stack = Stack::read();
    let kind = match crate::filter::last_error() {
        Some(kind) if stack.is_of_filter => kind,
        None if stack.is_of_filter => ErrorKind::Corrupt,
        _ => ErrorKind::Io,
    };
    Error::new(kind, format!("{}: {}", what(), stack.why()))
}

/// Zeros, or an error where the system has no memory for so many: files can claim any size.
fn zeros<T: Clone + Default>(n: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    let message = || format!("the system has no memory for {n} values of {} bytes", size_of::<T>());
    values.try_reserve_exact(n).map_err(|_| Error::new(ErrorKind::LimitExceeded, message()))?;
    values.resize(n, T::default());
    Ok(values)
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("a zero byte in {text:?}")))
}

fn c_path(path: &Path) -> Result<CString> {
    let bytes = path.as_os_str().as_encoded_bytes();
    CString::new(bytes)
        .map_err(|_| Error::new(ErrorKind::InvalidArgument, format!("a zero byte in {}", path.display())))
}

/// The text that a function of HDF5 writes: `get` is called with a buffer and its size, and returns the text's length.
fn text(mut get: impl FnMut(*mut c_char, usize) -> Result<isize>) -> Result<String> {
    let length = usize::try_from(get(std::ptr::null_mut(), 0)?).map_err(|_| failure(|| "cannot read a name"))?;
    let mut bytes = vec![0_u8; length + 1];
    get(bytes.as_mut_ptr().cast(), bytes.len())?;
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(|_| Error::unsupported("a name that is not UTF-8"))
}

/// An open identifier of the library; closed on drop.
#[derive(Debug)]
pub struct Object {
    id: Hid,
}

impl Object {
    /// Takes ownership of an identifier that the library returned; a negative one is a failure.
    fn new(id: Hid, what: impl FnOnce() -> String) -> Result<Self> {
        if id < 0 { Err(failure(what)) } else { Ok(Self { id }) }
    }

    /// A new property list of this class; the name ends with a NUL.
    fn properties(class: &str) -> Result<Self> {
        let class = library()?.variable(class)?;
        Self::new(call!(H5Pcreate(class => Hid) -> Hid), || "cannot create a property list".into())
    }

    /// Turns time stamps off, so that the same values give the same bytes.
    fn forget_times(&self) -> Result<()> {
        let untracked = 0;
        let set = call!(H5Pset_obj_track_times(self.id => Hid, untracked => c_uint) -> c_int);
        if set < 0 { Err(failure(|| "cannot turn time stamps off")) } else { Ok(()) }
    }

    /// The path of the object in its file.
    pub fn path(&self) -> Result<String> {
        text(|buffer, n| Ok(call!(H5Iget_name(self.id => Hid, buffer => *mut c_char, n => usize) -> isize)))
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        let close = || -> Result<c_int> { Ok(call!(H5Idec_ref(self.id => Hid) -> c_int)) };
        // A failure here cannot be handled; `Group::finish` closes what was written.
        let _ = close();
    }
}

/// What a link in a group leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Link {
    /// A group.
    Group,
    /// A dataset.
    Dataset,
    /// A named datatype.
    Datatype,
    /// A soft link: the path of an object that need not exist.
    Soft(String),
    /// An object in another file, or of an unknown kind.
    Other,
}

/// A file, or a group in it.
#[derive(Debug)]
pub struct Group {
    object: Object,
    /// Keeps the file open, for its root.
    file: Option<Object>,
}

impl std::ops::Deref for Group {
    type Target = Object;

    fn deref(&self) -> &Object {
        &self.object
    }
}

impl Group {
    fn root(file: Hid, path: &Path) -> Result<Self> {
        let file = Object::new(file, || format!("{}", path.display()))?;
        let root = call!(H5Gopen2(file.id => Hid, c"/".as_ptr() => *const c_char, DEFAULT => Hid) -> Hid);
        Ok(Self { object: Object::new(root, || format!("{}", path.display()))?, file: Some(file) })
    }

    /// Opens a file for reading; the group is its root.
    pub fn open_file(path: &Path) -> Result<Self> {
        let name = c_path(path)?;
        let id = call!(H5Fopen(name.as_ptr() => *const c_char, READ_ONLY => c_uint, DEFAULT => Hid) -> Hid);
        Self::root(id, path)
    }

    /// Creates a file whose root keeps its members in the same order as this group; replaces an existing file.
    pub fn create_file_like(&self, path: &Path) -> Result<Self> {
        let name = c_path(path)?;
        let properties = Object::properties("H5P_CLS_FILE_CREATE_ID_g\0")?;
        let like = call!(H5Gget_create_plist(self.id => Hid) -> Hid);
        let like = Object::new(like, || "cannot read properties of the root".into())?;
        let mut flags = 0;
        if call!(H5Pget_link_creation_order(like.id => Hid, &raw mut flags => *mut c_uint) -> c_int) >= 0 {
            call!(H5Pset_link_creation_order(properties.id => Hid, flags => c_uint) -> c_int);
        }
        if call!(H5Pget_attr_creation_order(like.id => Hid, &raw mut flags => *mut c_uint) -> c_int) >= 0 {
            call!(H5Pset_attr_creation_order(properties.id => Hid, flags => c_uint) -> c_int);
        }
        properties.forget_times()?;
        let id = call!(H5Fcreate(name.as_ptr() => *const c_char, TRUNCATE => c_uint, properties.id => Hid, DEFAULT => Hid) -> Hid);
        Self::root(id, path)
    }

    /// Flushes and closes the file; the group must be its root.
    pub fn finish(self) -> Result<()> {
        let Some(file) = self.file else { return Ok(()) };
        drop(self.object);
        let flushed = call!(H5Fflush(file.id => Hid, 1 => c_int) -> c_int);
        if flushed < 0 {
            return Err(failure(|| "cannot write the file"));
        }
        // Closing still writes, and cuts the file to its size.
        let id = ManuallyDrop::new(file).id;
        let closed = call!(H5Fclose(id => Hid) -> c_int);
        if closed < 0 { Err(failure(|| "cannot close the file")) } else { Ok(()) }
    }

    /// Names and kinds of the members, in the order of their creation if the file keeps it.
    pub fn links(&self) -> Result<Vec<(String, Link)>> {
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            storage: c_int,
            n_links: u64,
            max_order: i64,
            is_mounted: bool,
        }
        let mut info = Info::default();
        if call!(H5Gget_info(self.id => Hid, &raw mut info => *mut Info) -> c_int) < 0 {
            return Err(failure(|| "cannot list a group"));
        }
        let name_at = |index: c_int, n: u64| {
            text(|buffer, size| {
                Ok(call!(H5Lget_name_by_idx(
                    self.id => Hid, c".".as_ptr() => *const c_char, index => c_int, INCREASING => c_int,
                    n => u64, buffer => *mut c_char, size => usize, DEFAULT => Hid,
                ) -> isize))
            })
        };
        let index = if info.n_links > 0 && name_at(BY_CREATION, 0).is_ok() { BY_CREATION } else { BY_NAME };
        (0..info.n_links).map(|n| name_at(index, n).and_then(|name| Ok((name.clone(), self.link(&name)?)))).collect()
    }

    fn link(&self, name: &str) -> Result<Link> {
        let c_name = c_string(name)?;
        // In all versions H5L_info_t starts with the kind of link and is smaller than this.
        let mut info = [0_u64; 16];
        let (pointer, c_name) = (info.as_mut_ptr(), c_name.as_ptr());
        let newest = || -> Result<c_int> {
            Ok(
                call!(H5Lget_info2(self.id => Hid, c_name => *const c_char, pointer => *mut u64, DEFAULT => Hid) -> c_int),
            )
        };
        let got = match newest() {
            Ok(got) => got,
            Err(_) => {
                call!(H5Lget_info(self.id => Hid, c_name => *const c_char, pointer => *mut u64, DEFAULT => Hid) -> c_int)
            }
        };
        match (got, info[0] as u32) {
            (0.., 0) => {
                let object = call!(H5Oopen(self.id => Hid, c_name => *const c_char, DEFAULT => Hid) -> Hid);
                let object = Object::new(object, || format!("cannot open {name}"))?;
                Ok(match call!(H5Iget_type(object.id => Hid) -> c_int) {
                    2 => Link::Group,
                    3 => Link::Datatype,
                    5 => Link::Dataset,
                    _ => Link::Other,
                })
            }
            (0.., 1) => {
                let mut value = vec![0_u8; 1 << 16];
                let (buffer, size) = (value.as_mut_ptr(), value.len() - 1);
                let got = call!(H5Lget_val(self.id => Hid, c_name => *const c_char, buffer => *mut u8, size => usize, DEFAULT => Hid) -> c_int);
                let target = CStr::from_bytes_until_nul(&value).ok().and_then(|target| target.to_str().ok());
                Ok(target.filter(|_| got >= 0).map_or(Link::Other, |target| Link::Soft(target.into())))
            }
            _ => Ok(Link::Other),
        }
    }

    /// Opens a group in this one.
    pub fn group(&self, name: &str) -> Result<Self> {
        let c_name = c_string(name)?;
        let id = call!(H5Gopen2(self.id => Hid, c_name.as_ptr() => *const c_char, DEFAULT => Hid) -> Hid);
        Ok(Self { object: Object::new(id, || format!("cannot open {name}"))?, file: None })
    }

    /// Opens a dataset in this group.
    pub fn dataset(&self, name: &str) -> Result<Dataset> {
        let c_name = c_string(name)?;
        let id = call!(H5Dopen2(self.id => Hid, c_name.as_ptr() => *const c_char, DEFAULT => Hid) -> Hid);
        Dataset::new(Object::new(id, || format!("cannot open {name}"))?)
    }

    /// Creates a group with the properties of another.
    pub fn create_group_like(&self, name: &str, like: &Group) -> Result<Self> {
        let c_name = c_string(name)?;
        let properties = call!(H5Gget_create_plist(like.id => Hid) -> Hid);
        let properties = Object::new(properties, || format!("cannot read the properties of {name}"))?;
        properties.forget_times()?;
        let id = call!(H5Gcreate2(self.id => Hid, c_name.as_ptr() => *const c_char, DEFAULT => Hid, properties.id => Hid, DEFAULT => Hid) -> Hid);
        Ok(Self { object: Object::new(id, || format!("cannot create the group {name}"))?, file: None })
    }

    /// Creates a soft link.
    pub fn create_soft_link(&self, name: &str, target: &str) -> Result<()> {
        let (c_name, c_target) = (c_string(name)?, c_string(target)?);
        let made = call!(H5Lcreate_soft(
            c_target.as_ptr() => *const c_char, self.id => Hid, c_name.as_ptr() => *const c_char, DEFAULT => Hid, DEFAULT => Hid,
        ) -> c_int);
        if made < 0 { Err(failure(|| format!("cannot create the link {name}"))) } else { Ok(()) }
    }

    /// Copies a dataset or a named datatype as it is stored, without its attributes.
    pub fn copy_from(&self, source: &Group, name: &str) -> Result<()> {
        let c_name = c_string(name)?;
        let properties = Object::properties("H5P_CLS_OBJECT_COPY_ID_g\0")?;
        call!(H5Pset_copy_object(properties.id => Hid, COPY_WITHOUT_ATTRIBUTES | COPY_MERGING_TYPES => c_uint) -> c_int);
        let copied = call!(H5Ocopy(
            source.id => Hid, c_name.as_ptr() => *const c_char, self.id => Hid, c_name.as_ptr() => *const c_char,
            properties.id => Hid, DEFAULT => Hid,
        ) -> c_int);
        if copied < 0 { Err(failure(|| format!("cannot copy {name}"))) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_a_long_message_the_words_of_the_system_are_kept() {
        let written = "file write failed: errno = 27, error message = 'File too large', buf = 0x55d0, offset = 2048";
        assert_eq!(system_message(written), "File too large");
        assert_eq!(system_message("inflate() failed"), "inflate() failed");
    }

    #[test]
    fn the_error_for_a_missing_library_says_how_to_install_it() {
        let message = load(None, &[c"libhdf5.so.of.nobody"]).unwrap_err();
        assert!(message.contains("install libhdf5") && message.contains(PATH_VARIABLE), "{message}");
        let message = load(Some("/no/libhdf5.so".into()), &NAMES).unwrap_err();
        assert_eq!(message, "PUMICE_LIBHDF5=/no/libhdf5.so cannot be loaded as a library");
    }
}
