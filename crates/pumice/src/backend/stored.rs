//! Shared arrays that are not compressed: the frames of a stream whose chunks hold the values as they are, without loss.
//! Their sizes are known before any value is.

use super::shared::SharedStream;
use crate::codec::{CodecId, Element};
use crate::compress::frames::put_header;
use crate::compress::{self, target};
use crate::container::StreamWriter;
use crate::container::frame::{Identity, MAX_HEADER_BYTES};
use crate::container::header::Header;
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::io::Source;
use crate::plan::{Config, ErrorBound, Plan, Stats};

/// Refuses what a config asks for that only a single process can do.
pub fn check_shareable(config: &Config) -> Result<()> {
    match target::of(config)? {
        None => Ok(()),
        Some(target) => Err(Error::unsupported(format!(
            "{target} is a target, which only a single process can search for: give a bound, such as the one that \
             `pumice analyze` or a run on one process finds"
        ))),
    }
}

impl<T: Element> SharedStream<T> {
    /// The stream of an array whose values stay as they are, whatever bound the config has.
    pub fn stored(config: &Config, shape: &[usize]) -> Result<Self> {
        check_shareable(config)?;
        let lossless = Config {
            bounds: vec![ErrorBound::Lossless],
            regions: Vec::new(),
            bin: Vec::new(),
            stable: None,
            ..config.clone()
        };
        let plan = Plan::new(&lossless, shape, Some(&Stats { range: None, fills: Vec::new() }))?;
        let grid = compress::grid_of(&plan)?;
        let mut head = Vec::new();
        let stream = StreamWriter::start(&Header::new(&plan, grid.is_whole()), &mut head)?;
        Ok(Self { plan, grid, head, stream })
    }

    /// The sizes of the frames that [`Self::store`] makes of these chunks.
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn stored_sizes(&self, ids: &[u64]) -> Vec<u64> {
        let size = |id: &u64| {
            let block = self.grid.block(*id);
            let payload_bytes = (block.n_values() * size_of::<T>()) as u64;
            payload_bytes + Identity::of_block(*id, &block, self.grid.is_whole()).header_bytes(payload_bytes) as u64
        };
        ids.iter().map(size).collect()
    }

    /// Passes frames of chunks, whose boxes `source` must have, to `put`, in the order of `ids`. The stream must be one
    /// that is [`stored`](Self::stored).
    ///
    /// # Panics
    /// If there is no such chunk.
    pub fn store(&self, source: &dyn Source<T>, ids: &[u64], mut put: impl FnMut(&[u8]) -> Result<()>) -> Result<()> {
        let (mut buffer, mut bytes) = (Vec::new(), Vec::new());
        for id in ids {
            let block = self.grid.block(*id);
            let n = block.n_values();
            let values = match source.contiguous(&block.start, &block.extents) {
                Some(values) => values,
                None => {
                    buffer.clear();
                    reserve(&mut buffer, n)?;
                    buffer.resize(n, T::default());
                    source.read_box(&block.start, &block.extents, &mut buffer)?;
                    &buffer
                }
            };
            bytes.clear();
            reserve(&mut bytes, MAX_HEADER_BYTES + size_of_val(values))?;
            bytes.resize(MAX_HEADER_BYTES, 0);
            T::extend_le_bytes(values, &mut bytes);
            let identity = Identity::of_block(*id, &block, self.grid.is_whole());
            let start = put_header(CodecId::Raw, identity, &mut bytes, MAX_HEADER_BYTES);
            put(&bytes[start..])?;
        }
        Ok(())
    }
}
