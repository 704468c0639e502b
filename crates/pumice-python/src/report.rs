//! Results as dictionaries; names are those of the command-line tool's `--json`.

use pumice::metrics::Findings;
use pumice::{Analysis, DType, ErrorBound, Info, Preset, Summary};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

/// A dictionary of these entries.
macro_rules! dict {
    ($py:expr, { $($key:literal: $value:expr),* $(,)? }) => {{
        let dict = PyDict::new($py);
        $(dict.set_item($key, $value)?;)*
        dict
    }};
}

/// NumPy's name of an element type.
pub(crate) fn dtype_name(dtype: DType) -> &'static str {
    match dtype {
        DType::F32 => "float32",
        DType::F64 => "float64",
        _ => unreachable!("every element type has a name"),
    }
}

/// All bounds by kind; of several bounds of one kind, the last is shown.
fn bounds<'py>(py: Python<'py>, bounds: &[ErrorBound]) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    bounds.iter().try_for_each(|bound| dict.set_item(bound.kind().name(), bound.value()))?;
    Ok(dict)
}

pub(crate) fn info<'py>(py: Python<'py>, info: &Info) -> PyResult<Bound<'py, PyDict>> {
    let attributes = PyDict::new(py);
    info.attributes.iter().try_for_each(|(key, value)| attributes.set_item(key, value))?;
    Ok(dict!(py, {
        "version": info.version,
        "dtype": dtype_name(info.dtype),
        "shape": &info.shape,
        "chunk_shape": &info.chunk_shape,
        "n_chunks": info.n_chunks,
        "preset": info.preset.name(),
        "stable": info.stable,
        "bounds": bounds(py, &info.bounds)?,
        "abs_bound": info.abs_bound,
        "fills": &info.fills,
        "attributes": attributes,
        "raw_bytes": info.raw_bytes,
        "compressed_bytes": info.compressed_bytes,
        "ratio": info.raw_bytes as f64 / info.compressed_bytes as f64,
    }))
}

pub(crate) fn summary<'py>(py: Python<'py>, summary: &Summary) -> PyResult<Bound<'py, PyDict>> {
    let target = match &summary.target {
        Some(target) => {
            let (kind, asked) = (target.asked.kind().name(), target.asked.value());
            Some(dict!(py, { "kind": kind, "asked": asked, "value": target.value, "is_close": target.is_close }))
        }
        None => None,
    };
    Ok(dict!(py, {
        "raw_bytes": summary.raw_bytes,
        "compressed_bytes": summary.compressed_bytes,
        "ratio": summary.ratio(),
        "abs_bound": summary.abs_bound,
        "n_chunks": summary.n_chunks,
        "fills": &summary.fills,
        "target": target,
    }))
}

pub(crate) fn comparison<'py>(py: Python<'py>, found: &Findings) -> PyResult<Bound<'py, PyDict>> {
    let total = &found.total;
    Ok(dict!(py, {
        "bound_kept": total.bound_kept(),
        "max_abs_error": total.max_abs_error,
        "max_error_over_bound": total.max_error_over_bound,
        "worst_index": &found.worst,
        "worst_original": found.worst.as_ref().map(|_| total.worst_original),
        "worst_restored": found.worst.as_ref().map(|_| total.worst_restored),
        "psnr": total.psnr,
        "rmse": total.rmse,
        "nrmse": total.nrmse,
        "l2_norm": total.l2_norm,
        "min": total.min,
        "max": total.max,
        "n_values": total.n_values,
        "n_over": total.n_over,
        "n_mismatched_special": total.n_mismatched_special,
    }))
}

pub(crate) fn analysis<'py>(py: Python<'py>, found: &Analysis) -> PyResult<Bound<'py, PyDict>> {
    let (profile, advice) = (&found.profile, &found.advice);
    let estimates = PyList::empty(py);
    for estimate in &found.estimates {
        estimates.append(dict!(py, {
            "preset": estimate.preset.name(),
            "bound_kind": estimate.bound.kind().name(),
            "bound": estimate.bound.value(),
            "abs_bound": estimate.abs_bound,
            "ratio": estimate.ratio,
            "bits_per_value": estimate.bits_per_value,
            "compressed_bytes": estimate.compressed_bytes,
            "exact": estimate.is_exact,
        }))?;
    }
    let smoothness = PyList::empty(py);
    for axis in &found.madograms {
        let lags: Vec<usize> = axis.points.iter().map(|point| point.lag).collect();
        let madogram: Vec<f64> = axis.points.iter().map(|point| point.difference).collect();
        smoothness.append(dict!(py, { "axis": axis.axis, "lags": lags, "madogram": madogram }))?;
    }
    let fills = PyList::empty(py);
    for (value, count) in &profile.fills {
        fills.append(dict!(py, { "value": value, "count": count }))?;
    }
    let hints = PyList::empty(py);
    for hint in &advice.hints {
        hints.append(dict!(py, { "code": hint.code, "text": &hint.text }))?;
    }
    Ok(dict!(py, {
        "dtype": dtype_name(found.dtype),
        "shape": &found.shape,
        "n_values": found.n_values,
        "raw_bytes": found.raw_bytes,
        "chunk_shape": &found.chunk_shape,
        "n_chunks": found.n_chunks,
        "sampled_values": found.sampled_values,
        "values": dict!(py, {
            "min": profile.min,
            "max": profile.max,
            "mean": profile.mean,
            "std_dev": profile.std_dev,
            "n_counted": profile.n_counted,
            "n_nan": profile.n_nan,
            "n_pos_inf": profile.n_pos_inf,
            "n_neg_inf": profile.n_neg_inf,
            "n_zero": profile.n_zero,
            "n_neg_zero": profile.n_neg_zero,
            "n_subnormal": profile.n_subnormal,
            "n_integer": profile.n_integer,
            "fills": fills,
            "is_constant": profile.is_constant(),
            "is_integer": profile.is_integer(),
            "significant_bits": profile.significant_bits,
        }),
        "smoothness": smoothness,
        "estimates": estimates,
        "advice": dict!(py, {
            "speed": advice.speed.map(Preset::name),
            "speed_reason": &advice.speed_reason,
            "ratio": advice.ratio.map(Preset::name),
            "ratio_reason": &advice.ratio_reason,
            "chunking": &advice.chunking,
            "hints": hints,
        }),
    }))
}
