//! A libhdf5 of this process, and its functions. A process can hold several, since each Python package brings its own, and
//! the plugin cannot link to any of them by name. The filter's return address lies in the one that called: from it the
//! dynamic linker finds the file of that library, and its functions. A program without one loads it ([`Library::load`]).

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use pumice::{DType, Error, Result};

use crate::FILTER_ID;
use crate::cd_values::ByteOrder;

/// An identifier of HDF5 1.10 and later.
pub(crate) type Hid = i64;

const FLOAT_CLASS: c_int = 1;
const ORDER_LITTLE: c_int = 0;
const ORDER_BIG: c_int = 1;
const FILL_IS_USER_DEFINED: c_int = 2;
const DEFAULT_ERROR_STACK: Hid = 0;

/// More `cd_values` than any version writes.
const MAX_CD_VALUES: usize = 128;
const MAX_RANK: usize = 32;

/// Looks up a function of a library by its name and type.
macro_rules! function {
    ($library:expr, fn $name:ident($($arg:ty),* $(,)?) -> $out:ty) => {{
        type Function = unsafe extern "C" fn($($arg),*) -> $out;
        let name = concat!(stringify!($name), "\0");
        // SAFETY: HDF5 has kept this signature since 1.10, and both are pointers.
        $library.symbol(name).map(|address| unsafe { std::mem::transmute::<*mut c_void, Function>(address) })
    }};
}
#[cfg(feature = "files")]
pub(crate) use function;

/// A loaded libhdf5.
#[derive(Debug)]
pub(crate) struct Library {
    handle: *mut c_void,
}

// SAFETY: the handle is only given to the dynamic linker, which several threads may call.
unsafe impl Send for Library {}
// SAFETY: as above.
unsafe impl Sync for Library {}

impl Library {
    /// Loads a library by the name or path of its file. Its functions are visible to plugins of other filters, which look
    /// for them in the whole program.
    #[cfg(feature = "files")]
    pub(crate) fn load(file: &CStr) -> Option<Self> {
        // SAFETY: the initialisers of libhdf5 do nothing that could harm a program.
        let handle = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
        if handle.is_null() { None } else { Some(Self { handle }) }
    }

