//! What a rank has written to a file and keeps until the file is closed.

use std::collections::BTreeMap;

use crate::boxes::Run;

/// Runs of bytes with their place in the file.
#[derive(Default)]
pub(crate) struct Kept {
    /// In the order of writing, until [`Self::settle`].
    pieces: Vec<Piece>,
    buffers: Vec<Vec<u8>>,
    n_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct Piece {
    run: Run,
    buffer: usize,
    at: usize,
}

/// Small writes that follow each other share buffers up to this size.
const SHARED_BUFFER: usize = 1 << 20;

impl Kept {
    /// Bytes of memory, without the lists.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.n_bytes
    }

    pub(crate) fn add(&mut self, runs: &[Run], bytes: Vec<u8>) {
        self.n_bytes += bytes.len() as u64;
        if let ([run], Some(last), Some(buffer)) = (runs, self.pieces.last_mut(), self.buffers.last_mut())
            && last.run.end() == run.start
            && last.at + last.run.len as usize == buffer.len()
            && buffer.len() + bytes.len() <= SHARED_BUFFER
        {
            last.run.len += run.len;
            buffer.extend_from_slice(&bytes);
            return;
        }
        let mut at = 0;
        for run in runs {
            self.pieces.push(Piece { run: *run, buffer: self.buffers.len(), at });
            at += run.len as usize;
        }
        self.buffers.push(bytes);
    }

    /// Drops what is beyond the end of a file that is made so short.
    pub(crate) fn truncate(&mut self, file_bytes: u64) {
        self.pieces.retain_mut(|piece| {
            piece.run.len = piece.run.len.min(file_bytes.saturating_sub(piece.run.start));
            piece.run.len > 0
        });
    }

    /// The pieces with their bytes: in the order of writing, or ascending after [`Self::settle`].
    pub(crate) fn pieces(&self) -> impl Iterator<Item = (Run, &[u8])> {
        self.pieces.iter().map(|p| (p.run, &self.buffers[p.buffer][p.at..p.at + p.run.len as usize]))
    }

    pub(crate) fn runs(&self) -> Vec<Run> {
        self.pieces.iter().map(|piece| piece.run).collect()
    }

    /// Sorts the pieces by their place; where they overlap, the latest stays.
    pub(crate) fn settle(&mut self) {
        let is_later = |pair: &[Piece]| pair[0].run.end() > pair[1].run.start;
        let mut sorted = self.pieces.clone();
        sorted.sort_by_key(|piece| piece.run.start);
        if !sorted.windows(2).any(is_later) {
            self.pieces = sorted;
            return;
        }
        // From the latest to the first: what no later one has.
        let mut settled: BTreeMap<u64, Piece> = BTreeMap::new();
        for piece in self.pieces.iter().rev() {
            let mut gaps = Vec::new();
            let mut next = piece.run.start;
            let before = settled.range(..next).next_back().map(|(_, last)| last.run.end());
            next = next.max(before.unwrap_or(0)).min(piece.run.end());
            for (start, later) in settled.range(next..piece.run.end()) {
                gaps.push(next..*start);
                next = later.run.end();
            }
            gaps.push(next..piece.run.end());
            for gap in gaps.into_iter().filter(|gap| gap.start < gap.end) {
                let at = piece.at + (gap.start - piece.run.start) as usize;
                let run = Run { start: gap.start, len: gap.end - gap.start };
                settled.insert(gap.start, Piece { run, buffer: piece.buffer, at });
            }
        }
        self.pieces = settled.into_values().collect();
    }

    /// Copies bytes of a file; all of them must be there. After [`Self::settle`].
    pub(crate) fn copy(&self, mut start: u64, mut out: &mut [u8]) {
        let mut i = self.pieces.partition_point(|piece| piece.run.end() <= start);
        while !out.is_empty() {
            let piece = self.pieces[i];
            let skip = (start - piece.run.start) as usize;
            let n = (piece.run.len as usize - skip).min(out.len());
            let (part, rest) = out.split_at_mut(n);
            let at = piece.at + skip;
            part.copy_from_slice(&self.buffers[piece.buffer][at..at + n]);
            (start, out, i) = (start + n as u64, rest, i + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_write_stays() {
        // A simple generator of writes, and a file in memory beside it.
        let mut seed = 7_u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % n
        };
        for _ in 0..200 {
            let (mut kept, mut file) = (Kept::default(), vec![None; 100]);
            for value in 0..next(12) as u8 {
                let mut runs: Vec<Run> =
                    (0..=next(2)).map(|i| Run { start: 40 * i + next(20), len: next(20) + 1 }).collect();
                if next(3) == 0 {
                    runs.truncate(1);
                }
                let n: u64 = runs.iter().map(|run| run.len).sum();
                kept.add(&runs, vec![value; n as usize]);
                runs.iter().for_each(|run| file[run.start as usize..run.end() as usize].fill(Some(value)));
            }
            if next(2) == 0 {
                kept.truncate(50);
                file[50..].fill(None);
            }
            kept.settle();
            let runs = kept.runs();
            assert!(runs.windows(2).all(|pair| pair[0].end() <= pair[1].start), "{runs:?}");
            for (v, expected) in file.iter().enumerate() {
                let is_there = runs.iter().any(|run| run.start <= v as u64 && (v as u64) < run.end());
                assert_eq!(is_there, expected.is_some());
                if let Some(value) = expected {
                    let mut byte = [99];
                    kept.copy(v as u64, &mut byte);
                    assert_eq!(byte, [*value]);
                }
            }
        }
    }

    #[test]
    fn bytes_are_copied_across_pieces() {
        let mut kept = Kept::default();
        kept.add(&[Run { start: 10, len: 3 }, Run { start: 0, len: 2 }], vec![1, 2, 3, 4, 5]);
        kept.add(&[Run { start: 2, len: 8 }], (10..18).collect());
        kept.settle();
        let mut out = [0; 12];
        kept.copy(1, &mut out);
        assert_eq!(out, [5, 10, 11, 12, 13, 14, 15, 16, 17, 1, 2, 3]);
        assert_eq!(kept.n_bytes(), 13);
    }
}
