//! Filters of other projects, such as zstd and Blosc, that the chunks of a file need: finds their plugins, and names those
//! that are missing.

use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use pumice::{Error, Result};

use super::{Dataset, call, failure};
use crate::library::Hid;

/// Numbers and names of filters, as registered with the HDF Group; the first are those of HDF5 itself.
const FILTERS: [(c_int, &str); 16] = [
    (1, "deflate"),
    (2, "shuffle"),
    (3, "fletcher32"),
    (4, "szip"),
    (5, "nbit"),
    (6, "scaleoffset"),
    (307, "bzip2"),
    (LZF, "lzf"),
    (32001, "blosc"),
    (32004, "lz4"),
    (32008, "bitshuffle"),
    (32013, "zfp"),
    (32015, "zstd"),
    (32017, "sz"),
    (32024, "sz3"),
    (32026, "blosc2"),
];
const LZF: c_int = 32000;
/// Filters with smaller numbers are part of HDF5.
const FIRST_PLUGIN: c_int = 256;
const NAME_BYTES: usize = 64;
const MAX_FILTERS: u32 = 32;

/// Prints where the Python package hdf5plugin has its plugins. It is not imported, since that would load a libhdf5, and
/// modules of the current folder are not considered.
const FIND_PLUGINS: &str = "\
import sys
sys.path[:] = [folder for folder in sys.path if folder]
import importlib.util
found = importlib.util.find_spec('hdf5plugin')
print(found.submodule_search_locations[0] + '/plugins' if found else '', end='')";

impl Dataset {
    /// Fails, with advice, if the chunks need a filter that HDF5 does not find. Looks for plugins where HDF5 does
    /// (`HDF5_PLUGIN_PATH`), then in the package hdf5plugin of the `python3` on the path.
    pub fn require_filters(&self) -> Result<()> {
        for (id, name) in self.filters()? {
            let is_found = is_available(id)? || id >= FIRST_PLUGIN && add_python_plugins()? && is_available(id)?;
            if !is_found {
                return Err(Error::unsupported(missing(id, &name)));
            }
        }
        Ok(())
    }

    /// Numbers and names of the filters of the chunks.
    fn filters(&self) -> Result<Vec<(c_int, String)>> {
        let properties = self.creation_properties()?;
        let n = call!(H5Pget_nfilters(properties.id => Hid) -> c_int);
        let n = u32::try_from(n).map_err(|_| failure(|| "cannot read the filters"))?;
        let mut found = Vec::new();
        for at in 0..n.min(MAX_FILTERS) {
            let (mut flags, mut n_values, mut config) = (0, 0, 0);
            let (flags, n_values, config) = (&raw mut flags, &raw mut n_values, &raw mut config);
            let mut name = [0_u8; NAME_BYTES];
            let (text, values) = (name.as_mut_ptr().cast(), std::ptr::null_mut());
            let id = call!(H5Pget_filter2(
                properties.id => Hid, at => c_uint, flags => *mut c_uint, n_values => *mut usize, values => *mut c_uint,
                NAME_BYTES => usize, text => *mut c_char, config => *mut c_uint,
            ) -> c_int);
            if id < 0 {
                return Err(failure(|| "cannot read the filters"));
            }
            let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
            let stored = String::from_utf8_lossy(&name[..end]).into_owned();
            let known = FILTERS.iter().find(|(number, _)| *number == id).map(|(_, name)| (*name).to_string());
            found.push((id, known.unwrap_or(stored)));
        }
        Ok(found)
    }
}

fn is_available(id: c_int) -> Result<bool> {
    Ok(call!(H5Zfilter_avail(id => c_int) -> c_int) > 0)
}

/// Adds the plugins of the Python package hdf5plugin to the places where HDF5 looks; `false` if there are none.
fn add_python_plugins() -> Result<bool> {
    static ADDED: OnceLock<bool> = OnceLock::new();
    if let Some(added) = ADDED.get() {
        return Ok(*added);
    }
    let output = Command::new("python3").args(["-c", FIND_PLUGINS]).stderr(Stdio::null()).stdin(Stdio::null()).output();
    let folder = output.ok().filter(|output| output.status.success() && !output.stdout.is_empty());
    let added = match folder.and_then(|output| CString::new(output.stdout).ok()) {
        // In front: HDF5 1.10 looks no further than the first folder that does not exist, such as its default.
        Some(folder) => call!(H5PLprepend(folder.as_ptr() => *const c_char) -> c_int) >= 0,
        None => false,
    };
    Ok(*ADDED.get_or_init(|| added))
}

fn missing(id: c_int, name: &str) -> String {
    let needed = format!("its chunks are compressed by the filter {id} ({name})");
    match id {
        ..FIRST_PLUGIN => {
            format!("{needed}, which this HDF5 library was built without: use another one, by PUMICE_LIBHDF5")
        }
        LZF => format!("{needed}, which only h5py has: copy the data there, with another filter"),
        _ => format!(
            "{needed}, for which there is no plugin: install it (pip install hdf5plugin, for the python3 on the path), or name \
             its folder by HDF5_PLUGIN_PATH"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_is_named() {
        assert!(missing(32015, "zstd").starts_with("its chunks are compressed by the filter 32015 (zstd), for which"));
        assert!(missing(32000, "lzf").contains("only h5py has"));
        assert!(missing(4, "szip").contains("built without"));
    }
}
