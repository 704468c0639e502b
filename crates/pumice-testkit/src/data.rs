//! The arrays of docs/data.md, which are not part of the repository: `cargo xtask corpus` makes them. A test that needs
//! them says so and passes where they are absent.

use crate::{DType, Float, check};
use std::path::{Path, PathBuf};

/// One file of raw little-endian values.
#[derive(Clone, Debug)]
pub struct DataFile {
    /// File name.
    pub name: String,
    /// Where it is.
    pub path: PathBuf,
    /// Element type.
    pub dtype: DType,
    /// Extents, slowest first.
    pub shape: Vec<usize>,
    /// Remarks of the index, such as `FILL(-1e+10,0.2%)`.
    pub flags: String,
}

impl DataFile {
    /// All values.
    pub fn read<T: Float>(&self) -> Vec<T> {
        let bytes = std::fs::read(&self.path).unwrap_or_else(|e| panic!("{}: {e}", self.path.display()));
        let values: Vec<T> = check::values(&bytes);
        assert_eq!(values.len(), self.shape.iter().product(), "{}", self.name);
        values
    }
}

/// The f32 arrays without fill values whose ratios must not get worse. All folders of real data have them, bit for bit the
/// same, so that the least ratios do not depend on the folder.
pub const RATED: [&str; 17] = [
    "adk_solv_vel_4x47681x3.f32",
    "adk_solv_x_10x47681.f32",
    "cesm_CLOUD_30x192x288.f32",
    "cesm_PRECT_20x192x288.f32",
    "cesm_TS30_30x192x288.f32",
    "cesmse_TS_12x48602.f32",
    "cobrotoxin_force_3x19385x3.f32",
    "cosmo_HSURF_438x450.f32",
    "echam_t3d_17x96x192.f32",
    "egm96_geoid_721x1440.f32",
    "eur11_tas_412x424.f32",
    "fice_120x49x100.f32",
    "galsMr19_x_1235904.f32",
    "hst_flt_1024x1024.f32",
    "t1_brain_91x109x91.f32",
    "vorticity_41x128x128.f32",
    "wmag_128x128x128.f32",
];

/// The folder of real data: `$PUMICE_DATA`, else what `cargo xtask corpus` has made in the target folder, else
/// `../shared/data` beside the repository. `None`, with a line that says so, where there is none.
///
/// # Panics
/// If `$PUMICE_DATA` has no INDEX.tsv: a name mistyped must not pass for a test.
pub fn folder() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into());
    let named = std::env::var_os("PUMICE_DATA").map(PathBuf::from);
    let found = first_with_index(named, &[root.join(target).join("corpus"), root.join("../shared/data")]);
    if found.is_none() {
        println!("skipped: there is no real data here; `cargo xtask corpus` makes it, or PUMICE_DATA names its folder");
    }
    found
}

fn first_with_index(named: Option<PathBuf>, others: &[PathBuf]) -> Option<PathBuf> {
    let has_index = |folder: &&PathBuf| folder.join("INDEX.tsv").is_file();
    if let Some(named) = named {
        assert!(has_index(&&named), "PUMICE_DATA is {}, which has no INDEX.tsv", named.display());
        return Some(named);
    }
    others.iter().find(has_index).cloned()
}

/// The files that `INDEX.tsv` lists in [`folder`].
pub fn files() -> Option<Vec<DataFile>> {
    files_in(&folder()?)
}

/// The files that `INDEX.tsv` lists in a folder. `None`, with a line that says so, where there is no index.
pub fn files_in(folder: &Path) -> Option<Vec<DataFile>> {
    let Ok(index) = std::fs::read_to_string(folder.join("INDEX.tsv")) else {
        println!("skipped: no INDEX.tsv in {}", folder.display());
        return None;
    };
    Some(index.lines().skip(1).map(|line| parse(line, folder)).collect())
}

fn parse(line: &str, folder: &Path) -> DataFile {
    let columns: Vec<&str> = line.split('\t').collect();
    let dtype = match columns[1] {
        "f32" => DType::F32,
        "f64" => DType::F64,
        other => panic!("unknown element type {other}"),
    };
    let shape = columns[2].split('x').map(|n| n.parse().expect("an extent")).collect();
    let (name, flags) = (columns[0].to_owned(), columns[7].to_owned());
    DataFile { path: folder.join(&name), name, dtype, shape, flags }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("pumice-testkit-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    #[test]
    fn the_first_folder_with_an_index_is_taken() {
        let (empty, full) = (made("empty"), made("full"));
        let line = "a_2x3.f32\tf32\t2x3\t0\t0\t1\t0\tFILL(1,2.0%)\torigin\tlicence\tshows\tsha256\n";
        std::fs::write(full.join("INDEX.tsv"), format!("heading\n{line}")).unwrap();
        assert_eq!(first_with_index(None, std::slice::from_ref(&empty)), None);
        assert_eq!(first_with_index(None, &[empty.clone(), full.clone()]), Some(full.clone()));
        assert_eq!(first_with_index(Some(full.clone()), std::slice::from_ref(&empty)), Some(full.clone()));
        assert!(std::panic::catch_unwind(|| first_with_index(Some(empty.clone()), &[])).is_err());
        let files = files_in(&full).unwrap();
        assert_eq!((files[0].name.as_str(), files[0].shape.as_slice()), ("a_2x3.f32", [2, 3].as_slice()));
        [empty, full].iter().for_each(|folder| std::fs::remove_dir_all(folder).unwrap());
    }
}
