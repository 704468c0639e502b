//! Element type and shape of a raw file, from the arguments or from a name such as `x_30x192x288.f32`, checked against
//! the size of the file. The order of extents is the most common mistake with raw files, so the error for a mismatch
//! explains both orders and lists shapes that fit.

use std::fmt::Write as _;
use std::path::Path;

use pumice::DType;

use crate::cli::LayoutArgs;
use crate::failure::{Failure, Result};
use crate::text;

/// The size of a file may exceed that of its values by this much for a hint that it has a header.
const LONGEST_FOREIGN_HEADER: u64 = 4096;

/// Element type and shape of an array.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    pub(crate) dtype: DType,
    /// Slowest axis first.
    pub(crate) shape: Vec<usize>,
}

impl Layout {
    /// Number of values; `None` if it overflows `usize`.
    pub(crate) fn n_values(&self) -> Option<usize> {
        self.shape.iter().try_fold(1usize, |n, &extent| n.checked_mul(extent))
    }

    /// Size of the values in bytes.
    pub(crate) fn n_bytes(&self) -> Option<u64> {
        self.n_values().and_then(|n| (n as u64).checked_mul(self.dtype.size() as u64))
    }
}

/// The layout of a raw file of this size; an error if the size does not match.
pub(crate) fn of_file(path: &Path, n_bytes: u64, args: &LayoutArgs) -> Result<Layout> {
    let dtype = match args.dtype {
        Some(dtype) => dtype.into(),
        None => dtype_from_name(path).ok_or_else(|| unknown_dtype(path))?,
    };
    let named = shape_from_name(path);
    let shape = shape_from_args(args).or(named).ok_or_else(|| unknown_shape(path, n_bytes, dtype))?;
    let layout = Layout { dtype, shape };
    if layout.n_bytes() == Some(n_bytes) { Ok(layout) } else { Err(mismatch(path, n_bytes, &layout, args)) }
}

/// The layout of a stream, which has neither a name nor a size.
pub(crate) fn of_stream(args: &LayoutArgs) -> Result<Layout> {
    match (args.dtype, shape_from_args(args)) {
        (Some(dtype), Some(shape)) => Ok(Layout { dtype: dtype.into(), shape }),
        _ => Err(Failure::invalid("a stream of raw values needs a type and a shape")
            .hint("give --dtype and --shape (slowest axis first) or --dims (fastest axis first), or send .npy")),
    }
}

/// The shape of the arguments, slowest axis first.
pub(crate) fn shape_from_args(args: &LayoutArgs) -> Option<Vec<usize>> {
    let reversed = || args.dims.as_ref().map(|dims| dims.0.iter().rev().copied().collect());
    args.shape.as_ref().map(|shape| shape.0.clone()).or_else(reversed)
}

fn dtype_from_name(path: &Path) -> Option<DType> {
    match path.extension()?.to_str()?.to_ascii_lowercase().as_str() {
        "f32" | "f4" | "float32" => Some(DType::F32),
        "f64" | "f8" | "float64" | "d64" => Some(DType::F64),
        _ => None,
    }
}

/// The shape in a file name: the last part that is numbers joined by `x`, or one number right before the extension.
fn shape_from_name(path: &Path) -> Option<Vec<usize>> {
    let stem = path.file_stem()?.to_str()?;
    let parts: Vec<&str> = stem.split(['_', '-', '.']).collect();
    let extents = |part: &str| part.split('x').map(|n| n.parse().ok()).collect::<Option<Vec<usize>>>();
    let joined = parts.iter().rev().find_map(|part| extents(part).filter(|e| e.len() > 1));
    // A name that is only a number is a serial number, not an extent.
    let single = || parts.last().filter(|_| parts.len() > 1).and_then(|part| extents(part));
    joined.or_else(single)
}

fn unknown_dtype(path: &Path) -> Failure {
    Failure::invalid(format!("{}: the element type is unknown", path.display())).hint("give --dtype f32 or --dtype f64")
}

fn unknown_shape(path: &Path, n_bytes: u64, dtype: DType) -> Failure {
    let n_values = n_bytes / dtype.size() as u64;
    Failure::invalid(format!("{}: the shape is unknown", path.display()))
        .hint("give --shape (slowest axis first, as NumPy) or --dims (fastest axis first, as SZ and zfp)")
        .hint(format!("the file has {n_values} values of {dtype}; as a plain list that is --shape {n_values}"))
}

fn mismatch(path: &Path, n_bytes: u64, layout: &Layout, args: &LayoutArgs) -> Failure {
    let Layout { dtype, shape } = layout;
    let reversed: Vec<usize> = shape.iter().rev().copied().collect();
    let asked = match (&args.shape, &args.dims) {
        (Some(_), _) => format!("--shape {}", text::join(shape, ",")),
        (None, Some(_)) => format!("--dims {}", text::join(&reversed, ",")),
        (None, None) => format!("the name, {},", text::join(shape, "x")),
    };
    let size = dtype.size() as u64;
    let mut message = format!("{}: the shape does not match the size of the file", path.display());
    let remainder = if n_bytes.is_multiple_of(size) { String::new() } else { format!(" and {} bytes", n_bytes % size) };
    let _ = write!(message, "\n  the file has {n_bytes} bytes = {} values of {dtype}{remainder}", n_bytes / size);
    match (layout.n_values(), layout.n_bytes()) {
        (Some(values), Some(bytes)) => {
            let _ = write!(message, "\n  {asked} needs {values} values = {bytes} bytes");
        }
        _ => message += &format!("\n  {asked} needs more values than can be addressed"),
    }
    if shape.len() > 1 {
        let typed = if args.dims.is_some() { &reversed } else { shape };
        let _ = write!(
            message,
            "\n  {} read as --shape (slowest axis first, NumPy): {}",
            text::join(typed, ","),
            nested(typed.iter())
        );
        let _ = write!(
            message,
            "\n  {} read as --dims (fastest axis first, SZ, zfp): {}",
            text::join(typed, ","),
            nested(typed.iter().rev())
        );
        message += "\n  both orders have the same number of values, so one of the extents (or the type) must be wrong";
    }
    suggestions(n_bytes, layout).into_iter().fold(Failure::invalid(message), Failure::hint)
}

