//! Salvage: reads what is intact in a damaged stream. Intact header and index locate the frames. Otherwise the file is
//! scanned for headers, frames and indices ([`scan`]), and every one whose checksum is right counts; each frame says which
//! box of the array it holds (docs/format.md, section 5), and an index has a copy of the header. A chunk is called intact
//! only after it was decoded.
//!
//! A file may hold several streams, one after the other. The values of a frame depend on its header, so frames are given
//! to a header only where nothing speaks against it ([`part`]): what follows an index, or repeats the id of another frame,
//! belongs to the next stream, and so does what lies where no chunk of the stream can be. What cannot be decided is named.

mod part;
mod scan;

use std::ops::Range;

use super::lists::Lists;
use super::{Array, DecodeOptions, Info, LITTLE_MEMORY, Reader};
use crate::codec::Element;
use crate::container::Layout;
use crate::error::{Error, Result};
use crate::exec::reserve;
use crate::grid::Block;
use crate::io::ReadAt;
use crate::with_dtype;
use part::{Found, Part};
use scan::Scan;

/// Finds what can still be read of a damaged stream.
///
/// ```
/// use pumice::{ErrorBound, Config, DecodeOptions};
/// let data: Vec<f32> = (0..40_000).map(|i| i as f32).collect();
/// let mut bytes = pumice::compress(&data, &[40_000], &Config::new(ErrorBound::Lossless).chunk_shape(&[10_000]))?;
/// let middle = bytes.len() / 2;
/// bytes[middle - 5..middle + 5].fill(0xff);
/// assert!(pumice::decompress::<f32>(&bytes).is_err());
///
/// let salvage = pumice::salvage(&bytes[..], DecodeOptions::new())?;
/// let array = salvage.read(f32::NAN)?;
/// assert!(salvage.intact().len() >= 2);
/// assert_eq!(array.data[39_999], 39_999.0);
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn salvage<R: ReadAt>(source: R, options: DecodeOptions) -> Result<Salvage<R>> {
    salvage_stream(source, 0, options)
}

/// As [`salvage`], for one of several streams that follow each other in a file, by its number from 0 on. A stream counts
/// if a chunk or the index of it is left.
///
/// ```
/// use pumice::{ErrorBound, Config, DecodeOptions};
/// let config = Config::new(ErrorBound::Lossless);
/// let streams = [pumice::compress(&[1f32, 2.0], &[2], &config)?, pumice::compress(&[3f64], &[1], &config)?];
/// let concatenated = streams.concat();
/// let salvage = pumice::salvage_stream(&concatenated[..], 1, DecodeOptions::new())?;
/// assert_eq!((salvage.n_streams(), salvage.read(0f64)?.data), (2, vec![3.0]));
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn salvage_stream<R: ReadAt>(source: R, stream: usize, options: DecodeOptions) -> Result<Salvage<R>> {
    let max_bytes = options.limit();
    let (layout, mut uncertain, end_is_known, n_streams) = match Layout::read_from(&source, max_bytes) {
        Ok(layout) => (layout, Vec::new(), true, 1),
        Err(_) => {
            let mut lists = Lists::new(max_bytes);
            let (part, n_streams) = choose(&source, stream, &mut lists)?;
            let Some(part) = part else { return Err(no_such_stream(stream, n_streams)) };
            let end_is_known = part.index.is_some() || part.is_single();
            let (layout, uncertain) = part.layout(source.len()?, &mut lists)?;
            (layout, uncertain, end_is_known, n_streams)
        }
    };
    if stream >= n_streams {
        return Err(no_such_stream(stream, n_streams));
    }
    // The list of frames stays; a forged stream has entries in it for more chunks than it has bytes.
    let list_bytes = size_of_val(&layout.frames[..]) as u64;
    let options = options.max_bytes(max_bytes.saturating_sub(list_bytes.saturating_sub(LITTLE_MEMORY)));
    let mut reader = Reader::with_layout(source, layout, &options)?;
    let mut intact = with_dtype!(reader.info().dtype, T => reader.decodable::<T>())?;
    if (intact.len() as u64) < reader.n_chunks() && n_streams == 1 {
        let moved = relocate(&mut reader, &intact, &options)?;
        if !moved.is_empty() {
            intact = with_dtype!(reader.info().dtype, T => reader.decodable::<T>())?;
            reserve(&mut uncertain, moved.len())?;
            uncertain.extend(moved);
            uncertain.sort_unstable();
            uncertain.dedup();
        }
    }
    uncertain.retain(|id| intact.binary_search(id).is_ok());
    Ok(Salvage { reader, intact, uncertain, end_is_known, n_streams })
}

fn no_such_stream(stream: usize, n_streams: usize) -> Error {
    Error::invalid(format!("stream {} was asked for, but there are {n_streams}", stream + 1))
}

