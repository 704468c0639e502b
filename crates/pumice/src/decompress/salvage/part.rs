//! What was found of one stream, and which chunk is where in it.

use std::rc::Rc;

use crate::container::frame::{Identity, MIN_HEADER_BYTES};
use crate::container::header::Header;
use crate::container::index::Index;
use crate::container::{FrameSpan, Layout};
use crate::decompress::lists::{Lists, list_bytes};
use crate::error::{Error, Result};
use crate::exec::{filled, reserve};
use crate::grid::{self, ChunkBand, Grid};
use crate::io::to_usize;

/// Least size of what lies between the last frame of a stream and the first of the next: index, footer and header.
const MIN_SEAM_BYTES: u64 = 64;

/// A frame whose checksum is right.
pub(super) struct Found {
    pub(super) identity: Identity,
    pub(super) frame_checksum: u64,
    pub(super) span: FrameSpan,
    /// Whether it may be that of another stream.
    pub(super) is_uncertain: bool,
}

impl Found {
    pub(super) fn end(&self) -> u64 {
        self.span.offset + self.span.frame_bytes
    }
}

/// What was found of one stream.
#[derive(Default)]
pub(super) struct Part {
    /// `None` if it was not found.
    pub(super) header: Option<Rc<Header>>,
    /// Its size, or 0 if only a copy was found.
    pub(super) header_bytes: usize,
    /// In order of their offsets, by ascending chunk ids.
    pub(super) frames: Vec<Found>,
    pub(super) index: Option<Index>,
    /// Whether what comes next must belong to another stream.
    pub(super) is_complete: bool,
}

impl Part {
    pub(super) fn is_single(&self) -> bool {
        self.header.as_ref().is_some_and(|header| header.single_chunk)
    }

