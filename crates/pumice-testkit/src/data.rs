//! The real fields of `shared/data`, which are not part of the repository: a test that needs them says so and passes
//! where they are absent.

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

/// The files that `INDEX.tsv` lists, from `$PUMICE_DATA` or `../shared/data` beside the workspace. `None`, with a line
/// that says so, where there are none.
pub fn files() -> Option<Vec<DataFile>> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data");
    files_in(&std::env::var_os("PUMICE_DATA").map_or(beside, PathBuf::from))
}

/// The same from this folder.
pub fn files_in(folder: &Path) -> Option<Vec<DataFile>> {
    let Ok(index) = std::fs::read_to_string(folder.join("INDEX.tsv")) else {
        println!("skipped: no INDEX.tsv in {}; set PUMICE_DATA", folder.display());
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
