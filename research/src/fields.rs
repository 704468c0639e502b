//! A folder of fields: raw little-endian values in files that end in `.f32` or `.f64`.

use std::fs;
use std::path::{Path, PathBuf};

use pumice_testkit::check::values;

use crate::Result;

/// One file. Names such as `cesm_TS30_30x192x288.f32` say which data set it belongs to and its extents.
#[derive(Clone, Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    path: PathBuf,
    is_f64: bool,
}

/// The values of a field, of its element type.
pub(crate) enum Values {
    F32(Vec<f32>),
    F64(Vec<f64>),
}

/// All fields of a folder, by name.
pub(crate) fn in_folder(folder: &Path) -> Result<Vec<Field>> {
    let entries = fs::read_dir(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut fields = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let is_f64 = path.extension().is_some_and(|e| e == "f64");
        if let (true, Some(name)) = (is_f64 || path.extension().is_some_and(|e| e == "f32"), path.file_stem()) {
            fields.push(Field { name: name.to_string_lossy().into_owned(), path: path.clone(), is_f64 });
        }
    }
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    if fields.is_empty() { Err(format!("{}: no .f32 or .f64 files", folder.display())) } else { Ok(fields) }
}

impl Field {
    /// The name up to its first underscore.
    pub(crate) fn data_set(&self) -> &str {
        self.name.split('_').next().unwrap_or(&self.name)
    }

    /// Size of the values.
    pub(crate) fn raw_bytes(&self) -> Result<u64> {
        fs::metadata(&self.path).map(|m| m.len()).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    pub(crate) fn read(&self) -> Result<Values> {
        let bytes = fs::read(&self.path).map_err(|e| format!("{}: {e}", self.path.display()))?;
        Ok(if self.is_f64 { Values::F64(values(&bytes)) } else { Values::F32(values(&bytes)) })
    }

    /// The extents at the end of the name, if they match the number of values; otherwise a single axis.
    pub(crate) fn extents(&self, n_values: usize) -> Vec<usize> {
        let last = self.name.rsplit('_').next().unwrap_or_default();
        let named: Option<Vec<usize>> = last.split('x').map(|extent| extent.parse().ok()).collect();
        named.filter(|extents| extents.iter().product::<usize>() == n_values).unwrap_or_else(|| vec![n_values])
    }
}

/// Evaluates an expression with a field's values and extents, for either element type.
macro_rules! with_values {
    ($field:expr, |$values:ident, $extents:ident| $body:expr) => {
        match $field.read()? {
            $crate::fields::Values::F32($values) => {
                let $extents = $field.extents($values.len());
                $body
            }
            $crate::fields::Values::F64($values) => {
                let $extents = $field.extents($values.len());
                $body
            }
        }
    };
}
pub(crate) use with_values;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_what_is_in_a_file() {
        let field = |name: &str| Field { name: name.into(), path: PathBuf::new(), is_f64: false };
        assert_eq!(field("cesm_TS30_30x192").data_set(), "cesm");
        assert_eq!(field("cesm_TS30_30x192").extents(5760), [30, 192]);
        assert_eq!(field("cesm_TS30_30x192").extents(5761), [5761]);
        assert_eq!((field("x").data_set(), field("x").extents(3)), ("x", vec![3]));
    }
}