/// What was found of one of the streams, and how many of them there are. A stream without a chunk or an index counts only
/// if there is no other.
fn choose<R: ReadAt>(source: &R, stream: usize, lists: &mut Lists) -> Result<(Option<Part>, usize)> {
    let (mut chosen, mut first, mut n_streams) = (None, None, 0);
    Scan::new(source, lists)?.run(|part, _| {
        let is_chosen = !part.is_empty() && n_streams == stream;
        n_streams += usize::from(!part.is_empty());
        if is_chosen {
            chosen = Some(part);
        } else if part.is_empty() && first.is_none() {
            first = Some(part);
        }
        Ok(is_chosen)
    })?;
    if n_streams == 0 && stream == 0 {
        return Ok((Some(first.unwrap_or_default()), 1));
    }
    Ok((chosen, n_streams.max(1)))
}

/// Looks for lost chunks elsewhere than where the index says: bytes may have been lost, and others added. Returns the ids
/// of those that were found.
fn relocate<R: ReadAt>(reader: &mut Reader<R>, intact: &[u64], options: &DecodeOptions) -> Result<Vec<u64>> {
    let mut lists = Lists::new(options.limit());
    let (mut moved, layout) = (Vec::new(), &mut reader.layout);
    Scan::new(&reader.source, &mut lists)?.run(|part, lists| {
        if part.header.as_ref().is_some_and(|header| **header != layout.header) {
            return Ok(false);
        }
        for Found { identity, span, .. } in part.frames {
            let id = identity.chunk_id;
            let is_lost = id < layout.grid.n_chunks() && layout.grid.is_known(id) && intact.binary_search(&id).is_err();
            if is_lost && layout.identity(id) == identity {
                let indexed = &mut layout.frames[id as usize];
                let is_elsewhere = indexed.frame_bytes == span.frame_bytes && indexed.offset != span.offset;
                if is_elsewhere {
                    *indexed = span;
                    lists.push(&mut moved, id)?;
                }
            }
        }
        Ok(false)
    })?;
    Ok(moved)
}

/// A damaged stream and what is left of it.
#[derive(Debug)]
pub struct Salvage<R> {
    reader: Reader<R>,
    intact: Vec<u64>,
    uncertain: Vec<u64>,
    end_is_known: bool,
    n_streams: usize,
}

impl<R: ReadAt> Salvage<R> {
    /// The metadata of the stream. If the index is lost, too, `shape[0]` ends with the last chunk found, and `segments`
    /// is empty.
    pub fn info(&self) -> &Info {
        self.reader.info()
    }

    /// Whether the extent along the slowest axis is that of the whole array. Without an index, rows after the last
    /// chunk that was found may be lost, and it is unknown how many.
    pub fn end_is_known(&self) -> bool {
        self.end_is_known
    }

    /// Number of streams in the file, one after the other: more than 1 if files were concatenated.
    pub fn n_streams(&self) -> usize {
        self.n_streams
    }

    /// Ids of the chunks that can be decoded, ascending.
    pub fn intact(&self) -> &[u64] {
        &self.intact
    }

    /// Ids of intact chunks that may be those of another stream, ascending: they are not where they would be if the file
    /// had only been overwritten here and there. Bytes were lost or added, or files with equal headers were concatenated;
    /// then a chunk that is lost of one of them can be taken from another.
    pub fn uncertain(&self) -> &[u64] {
        &self.uncertain
    }

    /// Ids and regions of all that is lost, ascending: with [`Self::intact`], they cover the array once. Most regions
    /// are one chunk. If the index is lost, too, it may be unknown how a run of rows was cut into chunks; it is then
    /// one region, under the id of its first chunk.
    pub fn lost(&self) -> impl Iterator<Item = (u64, Vec<Range<usize>>)> {
        let grid = &self.reader.layout.grid;
        let mut gaps = grid.gaps().into_iter().peekable();
        (0..grid.n_chunks()).filter_map(move |id| {
            if let Some((_, rows)) = gaps.next_if(|(first, _)| *first == id) {
                let trailing = grid.shape()[1..].iter().map(|&n| 0..n);
                return Some((id, std::iter::once(rows).chain(trailing).collect()));
            }
            let is_lost = grid.is_known(id) && self.intact.binary_search(&id).is_err();
            is_lost.then(|| (id, grid.block(id).ranges()))
        })
    }

    /// The array, with `missing` for all values that are lost.
    pub fn read<T: Element>(&self, missing: T) -> Result<Array<T>> {
        self.reader.check_dtype::<T>()?;
        let whole = Block::whole(self.reader.layout.grid.shape());
        let shares = self.reader.shares_beside::<T>(&self.intact, &whole)?;
        let mut data = Vec::new();
        reserve(&mut data, whole.n_values())?;
        data.resize(whole.n_values(), missing);
        self.reader.decode_into(&self.intact, &whole, &mut data, &shares)?;
        Ok(Array { shape: whole.extents, data })
    }

    /// Calls `f` with the region and the values of each intact chunk, in order of id.
    pub fn for_each_chunk<T: Element>(&self, f: impl FnMut(&[Range<usize>], &[T]) -> Result<()> + Send) -> Result<()> {
        self.reader.for_each_id(&self.intact, f)
    }
}
