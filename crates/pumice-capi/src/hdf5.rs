//! Parameters of the HDF5 filter. The filter itself is a plugin, which programs need not link.

use std::ffi::c_uint;

use pumice::{Error, ErrorKind};
use pumice_hdf5::{CdValues, FilterOptions};

use crate::arguments::{OutPointer, shared, slice_mut};
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
