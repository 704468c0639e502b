//! Salvage of files that hold more than one stream, and of damage among bytes that look like a stream.

use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};

use pumice::{Config, DecodeOptions, ErrorBound, ErrorKind, ReadAt, Salvage};
use pumice_testkit::Rng;

const N_CHUNKS: usize = 40;
const CHUNK: usize = 8000;

fn options() -> DecodeOptions {
    DecodeOptions::new().threads(1)
}

/// Values that nothing compresses.
fn noise(seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..N_CHUNKS * CHUNK).map(|_| f32::from_bits(rng.bits() as u32 & 0xff7f_ffff)).collect()
}

/// A stream of raw chunks: the same header and the same sizes for any values.
fn stream(values: &[f32]) -> Vec<u8> {
    let config = Config::new(ErrorBound::Lossless).chunk_shape(&[CHUNK]).threads(1);
    pumice::compress(values, &[values.len()], &config).unwrap()
}

/// Where the frames of a stream of raw chunks are: they end where the index starts.
fn frames(bytes: &[u8], values: &[f32]) -> Vec<Range<usize>> {
    let mut end = bytes.windows(4).rposition(|window| window == b"INDH").unwrap();
    let mut frames: Vec<Range<usize>> = (0..N_CHUNKS)
        .rev()
        .map(|id| {
            let payload = CHUNK * 4;
            let varints = [id, id * CHUNK, CHUNK, payload].map(|n| (n.max(1).ilog2() as usize) / 7 + 1);
            let start = end - (4 + 1 + varints.iter().sum::<usize>() + 8 + payload);
            assert_eq!(bytes[start..start + 4], *b"CHNK");
            let frame = start..end;
            end = start;
            frame
        })
        .collect();
    assert_eq!(values.len(), N_CHUNKS * CHUNK);
    frames.reverse();
    frames
}

/// The ids of intact chunks, of which each must have these values.
fn intact_of<R: ReadAt>(salvage: &Salvage<R>, values: &[f32]) -> Vec<u64> {
    salvage
        .for_each_chunk::<f32>(|region, found| {
            let bits = |values: &[f32]| values.iter().map(|v| v.to_bits()).collect::<Vec<_>>();
            assert!(bits(found) == bits(&values[region[0].clone()]), "{region:?}");
            Ok(())
        })
        .unwrap();
    salvage.intact().to_vec()
}

fn ids(range: Range<u64>) -> Vec<u64> {
    range.collect()
}

#[test]
fn chunks_of_two_streams_with_equal_headers_are_not_mixed() {
    let (a_values, b_values) = (noise(1), noise(2));
    let (a, b) = (stream(&a_values), stream(&b_values));
    let (a_frames, b_frames) = (frames(&a, &a_values), frames(&b, &b_values));
    assert_eq!(a[..a_frames[0].start], b[..b_frames[0].start]);
    // From within the first to within the second: where chunks follow by their ids, and where some are missing.
    for (from, to) in [(20, 20), (20, 25), (39, 1), (1, 39), (20, 10)] {
        let mut both = [&a[..], &b].concat();
        both[a_frames[from].start..a.len() + b_frames[to].start].fill(0);
        let salvage = pumice::salvage(&both[..], options()).unwrap();
        assert_eq!((salvage.n_streams(), salvage.end_is_known()), (2, false));
        assert_eq!(intact_of(&salvage, &a_values), ids(0..from as u64));
        assert!(salvage.uncertain().is_empty());
        let salvage = pumice::salvage_stream(&both[..], 1, options()).unwrap();
        assert_eq!((salvage.n_streams(), salvage.end_is_known()), (2, true));
        assert_eq!(intact_of(&salvage, &b_values), ids(to as u64..N_CHUNKS as u64));
        assert!(salvage.uncertain().is_empty());
        // Without the second index, too, only the gap tells. Whose header the second has is not known any more.
        let both = &both[..a.len() + b_frames[N_CHUNKS - 1].end];
        let salvage = pumice::salvage(both, options()).unwrap();
        assert_eq!((salvage.n_streams(), salvage.end_is_known()), (2, false));
        assert_eq!(intact_of(&salvage, &a_values), ids(0..from as u64));
        let salvage = pumice::salvage_stream(both, 1, options());
        if to >= from {
            let salvage = salvage.unwrap();
            assert_eq!(intact_of(&salvage, &b_values), ids(to as u64..N_CHUNKS as u64));
            assert_eq!(salvage.uncertain(), salvage.intact());
        } else {
            // The ids go back: nothing says that the header is the same.
            assert!(salvage.unwrap_err().to_string().contains("neither the header"));
        }
    }
}

