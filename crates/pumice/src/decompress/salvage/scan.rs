//! The scan of a file for headers, frames and indices. It takes time in proportion to the file, whatever is in it, and
//! memory for the frames of one stream: payloads are hashed in parts.

use std::rc::Rc;

use super::part::{Found, Part};
use crate::container::frame::{self, FrameHeader, MAX_HEADER_BYTES};
use crate::container::header::{self, Header};
use crate::container::index::{Footer, Index};
use crate::container::{FrameSpan, MAGIC};
use crate::decompress::lists::Lists;
use crate::error::{ErrorKind, Result};
use crate::exec::reserve;
use crate::io::checksum::{BLOCK_BYTES, PayloadHasher};
use crate::io::{Bytes, ReadAt, read};

/// What the scan looks for.
const MARKERS: [[u8; 4]; 4] = [MAGIC, frame::MARKER, Index::MARKERS[0], Index::MARKERS[1]];
/// Bytes scanned for markers, or hashed, at a time.
const SCAN_BYTES: u64 = 1 << 20;
/// Of an index, whose size is unknown, so many bytes are read first.
const INDEX_BYTES: u64 = 64;

/// What is behind a marker, by how much it takes to find out.
#[derive(Clone, Copy)]
enum Kind {
    Header,
    Index,
    Frame,
    /// A frame at whose end there is a marker, or the file ends.
    LinkedFrame,
}

/// How many bytes were checked in vain, by kind and by size, four times as large from class to class. What is false takes
/// little of this unless it was forged; then it must not use up what is there for others.
struct Effort([[u64; 33]; 4]);

impl Effort {
    /// How often each byte may be checked in vain, in each class.
    const SHARE: u64 = 16;
    /// So many bytes in addition.
    const FREE: u64 = 1 << 20;

    fn class(&mut self, kind: Kind, bytes: u64) -> &mut u64 {
        &mut self.0[kind as usize][(u64::BITS - bytes.leading_zeros()).div_ceil(2) as usize]
    }

    /// Whether so many bytes may be checked at this offset.
    fn spend(&mut self, kind: Kind, bytes: u64, offset: u64) -> bool {
        let spent = self.class(kind, bytes);
        let is_allowed = *spent <= offset.saturating_mul(Self::SHARE).saturating_add(Self::FREE);
        *spent = spent.saturating_add(if is_allowed { bytes } else { 0 });
        is_allowed
    }

    /// They were not checked in vain: the scan goes on behind them.
    fn regain(&mut self, kind: Kind, bytes: u64) {
        let spent = self.class(kind, bytes);
        *spent = spent.saturating_sub(bytes);
    }
}

/// A search for streams through the whole file.
pub(super) struct Scan<'a, R> {
    source: &'a R,
    file_bytes: u64,
    lists: &'a mut Lists,
    effort: Effort,
    buffer: Vec<u8>,
    /// The bytes that are scanned for markers, and their offset.
    window: Vec<u8>,
    window_offset: u64,
    current: Part,
    /// Streams before the current one that were not passed on yet.
    ended: Vec<Part>,
}

impl<'a, R: ReadAt> Scan<'a, R> {
    pub(super) fn new(source: &'a R, lists: &'a mut Lists) -> Result<Self> {
        Ok(Self {
            source,
            file_bytes: source.len()?,
            lists,
            effort: Effort([[0; 33]; 4]),
            buffer: Vec::new(),
            window: Vec::new(),
            window_offset: 0,
            current: Part::default(),
            ended: Vec::new(),
        })
    }

    /// Passes on what was found of each stream, in order; `take` says whether it keeps it. Streams of which only the header
    /// was found are passed on, too.
    pub(super) fn run(mut self, mut take: impl FnMut(Part, &mut Lists) -> Result<bool>) -> Result<()> {
        let mut at = 0;
        while let Some((offset, marker)) = self.next_marker(at)? {
            let end = match marker {
                MAGIC => self.header_at(offset)?,
                frame::MARKER => self.frame_at(offset)?,
                _ => self.index_at(offset)?,
            };
            at = end.unwrap_or(offset + 1);
            self.pass_on(&mut take)?;
        }
        self.start(Part::default());
        self.pass_on(&mut take)
    }

    fn pass_on(&mut self, take: &mut impl FnMut(Part, &mut Lists) -> Result<bool>) -> Result<()> {
        for part in self.ended.drain(..) {
            part.cut_at_seams(self.lists, |part, lists| {
                let list_bytes = part.list_bytes();
                if !take(part, lists)? {
                    lists.give(list_bytes);
                }
                Ok(())
            })?;
        }
        Ok(())
    }

