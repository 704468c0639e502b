//! Writing again what was compressed before: [`update`] keeps the bits of all values that have not changed, and
//! [`Recent`] finds the stream that they came from.
//!
//! Compressing restored values once more would add a second error to the first. Here, chunks without a change keep their
//! payload. A chunk of which a part has changed is coded anew where that restores the old values bit for bit, as it does
//! on a lattice, and otherwise by the layer of codec/layers/changes.rs.

mod recent;

use std::sync::Arc;

pub use recent::Recent;

use crate::codec::layers::changes::{Changes, Coded, Rewrite};
use crate::codec::{self, ChunkCodec, ChunkContext, CodecId, Element, pipeline, small};
use crate::compress::{append_planned, target, workers_for};
use crate::container::frame::{self, FrameHeader, MAX_HEADER_BYTES};
use crate::container::header::Header;
use crate::container::{Layout, StreamWriter};
use crate::decompress::{DecodeOptions, Reader};
use crate::entropy::Books;
use crate::error::{Error, Result};
use crate::exec::{self, DefaultFloats, Workers, no_memory, reserve, scratch};
use crate::grid::{self, Block, Corner};
use crate::io::SliceSource;
use crate::plan::stats::{self, Stats};
use crate::plan::{BoxLimit, Coding, Config, ErrorBound, Limit, MAX_FILLS, Plan, Quantizer, Stable};

/// The range of restored values differs a little from that of their source, and a bound relative to it as well: up to
/// this factor, it counts as the same.
const SAME_BOUND: f64 = 1.25;

/// Sums of squares are taken as so much larger than measured.
const SUM_MARGIN: f64 = 1.0 / (1 << 20) as f64;

/// Where all but one in this many values are kept, coding all of them anew is tried only if they are on a lattice.
const MOSTLY_KEPT: usize = 4;

/// The limit for reading a stream: so many times its values, and what its index may take.
const MOST_TIMES: u64 = 16;
const LEAST_LIMIT: u64 = 64 << 20;

/// Compresses `values`, of which some may be what `before`, a stream of the same type and shape, restores: these keep
/// their bits. All others are within the bounds of `config`, as with [`compress`](crate::compress).
///
/// So the values of an array that is read, changed in part and written again stay within the bound of the write that
/// they come from, however often that happens.
///
/// What `config` asks for decides where the two conflict. The stream is made anew if nothing was kept, if `config` has
/// regions or bins, if it asks for another preset, another kind of bound, a looser bound, or for the stable mode where the
/// stream has none; also if a target would be missed. A bound relative to the range, which changes with the values, is not
/// a looser one.
///
/// ```
/// use pumice::{Config, ErrorBound};
/// let config = Config::new(ErrorBound::Abs(0.01));
/// let field: Vec<f32> = (0..10_000).map(|i| (i as f32 * 0.01).sin()).collect();
/// let first = pumice::compress(&field, &[100, 100], &config)?;
/// let mut values = pumice::decompress::<f32>(&first)?.data;
/// let untouched = values[2000..].to_vec();
/// values[..2000].fill(0.5);
/// let restored = pumice::decompress::<f32>(&pumice::update(&first, &values, &config)?)?.data;
/// assert_eq!(restored[2000..], untouched);
/// assert!(restored[..2000].iter().all(|x| (x - 0.5).abs() <= 0.01));
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn update<T: Element>(before: &[u8], values: &[T], config: &Config) -> Result<Vec<u8>> {
    update_among(before, None, &[], values, config)
}