#[test]
fn chunks_that_were_moved_are_saved_and_named() {
    let values = noise(3);
    let bytes = stream(&values);
    let frames = frames(&bytes, &values);
    // Bytes that are lost or added in one stream, the index being intact.
    let mut shorter = bytes.clone();
    shorter.drain(frames[10].start + 100..frames[15].start + 7);
    let mut longer = bytes.clone();
    longer.splice(frames[12].start..frames[12].start, vec![7; 3000]);
    for (damaged, lost, moved) in [(&shorter, ids(10..16), ids(0..10)), (&longer, vec![], ids(0..12))] {
        let salvage = pumice::salvage(&damaged[..], options()).unwrap();
        assert_eq!((salvage.n_streams(), salvage.end_is_known()), (1, true));
        let intact = intact_of(&salvage, &values);
        assert_eq!(intact, (0..N_CHUNKS as u64).filter(|id| !lost.contains(id)).collect::<Vec<_>>());
        assert_eq!(salvage.uncertain(), moved);
    }
    // More is added than there was before: another stream could have been there, so what is before is not mixed with the
    // rest, but saved as well.
    longer.splice(frames[3].start..frames[3].start, vec![7; frames[12].end]);
    let salvage = pumice::salvage(&longer[..], options()).unwrap();
    assert_eq!((salvage.n_streams(), intact_of(&salvage, &values)), (2, ids(0..3)));
    let salvage = pumice::salvage_stream(&longer[..], 1, options()).unwrap();
    assert_eq!(intact_of(&salvage, &values), ids(3..N_CHUNKS as u64));
    // The index is at its place, but two chunks have changed theirs.
    let mut exchanged = bytes.clone();
    exchanged[frames[20].clone()].copy_from_slice(&bytes[frames[21].clone()]);
    exchanged[frames[21].clone()].copy_from_slice(&bytes[frames[20].clone()]);
    let salvage = pumice::salvage(&exchanged[..], options()).unwrap();
    assert_eq!(intact_of(&salvage, &values), ids(0..N_CHUNKS as u64));
    assert_eq!(salvage.uncertain(), [20, 21]);
    assert!(pumice::salvage(&bytes[..], options()).unwrap().uncertain().is_empty());
}

/// Counts the bytes that are read.
struct Counted<'a>(&'a [u8], AtomicUsize);

impl ReadAt for Counted<'_> {
    fn len(&self) -> pumice::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_exact_at(&self, out: &mut [u8], offset: u64) -> pumice::Result<()> {
        self.1.fetch_add(out.len(), Ordering::Relaxed);
        self.0.read_exact_at(out, offset)
    }
}

/// Whatever bytes a damaged chunk holds, all others are found.
#[test]
fn what_looks_like_a_stream_in_a_damaged_chunk_costs_no_other_chunk() {
    // Sizes from a header on: that of a frame of the next chunk, of one of twice its size, and indices that claim much.
    let frame = [&b"CHNK\x00\x05\xc0\xb8\x02\xc0\x3e\x80\xfa\x01"[..], &[9; 10]].concat();
    let large_frame = [&b"CHNK\x02\x05\xc0\xb8\x02\xc0\x3e\x80\xf4\x03"[..], &[9; 10]].concat();
    let index = [&b"INDX\x01\x20\xff\xff\x7f"[..], &[0x40; 3]].concat();
    let long_index = [&b"INDH\xff\xff\x7f"[..], &[1; 1000]].concat();
    let empty_index = b"INDX\0\0\0\0".to_vec();
    let header = b"PUM\x1a\x01\x01\xff\xff".to_vec();
    let values = noise(4);
    let mut damaged = stream(&values);
    let frames = frames(&damaged, &values);
    damaged.truncate(frames[N_CHUNKS - 1].end + 30);
    let markers = [b"INDX", b"INDH", b"CHNK", b"PUM\x1a"].map(|marker| marker.to_vec());
    for pattern in markers.into_iter().chain([index, long_index, empty_index, frame, large_frame, header]) {
        let payload = frames[3].start + 40..frames[3].end;
        damaged[payload].iter_mut().zip(pattern.iter().cycle()).for_each(|(to, byte)| *to = *byte);
        let salvage = pumice::salvage(&damaged[..], options()).unwrap();
        let expected: Vec<u64> = (0..N_CHUNKS as u64).filter(|id| *id != 3).collect();
        assert_eq!(intact_of(&salvage, &values), expected, "{pattern:x?}");
    }
}

/// The scan stays linear where a forged file nests frames, indices and headers of every size.
#[test]
fn forged_nesting_is_read_a_limited_number_of_times() {
    let values = noise(5);
    let intact = stream(&values);
    let frames = frames(&intact, &values);
    let intact = &intact[..frames[N_CHUNKS - 1].end];
    let mut rng = Rng::new(6);
    let mut nested = Vec::new();
    while nested.len() < 1 << 20 {
        let mut varint = |out: &mut Vec<u8>, max: u64| {
            let mut n = 1 + rng.bits() % max;
            while n >= 0x80 {
                out.push(n as u8 | 0x80);
                n >>= 7;
            }
            out.push(n as u8);
        };
        match nested.len() % 3 {
            0 => {
                nested.extend(b"CHNK\x01\x05\xc0\xb8\x02\xc0\x3e");
                varint(&mut nested, 60_000);
                nested.extend([1; 8]);
            }
            1 => {
                nested.extend(b"INDX\x01\x20");
                varint(&mut nested, 1 << 20);
            }
            _ => nested.extend(b"PUM\x1a\x01\x01\xff\xef"),
        }
    }
    let (before, after) = intact.split_at(frames[20].start);
    let forged = [before, &nested, after].concat();
    for (i, saved) in [(0, ids(0..20)), (1, ids(20..N_CHUNKS as u64))] {
        let counted = Counted(&forged, AtomicUsize::new(0));
        let salvage = pumice::salvage_stream(&counted, i, options()).unwrap();
        let times = counted.1.load(Ordering::Relaxed) / forged.len();
        assert!(times < 100, "{times} times the file");
        assert_eq!((salvage.n_streams(), intact_of(&salvage, &values)), (2, saved));
    }
}

#[test]
fn a_stream_that_is_not_there_is_an_invalid_argument() {
    let bytes = stream(&noise(7));
    let damaged = &bytes[..bytes.len() - 1];
    assert!(pumice::salvage_stream(damaged, 0, options()).is_ok());
    for bytes in [&bytes[..], damaged, b"nothing"] {
        let kind = pumice::salvage_stream(bytes, 1, options()).map(drop).unwrap_err().kind();
        assert_eq!(kind, ErrorKind::InvalidArgument);
    }
}
