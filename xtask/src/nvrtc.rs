//! NVRTC, NVIDIA's compiler from CUDA C++ to PTX, loaded at run time: the few functions of `nvrtc.h` that a compilation
//! takes, behind one safe type.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr;

use libloading::Library;

use crate::shell::Result;

/// The release that crates/pumice-gpu/requirements.txt pins.
const RELEASE: (c_int, c_int) = (12, 4);

/// A file: the name by which others include it, and its text.
pub(crate) struct Source {
    pub(crate) name: String,
    pub(crate) text: String,
}

/// `nvrtcResult`; 0 is success.
type Status = c_int;
/// `nvrtcProgram`.
type Handle = *mut c_void;
type CreateProgram = unsafe extern "C" fn(
    *mut Handle,
    *const c_char,
    *const c_char,
    c_int,
    *const *const c_char,
    *const *const c_char,
) -> Status;
type Size = unsafe extern "C" fn(Handle, *mut usize) -> Status;
type Text = unsafe extern "C" fn(Handle, *mut c_char) -> Status;

/// The functions of the library, named as in `nvrtc.h`.
pub(crate) struct Nvrtc {
    create_program: CreateProgram,
    compile_program: unsafe extern "C" fn(Handle, c_int, *const *const c_char) -> Status,
    destroy_program: unsafe extern "C" fn(*mut Handle) -> Status,
    get_error_string: unsafe extern "C" fn(Status) -> *const c_char,
    get_program_log: (Size, Text),
    get_ptx: (Size, Text),
    /// The functions point into these libraries, which must stay loaded.
    _libraries: [Library; 2],
}

impl Nvrtc {
    /// From the folder of its two libraries. The built-in headers are loaded by their path first: NVRTC asks for them
    /// by name only, and would take those of another toolkit in `LD_LIBRARY_PATH`.
    pub(crate) fn load(folder: &Path) -> Result<Self> {
        let (major, minor) = RELEASE;
        let builtins = load_library(&folder.join(format!("libnvrtc-builtins.so.{major}.{minor}")))?;
        let library = load_library(&folder.join(format!("libnvrtc.so.{major}")))?;
        // SAFETY: the types are those that nvrtc.h declares under these names, the same in all releases.
        let loaded = unsafe { Self::with_functions(library, builtins) };
        loaded.map_err(|e| format!("{}: {e}", folder.display()))
    }

    /// # Safety
    /// `library` must be NVRTC.
    unsafe fn with_functions(library: Library, builtins: Library) -> Result<Self> {
        macro_rules! function {
            ($name:literal) => {
                // SAFETY: the caller vouches for the library, and the field that takes the function gives its type.
                unsafe { *library.get($name).map_err(|e| e.to_string())? }
            };
        }
        let version: unsafe extern "C" fn(*mut c_int, *mut c_int) -> Status = function!(c"nvrtcVersion");
        let nvrtc = Self {
            create_program: function!(c"nvrtcCreateProgram"),
            compile_program: function!(c"nvrtcCompileProgram"),
            destroy_program: function!(c"nvrtcDestroyProgram"),
            get_error_string: function!(c"nvrtcGetErrorString"),
            get_program_log: (function!(c"nvrtcGetProgramLogSize"), function!(c"nvrtcGetProgramLog")),
            get_ptx: (function!(c"nvrtcGetPTXSize"), function!(c"nvrtcGetPTX")),
            _libraries: [library, builtins],
        };
        let (mut major, mut minor) = (0, 0);
        // SAFETY: both pointers are to integers of the right size.
        nvrtc.check(unsafe { version(&mut major, &mut minor) })?;
        if (major, minor) == RELEASE { Ok(nvrtc) } else { Err(format!("this is NVRTC {major}.{minor}")) }
    }

    /// Release, such as `12.4`.
    pub(crate) fn version(&self) -> String {
        format!("{}.{}", RELEASE.0, RELEASE.1)
    }