/// As [`update`], but values that one of `others` restores keep their bits as well. They have the shape of `before`, of
/// which it may be known what it restores.
fn update_among<T: Element>(
    before: &[u8],
    restored: Option<Vec<T>>,
    others: &[Arc<[u8]>],
    values: &[T],
    config: &Config,
) -> Result<Vec<u8>> {
    let _floats = DefaultFloats::set();
    let options = to_read(values, config.threads);
    let reader = Reader::new(before, options.clone())?;
    let shape = reader.info().shape.clone();
    if values.len() != grid::n_values(&shape) {
        let n = values.len();
        return Err(Error::invalid(format!("{n} values are not an array of shape {shape:?}, as the stream has")));
    }
    // What is read, and marks of values.
    exec::check_memory(size_of_val(values) as u64 + 3 * values.len() as u64)?;
    let equals =
        |restored: &[T]| -> Vec<bool> { values.iter().zip(restored).map(|(a, b)| a.bits() == b.bits()).collect() };
    let restored = restored.map_or_else(|| reader.read::<T>().map(|array| array.data), Ok)?;
    let is_equal = equals(&restored);
    drop(restored);
    let mut is_fixed = is_equal.clone();
    if is_equal.contains(&false) {
        for other in others {
            let other = Reader::new(&other[..], options.clone())?.read::<T>()?.data;
            is_fixed.iter_mut().zip(equals(&other)).for_each(|(fixed, equal)| *fixed |= equal);
        }
    }
    let workers = workers_for(values.len(), config.threads)?;
    let again = Again { layout: &reader.layout, before, values, is_equal, is_fixed, config, workers: &workers };
    again.write()
}

/// How to read a stream of as many values: decoding them takes a few times their size.
fn to_read<T: Element>(values: &[T], threads: usize) -> DecodeOptions {
    DecodeOptions::new().threads(threads).max_bytes(MOST_TIMES * size_of_val(values) as u64 + LEAST_LIMIT)
}

/// An array to be written again.
struct Again<'a, T> {
    layout: &'a Layout,
    before: &'a [u8],
    values: &'a [T],
    /// Which values are those that `before` restores.
    is_equal: Vec<bool>,
    /// These, and others that keep their bits.
    is_fixed: Vec<bool>,
    config: &'a Config,
    workers: &'a Workers,
}

