//! Recognises files of other formats, which are neither raw values nor `.npy`, to say what to use instead.

use std::path::Path;

use pumice::ErrorKind;

use crate::failure::Failure;
use crate::input::{self, PUMICE_MAGIC};
#[cfg(feature = "hdf5")]
use crate::npy;

/// Bytes at the start of a file that tell its format.
pub(crate) const HEAD_BYTES: usize = 8;

/// The error for a file that starts with these bytes, if they are those of another format.
pub(crate) fn refuse(path: &Path, head: &[u8]) -> Option<Failure> {
    // Other programs, and `convert`, cannot read a pipe.
    let (name, saved) = match input::is_stream(path) {
        true => ("FILE".into(), "save it to a FILE; then "),
        false => (path.display().to_string(), ""),
    };
    let (what, hint) = match head {
        _ if head.starts_with(PUMICE_MAGIC) => (
            "compressed by pumice already",
            format!("`pumice decompress {} -o OUT.npy` restores the array, to compress it anew", path.display()),
        ),
        [b'P', b'K', 3 | 5, 4 | 6, ..] => (
            "a .npz file, or another .zip archive, not an array",
            format!(
                "{saved}take an array out of it: python -c \"import numpy; a = numpy.load('{name}'); print(a.files); \
                 numpy.save('OUT.npy', a[a.files[0]])\""
            ),
        ),
        _ if is_hdf5_or_netcdf(head) => (
            "an HDF5 or NetCDF file, not an array",
            format!("{saved}`pumice convert {name} OUT.nc` compresses its variables, each with its own bound"),
        ),
        _ => return None,
    };
    Some(Failure::new(ErrorKind::Unsupported, format!("{} is {what}", input::shown(path))).hint(hint))
}

/// The hint for a file that starts with these bytes, which are not those of a compressed one.
pub(crate) fn not_compressed(head: &[u8]) -> &'static str {
    if is_hdf5_or_netcdf(head) {
        "it is an HDF5 or NetCDF file: `pumice info`, `check` and `convert` read those, but not from a pipe"
    } else {
        "this does not look like a file written by `pumice compress`"
    }
}

fn is_hdf5_or_netcdf(head: &[u8]) -> bool {
    matches!(head, [0x89, b'H', b'D', b'F', ..] | [b'C', b'D', b'F', 1 | 2 | 5, ..])
}

/// The error for the input of a conversion that HDF5 has refused: says what the file is, where its first bytes tell.
#[cfg(feature = "hdf5")]
pub(crate) fn refuse_conversion(path: &Path, head: &[u8], refused: Failure) -> Failure {
    let name = path.display();
    let failure = |what: &str| Failure::new(ErrorKind::Unsupported, format!("{name} is {what}, not HDF5 or NetCDF"));
    let compress = format!("`pumice compress {name} -o OUT.pum` takes a single array, raw or .npy");
    match head {
        [] => failure("empty"),
        _ if head.starts_with(PUMICE_MAGIC) => failure("a Pumice file: it is compressed already")
            .hint(format!("`pumice decompress {name} -o OUT.npy` restores the array")),
        _ if head.starts_with(npy::MAGIC) => failure("a .npy file").hint(compress),
        _ if is_hdf5(head) => refused,
        _ => refused.hint(compress),
    }
}

/// The error for a folder as the input of a conversion.
#[cfg(feature = "hdf5")]
pub(crate) fn refuse_folder_conversion(path: &Path) -> Failure {
    if is_zarr(path) {
        Failure::new(ErrorKind::Unsupported, format!("{} is a Zarr store, which can be an output only", path.display()))
    } else {
        refuse_folder(path)
    }
}

#[cfg(feature = "hdf5")]
fn is_hdf5(head: &[u8]) -> bool {
    head.starts_with(&[0x89, b'H', b'D', b'F'])
}

/// The error for a folder.
pub(crate) fn refuse_folder(path: &Path) -> Failure {
    let name = path.display();
    let failure = Failure::new(ErrorKind::Io, format!("{name} is a directory"));
    if !is_zarr(path) {
        return failure;
    }
    failure.hint(format!(
        "it is a Zarr store: in Python, store its arrays with the codec of pumice.zarr, or save one of them: \
         numpy.save('OUT.npy', zarr.open('{name}')['NAME'][...])"
    ))
}

/// Whether a folder is a Zarr store.
pub(crate) fn is_zarr(path: &Path) -> bool {
    ["zarr.json", ".zgroup", ".zarray"].iter().any(|name| path.join(name).is_file())
}

/// The error for an HDF5 file that is to be recovered: its chunks are streams of their own.
pub(crate) fn refuse_to_recover_hdf5(path: &Path) -> Failure {
    let name = path.display();
    Failure::new(ErrorKind::Unsupported, format!("{name} is an HDF5 or NetCDF-4 file, each chunk of which is a stream"))
        .hint("read its chunks one by one, and leave out those that are errors: docs/hdf5.md, \"Damaged chunks\"")
}

/// The error for a folder that is to be recovered.
pub(crate) fn refuse_to_recover_folder(path: &Path) -> Failure {
    let name = path.display();
    if !is_zarr(path) {
        return Failure::new(ErrorKind::Io, format!("{name} is a directory"));
    }
    Failure::new(ErrorKind::Unsupported, format!("{name} is a Zarr store, each chunk of which is a file of its own"))
        .hint(
            "remove the files of chunks that are errors, and Zarr reads the fill value in their places; \
             `pumice recover` saves what is intact of such a file: docs/hdf5.md, \"Damaged chunks\"",
        )
}
