//! Parameters of the HDF5 filter, and chunks that are written without it. The filter itself is a plugin, which programs need
//! not link.

use std::ffi::{c_uint, c_void};

use pumice::{Error, ErrorKind};
use pumice_hdf5::{CdValues, FilterOptions};

use crate::arguments::{OutPointer, shared, slice, slice_mut};
use crate::buffer::Buffer;
use crate::config::Config;
use crate::status::{Status, guard};

/// The filter's number in HDF5, from the range for testing.
pub const HDF5_FILTER_ID: i32 = 480;
const _: () = assert!(HDF5_FILTER_ID == pumice_hdf5::FILTER_ID);
/// As many cd_values as any config has, and some more for later releases.
pub const HDF5_MAX_CD_VALUES: usize = 32;

/// The parameters that H5Pset_filter() and nc_def_var_filter() take for the filter of HDF5: writes `n` of them to
/// `cd_values`, which has room for `capacity`, such as PUMICE_HDF5_MAX_CD_VALUES. The filter compresses each chunk of a
/// dataset on its own: several bounds, regions, bins, a chunk shape and attributes are refused, and threads ignored.
/// PUMICE_STATUS_LIMIT_EXCEEDED if there are more.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_hdf5_cd_values(
    config: *const Config,
    cd_values: *mut c_uint,
    capacity: usize,
    n: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (config, out, n) = unsafe {
            (shared(config, "config")?, slice_mut(cd_values, capacity, "cd_values")?, OutPointer::new(n, "n")?)
        };
        let found = CdValues { options: FilterOptions::of(&config.0)?, chunk_type: None }.to_vec();
        let place = out.get_mut(..found.len()).ok_or_else(|| {
            Error::new(
                ErrorKind::LimitExceeded,
                format!("there are {} cd_values, but room for {capacity}", found.len()),
            )
        })?;
        place.copy_from_slice(&found);
        n.set(found.len());
        Ok(())
    })
}

/// Compresses a chunk of a dataset, to a new buffer with the bytes that the filter would store: for H5Dwrite_chunk() with a
/// filter mask of 0, so that chunks can be compressed by any threads and ranks. `cd_values` are those of the created dataset,
/// by H5Pget_filter_by_id2(), to which the filter has added type and shape. `values` are the part of the chunk that lies within
/// the dataset, in its type and byte order; `count` are the extents of the part, less than those of the chunk only at the edge
/// of the dataset. The rest is padded as HDF5 does it. `threads` as for a config.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pumice_hdf5_compress_chunk(
    cd_values: *const c_uint,
    n_cd_values: usize,
    values: *const c_void,
    rank: usize,
    count: *const usize,
    n_bytes: usize,
    threads: usize,
    buffer: *mut *mut Buffer,
) -> Status {
    guard(|| {
        // SAFETY: as the caller promises.
        let (cd_values, values, count, buffer) = unsafe {
            (
                slice(cd_values, n_cd_values, "cd_values")?,
                slice(values.cast::<u8>(), n_bytes, "values")?,
                slice(count, rank, "count")?,
                OutPointer::new(buffer, "buffer")?,
            )
        };
        buffer.set(Buffer::new(pumice_hdf5::encode_part(cd_values, values, count, threads)?));
        Ok(())
    })
}