    /// The library whose code contains `address`.
    pub(crate) fn calling(address: *const c_void) -> Result<Self> {
        let unknown = || Error::unsupported("the plugin cannot find the HDF5 library that called it");
        // SAFETY: a structure of pointers, for which zero is valid.
        let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
        // SAFETY: `dladdr` takes any address, and writes to `info` only.
        if unsafe { libc::dladdr(address, &raw mut info) } == 0 || info.dli_fname.is_null() {
            return Err(unknown());
        }
        // SAFETY: the name is that of a loaded object, which stays loaded while its code runs; this loads nothing new.
        let mut handle = unsafe { libc::dlopen(info.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if handle.is_null() {
            // libhdf5 may be linked statically into the program, which `dlopen` does not find by its file.
            // SAFETY: a null name is documented to mean the program.
            handle = unsafe { libc::dlopen(std::ptr::null(), libc::RTLD_LAZY) };
        }
        if handle.is_null() { Err(unknown()) } else { Ok(Self { handle }) }
    }

    /// The address of a symbol; the name ends with a NUL.
    pub(crate) fn symbol(&self, name: &str) -> Result<*mut c_void> {
        // SAFETY: the handle is open, and the name ends with a NUL.
        let address = unsafe { libc::dlsym(self.handle, name.as_ptr().cast()) };
        let shown = name.trim_end_matches('\0');
        if address.is_null() {
            Err(Error::unsupported(format!(
                "HDF5's function {shown} cannot be found. If the program has linked libhdf5 statically: link the shared one \
                 (h5cc -shlib), or pass -rdynamic -Wl,-u,{shown} to the linker"
            )))
        } else {
            Ok(address)
        }
    }

    /// Element type and byte order of a datatype, if it is an IEEE type of 32 or 64 bits.
    pub(crate) fn element_type(&self, datatype: Hid) -> Result<(DType, ByteOrder)> {
        // The first one, since a program that links libhdf5 statically lacks it, unless it is asked for by name.
        let fields = function!(self, fn H5Tget_fields(Hid, *mut usize, *mut usize, *mut usize, *mut usize, *mut usize) -> c_int)?;
        let class = function!(self, fn H5Tget_class(Hid) -> c_int)?;
        let size = function!(self, fn H5Tget_size(Hid) -> usize)?;
        let order = function!(self, fn H5Tget_order(Hid) -> c_int)?;
        let other = |what: &str| {
            Err(Error::unsupported(format!(
                "Pumice compresses 32-bit and 64-bit floats, not {what}: leave the filter out for this dataset"
            )))
        };
        // SAFETY: the library gave this identifier to the filter, and it lives as long as the call.
        let (class, size) = unsafe { (class(datatype), size(datatype)) };
        if class != FLOAT_CLASS {
            return other(match class {
                0 => "integers",
                3 => "strings",
                6 => "compound types",
                8 => "enumerations, which h5py makes of bool",
                10 => "arrays as elements",
                _ => "this type",
            });
        }
        // Sign, exponent, its size, mantissa, its size.
        let mut bits = [0_usize; 5];
        let [a, b, c, d, e] = bits.each_mut().map(std::ptr::from_mut);
        // SAFETY: as above; each pointer is to its own number.
        let (known, order) = unsafe { (fields(datatype, a, b, c, d, e) >= 0, order(datatype)) };
        let dtype = match (size, bits) {
            (4, [31, 23, 8, 0, 23]) if known => DType::F32,
            (8, [63, 52, 11, 0, 52]) if known => DType::F64,
            _ => return other(&format!("floats of {} bits of this kind", 8 * size)),
        };
        match order {
            ORDER_LITTLE => Ok((dtype, ByteOrder::Little)),
            ORDER_BIG => Ok((dtype, ByteOrder::Big)),
            _ => other("floats of mixed byte order"),
        }
    }

    /// The extents of a dataspace.
    pub(crate) fn extents(&self, space: Hid) -> Result<Vec<usize>> {
        let dims = function!(self, fn H5Sget_simple_extent_dims(Hid, *mut u64, *mut u64) -> c_int)?;
        let mut extents = [0_u64; MAX_RANK];
        // SAFETY: no dataspace has more than 32 axes; the documentation allows a null pointer for the maximum extents.
        let rank = unsafe { dims(space, extents.as_mut_ptr(), std::ptr::null_mut()) };
        let rank = usize::try_from(rank).ok().filter(|rank| *rank > 0 && *rank <= MAX_RANK);
        let rank = rank.ok_or_else(|| Error::unsupported("chunks without axes cannot be compressed"))?;
        let extents = extents[..rank].iter().map(|&n| usize::try_from(n));
        extents.collect::<std::result::Result<_, _>>().map_err(|_| Error::unsupported("the chunk is too large"))
    }

    /// Number and name of each filter in a dataset creation property list, in the order in which chunks are written.
    pub(crate) fn filters(&self, dcpl: Hid) -> Result<Vec<(c_int, String)>> {
        let n_filters = function!(self, fn H5Pget_nfilters(Hid) -> c_int)?;
        let get = function!(
            self,
            fn H5Pget_filter2(Hid, c_uint, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint) -> c_int
        )?;
        // SAFETY: the library gave this identifier to the filter.
        let n = c_uint::try_from(unsafe { n_filters(dcpl) }).unwrap_or(0);
        let filter = |i| {
            let (mut flags, mut n_cd_values, mut config, mut name) = (0, 0, 0, [0_u8; 64]);
            let cd_values = std::ptr::null_mut();
            // SAFETY: there is room for no `cd_values` and for 63 bytes of a name, which leaves a NUL at the end.
            let id = unsafe {
                let name = name.as_mut_ptr().cast();
                get(dcpl, i, &raw mut flags, &raw mut n_cd_values, cd_values, 63, name, &raw mut config)
            };
            let name = CStr::from_bytes_until_nul(&name).map(CStr::to_string_lossy).unwrap_or_default();
            match (id, name.is_empty()) {
                (..0, _) => Err(Error::unsupported("the filters of the dataset cannot be read")),
                (_, true) => Ok((id, id.to_string())),
                _ => Ok((id, name.into_owned())),
            }
        };
        (0..n).map(filter).collect()
    }

    /// Flags and `cd_values` of the filter in a dataset creation property list.
    pub(crate) fn cd_values(&self, dcpl: Hid) -> Result<(c_uint, Vec<u32>)> {
        let get = function!(
            self,
            fn H5Pget_filter_by_id2(Hid, c_int, *mut c_uint, *mut usize, *mut c_uint, usize, *mut c_char, *mut c_uint) -> c_int
        )?;
        let mut cd_values = vec![0; MAX_CD_VALUES];
        let (mut flags, mut n, mut config) = (0, cd_values.len(), 0);
        let no_name = std::ptr::null_mut();
        // SAFETY: `n` is the capacity of `cd_values`, and a name of length 0 may be null.
        let got = unsafe {
            get(dcpl, FILTER_ID, &raw mut flags, &raw mut n, cd_values.as_mut_ptr(), 0, no_name, &raw mut config)
        };
        if got < 0 || n > MAX_CD_VALUES {
            return Err(Error::unsupported("the filter's parameters cannot be read"));
        }
        cd_values.truncate(n);
        Ok((flags, cd_values))
    }

    /// Replaces the `cd_values` of the filter.
    pub(crate) fn set_cd_values(&self, dcpl: Hid, flags: c_uint, cd_values: &[u32]) -> Result<()> {
        let modify = function!(self, fn H5Pmodify_filter(Hid, c_int, c_uint, usize, *const c_uint) -> c_int)?;
        // SAFETY: pointer and length are those of one slice.
        let set = unsafe { modify(dcpl, FILTER_ID, flags, cd_values.len(), cd_values.as_ptr()) };
        if set < 0 { Err(Error::unsupported("the filter's parameters cannot be stored")) } else { Ok(()) }
    }

    /// The fill value that the creator of a dataset has set, as bytes of its datatype.
    pub(crate) fn fill_bytes(&self, dcpl: Hid, datatype: Hid) -> Result<Option<[u8; 8]>> {
        let defined = function!(self, fn H5Pfill_value_defined(Hid, *mut c_int) -> c_int)?;
        let value = function!(self, fn H5Pget_fill_value(Hid, Hid, *mut c_void) -> c_int)?;
        let (mut status, mut bytes) = (0, [0_u8; 8]);
        // SAFETY: the datatype is a float of at most 8 bytes, see `element_type`.
        let found = unsafe {
            defined(dcpl, &raw mut status) >= 0
                && status == FILL_IS_USER_DEFINED
                && value(dcpl, datatype, bytes.as_mut_ptr().cast()) >= 0
        };
        Ok(found.then_some(bytes))
    }

    /// Whether the error stack is shown to nobody: the NetCDF library turns its printing off, and has no more to say than "HDF
    /// error". h5py turns it off too, but raises the messages; in Python, symbols of the NetCDF library are not global.
    /// Clears the stack.
    pub(crate) fn hides_errors(&self) -> bool {
        type Printer = *const c_void;
        // SAFETY: the name ends with a NUL.
        let netcdf = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"nc_def_var_filter".as_ptr()) };
        let printer = function!(self, fn H5Eget_auto2(Hid, *mut Printer, *mut *mut c_void) -> c_int);
        let (false, Ok(printer)) = (netcdf.is_null(), printer) else { return false };
        let mut found: Printer = std::ptr::null();
        // SAFETY: the default stack always exists, and the data of its printer is not asked for.
        unsafe { printer(DEFAULT_ERROR_STACK, &raw mut found, std::ptr::null_mut()) >= 0 && found.is_null() }
    }

