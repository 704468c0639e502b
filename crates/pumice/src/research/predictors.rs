//! How well `small` chooses its predictor (`cargo research predictors`).

use super::blocks::planned;
use crate::codec::small::{Effort, OnLattice, Settings, Small, candidates};
use crate::codec::{ChunkCodec, ChunkContext, Element};
use crate::error::Result;
use crate::exec::DefaultFloats;
use crate::grid::{Block, Corner, Grid, copy_block};
use crate::plan::{Config, Preset};

/// Payloads of one chunk, coded in full with each predictor.
#[derive(Clone, Debug)]
pub struct ChunkSizes {
    /// Each candidate and its bytes.
    pub candidates: Vec<(String, usize)>,
    /// Index of the one that `small` chooses.
    pub chosen: usize,
}

impl ChunkSizes {
    /// Bytes with the predictor that `small` chooses.
    pub fn chosen_bytes(&self) -> usize {
        self.candidates[self.chosen].1
    }

    /// The candidate of the fewest bytes.
    pub fn best(&self) -> &(String, usize) {
        self.candidates.iter().min_by_key(|(_, bytes)| *bytes).expect("the lattice is always a candidate")
    }
}

/// Element types whose predictors can be compared. The codec is compiled with this crate, not again with each caller.
pub trait Predictable: Element {
    /// The payload sizes of each chunk with each predictor of `small`. The array has at least one axis and one value.
    ///
    /// # Errors
    /// As for compression, and if the bound leaves nothing to quantise.
    fn predictor_sizes(data: &[Self], shape: &[usize], config: &Config) -> Result<Vec<ChunkSizes>>;
}

macro_rules! predictable {
    ($($T:ty),*) => {$(
        impl Predictable for $T {
            fn predictor_sizes(data: &[Self], shape: &[usize], config: &Config) -> Result<Vec<ChunkSizes>> {
                predictor_sizes(data, shape, config)
            }
        }
    )*};
}

predictable!(f32, f64);

fn predictor_sizes<T: Element>(data: &[T], shape: &[usize], config: &Config) -> Result<Vec<ChunkSizes>> {
    let (plan, quantizer) = planned(data, shape, &config.clone().preset(Preset::Small))?;
    let _floats = DefaultFloats::set();
    let grid = Grid::new(shape, &plan.chunk_shape, &shape[..1])?;
    let zeros = vec![0; shape.len()];
    let mut all = Vec::new();
    for id in 0..grid.n_chunks() {
        let Block { start, extents } = grid.block(id);
        let mut values = vec![T::default(); extents.iter().product()];
        let to = Corner { shape: &extents, start: &zeros };
        copy_block(data, Corner { shape, start: &start }, &mut values, to, &extents);
        let chunk = ChunkContext { fills: &plan.fills, ..ChunkContext::new(&extents) };
        let (choices, chosen) = candidates(&values, &quantizer, &chunk);
        let sizes = choices.iter().map(|choice| {
            let mut out = Vec::new();
            let settings =
                Settings { quantizer: &quantizer, effort: Effort::Given(*choice), on_lattice: OnLattice::No };
            Small::encode(&values, settings, &chunk, &mut out);
            (choice.to_string(), out.len())
        });
        let chosen_index = choices.iter().position(|choice| *choice == chosen).expect("only candidates are chosen");
        all.push(ChunkSizes { candidates: sizes.collect(), chosen: chosen_index });
    }
    Ok(all)
}
