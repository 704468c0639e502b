//! Golden files: streams that every later release must decode to the same bits, and the hashes of what the encoder
//! writes today.
//!
//! ```text
//! assets/golden/v1/{case}.pum          written once, never edited
//! assets/golden/v1/manifest.toml       generator, seed, config and hash of the decoded bits of each
//! assets/golden/encoder-hashes.toml    hash of the compressed bytes: the same for every instruction set and thread count
//! assets/golden-errors/{case}.pum      hostile files
//! assets/golden-errors/manifest.toml   the kind of error each must give
//! ```
//!
//! The first three are made from [`CASES`]. `UPDATE_GOLDEN=1` lets the tests write files that are absent and change the
//! encoder's hashes; nothing ever changes an existing file.

use crate::DType;
use crate::fields::Field;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use toml::{Table, Value};

/// Largest golden file.
pub const MAX_BYTES: usize = 64 << 10;

/// What is asked of the encoder.
#[derive(Clone, Copy, Debug)]
pub enum Bound {
    /// Absolute.
    Abs(f64),
    /// Relative to the value range.
    Rel(f64),
    /// Relative to each value.
    PwRel(f64),
    /// Bit for bit.
    Lossless,
    /// At least this PSNR in dB.
    Psnr(f64),
    /// At most this L2 norm of the error.
    L2(f64),
    /// At least this ratio.
    Ratio(f64),
}

impl Bound {
    fn in_words(self) -> String {
        match self {
            Bound::Abs(e) => format!("abs {e:e}"),
            Bound::Rel(e) => format!("rel {e:e}"),
            Bound::PwRel(e) => format!("pwrel {e:e}"),
            Bound::Psnr(db) => format!("psnr {db:e}"),
            Bound::L2(norm) => format!("l2 {norm:e}"),
            Bound::Ratio(ratio) => format!("ratio {ratio:e}"),
            Bound::Lossless => "lossless".into(),
        }
    }
}

/// An input and what is asked for it.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// File name without extension.
    pub name: &'static str,
    /// What the values are made of.
    pub field: Field,
    /// Seed of the field.
    pub seed: u64,
    /// Element type.
    pub dtype: DType,
    /// Extents, slowest first.
    pub shape: &'static [usize],
    /// The preset, by its name on the command line.
    pub preset: &'static str,
    /// Whether values are put on a lattice that the bound sets.
    pub stable: bool,
    /// The error bound.
    pub bound: Bound,
    /// Bounds that hold as well.
    pub also: &'static [Bound],
    /// Boxes, as start and end along each axis, with bounds of their own.
    pub regions: &'static [(&'static [(usize, usize)], Bound)],
    /// Extents of bins; none means that all values are kept.
    pub bin: &'static [usize],
    /// Fill value named by the user.
    pub fill: Option<f64>,
    /// Value range named by the user.
    pub range: Option<(f64, f64)>,
    /// Chunk extents named by the user; none means the default.
    pub chunk: &'static [usize],
    /// Rows of each writing session; none means one call with the whole array.
    pub sessions: &'static [usize],
    /// Attributes.
    pub attributes: &'static [(&'static str, &'static str)],
    /// Boxes, as start and end along each axis, that are written again, each with another field of the same kind.
    pub rewrites: &'static [&'static [(usize, usize)]],
    /// What the values are made of that the codebook is trained with; `None` if there is no codebook.
    pub trained: Option<Field>,
}

impl Case {
    const fn new(name: &'static str, field: Field, dtype: DType, shape: &'static [usize], bound: Bound) -> Self {
        Self {
            name,
            field,
            seed: 1,
            dtype,
            shape,
            preset: "fast",
            stable: false,
            bound,
            also: &[],
            regions: &[],
            bin: &[],
            fill: None,
            range: None,
            chunk: &[],
            sessions: &[],
            attributes: &[],
            rewrites: &[],
            trained: None,
        }
    }

    const fn balanced(self) -> Self {
        self.preset("balanced")
    }

    const fn small(self) -> Self {
        self.preset("small")
    }

    const fn max(self) -> Self {
        self.preset("max")
    }

    const fn preset(self, preset: &'static str) -> Self {
        Self { preset, ..self }
    }

    const fn stable(self) -> Self {
        Self { stable: true, ..self }
    }

    const fn chunk(self, chunk: &'static [usize]) -> Self {
        Self { chunk, ..self }
    }

    const fn trained(self, field: Field) -> Self {
        Self { trained: Some(field), ..self.preset("balanced") }
    }

    const fn sessions(self, sessions: &'static [usize]) -> Self {
        Self { sessions, ..self }
    }

    /// The configuration in words.
    fn config(&self) -> String {
        let mut text = self.bound.in_words();
        self.also.iter().for_each(|bound| text += &format!("; and {}", bound.in_words()));
        self.regions.iter().for_each(|(ranges, bound)| text += &format!("; region {ranges:?} {}", bound.in_words()));
        // `fast` was there first.
        if self.preset != "fast" {
            text += &format!("; preset {}", self.preset);
        }
        text += if self.stable { "; stable" } else { "" };
        text += &self.fill.map_or(String::new(), |fill| format!("; fill {fill:e}"));
        text += &self.range.map_or(String::new(), |(min, max)| format!("; range {min:e},{max:e}"));
        for (what, extents) in [("bin", self.bin), ("chunk", self.chunk), ("sessions", self.sessions)] {
            if !extents.is_empty() {
                text += &format!("; {what} {extents:?}");
            }
        }
        text += &self.trained.map_or(String::new(), |field| format!("; codebook of {field:?}"));
        self.rewrites.iter().for_each(|ranges| text += &format!("; again {ranges:?}"));
        self.attributes.iter().for_each(|(key, value)| text += &format!("; attribute {key}: {value}"));
        text
    }
}

use Bound::{Abs, L2, Lossless, Psnr, PwRel, Ratio, Rel};
use DType::{F32, F64};