    /// The PTX of a kernel file. Compiler messages become part of the error; warnings are printed.
    pub(crate) fn compile(&self, kernel: &Source, headers: &[Source], options: &[&str]) -> Result<String> {
        let failed = |e: String| format!("{}: {e}", kernel.name);
        let program = Program::new(self, kernel, headers).map_err(failed)?;
        let options = Strings::new(options.iter().copied()).map_err(failed)?;
        // SAFETY: the program is live and the array holds as many strings as is said.
        let status = unsafe { (self.compile_program)(program.handle, options.len(), options.as_ptr()) };
        let log = program.text(self.get_program_log).map_err(failed)?;
        self.check(status).map_err(|e| failed(format!("{e}\n{log}")))?;
        if !log.trim().is_empty() {
            println!("{}", log.trim_end());
        }
        program.text(self.get_ptx).map_err(failed)
    }

    fn check(&self, status: Status) -> Result {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: takes any number, and returns a string that is never freed.
        let text = unsafe { CStr::from_ptr((self.get_error_string)(status)) };
        Err(text.to_string_lossy().into_owned())
    }
}

fn load_library(path: &Path) -> Result<Library> {
    // SAFETY: the initialisers of NVIDIA's libraries make no demands on the process.
    unsafe { Library::new(path) }.map_err(|e| format!("NVRTC cannot be loaded from {}: {e}", path.display()))
}

/// A program of NVRTC, destroyed when it is dropped.
struct Program<'a> {
    nvrtc: &'a Nvrtc,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(nvrtc: &'a Nvrtc, kernel: &Source, headers: &[Source]) -> Result<Self> {
        let [name, text] = [&kernel.name, &kernel.text].map(|s| c_string(s));
        let (name, text) = (name?, text?);
        let names = Strings::new(headers.iter().map(|header| header.name.as_str()))?;
        let texts = Strings::new(headers.iter().map(|header| header.text.as_str()))?;
        let mut handle = ptr::null_mut();
        // SAFETY: all strings end with a NUL and outlive the call, which copies them; the arrays are as long as said.
        let status = unsafe {
            let (texts, names) = (texts.as_ptr(), names.as_ptr());
            (nvrtc.create_program)(&mut handle, text.as_ptr(), name.as_ptr(), headers.len() as c_int, texts, names)
        };
        nvrtc.check(status)?;
        Ok(Self { nvrtc, handle })
    }

    /// A text that NVRTC returns in two calls: first its size including the NUL, then its bytes.
    fn text(&self, (get_size, get_text): (Size, Text)) -> Result<String> {
        let mut size = 0;
        // SAFETY: the program is live, and the pointer is to a size.
        self.nvrtc.check(unsafe { get_size(self.handle, &mut size) })?;
        let mut bytes = vec![0_u8; size];
        // SAFETY: the program is live, and there is room for as many bytes as it has asked for.
        self.nvrtc.check(unsafe { get_text(self.handle, bytes.as_mut_ptr().cast()) })?;
        bytes.truncate(size.saturating_sub(1));
        String::from_utf8(bytes).map_err(|e| format!("NVRTC's text is not UTF-8: {e}"))
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the handle came from `create_program` and is not used any more. A failure only leaks memory.
        unsafe { (self.nvrtc.destroy_program)(&mut self.handle) };
    }
}

/// An array of C strings, as functions of C take it.
struct Strings {
    /// What `pointers` point to.
    _strings: Vec<CString>,
    pointers: Vec<*const c_char>,
}

impl Strings {
    fn new<'a>(strings: impl Iterator<Item = &'a str>) -> Result<Self> {
        let strings = strings.map(c_string).collect::<Result<Vec<_>>>()?;
        let pointers = strings.iter().map(|string| string.as_ptr()).collect();
        Ok(Self { _strings: strings, pointers })
    }

    fn len(&self) -> c_int {
        self.pointers.len() as c_int
    }

    fn as_ptr(&self) -> *const *const c_char {
        self.pointers.as_ptr()
    }
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| "a zero byte in a source".to_owned())
}