impl<T: Element> Again<'_, T> {
    fn write(&self) -> Result<Vec<u8>> {
        let header = &self.layout.header;
        let is_same = !self.is_equal.contains(&false);
        if is_same
            && (self.config.stable != Some(Stable::On) || header.stable)
            && header.preset == self.config.preset
            && self.config.range.is_none()
            && self.asks_for_the_same()
        {
            return self.copy();
        }
        let shape = self.layout.grid.shape();
        let source = SliceSource::new(self.values, shape)?;
        let stats = stats::scan(&source, &self.config.fills, self.workers, &|_| ())?;
        let (plan, _) = target::plan(self.config, &source, &stats, self.workers, &|_| ())?;
        let is_plain = is_plain(&plan.boxes, &plan.bin) && is_plain(&header.boxes, &header.bin);
        let can_keep = is_plain
            && self.has_the_lattice(&plan)
            && header.preset == plan.preset
            && is_absolute(header) == plan.abs_bound.is_finite();
        if can_keep && !self.asks_for_more(&plan, is_same) {
            let again = if is_same { Some(self.copy()?) } else { self.update(&plan)? };
            if let Some(again) = again
                && self.meets_target(&again, &plan, &stats)?
            {
                return Ok(again);
            }
        }
        let mut out = Vec::new();
        append_planned(&source, &plan, self.workers, &mut out)?;
        Ok(out)
    }

    /// Whether values that are kept are where the stable mode wants them: on the lattice of the bound, or on that of the
    /// bound from before where the range decides about the bound, as that changes with the values.
    fn has_the_lattice(&self, plan: &Plan<T>) -> bool {
        let header = &self.layout.header;
        let is_on_it = self.is_of_range() || header.step == plan.step.map(T::to_bits_u64);
        self.config.stable != Some(Stable::On) || (header.stable && is_on_it)
    }

    /// Whether the range of the values sets the bound.
    fn is_of_range(&self) -> bool {
        let is_relative = |bound: &ErrorBound| matches!(bound, ErrorBound::Rel(_));
        self.config.range.is_none() && self.config.bounds.iter().any(is_relative)
    }

    /// Whether the bounds that are asked for are those of the stream.
    fn asks_for_the_same(&self) -> bool {
        let header = &self.layout.header;
        let bounds = std::iter::once(&header.bound).chain(&header.also);
        let has_parts = !header.boxes.is_empty() || !header.bin.is_empty();
        !has_parts && self.config.regions.is_empty() && self.config.bin.is_empty() && bounds.eq(&self.config.bounds)
    }

    /// Whether a looser bound is asked for than that of the stream, so that coding anew is worth it. Of the same bound
    /// relative to the range, and of the same target, each write makes another absolute bound.
    fn asks_for_more(&self, plan: &Plan<T>, is_same: bool) -> bool {
        let header = &self.layout.header;
        let is_alike = plan.bound.kind().is_target()
            || (header.bound == plan.bound && header.also == plan.also)
            || (self.is_of_range() && limit_of(header).is_lossless() && self.is_constant());
        let margin = match (is_alike, is_same) {
            (true, true) => SAME_BOUND,
            (true, false) => return false,
            (false, _) => 1.0,
        };
        let (old, new) = (limit_of(header), plan.limit());
        new.abs > old.abs * margin || new.pointwise > old.pointwise
    }

    /// Whether all values that are left are equal, which a bound relative to the range stores without loss.
    fn is_constant(&self) -> bool {
        let mut left = self.values.iter().zip(&self.is_equal).filter(|(x, equal)| **equal && x.is_finite());
        let first = left.next();
        left.all(|(x, _)| first.is_some_and(|(first, _)| first.bits() == x.bits()))
    }

    /// Whether a target that is asked for is met: the parts of a stream were coded under bounds for themselves.
    fn meets_target(&self, stream: &[u8], plan: &Plan<T>, stats: &Stats<T>) -> Result<bool> {
        let most = match plan.bound {
            ErrorBound::Ratio(asked) => return Ok(size_of_val(self.values) as f64 >= asked * stream.len() as f64),
            ErrorBound::L2(most) => most,
            ErrorBound::Psnr(db) => {
                let range = stats.range.map_or(0.0, |(lo, hi)| hi.to_f64() - lo.to_f64());
                let n = self.values.iter().filter(|x| !is_special(*x, stats.fills.iter())).count();
                range * (n as f64).sqrt() * 10_f64.powf(-db / 20.0)
            }
            _ => return Ok(true),
        };
        let restored = self.read(stream)?;
        let square = |(x, y): (&T, &T)| match x.bits() == y.bits() {
            true => 0.0,
            false => (x.to_f64() - y.to_f64()).powi(2),
        };
        let sum: f64 = self.values.iter().zip(&restored).map(square).sum();
        // No other order of summation finds it missed.
        Ok((sum * (1.0 + SUM_MARGIN)).sqrt() <= most)
    }

    fn read(&self, stream: &[u8]) -> Result<Vec<T>> {
        Ok(Reader::new(stream, to_read(self.values, self.config.threads))?.read::<T>()?.data)
    }

    /// The stream from before, with the attributes that are asked for.
    fn copy(&self) -> Result<Vec<u8>> {
        if self.layout.header.attributes == self.config.attributes {
            let mut copy = Vec::new();
            reserve(&mut copy, self.before.len())?;
            copy.extend_from_slice(self.before);
            return Ok(copy);
        }
        let header = Header { attributes: self.config.attributes.clone(), ..self.layout.header.clone() };
        self.assemble(&header, |id, out| {
            let (head, payload) = self.frame(id)?;
            self.put_frame(id, head.codec, payload, out);
            Ok(())
        })
    }

    /// The stream with what has changed; `None` if nothing would be kept, or not as it is asked for.
    fn update(&self, plan: &Plan<T>) -> Result<Option<Vec<u8>>> {
        let mut fixed = self.values.iter().zip(&self.is_fixed);
        if !fixed.any(|(x, fixed)| *fixed && !is_special(x, plan.fills.iter().chain(&plan.more_fills))) {
            return Ok(None);
        }
        let old = &self.layout.header;
        let mut header = Header { attributes: self.config.attributes.clone(), ..old.clone() };
        let (limit, mut coding) = (plan.limit(), plan.coding());
        (header.bound, header.also, header.abs_bound) = loosest(old, plan, &limit);
        header.stable = old.stable && plan.stable == Stable::On;
        header.step = old.step.or(coding.step.map(T::to_bits_u64));
        if header.stable
            && self.is_of_range()
            && let Some(step) = old.step
        {
            // The bound changes with the range: new values go to the lattice of the others, or to a finer one that has it.
            coding.step = Quantizer::finer_lattice(T::from_bits_u64(step), limit.abs);
            header.step = coding.step.map(T::to_bits_u64);
        }
        header.stable &= coding.step.map(T::to_bits_u64) == header.step;
        let step = header.step.map(T::from_bits_u64);
        let mut fills: Vec<T> = old.fills.iter().map(|&bits| T::from_bits_u64(bits)).collect();
        // Fill values beyond those that there are masks for are stored exactly, as NaN is anyway.
        let mut more_fills = Vec::new();
        for fill in plan.fills.iter().chain(&plan.more_fills).filter(|fill| !fill.is_nan()) {
            if fills.iter().all(|known| known.bits() != fill.bits()) {
                if fills.len() < MAX_FILLS { fills.push(*fill) } else { more_fills.push(*fill) }
            }
        }
        let plan = Plan { more_fills, ..plan.clone() };
        let more_fills = &plan.more_fills;
        let books = Books::of_stream(old.codebook.clone());
        header.fills = fills.iter().map(|fill| fill.to_bits_u64()).collect();
        let put = |id: u64, out: &mut Vec<u8>| {
            let (head, payload) = self.frame(id)?;
            let block = self.layout.grid.block(id);
            exec::check_memory(bytes_to_encode(&plan, block.n_values(), payload.len()))?;
            let is_equal = self.part(&self.is_equal, &block);
            let before =
                Coded { codec: head.codec, payload, step: old.step.map(T::from_bits_u64), n_fills: old.fills.len() };
            // A payload stands for other values if there are more fill values, or another step.
            let is_alike = fills.len() == old.fills.len() && header.step == old.step;
            let is_valid = is_alike || matches!(head.codec, CodecId::Raw | CodecId::Changes);
            if is_valid && !is_equal.contains(&false) {
                self.put_frame(id, head.codec, payload, out);
                return Ok(());
            }
            let inner = self.workers.for_items(self.layout.grid.n_chunks());
            let chunk = ChunkContext {
                extents: &block.extents,
                wanted: None,
                step,
                fills: &fills,
                more_fills,
                books: &books,
                workers: inner,
                max_bytes: u64::MAX,
            };
            let mut payload = Vec::new();
            let marks = Marks { is_equal: &is_equal, is_fixed: &self.part(&self.is_fixed, &block) };
            let codec = encode(&self.part(self.values, &block), &marks, &before, &limit, &coding, &chunk, &mut payload);
            self.put_frame(id, codec, &payload, out);
            Ok(())
        };
        let updated = self.assemble(&header, put)?;
        // Values that come from other streams, and those that could be kept only without loss, may be off the lattice.
        if header.stable && !self.is_stable(&updated, &coding, &fills, more_fills)? {
            header.stable = false;
            let is_asked = self.config.stable == Some(Stable::On);
            return if is_asked { Ok(None) } else { self.assemble(&header, put).map(Some) };
        }
        Ok(Some(updated))
    }

    /// Whether all values that a stream restores are on the lattice, or exact in any case.
    fn is_stable(&self, stream: &[u8], coding: &Coding<T>, fills: &[T], more_fills: &[T]) -> Result<bool> {
        let Some(lattice) = coding.lattice() else { return Ok(false) };
        let is_on_it = |x: &T| lattice.snap(*x) == *x || is_special(x, fills.iter().chain(more_fills));
        Ok(self.read(stream)?.iter().all(is_on_it))
    }

    /// The stream of frames that `put` appends, by the id of their chunk.
    fn assemble(&self, header: &Header, put: impl Fn(u64, &mut Vec<u8>) -> Result<()>) -> Result<Vec<u8>> {
        let grid = &self.layout.grid;
        let (mut frames, mut frame_bytes) = (Vec::new(), Vec::new());
        for id in 0..grid.n_chunks() {
            let start = frames.len();
            // A payload is not larger than the values, or is that from before.
            let most =
                (grid.chunk_values(id) * size_of::<T>()).max(self.layout.frames[id as usize].frame_bytes as usize);
            frames.try_reserve(MAX_HEADER_BYTES + most).map_err(|_| no_memory(most as u64))?;
            put(id, &mut frames)?;
            frame_bytes.push((frames.len() - start) as u64);
        }
        let mut out = Vec::new();
        let segments = if header.single_chunk { Vec::new() } else { grid.segment_rows()? };
        let stream = StreamWriter::start_with(header, segments, frame_bytes, &mut out)?;
        out.try_reserve(frames.len()).map_err(|_| no_memory(frames.len() as u64))?;
        out.append(&mut frames);
        stream.finish(&mut out);
        Ok(out)
    }

    /// The frame of a chunk in the stream from before.
    fn frame(&self, id: u64) -> Result<(FrameHeader, &[u8])> {
        let span = self.layout.frames[id as usize];
        let bytes = &self.before[span.offset as usize..][..span.frame_bytes as usize];
        frame::open(bytes, &self.layout.header, &self.layout.identity(id))
    }

    fn put_frame(&self, id: u64, codec: CodecId, payload: &[u8], out: &mut Vec<u8>) {
        FrameHeader::new(codec, self.layout.identity(id), payload).write_to(out);
        out.extend_from_slice(payload);
    }

    /// The values of a chunk.
    fn part<V: Copy + Default>(&self, all: &[V], block: &Block) -> Vec<V> {
        let mut part = vec![V::default(); block.n_values()];
        let zeros = vec![0; block.extents.len()];
        let from = Corner { shape: self.layout.grid.shape(), start: &block.start };
        grid::copy_block(all, from, &mut part, Corner { shape: &block.extents, start: &zeros }, &block.extents);
        part
    }
}