    /// Ends the current stream, and starts the next.
    fn start(&mut self, next: Part) {
        let part = std::mem::replace(&mut self.current, next);
        if part.header.is_some() || !part.is_empty() {
            self.ended.push(part);
        }
    }

    /// Offset and bytes of the next marker.
    fn next_marker(&mut self, from: u64) -> Result<Option<(u64, [u8; 4])>> {
        let mut at = from;
        while at + 4 <= self.file_bytes {
            let is_in_window = at >= self.window_offset && at + 4 <= self.window_offset + self.window.len() as u64;
            if !is_in_window {
                let n = SCAN_BYTES.min(self.file_bytes - at) as usize;
                self.window.clear();
                reserve(&mut self.window, n)?;
                self.window.resize(n, 0);
                self.source.read_exact_at(&mut self.window, at)?;
                self.window_offset = at;
            }
            let rest = &self.window[(at - self.window_offset) as usize..];
            if let Some(i) = rest.windows(4).position(|bytes| MARKERS.iter().any(|marker| bytes == marker)) {
                let marker = *rest[i..].first_chunk().expect("there is a marker");
                return Ok(Some((at + i as u64, marker)));
            }
            at += rest.len() as u64 - 3;
        }
        Ok(None)
    }

    /// Accepts the header at `offset` if its checksum holds, and returns where it ends.
    fn header_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.file_bytes - offset;
        let head = read(self.source, offset, room.min(header::PREFIX_BYTES as u64), &mut self.buffer)?;
        let header_bytes = header::peek_header_bytes(head).unwrap_or(0) as u64;
        if header_bytes > room || !self.effort.spend(Kind::Header, header_bytes, offset) {
            return Ok(None);
        }
        let bytes = read(self.source, offset, header_bytes, &mut self.buffer)?;
        let Ok((header, n)) = Header::read_from(bytes) else { return Ok(None) };
        self.effort.regain(Kind::Header, header_bytes);
        let (header, end) = (Some(Rc::new(header)), offset + n as u64);
        if header.as_ref().is_some_and(|header| !header.single_chunk) && self.ends_index(end)? {
            // A copy, in an index that is damaged.
            if self.current.header.is_none() && !self.current.is_complete {
                self.current.header = header;
            }
            self.current.is_complete = true;
        } else {
            self.start(Part { header, header_bytes: n, ..Part::default() });
        }
        Ok(Some(end))
    }

    /// Whether a checksum and the footer are at `offset`, as at the end of the header's copy in an index.
    fn ends_index(&mut self, offset: u64) -> Result<bool> {
        const CHECKSUM_BYTES: u64 = 8;
        let n = CHECKSUM_BYTES + Footer::BYTES as u64;
        if n > self.file_bytes - offset {
            return Ok(false);
        }
        Ok(read(self.source, offset, n, &mut self.buffer)?.ends_with(&Footer::MAGIC))
    }

    /// Accepts the frame at `offset` if its checksum holds, and returns where it ends.
    fn frame_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.file_bytes - offset;
        let head = read(self.source, offset, room.min(MAX_HEADER_BYTES as u64), &mut self.buffer)?;
        let mut bytes = Bytes::new(head);
        // What follows a complete stream is the next one, whose header is lost: only chunked ones have a copy of it.
        let unknown = Part::default();
        let part = if self.current.is_complete { &unknown } else { &self.current };
        let header = match &part.header {
            Some(header) => FrameHeader::read_from(&mut bytes, header),
            None => FrameHeader::read_with(&mut bytes, None),
        };
        let Ok(header) = header else { return Ok(None) };
        let frame_header_bytes = (head.len() - bytes.len()) as u64;
        // A frame takes 15 bytes or more, so ids beyond the size of the file are forged.
        let plausible = header.payload_bytes <= part.max_payload()
            && header.payload_bytes <= room - frame_header_bytes
            && header.identity.chunk_id < self.file_bytes
            && part.can_have(&header.identity);
        if !plausible {
            return Ok(None);
        }
        let frame_bytes = frame_header_bytes + header.payload_bytes;
        let kind = if self.is_link(offset + frame_bytes)? { Kind::LinkedFrame } else { Kind::Frame };
        if !self.effort.spend(kind, frame_bytes, offset) || !self.matches(&header, offset + frame_header_bytes)? {
            return Ok(None);
        }
        self.effort.regain(kind, frame_bytes);
        self.add_frame(header, FrameSpan { offset, frame_bytes })?;
        Ok(Some(offset + frame_bytes))
    }

    /// Whether a marker is here, or the end of the file.
    fn is_link(&mut self, offset: u64) -> Result<bool> {
        if offset + 4 > self.file_bytes {
            return Ok(offset == self.file_bytes);
        }
        let bytes = read(self.source, offset, 4, &mut self.buffer)?;
        Ok(MARKERS.iter().any(|marker| bytes == marker))
    }

    /// Whether the checksum holds for the payload at `offset`.
    fn matches(&mut self, header: &FrameHeader, offset: u64) -> Result<bool> {
        const { assert!(SCAN_BYTES.is_multiple_of(BLOCK_BYTES as u64)) };
        let mut hasher = PayloadHasher::default();
        let (mut at, end) = (offset, offset + header.payload_bytes);
        while at < end {
            let n = SCAN_BYTES.min(end - at);
            hasher.add(read(self.source, at, n, &mut self.buffer)?);
            at += n;
        }
        Ok(header.check_hash(hasher.finish()).is_ok())
    }

    fn add_frame(&mut self, header: FrameHeader, span: FrameSpan) -> Result<()> {
        let found =
            Found { identity: header.identity, frame_checksum: header.frame_checksum, span, is_uncertain: false };
        let part = &self.current;
        let id_of = |found: &Found| found.identity.chunk_id;
        let goes_back = part.frames.last().is_some_and(|last| id_of(&found) <= id_of(last));
        if goes_back && !part.is_complete {
            let same = part.frames.binary_search_by_key(&id_of(&found), id_of);
            if same.is_ok_and(|i| part.frames[i].frame_checksum == found.frame_checksum) {
                return Ok(()); // the same frame again
            }
        }
        if part.is_complete || goes_back {
            self.start(Part::default());
        }
        self.lists.push(&mut self.current.frames, found)?;
        self.current.is_complete = self.current.is_single();
        Ok(())
    }

    /// Accepts the index at `offset` if its checksum holds, and returns where it ends.
    fn index_at(&mut self, offset: u64) -> Result<Option<u64>> {
        let room = self.file_bytes - offset;
        let mut n = room.min(INDEX_BYTES);
        let (index_bytes, list_bytes) = loop {
            if !self.effort.spend(Kind::Index, n, offset) {
                return Ok(None);
            }
            // What is so long, and like an index all along, is one.
            self.lists.check(n)?;
            match Index::measure(read(self.source, offset, n, &mut self.buffer)?) {
                Ok(sizes) => break sizes,
                Err(e) if e.kind() == ErrorKind::Truncated && n < room => {
                    // The next class; the last step may be in the same one.
                    if room < 4 * n {
                        self.effort.regain(Kind::Index, n);
                    }
                    n = room.min(4 * n);
                }
                Err(_) => return Ok(None),
            }
        };
        self.effort.regain(Kind::Index, n);
        self.lists.take(list_bytes)?;
        let mut bytes = Bytes::new(read(self.source, offset, index_bytes as u64, &mut self.buffer)?);
        let index = Index::read_from(&mut bytes, u64::MAX)?; // its lists were counted
        self.add_index(offset, index, list_bytes)?;
        Ok(Some(offset + index_bytes as u64))
    }

    /// Ends the current stream, or the end of another one whose beginning is lost, by its index.
    fn add_index(&mut self, offset: u64, index: Index, list_bytes: u64) -> Result<()> {
        if self.current.is_complete {
            self.start(Part::default());
        }
        let own = self.current.header.clone().map(|own| (own, self.current.header_bytes));
        let header = match (own, index.header()) {
            (Some(own), Some(copy)) if *own.0 == copy => Some(own),
            (_, Some(copy)) => Some((Rc::new(copy), 0)),
            (own, None) => own,
        };
        // An index that does not fit its header is forged, or one without a copy whose header is lost.
        let fits = |(header, _): &(Rc<Header>, usize)| !header.single_chunk && index.check(header).is_ok();
        let Some((header, header_bytes)) = header.filter(fits) else {
            self.lists.give(list_bytes);
            self.current.is_complete = true;
            return Ok(());
        };
        let frames = self.current.split_by(offset, &index, &header, self.lists)?;
        let part = Part { header: Some(header), header_bytes, frames, index: Some(index), is_complete: true };
        if self.current.is_empty() {
            self.current = part;
        } else {
            self.start(part);
        }
        Ok(())
    }
}