/// Every feature of the format, in arrays that are as small as possible.
pub const CASES: &[Case] = &[
    Case::new("smooth_1d_f32", Field::Smooth, F32, &[5000], Abs(1e-3)),
    Case::new("smooth_2d_f32", Field::Smooth, F32, &[70, 65], Rel(1e-3)),
    Case::new("smooth_3d_f64", Field::Smooth, F64, &[9, 30, 41], Rel(1e-6)),
    Case::new("smooth_4d_f64", Field::Smooth, F64, &[3, 5, 17, 20], Abs(1e-4)),
    Case::new("smooth_6d_f32", Field::Smooth, F32, &[2, 3, 2, 5, 7, 9], Rel(1e-3)),
    Case::new("smooth_8d_f64", Field::Smooth, F64, &[1, 2, 1, 3, 2, 3, 2, 5], Rel(1e-3)),
    Case::new("turbulence_3d_f32", Field::Turbulence, F32, &[20, 33, 40], Rel(1e-2)),
    Case::new("turbulence_2d_f64", Field::Turbulence, F64, &[60, 90], Abs(1e-5)),
    Case::new("walk_1d_f32", Field::Walk, F32, &[4500], Rel(1e-4)),
    Case::new("walk_1d_f64", Field::Walk, F64, &[3000], Abs(1e-2)),
    Case::new("noise_f32", Field::Noise, F32, &[50, 100], Abs(1e-2)),
    Case::new("parabola_f32", Field::Parabola, F32, &[9000], Abs(1e-3)),
    Case::new("parabola_f64", Field::Parabola, F64, &[5000], Abs(1e-6)),
    Case::new("lag_3_f32", Field::Interleaved, F32, &[2000, 3], Abs(1e-2)),
    Case::new("lag_1d_f64", Field::Interleaved, F64, &[5000], Abs(1e-2)),
    Case::new("wide_base_f64", Field::OffsetRamp, F64, &[4200], Abs(1e-6)),
    Case::new("offset_ramp_f32", Field::OffsetRamp, F32, &[4200], Abs(0.5)),
    Case::new("sparse_f32", Field::Sparse, F32, &[10, 40, 60], Abs(1e-3)),
    Case::new("sparse_f64", Field::Sparse, F64, &[9000], Rel(1e-3)),
    Case::new("zero_f32", Field::Zero, F32, &[100, 100], Abs(1e-3)),
    Case::new("constant_f32", Field::Constant, F32, &[100, 100], Abs(1e-3)),
    Case::new("constant_lossless_f64", Field::Constant, F64, &[9, 500], Lossless),
    Case::new("spikes_f32", Field::Spikes, F32, &[90, 100], Abs(1e-3)),
    Case::new("spikes_f64", Field::Spikes, F64, &[40, 100], Abs(1e-3)),
    Case::new("mixed_magnitudes_f32", Field::MixedMagnitudes, F32, &[3000], Abs(1e-3)),
    Case::new("subnormal_f32", Field::Subnormal, F32, &[3000], Abs(1e-42)),
    Case::new("subnormal_f64", Field::Subnormal, F64, &[800], Abs(1e-310)),
    Case::new("specials_f32", Field::Specials, F32, &[30, 100], Rel(1e-3)),
    Case::new("specials_f64", Field::Specials, F64, &[30, 100], Rel(1e-3)),
    Case::new("specials_lossless_f32", Field::Specials, F32, &[30, 100], Lossless),
    Case::new("all_nan_f32", Field::AllNan, F32, &[70, 70], Rel(1e-3)),
    Case::new("one_fill_f32", Field::Patches, F32, &[60, 90], Rel(1e-3)),
    Case::new("one_fill_f64", Field::Patches, F64, &[5000], Rel(1e-3)),
    Case { fill: Some(1e20), ..Case::new("named_fill_f32", Field::Patches, F32, &[4096], Abs(1e-3)) },
    Case::new("two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)),
    Case::new("two_fills_f64", Field::TwoFills, F64, &[8, 20, 30], Rel(1e-3)),
    Case { fill: Some(1e36), ..Case::new("fill_and_nan_f32", Field::TwoFills, F32, &[60, 90], Abs(1e-3)) },
    Case::new("exact_f32", Field::Smooth, F32, &[40, 110], Lossless),
    Case::new("exact_f64", Field::Smooth, F64, &[40, 110], Lossless),
    Case::new("raw_tile_f32", Field::HalfRandom, F32, &[12000], Lossless),
    Case::new("raw_tile_f64", Field::HalfRandom, F64, &[7000], Lossless),
    Case::new("raw_chunk_f32", Field::AnyBits, F32, &[500], Lossless),
    Case::new("raw_chunk_f64", Field::AnyBits, F64, &[300], Abs(1e-3)),
    Case::new("one_value_f32", Field::Constant, F32, &[1], Abs(1e-3)),
    Case::new("rank_0_f64", Field::Constant, F64, &[], Lossless),
    Case::new("empty_f32", Field::Zero, F32, &[4, 0, 3], Rel(1e-3)),
    Case { range: Some((-5.0, 5.0)), ..Case::new("named_range_f32", Field::Smooth, F32, &[70, 65], Rel(1e-3)) },
    Case {
        attributes: &[("units", "K"), ("naïve name", "Ωμέγα")],
        ..Case::new("attributes_f32", Field::Smooth, F32, &[1, 1, 900], Abs(1e-3))
    },
    Case::new("chunked_1d_f64", Field::Walk, F64, &[9001], Rel(1e-3)).chunk(&[4000]),
    Case::new("chunked_3d_f32", Field::Smooth, F32, &[30, 50, 31], Abs(1e-3)).chunk(&[13, 50, 17]),
    Case {
        attributes: &[("name", "kept twice")],
        ..Case::new("header_copy_f64", Field::Smooth, F64, &[30, 50, 5], Abs(1e-3)).chunk(&[20, 50, 5])
    },
    Case::new("chunked_fills_f32", Field::Patches, F32, &[170, 200], Rel(1e-2)).chunk(&[60, 140]),
    Case::new("sessions_f32", Field::Smooth, F32, &[190, 100], Abs(1e-3)).chunk(&[80, 100]).sessions(&[90, 1, 99]),
    Case::new("sessions_f64", Field::Specials, F64, &[50, 120], Abs(1e-2)).chunk(&[40, 110]).sessions(&[10, 40]),
    Case::new("sessions_default_chunks_f32", Field::Walk, F32, &[60, 50], Abs(1e-1)).sessions(&[20, 40]),
    // `small`: 4096 values or more are coded by rANS, fewer by mixing; streams are wide from about 6 KB on.
    Case::new("small_smooth_1d_f32", Field::Smooth, F32, &[9000], Abs(1e-3)).small(),
    Case::new("small_smooth_1d_f64", Field::Smooth, F64, &[6000], Rel(1e-7)).small(),
    Case::new("small_smooth_2d_f32", Field::Smooth, F32, &[90, 110], Rel(1e-3)).small(),
    Case::new("small_smooth_3d_f64", Field::Smooth, F64, &[20, 30, 41], Rel(1e-6)).small(),
    Case::new("small_smooth_4d_f32", Field::Smooth, F32, &[6, 9, 17, 20], Abs(1e-4)).small(),
    Case::new("small_smooth_5d_f64", Field::Smooth, F64, &[3, 4, 5, 12, 20], Rel(1e-3)).small(),
    Case::new("small_smooth_8d_f32", Field::Smooth, F32, &[2, 3, 2, 3, 2, 3, 4, 17], Rel(1e-3)).small(),
    Case::new("small_turbulence_2d_f64", Field::Turbulence, F64, &[60, 90], Abs(1e-5)).small(),
    Case::new("small_turbulence_3d_f32", Field::Turbulence, F32, &[20, 33, 40], Rel(1e-2)).small(),
    Case::new("small_rough_axis_f32", Field::Oscillating, F32, &[7, 11, 300], Rel(1e-3)).small(),
    Case::new("small_walk_f32", Field::Walk, F32, &[9000], Rel(1e-4)).small(),
    Case::new("small_walk_f64", Field::Walk, F64, &[70, 80], Abs(1e-2)).small(),
    Case::new("small_noise_f32", Field::Noise, F32, &[60, 100], Abs(1e-2)).small(),
    Case::new("small_steps_f32", Field::Steps, F32, &[40, 150], Rel(1e-3)).small(),
    Case::new("small_oscillating_f32", Field::Oscillating, F32, &[6000], Rel(1e-3)).small(),
    Case::new("small_short_rows_f32", Field::Interleaved, F32, &[3000, 3], Abs(1e-2)).small(),
    Case::new("small_short_rows_f64", Field::Smooth, F64, &[5, 300, 2, 3], Rel(1e-4)).small(),
    Case::new("small_sparse_f32", Field::Sparse, F32, &[10, 40, 60], Abs(1e-3)).small(),
    Case::new("small_constant_f32", Field::Constant, F32, &[100_000], Abs(1e-3)).small(),
    Case::new("small_zero_f64", Field::Zero, F64, &[80, 70], Abs(1e-3)).small(),
    Case::new("small_spikes_f32", Field::Spikes, F32, &[90, 100], Abs(1e-3)).small(),
    Case::new("small_spikes_f64", Field::Spikes, F64, &[6, 30, 40], Abs(1e-3)).small(),
    Case::new("small_specials_f32", Field::Specials, F32, &[60, 100], Rel(1e-3)).small(),
    Case::new("small_large_codes_f32", Field::MixedMagnitudes, F32, &[5500], Abs(1e9)).small(),
    Case::new("small_large_codes_f64", Field::Smooth, F64, &[20, 30, 17], Rel(1e-8)).small(),
    Case::new("small_subnormal_f32", Field::Subnormal, F32, &[5500], Abs(1e-39)).small(),
    Case::new("small_near_precision_f32", Field::OffsetRamp, F32, &[5500], Abs(1.5)).small(),
    Case::new("small_far_bound_f32", Field::Turbulence, F32, &[70, 80], Abs(1e6)).small(),
    Case::new("small_one_fill_f32", Field::Patches, F32, &[60, 90], Rel(1e-3)).small(),
    Case::new("small_one_fill_f64", Field::Patches, F64, &[6000], Rel(1e-3)).small(),
    Case::new("small_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).small(),
    Case::new("small_two_fills_f64", Field::TwoFills, F64, &[9, 25, 30], Rel(1e-3)).small(),
    Case { fill: Some(1e20), ..Case::new("small_fill_and_nan_f32", Field::FillAndNan, F32, &[9, 25, 30], Abs(1e-3)) }
        .small(),
    Case::new("small_lattice_fills_f32", Field::Patches, F32, &[20000], Rel(1e-2)).small(),
    Case::new("small_lattice_mixed_fills_f32", Field::Patches, F32, &[7000], Rel(1e-1)).small(),
    Case::new("small_lattice_wide_fills_f32", Field::MaskedWalk, F32, &[200, 200], Rel(1e-3)).small(),
    Case::new("small_infinities_f32", Field::Infinities, F32, &[150, 120], Abs(1e-3)).small(),
    Case::new("small_masked_walk_f32", Field::MaskedWalk, F32, &[60, 90], Abs(1e-1)).small(),
    Case { fill: Some(7.0), ..Case::new("small_exact_in_walk_f64", Field::MaskedWalk, F64, &[6000], Abs(1e-1)) }
        .small(),
    Case { fill: Some(7.0), ..Case::new("small_exact_in_walk_f32", Field::MaskedWalk, F32, &[6000], Abs(1.0)) }.small(),
    Case::new("small_wide_masked_walk_f32", Field::MaskedWalk, F32, &[70, 100], Abs(1e-3)).small(),
    Case::new("small_wide_fills_f64", Field::FillAndNan, F64, &[9, 25, 40], Rel(1e-6)).small(),
    Case::new("small_all_nan_f32", Field::AllNan, F32, &[70, 70], Rel(1e-3)).small(),
    Case::new("small_lossless_f32", Field::Smooth, F32, &[40, 110], Lossless).small(),
    Case::new("small_raw_f64", Field::AnyBits, F64, &[300], Abs(1e-3)).small(),
    Case::new("small_many_streams_f32", Field::Smooth, F32, &[520, 512], Rel(1e-2)).small(),
    Case::new("small_many_streams_1d_f32", Field::Smooth, F32, &[300_000], Rel(1e-3)).small(),
    Case::new("small_many_lattice_streams_f32", Field::Interleaved, F32, &[3, 420, 420], Abs(0.5)).small(),
    Case::new("small_many_column_streams_f32", Field::Parabola, F32, &[3, 3, 60_000], Abs(20.0)).small(),
    Case::new("small_tiny_f32", Field::Smooth, F32, &[20, 25], Rel(1e-3)).small(),
    Case::new("small_tiny_f64", Field::Walk, F64, &[400], Rel(1e-3)).small(),
    Case::new("small_tiny_3d_f32", Field::FillAndNan, F32, &[7, 13, 5], Rel(1e-3)).small(),
    Case::new("small_tiny_masked_walk_f32", Field::MaskedWalk, F32, &[30, 40], Abs(1e-1)).small(),
    Case::new("small_tiny_infinities_f32", Field::Infinities, F32, &[30, 40], Abs(1e-3)).small(),
    Case { fill: Some(7.0), ..Case::new("small_tiny_exact_in_walk_f32", Field::MaskedWalk, F32, &[700], Abs(1e-1)) }
        .small(),
    Case::new("small_3x3x3_f32", Field::Smooth, F32, &[3, 3, 3], Rel(1e-3)).small(),
    Case::new("small_one_value_f64", Field::Constant, F64, &[1], Abs(1e-3)).small(),
    Case::new("small_rank_0_f32", Field::Constant, F32, &[], Abs(1e-3)).small(),
    Case::new("small_empty_f32", Field::Zero, F32, &[4, 0, 3], Rel(1e-3)).small(),
    Case::new("small_chunked_1d_f64", Field::Walk, F64, &[12_001], Rel(1e-3)).chunk(&[6000]).small(),
    Case::new("small_chunked_3d_f32", Field::Smooth, F32, &[30, 50, 31], Abs(1e-3)).chunk(&[13, 50, 17]).small(),
    Case::new("small_sessions_f32", Field::Smooth, F32, &[190, 100], Abs(1e-3))
        .chunk(&[80, 100])
        .sessions(&[90, 1, 99])
        .small(),
    Case::new("balanced_smooth_1d_f32", Field::Smooth, F32, &[9000], Abs(1e-3)).balanced(),
    Case::new("balanced_smooth_2d_f32", Field::Smooth, F32, &[90, 110], Rel(1e-3)).balanced(),
    Case::new("balanced_smooth_3d_f64", Field::Smooth, F64, &[20, 30, 41], Rel(1e-6)).balanced(),
    Case::new("balanced_smooth_4d_f32", Field::Smooth, F32, &[6, 9, 17, 20], Abs(1e-4)).balanced(),
    Case::new("balanced_smooth_8d_f64", Field::Smooth, F64, &[2, 3, 2, 3, 2, 3, 4, 17], Rel(1e-3)).balanced(),
    Case::new("balanced_turbulence_3d_f32", Field::Turbulence, F32, &[20, 33, 40], Rel(1e-2)).balanced(),
    Case::new("balanced_turbulence_2d_f64", Field::Turbulence, F64, &[60, 90], Abs(1e-5)).balanced(),
    Case::new("balanced_walk_f32", Field::Walk, F32, &[9000], Rel(1e-4)).balanced(),
    Case::new("balanced_walk_coarse_f64", Field::Walk, F64, &[70, 300], Abs(1.0)).balanced(),
    Case::new("balanced_noise_f32", Field::Noise, F32, &[60, 100], Abs(1e-2)).balanced(),
    Case::new("balanced_parabola_f64", Field::Parabola, F64, &[5000], Abs(1e-6)).balanced(),
    Case::new("balanced_short_rows_f32", Field::Interleaved, F32, &[3000, 3], Abs(1e-2)).balanced(),
    Case::new("balanced_rough_axis_f32", Field::Oscillating, F32, &[7, 11, 300], Rel(1e-3)).balanced(),
    Case::new("balanced_sparse_f32", Field::Sparse, F32, &[10, 40, 160], Abs(1e-3)).balanced(),
    Case::new("balanced_steps_f32", Field::Steps, F32, &[40, 150], Rel(1e-3)).balanced(),
    Case::new("balanced_constant_f32", Field::Constant, F32, &[100_000], Abs(1e-3)).balanced(),
    Case::new("balanced_spikes_f32", Field::Spikes, F32, &[90, 100], Abs(1e-3)).balanced(),
    Case::new("balanced_spikes_f64", Field::Spikes, F64, &[6, 30, 40], Abs(1e-3)).balanced(),
    Case::new("balanced_specials_f32", Field::Specials, F32, &[60, 100], Rel(1e-3)).balanced(),
    Case::new("balanced_mixed_magnitudes_f32", Field::MixedMagnitudes, F32, &[5500], Abs(1e9)).balanced(),
    Case::new("balanced_near_precision_f32", Field::OffsetRamp, F32, &[5500], Abs(1.5)).balanced(),
    Case::new("balanced_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).balanced(),
    Case::new("balanced_one_fill_f64", Field::Patches, F64, &[6000], Rel(1e-3)).balanced(),
    Case { fill: Some(7.0), ..Case::new("balanced_exact_in_walk_f32", Field::MaskedWalk, F32, &[6000], Abs(1.0)) }
        .balanced(),
    Case::new("balanced_infinities_f32", Field::Infinities, F32, &[150, 120], Abs(1e-3)).balanced(),
    Case::new("balanced_lossless_f32", Field::Smooth, F32, &[40, 110], Lossless).balanced(),
    Case::new("balanced_tiny_f32", Field::Smooth, F32, &[20, 25], Rel(1e-3)).balanced(),
    Case::new("balanced_one_value_f64", Field::Constant, F64, &[1], Abs(1e-3)).balanced(),
    Case::new("balanced_chunked_3d_f32", Field::Smooth, F32, &[30, 50, 31], Abs(1e-3)).chunk(&[13, 50, 17]).balanced(),
    Case::new("balanced_sessions_f32", Field::Smooth, F32, &[190, 100], Abs(1e-3))
        .chunk(&[80, 100])
        .sessions(&[90, 1, 99])
        .balanced(),
    Case::new("max_smooth_1d_f32", Field::Smooth, F32, &[5000], Abs(1e-3)).max(),
    Case::new("max_smooth_2d_f64", Field::Smooth, F64, &[70, 65], Rel(1e-6)).max(),
    Case::new("max_turbulence_3d_f32", Field::Turbulence, F32, &[20, 33, 40], Rel(1e-2)).max(),
    Case::new("max_smooth_4d_f32", Field::Smooth, F32, &[6, 9, 11, 12], Abs(1e-4)).max(),
    Case::new("max_smooth_5d_f64", Field::Smooth, F64, &[3, 4, 5, 6, 10], Rel(1e-3)).max(),
    Case::new("max_walk_f64", Field::Walk, F64, &[5000], Rel(1e-4)).max(),
    Case::new("max_noise_f32", Field::Noise, F32, &[50, 100], Abs(1e-2)).max(),
    Case::new("max_large_codes_f64", Field::Smooth, F64, &[20, 30, 17], Rel(1e-8)).max(),
    Case::new("max_spikes_f64", Field::Spikes, F64, &[40, 100], Abs(1e-3)).max(),
    Case::new("max_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).max(),
    Case::new("max_short_rows_f32", Field::Interleaved, F32, &[2000, 3], Abs(1e-2)).max(),
    Case::new("max_chunked_f32", Field::Patches, F32, &[170, 100], Rel(1e-2)).chunk(&[90, 100]).max(),
    Case::new("cuszplus_huffman_1d_f32", Field::Walk, F32, &[9000], Rel(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_huffman_2d_f64", Field::Turbulence, F64, &[70, 130], Rel(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_huffman_3d_f32", Field::Turbulence, F32, &[20, 33, 40], Rel(1e-2)).preset("cuszplus"),
    Case::new("cuszplus_huffman_5d_f32", Field::Smooth, F32, &[3, 4, 5, 6, 10], Rel(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_runs_f32", Field::Sparse, F32, &[200, 300], Abs(1e-2)).preset("cuszplus"),
    Case::new("cuszplus_runs_f64", Field::Patches, F64, &[90, 100], Rel(1e-2)).preset("cuszplus"),
    Case::new("cuszplus_one_run_f32", Field::Constant, F32, &[300_000], Abs(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_outliers_f64", Field::Spikes, F64, &[40, 100], Abs(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_infinities_f32", Field::Infinities, F32, &[30, 40], Abs(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_tiny_f32", Field::Smooth, F32, &[3, 3, 3], Rel(1e-3)).preset("cuszplus"),
    Case::new("cuszplus_chunked_f32", Field::Patches, F32, &[170, 100], Rel(1e-2)).chunk(&[90, 100]).preset("cuszplus"),
    Case::new("ceaz_offline_1d_f32", Field::Smooth, F32, &[9000], Rel(1e-4)).preset("ceaz"),
    Case::new("ceaz_offline_3d_f64", Field::Turbulence, F64, &[12, 25, 30], Rel(1e-2)).preset("ceaz"),
    Case::new("ceaz_walk_f32", Field::Walk, F32, &[9000], Rel(1e-4)).preset("ceaz"),
    Case::new("ceaz_turbulence_2d_f32", Field::Turbulence, F32, &[70, 130], Rel(3e-3)).preset("ceaz"),
    Case::new("ceaz_noise_f32", Field::Noise, F32, &[50, 100], Abs(1e-2)).preset("ceaz"),
    Case::new("ceaz_wide_noise_f64", Field::Noise, F64, &[60, 100], Abs(3e-2)).preset("ceaz"),
    Case::new("ceaz_outliers_f64", Field::Spikes, F64, &[40, 100], Abs(1e-3)).preset("ceaz"),
    Case::new("ceaz_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).preset("ceaz"),
    Case::new("ceaz_chunked_f32", Field::Patches, F32, &[170, 100], Rel(1e-2)).chunk(&[90, 100]).preset("ceaz"),
    Case::new("ceaz_sessions_f32", Field::Walk, F32, &[20_000], Abs(1e-2))
        .chunk(&[8000])
        .sessions(&[9000, 11_000])
        .preset("ceaz"),
    Case::new("psnr_f32", Field::Turbulence, F32, &[70, 90], Psnr(60.0)),
    Case::new("psnr_small_chunked_f64", Field::FillAndNan, F64, &[100, 120], Psnr(45.0)).chunk(&[70, 120]).small(),
    Case::new("l2_small_f32", Field::Patches, F32, &[12, 25, 30], L2(0.25)).small(),
    Case::new("ratio_f64", Field::Smooth, F64, &[10, 30, 41], Ratio(6.0)),
    Case::new("ratio_small_f32", Field::Turbulence, F32, &[150, 160], Ratio(8.0)).small(),
    Case::new("ratio_lossless_f32", Field::Constant, F32, &[80, 90], Ratio(20.0)),
    // The presets of papers: blocks of 32, so lengths beside multiples of that, and of 4096 for `ceresz2`.
    Case::new("cuszp2_plain_smooth_1d_f32", Field::Smooth, F32, &[5000], Abs(1e-3)).preset("cuszp2-plain"),
    Case::new("cuszp2_plain_smooth_3d_f64", Field::Smooth, F64, &[9, 30, 41], Rel(1e-6)).preset("cuszp2-plain"),
    Case::new("cuszp2_plain_specials_f32", Field::Specials, F32, &[60, 100], Rel(1e-3)).preset("cuszp2-plain"),
    Case::new("cuszp2_outlier_smooth_2d_f32", Field::Smooth, F32, &[70, 65], Rel(1e-3)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_walk_f64", Field::Walk, F64, &[3001], Rel(1e-4)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_offset_f32", Field::OffsetRamp, F32, &[4200], Abs(1.5)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_origin_f64", Field::OffsetRamp, F64, &[4200], Abs(1e-6)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_zero_f64", Field::Zero, F64, &[80, 70], Abs(1e-3)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_sparse_f32", Field::Sparse, F32, &[10, 40, 60], Abs(1e-3)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_spikes_f64", Field::Spikes, F64, &[6, 30, 40], Abs(1e-3)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_one_value_f32", Field::Constant, F32, &[1], Abs(1e-3)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_noise_f32", Field::Noise, F32, &[50, 100], Abs(1e-2)).preset("cuszp2-outlier"),
    Case::new("cuszp2_outlier_chunked_f32", Field::Smooth, F32, &[30, 50, 31], Abs(1e-3))
        .chunk(&[13, 50, 17])
        .preset("cuszp2-outlier"),
    Case::new("ceresz2_smooth_1d_f32", Field::Smooth, F32, &[9000], Abs(1e-3)).preset("ceresz2"),
    Case::new("ceresz2_smooth_3d_f64", Field::Smooth, F64, &[9, 30, 41], Rel(1e-5)).preset("ceresz2"),
    Case::new("ceresz2_turbulence_2d_f32", Field::Turbulence, F32, &[64, 64], Rel(1e-2)).preset("ceresz2"),
    Case::new("ceresz2_walk_f64", Field::Walk, F64, &[4097], Rel(1e-4)).preset("ceresz2"),
    Case::new("ceresz2_offset_f32", Field::OffsetRamp, F32, &[4200], Abs(1.5)).preset("ceresz2"),
    Case::new("ceresz2_origin_f64", Field::OffsetRamp, F64, &[4200], Abs(1e-6)).preset("ceresz2"),
    Case::new("ceresz2_zero_f32", Field::Zero, F32, &[80, 70], Abs(1e-3)).preset("ceresz2"),
    Case::new("ceresz2_specials_f32", Field::Specials, F32, &[60, 100], Rel(1e-3)).preset("ceresz2"),
    Case::new("ceresz2_two_fills_f64", Field::TwoFills, F64, &[9, 25, 30], Rel(1e-3)).preset("ceresz2"),
    Case::new("ceresz2_spikes_f32", Field::Spikes, F32, &[90, 100], Abs(1e-3)).preset("ceresz2"),
    Case::new("ceresz2_one_value_f64", Field::Constant, F64, &[1], Abs(1e-3)).preset("ceresz2"),
    Case::new("ceresz2_chunked_f32", Field::Smooth, F32, &[30, 50, 31], Abs(1e-3))
        .chunk(&[13, 50, 17])
        .preset("ceresz2"),
    // Bounds that are not one number for the whole array.
    Case::new("pwrel_smooth_f32", Field::Smooth, F32, &[70, 65], PwRel(1e-3)),
    Case::new("pwrel_walk_f64", Field::Walk, F64, &[3000], PwRel(1e-7)),
    Case::new("pwrel_specials_f32", Field::Specials, F32, &[30, 100], PwRel(1e-2)),
    Case::new("pwrel_two_fills_f64", Field::TwoFills, F64, &[8, 20, 30], PwRel(1e-3)),
    Case::new("pwrel_sparse_f32", Field::Sparse, F32, &[10, 40, 60], PwRel(1e-2)),
    Case::new("pwrel_mixed_magnitudes_f64", Field::MixedMagnitudes, F64, &[3000], PwRel(1e-3)),
    Case::new("pwrel_small_turbulence_f32", Field::Turbulence, F32, &[20, 33, 40], PwRel(1e-2)).small(),
    Case::new("pwrel_small_two_fills_f32", Field::TwoFills, F32, &[60, 90], PwRel(1e-3)).small(),
    Case::new("pwrel_max_walk_f32", Field::Walk, F32, &[2000], PwRel(1e-3)).max(),
    Case { also: &[Abs(1e-2)], ..Case::new("pwrel_and_abs_f32", Field::Smooth, F32, &[70, 65], PwRel(1e-3)) },
    Case { also: &[Rel(1e-4)], ..Case::new("abs_and_rel_f64", Field::Smooth, F64, &[40, 50], Abs(1e-2)) },
    Case {
        regions: &[
            (&[(10, 40), (0, 30)], Lossless),
            (&[(30, 70), (20, 65)], PwRel(1e-3)),
            (&[(0, 70), (5, 6)], Rel(1e-4)),
        ],
        ..Case::new("regions_f32", Field::Smooth, F32, &[70, 65], Abs(1e-2))
    },
    Case {
        regions: &[(&[(1, 7), (10, 30), (4, 40)], Abs(1e-5))],
        ..Case::new("regions_small_f64", Field::Turbulence, F64, &[9, 30, 41], Rel(1e-2)).small()
    },
    Case {
        regions: &[(&[(70, 150), (20, 60)], Abs(1e-4))],
        ..Case::new("regions_sessions_f32", Field::Smooth, F32, &[190, 100], Abs(1e-2))
            .chunk(&[80, 100])
            .sessions(&[90, 100])
    },
    Case { bin: &[2, 3], ..Case::new("bins_f32", Field::Smooth, F32, &[70, 65], Abs(1e-3)) },
    Case {
        bin: &[1, 4, 2],
        regions: &[(&[(2, 5), (3, 17), (10, 40)], Lossless)],
        ..Case::new("bins_regions_small_f64", Field::Turbulence, F64, &[9, 30, 41], PwRel(1e-3)).small()
    },
    Case { bin: &[3, 5], ..Case::new("bins_specials_f32", Field::Specials, F32, &[30, 100], Abs(1e-2)) },
    Case::new("small_infinite_walk_f64", Field::InfiniteWalk, F64, &[6000], Abs(1e-1)).small(),
    Case::new("small_infinite_walk_f32", Field::InfiniteWalk, F32, &[6000], Abs(0.5)).small(),
    Case::new("small_tiny_infinite_walk_f32", Field::InfiniteWalk, F32, &[700], Abs(1e-1)).small(),
    Case {
        rewrites: &[&[(10, 11), (0, 65)], &[(11, 12), (0, 65)], &[(5, 40), (50, 65)]],
        ..Case::new("changes_small_f32", Field::Smooth, F32, &[70, 65], Abs(1e-3)).small()
    },
    Case {
        rewrites: &[&[(2, 5), (0, 30), (3, 7)], &[(0, 9), (0, 1), (0, 41)]],
        ..Case::new("changes_max_f64", Field::Turbulence, F64, &[9, 30, 41], Rel(1e-2)).max()
    },
    Case {
        rewrites: &[&[(0, 60), (5, 90)]],
        ..Case::new("changes_two_fills_small_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).small()
    },
    Case {
        rewrites: &[&[(17, 30), (0, 80)], &[(0, 40), (7, 8)]],
        ..Case::new("changes_pwrel_small_f32", Field::Smooth, F32, &[40, 80], PwRel(1e-3)).small()
    },
    Case {
        rewrites: &[&[(3, 30), (1, 8)]],
        ..Case::new("changes_balanced_f32", Field::Walk, F32, &[40, 80], Abs(1e-2)).balanced()
    },
    Case {
        rewrites: &[&[(70, 95), (20, 60)], &[(60, 100), (50, 99)]],
        ..Case::new("changes_chunked_small_f32", Field::Smooth, F32, &[190, 100], Abs(1e-2)).small().chunk(&[80, 100])
    },
    Case::new("stable_fast_f32", Field::Specials, F32, &[30, 100], Abs(1e-2)).stable(),
    Case::new("stable_balanced_sessions_f64", Field::Walk, F64, &[50, 120], Abs(1e-2))
        .balanced()
        .stable()
        .sessions(&[10, 40]),
    Case::new("stable_small_turbulence_f32", Field::Turbulence, F32, &[20, 33, 40], Rel(1e-2)).small().stable(),
    // Interpolated integers.
    Case::new("stable_small_smooth_f32", Field::Smooth, F32, &[9, 25, 40], Rel(1e-2)).small().stable(),
    Case::new("stable_small_wide_f64", Field::Smooth, F64, &[9, 25, 40], Rel(1e-5)).small().stable(),
    Case::new("stable_small_fills_f64", Field::Spikes, F64, &[9, 25, 40], Rel(1e-2)).small().stable(),
    Case::new("stable_small_wide_fills_f32", Field::Spikes, F32, &[9, 25, 40], Rel(1e-5)).small().stable(),
    Case::new("stable_small_infinities_f32", Field::Infinities, F32, &[90, 100], Rel(1e-2)).small().stable(),
    Case::new("stable_small_specials_f32", Field::Specials, F32, &[90, 100], Rel(1e-2)).small().stable(),
    Case::new("stable_max_half_random_f64", Field::HalfRandom, F64, &[30, 40], Rel(1e-1)).max().stable(),
    Case::new("stable_max_spikes_f32", Field::Spikes, F32, &[30, 40], Rel(1e-2)).max().stable(),
    Case::new("stable_max_infinities_f32", Field::Infinities, F32, &[30, 40], Rel(1e-2)).max().stable(),
    Case::new("stable_max_specials_f32", Field::Specials, F32, &[30, 40], Rel(1e-2)).max().stable(),
    Case::new("stable_max_smooth_f64", Field::Smooth, F64, &[9, 12, 20], Rel(1e-4)).max().stable(),
    Case::new("shared_smooth_1d_f32", Field::Smooth, F32, &[9000], Abs(1e-3)).trained(Field::Smooth),
    Case::new("shared_turbulence_3d_f64", Field::Turbulence, F64, &[12, 25, 30], Rel(1e-3)).trained(Field::Turbulence),
    Case::new("shared_walk_wide_f32", Field::Walk, F32, &[70, 130], Rel(1e-5)).trained(Field::Walk),
    Case::new("shared_sparse_f32", Field::Sparse, F32, &[10, 40, 160], Abs(1e-3)).trained(Field::Sparse),
    Case::new("shared_escapes_f32", Field::Spikes, F32, &[90, 100], Abs(1e-3)).trained(Field::Turbulence),
    Case::new("shared_not_suited_f32", Field::Constant, F32, &[90, 100], Abs(1e-3)).trained(Field::Noise),
    Case::new("shared_two_fills_f32", Field::TwoFills, F32, &[60, 90], Rel(1e-3)).trained(Field::TwoFills),
    Case::new("shared_pwrel_f32", Field::Smooth, F32, &[70, 65], PwRel(1e-3)).trained(Field::Smooth),
    Case::new("shared_tiny_f64", Field::Smooth, F64, &[3, 3, 3], Rel(1e-3)).trained(Field::Smooth),
    Case::new("shared_chunked_3d_f32", Field::Smooth, F32, &[30, 50, 31], Abs(1e-3))
        .chunk(&[13, 50, 17])
        .trained(Field::Smooth),
    Case::new("shared_sessions_f64", Field::Walk, F64, &[190, 100], Abs(1e-2))
        .chunk(&[80, 100])
        .sessions(&[90, 1, 99])
        .trained(Field::Walk),
    Case {
        rewrites: &[&[(3, 30), (1, 8)]],
        ..Case::new("shared_changes_f32", Field::Walk, F32, &[40, 80], Abs(1e-2)).trained(Field::Walk)
    },
];

/// `assets/golden-errors` or, for golden files themselves, `assets/golden`; `PUMICE_GOLDEN` names another `assets`.
fn folder(name: &str) -> PathBuf {
    let assets = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets");
    std::env::var_os("PUMICE_GOLDEN").map_or(assets, PathBuf::from).join(name)
}

/// Whether absent files are to be written and hashes of the encoder updated.
pub fn is_update() -> bool {
    std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1")
}

/// A stream to decode, and the expected result.
#[derive(Clone, Debug)]
pub struct Golden {
    /// Name of the case.
    pub name: String,
    /// The stream.
    pub bytes: Vec<u8>,
    /// What the manifest says about it.
    pub entry: BTreeMap<String, String>,
}

/// A folder of files that are written once, with a manifest.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
    about: &'static str,
}

impl Folder {
    /// Streams of format version 1.
    pub fn v1() -> Self {
        let about = "# Streams that every release must decode to these bits. Written once, never edited: see\n\
                     # crates/pumice-testkit/src/golden.rs. `sha256` is of the decoded values, little-endian in C order.\n";
        Self { path: folder("golden").join("v1"), about }
    }

    /// Hostile streams.
    pub fn errors() -> Self {
        let about = "# Hostile streams and the kind of error each must give. Written once, never edited: see\n\
                     # crates/pumice-testkit/src/golden.rs.\n";
        Self { path: folder("golden-errors"), about }
    }

    fn manifest(&self) -> PathBuf {
        self.path.join("manifest.toml")
    }

    /// All files that the manifest lists.
    pub fn load(&self) -> Vec<Golden> {
        let load = |(name, entry): (String, Value)| {
            let path = self.path.join(format!("{name}.pum"));
            let bytes = fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            Golden { bytes, entry: texts(&name, entry), name }
        };
        parse(&self.manifest(), &read(&self.manifest())).into_iter().map(load).collect()
    }

    /// Adds a file and its entry, unless there is one of that name.
    pub fn add<V: Into<Value>>(
        &self,
        name: &str,
        bytes: &[u8],
        entry: impl IntoIterator<Item = (impl Into<String>, V)>,
    ) {
        let path = self.path.join(format!("{name}.pum"));
        if path.exists() {
            return;
        }
        assert!(bytes.len() < MAX_BYTES, "{name} has {} bytes, too many for a golden file", bytes.len());
        fs::create_dir_all(&self.path).expect("the folder can be made");
        let manifest = self.manifest();
        let mut table = if manifest.exists() { parse(&manifest, &read(&manifest)) } else { Table::new() };
        // The entry of a file that was removed on purpose goes too.
        table.remove(name);
        let entry: Table = entry.into_iter().map(|(key, value)| (key.into(), value.into())).collect();
        table.insert(name.to_owned(), entry.into());
        fs::write(&manifest, format!("{}\n{table}", self.about)).expect("the manifest can be written");
        fs::write(&path, bytes).expect("the file can be written");
        println!("wrote {}", path.display());
    }
}

/// The manifest's entry of a case whose decoded values have these bytes.
pub fn entry(case: &Case, decoded: &[u8]) -> [(&'static str, Value); 6] {
    let integer = |n: u64| Value::from(i64::try_from(n).expect("seeds and extents are small"));
    [
        ("generator", format!("{:?}", case.field).into()),
        ("seed", integer(case.seed)),
        ("dtype", case.dtype.name().into()),
        ("shape", Value::Array(case.shape.iter().map(|extent| integer(*extent as u64)).collect())),
        ("config", case.config().into()),
        ("sha256", sha256_hex(decoded).into()),
    ]
}

/// Hashes of what the encoder writes, by case.
pub fn encoder_hashes() -> BTreeMap<String, String> {
    let path = hashes_path();
    parse(&path, &read(&path)).remove("sha256").map_or_else(BTreeMap::new, |hashes| texts("sha256", hashes))
}

/// Writes [`encoder_hashes`].
pub fn write_encoder_hashes(hashes: &BTreeMap<String, String>) {
    let about = "# SHA-256 of what the encoder writes for each case of crates/pumice-testkit/src/golden.rs: the same for\n\
                 # every instruction set, backend and thread count. Changed only by UPDATE_GOLDEN=1.\n";
    let hashes: Table = hashes.iter().map(|(name, hash)| (name.clone(), hash.clone().into())).collect();
    let table = Table::from_iter([("sha256".to_owned(), hashes.into())]);
    fs::create_dir_all(folder("golden")).expect("the folder can be made");
    fs::write(hashes_path(), format!("{about}\n{table}")).expect("the table can be written");
}

fn hashes_path() -> PathBuf {
    folder("golden").join("encoder-hashes.toml")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{}: {e}; UPDATE_GOLDEN=1 writes what is absent", path.display()))
}

fn parse(path: &Path, text: &str) -> Table {
    text.parse().unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The entries of a section; numbers and lists as TOML has them.
fn texts(section: &str, entries: Value) -> BTreeMap<String, String> {
    let Value::Table(entries) = entries else { panic!("{section} is no section") };
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    entries.into_iter().map(|(key, value)| (key, text(value))).collect()
}

/// SHA-256 in hexadecimal, which Python's `hashlib` can check as well.
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_are_written_as_they_are_read() {
        for folder in [Folder::v1(), Folder::errors()] {
            let text = read(&folder.manifest());
            assert!(text == format!("{}\n{}", folder.about, parse(&folder.manifest(), &text)), "{folder:?}");
        }
    }

    #[test]
    fn entries_are_added_at_the_end_in_place_of_older_ones() {
        let path = std::env::temp_dir().join(format!("pumice-golden-{}", std::process::id()));
        let folder = Folder { path: path.clone(), about: "# About\n" };
        for name in ["a", "b"] {
            folder.add(name, b"stream", [("kind", "Corrupt")]);
        }
        fs::remove_file(path.join("a.pum")).expect("it was written");
        folder.add("a", b"stream", entry(&CASES[1], b""));
        folder.add("b", b"other", [("kind", "Truncated")]);
        let text = read(&folder.manifest());
        fs::remove_dir_all(&path).expect("the folder can be removed");
        let (start, end) = text.split_once("[a]\n").expect("an entry");
        assert_eq!(start, "# About\n\n[b]\nkind = \"Corrupt\"\n\n");
        let expected =
            "generator = \"Smooth\"\nseed = 1\ndtype = \"f32\"\nshape = [70, 65]\nconfig = \"rel 1e-3\"\nsha256";
        assert!(end.starts_with(expected), "{end}");
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<&str> = CASES.iter().map(|case| case.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CASES.len());
    }

    #[test]
    fn configs_in_words() {
        let case = CASES.iter().find(|case| case.name == "sessions_f32").expect("the case");
        assert_eq!(case.config(), "abs 1e-3; chunk [80, 100]; sessions [90, 1, 99]");
    }
}