/// The most memory that [`encode`] takes for a chunk of so many values whose payload has so many bytes.
fn bytes_to_encode<T: Element>(plan: &Plan<T>, n_values: usize, payload_bytes: usize) -> u64 {
    // Values, restored ones, those of a part, and two payloads; marks, masks and the part that each value is from.
    let of_values = (6 * size_of::<T>() + 20) * n_values;
    pipeline::encode_bytes(plan, n_values) + (of_values + 3 * payload_bytes) as u64
}

/// Whether every coding restores a value exactly: it is a fill value or not finite.
fn is_special<'a, T: Element>(x: &T, mut fills: impl Iterator<Item = &'a T>) -> bool {
    !x.is_finite() || fills.any(|fill| fill.bits() == x.bits())
}

/// The bounds, and the absolute one, that hold for all values, whenever they were written. A target holds for what was
/// written at once only.
fn loosest<T: Element>(old: &Header, plan: &Plan<T>, now: &Limit) -> (ErrorBound, Vec<ErrorBound>, f64) {
    let before = limit_of(old);
    let joined = match (before.is_lossless(), now.is_lossless()) {
        (true, _) => *now,
        (_, true) => before,
        _ => Limit { abs: before.abs.max(now.abs), pointwise: before.pointwise.max(now.pointwise) },
    };
    let is_target = |bound: &ErrorBound| bound.kind().is_target();
    if joined == before && !is_target(&old.bound) {
        return (old.bound, old.also.clone(), old.abs_bound);
    }
    if joined == plan.limit() && !is_target(&plan.bound) {
        return (plan.bound, plan.also.clone(), plan.abs_bound);
    }
    let absolute = joined.abs.is_finite().then_some(ErrorBound::Abs(joined.abs));
    let pointwise = joined.pointwise.is_finite().then_some(ErrorBound::PwRel(joined.pointwise));
    let mut bounds = absolute.into_iter().chain(pointwise);
    let first = bounds.next().unwrap_or(old.bound);
    (first, bounds.collect(), joined.abs)
}