    /// Whether only a header was found, or nothing.
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.index.is_none()
    }

    /// Memory of the lists that were counted.
    pub(super) fn list_bytes(&self) -> u64 {
        let of_index = |index: &Index| list_bytes(&index.segments) + list_bytes(&index.frame_bytes);
        list_bytes(&self.frames) + self.index.as_ref().map_or(0, of_index)
    }

    /// Size of the values of a whole chunk; the most there is if it is not known.
    fn chunk_bytes(&self) -> u64 {
        let Some(header) = &self.header else { return u64::MAX };
        let chunk_shape = if header.single_chunk { &header.shape } else { &header.chunk_shape };
        grid::checked_bytes(chunk_shape, header.dtype.size()).unwrap_or(u64::MAX)
    }

    /// An upper limit on the payload size of a chunk.
    pub(super) fn max_payload(&self) -> u64 {
        self.chunk_bytes().saturating_mul(2).saturating_add(4096)
    }

    /// Whether a stream with this header can have such a chunk, as far as its position tells.
    pub(super) fn can_have(&self, identity: &Identity) -> bool {
        let Some(header) = &self.header else { return true };
        if header.single_chunk {
            return identity.chunk_id == 0;
        }
        let chunk_rows = header.chunk_shape[0] as u64;
        let per_band = grid::count_chunks(&header.shape, &header.chunk_shape, &[1]);
        let number = per_band.map_or(0, |n| identity.chunk_id / n);
        (1..=chunk_rows).contains(&identity.rows)
            && (number..=number.saturating_mul(chunk_rows)).contains(&identity.first_row)
    }

    /// Whether `next` lies further behind `last` than the chunks between them reach, far enough for a stream to end and for
    /// another to begin and to come to `next`: then it is unknown whether both belong to the same stream.
    fn has_seam_between(&self, last: &Found, next: &Found) -> bool {
        let gap = next.span.offset.saturating_sub(last.end());
        let n_missing = next.identity.chunk_id - last.identity.chunk_id - 1;
        // A writer stores chunks raw that would grow.
        let chunk_bytes = self.chunk_bytes();
        let most = chunk_bytes.saturating_add(chunk_bytes / 1000).saturating_add(256).saturating_mul(n_missing);
        let of_others = next.identity.chunk_id.saturating_mul(MIN_HEADER_BYTES as u64);
        gap > most && gap >= of_others.saturating_add(MIN_SEAM_BYTES)
    }

    /// Passes the part on, in pieces if it may hold frames of several streams: where there is no index to tell. All pieces
    /// have its header, as theirs may be the same.
    pub(super) fn cut_at_seams(
        mut self,
        lists: &mut Lists,
        mut take: impl FnMut(Part, &mut Lists) -> Result<()>,
    ) -> Result<()> {
        let has_seam = |pair: &[Found]| self.has_seam_between(&pair[0], &pair[1]);
        let is_known = self.index.is_some() || self.header.is_none();
        if is_known || !self.frames.windows(2).any(has_seam) {
            return take(self, lists);
        }
        let frames = std::mem::take(&mut self.frames);
        let frames_bytes = list_bytes(&frames);
        let mut is_first = true;
        for found in frames {
            if self.frames.last().is_some_and(|last| self.has_seam_between(last, &found)) {
                let next = Part { header: self.header.clone(), ..Part::default() };
                take(std::mem::replace(&mut self, next), lists)?;
                is_first = false;
            }
            lists.push(&mut self.frames, Found { is_uncertain: found.is_uncertain || !is_first, ..found })?;
        }
        lists.give(frames_bytes);
        take(self, lists)
    }

    /// Gives the frames to an index that was found behind them, or to what was before it: sizes of frames tell whose they
    /// are, and offsets. A frame that is not where the index says may have been moved there by bytes that were lost or
    /// added. But what lies wholly before the start of the stream belongs to another one, and so does, under another
    /// header, all that is elsewhere.
    pub(super) fn split_by(
        &mut self,
        offset: u64,
        index: &Index,
        header: &Header,
        lists: &mut Lists,
    ) -> Result<Vec<Found>> {
        let is_other = self.header.as_ref().is_some_and(|own| **own != *header);
        let of_frames = index.frame_bytes.iter().fold(0u64, |sum, &n| sum.saturating_add(n));
        let header_bytes = index.header_copy.len().max(self.header_bytes) as u64;
        let start = offset.saturating_sub(of_frames).saturating_sub(header_bytes);
        // Backwards, as offsets are known from the end. A run of frames that were moved by the same distance is one.
        let (mut next_id, mut expected) = (index.frame_bytes.len() as u64, offset);
        let mut run: Option<(u64, u64)> = None;
        let mut is_its = Vec::new();
        lists.take(self.frames.len() as u64)?;
        reserve(&mut is_its, self.frames.len())?;
        for found in self.frames.iter_mut().rev() {
            let id = found.identity.chunk_id;
            let frame_bytes = usize::try_from(id).ok().and_then(|id| index.frame_bytes.get(id));
            if frame_bytes != Some(&found.span.frame_bytes) {
                is_its.push(false);
                continue;
            }
            while next_id > id {
                next_id -= 1;
                expected = expected.wrapping_sub(index.frame_bytes[next_id as usize]);
            }
            let distance = found.span.offset.wrapping_sub(expected);
            let run_end = match run {
                Some((of_run, end)) if of_run == distance => end,
                _ => found.end(),
            };
            run = Some((distance, run_end));
            let may_be_its = distance == 0 || run_end > start;
            found.is_uncertain |= distance != 0 && may_be_its;
            is_its.push(may_be_its && (distance == 0 || !is_other));
        }
        let (mut its, mut others) = (Vec::new(), Vec::new());
        let frames = std::mem::take(&mut self.frames);
        let frames_bytes = list_bytes(&frames);
        for (found, is_its) in frames.into_iter().zip(is_its.iter().rev()) {
            lists.push(if *is_its { &mut its } else { &mut others }, found)?;
        }
        lists.give(frames_bytes + is_its.len() as u64);
        self.frames = others;
        Ok(its)
    }

    /// Where the frames are, with the grid from the index or else from the identities of the frames; and the ids of those
    /// that may be of another stream, ascending.
    pub(super) fn layout(self, file_bytes: u64, lists: &mut Lists) -> Result<(Layout, Vec<u64>)> {
        let Some(header) = self.header else {
            let n = self.frames.len();
            return Err(Error::corrupt(match n {
                0 => "no header, no chunk and no index of a Pumice stream was found".to_owned(),
                _ => format!(
                    "{n} intact chunks were found, but neither the header nor its copy in the index, without which \
                     they cannot be decoded"
                ),
            }));
        };
        let header = Rc::unwrap_or_clone(header);
        let grid = grid_of(&header, self.index.as_ref(), &self.frames, file_bytes, lists)?;
        lists.take(grid.n_chunks().saturating_mul(size_of::<FrameSpan>() as u64))?;
        let frames = filled(FrameSpan::default(), to_usize(grid.n_chunks())?)?;
        let mut layout = Layout { header, header_bytes: self.header_bytes, grid, frames };
        let mut uncertain = Vec::new();
        for Found { identity, span, is_uncertain, .. } in &self.frames {
            let id = identity.chunk_id;
            if id < layout.grid.n_chunks() && layout.grid.is_known(id) && layout.identity(id) == *identity {
                layout.frames[id as usize] = *span;
                if *is_uncertain {
                    lists.push(&mut uncertain, id)?;
                }
            }
        }
        Ok((layout, uncertain))
    }
}

