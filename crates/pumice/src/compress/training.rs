//! [`CodebookTrainer`]: what arrays code as, and the codebook that suits them.

use std::sync::Arc;

use super::frames::Job;
use super::{grid_of, target, workers_for};
use crate::codec::Element;
use crate::decompress::Reader;
use crate::entropy::Books;
use crate::entropy::codebook::Codebook;
use crate::entropy::training::Training;
use crate::error::{Error, Result};
use crate::exec::Workers;
use crate::grid::{self, Block};
use crate::io::{ReadAt, SliceSource, Source};
use crate::num::DType;
use crate::plan::{Config, Preset, stats};

/// Makes a [`Codebook`] for arrays that are like those it is given. For a simulation these are the arrays of one time
/// step, or a part of them; the codebook serves for later ones.
///
/// Arrays are coded as they would be compressed, so this takes longer than compression. The same arrays make the same
/// codebook, whatever their order and the number of threads.
///
/// ```
/// use pumice::{CodebookTrainer, Config, DecodeOptions, ErrorBound, Preset, Reader};
/// let data: Vec<f32> = (0..40_000).map(|i| (i as f32 * 0.01).sin()).collect();
/// let config = Config::new(ErrorBound::Rel(1e-4)).preset(Preset::Balanced);
/// let mut trainer = CodebookTrainer::new();
/// trainer.add(&data, &[200, 200], &config)?;
/// let codebook = trainer.finish()?;
///
/// // Or from a stream of any preset.
/// let bytes = pumice::compress(&data, &[200, 200], &config)?;
/// let mut trainer = CodebookTrainer::new();
/// trainer.add_stream(&Reader::new(&bytes[..], DecodeOptions::new())?)?;
/// assert_eq!(trainer.finish()?, codebook);
/// # Ok::<(), pumice::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct CodebookTrainer {
    training: Arc<Training>,
}

impl CodebookTrainer {
    /// Knows no arrays yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an array of this shape in C order, as [`compress`](crate::compress) would code it with this configuration and
    /// the preset [`Preset::Balanced`].
    pub fn add<T: Element>(&mut self, data: &[T], shape: &[usize], config: &Config) -> Result<()> {
        self.add_from(&SliceSource::new(data, shape)?, config)
    }

    /// As [`Self::add`], for an array that is read box by box.
    pub fn add_from<T: Element>(&mut self, source: &dyn Source<T>, config: &Config) -> Result<()> {
        let config = Config { preset: Preset::Balanced, codebook: None, ..config.clone() };
        let workers = workers_for(grid::n_values(source.shape()), config.threads)?;
        let stats = stats::scan(source, &config.fills, &workers, &|_| ())?;
        let (mut plan, _) = target::plan(&config, source, &stats, &workers, &|_| ())?;
        plan.books = self.counted();
        let grid = grid_of(&plan)?;
        let job = Job { source, grid: &grid, plan: &plan, first_id: 0, first_row: 0, progress: &|_| () };
        job.hand_over(&workers, |_| Ok(()))?;
        Ok(())
    }

    /// Adds the array of a stream, such as that of an earlier time step. Its preset does not matter; its bound does.
    pub fn add_stream<R: ReadAt>(&mut self, stream: &Reader<R>) -> Result<()> {
        match stream.info().dtype {
            DType::F32 => self.add_chunks::<f32, R>(stream),
            DType::F64 => self.add_chunks::<f64, R>(stream),
        }
    }

    fn add_chunks<T: Element, R: ReadAt>(&mut self, stream: &Reader<R>) -> Result<()> {
        let mut plan = stream.layout.header.plan::<T>();
        plan.preset = Preset::Balanced;
        plan.books = self.counted();
        let mut payload = Vec::new();
        for id in 0..stream.n_chunks() {
            let chunk = stream.read_chunk::<T>(id)?;
            let start = stream.chunk_region(id)?.into_iter().map(|range| range.start).collect();
            let block = Block { start, extents: chunk.shape };
            if !chunk.data.is_empty() {
                payload.clear();
                T::encode_chunk(&chunk.data, &block, &plan, &Workers::Serial, &mut payload);
            }
        }
        Ok(())
    }

    /// The codebook for all arrays that were added. An error if none of them has values that need one.
    pub fn finish(self) -> Result<Codebook> {
        let training = Arc::into_inner(self.training);
        training.ok_or_else(|| Error::invalid("the trainer is still in use"))?.finish()
    }

    fn counted(&self) -> Books {
        Books::Counted(Arc::clone(&self.training))
    }
}