fn is_plain(boxes: &[BoxLimit], bin: &[usize]) -> bool {
    boxes.is_empty() && bin.is_empty()
}

/// Which values of a chunk are those from before, and which of all keep their bits.
struct Marks<'a> {
    is_equal: &'a [bool],
    is_fixed: &'a [bool],
}

/// Appends the payload of a chunk of which some values are those from before: the smallest of the payloads that restore
/// these bit for bit.
fn encode<T: Element>(
    values: &[T],
    marks: &Marks<'_>,
    before: &Coded<'_, T>,
    limit: &Limit,
    coding: &Coding<T>,
    chunk: &ChunkContext<'_, T>,
    out: &mut Vec<u8>,
) -> CodecId {
    let is_special: Vec<bool> =
        values.iter().map(|x| is_special(x, chunk.fills.iter().chain(chunk.more_fills))).collect();
    let is_special = &is_special[..];
    let kept = |marks: &[bool]| -> Vec<bool> {
        marks.iter().zip(is_special).map(|(mark, special)| *mark && !special).collect()
    };
    let count = |all: &[bool]| all.iter().filter(|one| **one).count();
    let is_changed: Vec<bool> = marks.is_equal.iter().map(|equal| !equal).collect();
    let (is_kept, n_equal) = (kept(marks.is_fixed), count(&kept(marks.is_equal)));
    // The values that should keep their bits, but do not under this payload.
    let moved_by = |codec: CodecId, payload: &[u8], chunk: &ChunkContext<'_, T>| -> Vec<bool> {
        let mut restored = scratch::take(values.len());
        codec::decode(codec, payload, chunk, &mut restored).expect("what was encoded can be decoded");
        let is_moved = |((a, b), kept): ((&T, &T), &bool)| *kept && a.bits() != b.bits();
        let is_moved = restored.iter().zip(values).zip(&is_kept).map(is_moved).collect();
        scratch::give(restored);
        is_moved
    };
    let rewrite = Rewrite { before: *before, is_marked: &is_changed, is_special, limit: *limit, coding: *coding };
    let is_coded = n_equal > 0
        && Changes::encode(values, &rewrite, chunk, out)
        && !moved_by(CodecId::Changes, out, chunk).contains(&true);
    let n_free = values.len() - count(is_special);
    if is_coded && n_equal >= n_free / MOSTLY_KEPT * (MOSTLY_KEPT - 1) && !is_on_lattice(before) {
        return CodecId::Changes;
    }
    if !is_coded {
        out.clear();
    }

    // All values anew, and those that this moves without loss.
    let mut payload = Vec::new();
    let fresh = ChunkContext { step: coding.step, ..*chunk };
    let codec = pipeline::encode_limited(values, limit, coding, &fresh, &mut payload);
    let is_moved = moved_by(codec, &payload, &fresh);
    let needs_layer = is_moved.contains(&true) || chunk.step.map(T::to_bits_u64) != coding.step.map(T::to_bits_u64);
    let mut others = Vec::new();
    let other_codec = if needs_layer {
        let exact = Coding { step: None, abs_bound: 0.0, ..*coding };
        let before = Coded { codec, payload: &payload, step: coding.step, n_fills: chunk.fills.len() };
        let rewrite = Rewrite { before, is_marked: &is_moved, is_special, limit: Limit::LOSSLESS, coding: exact };
        Changes::encode(values, &rewrite, chunk, &mut others).then_some(CodecId::Changes)
    } else {
        others = payload;
        Some(codec)
    };
    match other_codec {
        Some(codec) if !is_coded || others.len() <= out.len() => {
            *out = others;
            codec
        }
        _ if is_coded => CodecId::Changes,
        // Many values of few bits each: no loss is the last resort.
        _ => pipeline::encode_limited(values, &Limit::LOSSLESS, coding, chunk, out),
    }
}

/// Whether all values that a payload restores are on the lattice of its step, so that coding them again may change none.
fn is_on_lattice<T: Element>(coded: &Coded<'_, T>) -> bool {
    match coded.codec {
        CodecId::Raw | CodecId::Pointwise | CodecId::Regions | CodecId::Changes => false,
        CodecId::Small => small::is_on_lattice(coded.payload),
        _ => true,
    }
}

/// The limit of all values of a stream without regions.
fn limit_of(header: &Header) -> Limit {
    crate::plan::limit_of(header.abs_bound, header.bound, &header.also)
}

fn is_absolute(header: &Header) -> bool {
    header.abs_bound.is_finite()
}