/// The grid from the index, or else from the identities of the frames.
fn grid_of(
    header: &Header,
    index: Option<&Index>,
    frames: &[Found],
    file_bytes: u64,
    lists: &mut Lists,
) -> Result<Grid> {
    let Header { shape, chunk_shape, .. } = header;
    if header.single_chunk {
        return Ok(Grid::whole(shape));
    }
    if let Some(index) = index {
        lists.take(Grid::list_bytes(index.segments.len()))?;
        return Grid::new(&header.full_shape(&index.segments)?, chunk_shape, &index.segments);
    }
    let Some(chunks_per_band) = grid::count_chunks(shape, chunk_shape, &[1]) else {
        return Err(Error::corrupt("the header implies more than 2^64 chunks per row"));
    };
    let bands = bands(chunk_shape[0], chunks_per_band, frames, lists)?;
    let Some(last) = bands.last() else {
        return Err(Error::corrupt("neither an index nor an intact chunk was found: nothing can be saved"));
    };
    header.full_shape(&[last.end()])?;
    // Without an index, nothing else stops a forged header from implying more chunks than a list can have.
    let n_chunks = (last.number + 1).checked_mul(chunks_per_band);
    if n_chunks.is_none_or(|n| n > file_bytes.max(1 << 20)) {
        return Err(Error::corrupt("the header implies far more chunks than the stream has bytes"));
    }
    lists.take(Grid::list_bytes(2 * bands.len()))?;
    Grid::of_bands(shape, chunk_shape, &bands)
}

/// The bands of the frames found. Only forged frames contradict each other; then the first one found counts.
fn bands(chunk_rows: usize, chunks_per_band: u64, frames: &[Found], lists: &mut Lists) -> Result<Vec<ChunkBand>> {
    let mut bands: Vec<ChunkBand> = Vec::new();
    for Found { identity, .. } in frames {
        let number = identity.chunk_id / chunks_per_band;
        let (Ok(first_row), Ok(rows)) = (usize::try_from(identity.first_row), usize::try_from(identity.rows)) else {
            continue;
        };
        if !(1..=chunk_rows).contains(&rows) || first_row.checked_add(rows).is_none() {
            continue;
        }
        let band = ChunkBand { number, first_row, rows };
        if band.can_follow(bands.last(), chunk_rows) {
            lists.push(&mut bands, band)?;
        }
    }
    Ok(bands)
}