    /// Pushes a message on the library's error stack, which shows it to users as the cause of the failure. Whether that was
    /// possible.
    pub(crate) fn push_error(&self, message: &str) -> bool {
        // HDF5 2 pauses the stack while it runs filters. Its public functions to resume and pause also clear the stack;
        // the internal ones below do not.
        let (Ok(is_paused), Ok(resume), Ok(pause)) = (
            function!(self, fn H5Eis_paused(Hid, *mut bool) -> c_int),
            function!(self, fn H5E_resume_stack() -> ()),
            function!(self, fn H5E_pause_stack() -> ()),
        ) else {
            return self.push(message);
        };
        let mut n_pauses = 0;
        loop {
            let mut paused = false;
            // SAFETY: the default stack always exists.
            let known = unsafe { is_paused(DEFAULT_ERROR_STACK, &raw mut paused) } >= 0;
            if !known || !paused {
                break;
            }
            // SAFETY: the stack is paused, so it can be resumed.
            unsafe { resume() };
            n_pauses += 1;
        }
        let pushed = self.push(message);
        // SAFETY: restores the pauses that were resumed above.
        (0..n_pauses).for_each(|_| unsafe { pause() });
        pushed
    }

    fn push(&self, message: &str) -> bool {
        type Push =
            unsafe extern "C" fn(Hid, *const c_char, *const c_char, c_uint, Hid, Hid, Hid, *const c_char, ...) -> c_int;
        let (Ok(push), Ok([class, major, minor])) = (self.symbol("H5Epush2\0"), self.error_ids()) else { return false };
        let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
        let (name, format): (&CStr, &CStr) = (c"pumice", c"%s");
        // SAFETY: `H5Epush2` has this signature since 1.8. It copies the strings, which end with a NUL; the one variadic
        // argument matches the format.
        unsafe {
            let push = std::mem::transmute::<*mut c_void, Push>(push);
            let (name, format) = (name.as_ptr(), format.as_ptr());
            push(DEFAULT_ERROR_STACK, name, name, 0, class, major, minor, format, message.as_ptr()) >= 0
        }
    }

    /// The identifiers of HDF5's error class, of "data filters" and of "filter operation failed".
    fn error_ids(&self) -> Result<[Hid; 3]> {
        Ok([self.variable("H5E_ERR_CLS_g\0")?, self.variable("H5E_PLINE_g\0")?, self.variable("H5E_CANTFILTER_g\0")?])
    }

    /// An identifier that the library keeps in a variable; the name ends with a NUL.
    pub(crate) fn variable(&self, name: &str) -> Result<Hid> {
        let address = self.symbol(name)?;
        // SAFETY: callers name variables of this type, which the library has set when it was initialised.
        Ok(unsafe { *address.cast::<Hid>() })
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle came from `dlopen` and is closed once; the library stays loaded, since others hold it.
        unsafe { libc::dlclose(self.handle) };
    }
}