/// Extents in words: `30 planes of 192 rows of 288 values`.
fn nested<'a>(extents: impl ExactSizeIterator<Item = &'a usize>) -> String {
    let n = extents.len();
    let name = |axis: usize| match n - 1 - axis {
        0 => "values",
        1 => "rows",
        2 => "planes",
        _ => "blocks",
    };
    extents.enumerate().map(|(axis, e)| format!("{e} {}", name(axis))).collect::<Vec<_>>().join(" of ")
}

/// Hints at layouts that fit: another element type, another extent of one axis, or a header.
fn suggestions(n_bytes: u64, layout: &Layout) -> Vec<String> {
    let Layout { dtype, shape } = layout;
    let mut hints = Vec::new();
    let other = if *dtype == DType::F32 { DType::F64 } else { DType::F32 };
    if (Layout { dtype: other, shape: shape.clone() }).n_bytes() == Some(n_bytes) {
        hints.push(format!("with --dtype {other} the shape fits"));
    }
    let size = dtype.size() as u64;
    if !n_bytes.is_multiple_of(size) {
        hints.push(format!("the file is not a whole number of {dtype} values: is it complete, and is it raw?"));
        return hints;
    }
    let fitting: Vec<String> = (0..shape.len()).filter_map(|axis| refit(n_bytes / size, shape, axis)).collect();
    if !fitting.is_empty() {
        hints.push(format!("these fit: {}", fitting.join("  or  ")));
    }
    match layout.n_bytes() {
        Some(needed) if n_bytes > needed && n_bytes - needed <= LONGEST_FOREIGN_HEADER => {
            let extra = n_bytes - needed;
            hints.push(format!("the {extra} extra bytes may be a header: `tail -c +{} FILE` removes it", extra + 1));
        }
        _ => {}
    }
    hints
}

/// The shape with this axis changed so that it has `n_values` values.
fn refit(n_values: u64, shape: &[usize], axis: usize) -> Option<String> {
    let others = shape.iter().enumerate().filter(|(a, _)| *a != axis);
    let product = others.into_iter().try_fold(1u64, |n, (_, &extent)| n.checked_mul(extent as u64))?;
    if product == 0 || n_values == 0 || !n_values.is_multiple_of(product) {
        return None;
    }
    let mut fitting: Vec<u64> = shape.iter().map(|&n| n as u64).collect();
    fitting[axis] = n_values / product;
    Some(format!("--shape {}", text::join(&fitting, ",")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::Extents;

    fn named(name: &str) -> Option<Vec<usize>> {
        shape_from_name(Path::new(name))
    }

    #[test]
    fn names_give_the_shape() {
        assert_eq!(named("x_30x192x288.f32"), Some(vec![30, 192, 288]));
        assert_eq!(named("dir/wmag_128x128x128_t05.f64"), Some(vec![128, 128, 128]));
        assert_eq!(named("gals19_x_1235904.f32"), Some(vec![1_235_904]));
        assert_eq!(named("adk_solv_x_10x47681.f32"), Some(vec![10, 47681]));
        assert_eq!(named("x.f32"), None);
        assert_eq!(named("2020.f32"), None);
        assert_eq!(named("max.f32"), None);
    }

    #[test]
    fn arguments_win_over_the_name() {
        let args = LayoutArgs { shape: Some(Extents(vec![6, 4])), ..LayoutArgs::default() };
        let layout = of_file(Path::new("x_2x12.f32"), 96, &args).unwrap();
        assert_eq!(layout, Layout { dtype: DType::F32, shape: vec![6, 4] });
        let args = LayoutArgs { dims: Some(Extents(vec![6, 4])), ..LayoutArgs::default() };
        assert_eq!(of_file(Path::new("x_2x12.f32"), 96, &args).unwrap().shape, [4, 6]);
    }

    #[test]
    fn suggestions_name_what_fits() {
        let layout = Layout { dtype: DType::F32, shape: vec![30, 192, 289] };
        let hints = suggestions(6_635_520, &layout).join("\n");
        assert!(hints.contains("--shape 30,192,288"), "{hints}");
        let half = Layout { dtype: DType::F32, shape: vec![10, 10] };
        assert!(suggestions(800, &half)[0].contains("--dtype f64"));
        assert!(suggestions(401, &half)[0].contains("whole number"));
        assert!(suggestions(528, &half).last().unwrap().contains("tail -c +129"));
    }

    #[test]
    fn enormous_shapes_do_not_overflow() {
        let args = LayoutArgs { shape: Some(Extents(vec![usize::MAX, usize::MAX])), ..LayoutArgs::default() };
        assert!(of_file(Path::new("x.f32"), 96, &args).is_err());
    }
}
