//! Which bytes of a file a rank sees through its view.

use crate::boxes::Run;
use crate::datatype::Layout;

/// A view: the bytes of a file type, again and again.
#[derive(Clone, Debug)]
pub(crate) struct View {
    displacement: u64,
    /// Bytes in which positions are counted.
    etype: u64,
    /// From one file type to the next.
    extent: u64,
    /// Ascending bytes of a file type, and how many of its bytes come before each.
    segments: Vec<(Run, u64)>,
    size: u64,
}

impl Default for View {
    /// All bytes of the file.
    fn default() -> Self {
        Self { displacement: 0, etype: 1, extent: 1, segments: vec![(Run { start: 0, len: 1 }, 0)], size: 1 }
    }
}

impl View {
    /// `None`: not a view that the standard allows.
    pub(crate) fn new(displacement: i64, etype_size: usize, filetype: &Layout) -> Option<Self> {
        let extent = u64::try_from(filetype.extent).ok()?;
        let (mut segments, mut size, mut end) = (Vec::new(), 0, 0);
        for segment in &filetype.segments {
            let run = Run { start: u64::try_from(segment.offset).ok()?, len: segment.len as u64 };
            if run.start < end {
                return None;
            }
            segments.push((run, size));
            size += run.len;
            end = run.end();
        }
        let displacement = u64::try_from(displacement).ok()?;
        // A rank that writes nothing may have a view without bytes.
        let is_valid = etype_size > 0 && segments.first().is_none_or(|(first, _)| end - first.start <= extent);
        is_valid.then_some(Self { displacement, etype: etype_size as u64, extent, segments, size })
    }

    /// Bytes in which positions are counted.
    pub(crate) fn etype(&self) -> u64 {
        self.etype
    }

    /// The bytes of the file that `n` bytes from a position are, in this order. Runs that touch are joined. `None`: they are
    /// beyond what 63 bits can count.
    pub(crate) fn runs(&self, position: u64, n: u64) -> Option<Vec<Run>> {
        let mut out: Vec<Run> = Vec::new();
        if n == 0 {
            return Some(out);
        }
        let from = position.checked_mul(self.etype)?;
        let farthest = (from.checked_add(n)?.checked_div(self.size)? + 1).checked_mul(self.extent)?;
        i64::try_from(farthest.checked_add(self.displacement)?).ok()?;
        if self.extent == self.size && self.segments.len() == 1 {
            return Some(vec![Run { start: self.displacement + self.segments[0].0.start + from, len: n }]);
        }
        let (mut item, within) = (from / self.size, from % self.size);
        let mut i = self.segments.partition_point(|(_, before)| *before <= within) - 1;
        let mut skip = within - self.segments[i].1;
        let mut rest = n;
        while rest > 0 {
            let run = self.segments[i].0;
            let len = (run.len - skip).min(rest);
            let start = self.displacement + item * self.extent + run.start + skip;
            match out.last_mut() {
                Some(last) if last.end() == start => last.len += len,
                _ => out.push(Run { start, len }),
            }
            (rest, skip, i) = (rest - len, 0, i + 1);
            if i == self.segments.len() {
                (item, i) = (item + 1, 0);
            }
        }
        Some(out)
    }

    /// The position behind the last whole unit of a file of so many bytes.
    pub(crate) fn end_position(&self, file_bytes: u64) -> u64 {
        let Some((first, _)) = self.segments.first() else { return 0 };
        // From the first byte of the first item.
        let bytes = file_bytes.saturating_sub(self.displacement + first.start);
        let (items, rest) = (bytes / self.extent, bytes % self.extent);
        let inside = |run: &Run| rest.saturating_sub(run.start - first.start).min(run.len);
        let inside: u64 = self.segments.iter().map(|(run, _)| inside(run)).sum();
        (items * self.size + inside) / self.etype
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::datatype::{Kind, Segment};

    fn view(displacement: i64, etype: usize, extent: isize, segments: &[(isize, usize)]) -> Option<View> {
        let segments: Vec<Segment> =
            segments.iter().map(|(offset, len)| Segment { offset: *offset, len: *len }).collect();
        let size = segments.iter().map(|s| s.len).sum();
        View::new(displacement, etype, &Layout { kind: Kind::Bytes, size, extent, segments })
    }

    /// Byte by byte.
    fn expected(displacement: u64, extent: u64, segments: &[(isize, usize)], from: u64, n: u64) -> Vec<u64> {
        let bytes: Vec<u64> =
            segments.iter().flat_map(|(o, len)| (0..*len as u64).map(move |i| *o as u64 + i)).collect();
        let size = bytes.len() as u64;
        (from..from + n).map(|k| displacement + k / size * extent + bytes[(k % size) as usize]).collect()
    }

    /// Displacement, extent and segments.
    type Case<'a> = (i64, isize, &'a [(isize, usize)]);

    #[test]
    fn runs_are_the_bytes_of_the_view() {
        let views: [Case<'_>; 5] = [
            (0, 8, &[(0, 8)]),
            (100, 32, &[(8, 8)]),
            (5, 48, &[(0, 8), (16, 16)]),
            (0, 24, &[(0, 8), (16, 8)]),
            (3, 8, &[(8, 8)]),
        ];
        for (displacement, extent, segments) in views {
            let view = view(displacement, 4, extent, segments).unwrap();
            for (position, n) in [(0, 0), (0, 1), (0, 100), (3, 9), (4, 24), (7, 64), (1000, 13)] {
                let runs = view.runs(position, n).unwrap();
                assert!(runs.windows(2).all(|pair| pair[0].end() != pair[1].start), "{runs:?}");
                let bytes: Vec<u64> = runs.iter().flat_map(|run| run.start..run.end()).collect();
                let expected = expected(displacement as u64, extent as u64, segments, position * 4, n);
                assert_eq!(bytes, expected, "{segments:?} {position} {n}");
                // A file that ends with these bytes ends at their position.
                if n > 0 && n % 4 == 0 {
                    assert_eq!(view.end_position(bytes[bytes.len() - 1] + 1), position + n / 4);
                }
            }
        }
    }

    #[test]
    fn refuses_what_is_not_a_view() {
        assert!(view(-1, 1, 8, &[(0, 8)]).is_none());
        assert!(view(0, 1, 8, &[(4, 4), (0, 4)]).is_none());
        assert!(view(0, 1, 8, &[(-4, 4)]).is_none());
        assert!(view(0, 0, 8, &[(0, 8)]).is_none());
        assert!(view(0, 1, 4, &[(0, 8)]).is_none());
        let empty = view(0, 1, 0, &[]).unwrap();
        assert!(empty.runs(0, 1).is_none() && empty.runs(5, 0) == Some(Vec::new()) && empty.end_position(9) == 0);
        assert!(View::default().runs(u64::MAX, 1).is_none());
        assert_eq!(View::default().end_position(12), 12);
    }
}
