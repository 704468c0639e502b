//! Where the compressor's values come from: memory and files look alike through [`Source`], box by box, so that an
//! array larger than memory is compressed by the same code.

use std::cell::RefCell;

use super::read;
use super::read_at::ReadAt;
use crate::error::{Error, Result};
use crate::grid::{self, Corner};
use crate::num::{DType, Real};

/// An array in C order that several threads can read box by box.
pub trait Source<T>: Sync {
    /// Extents, slowest axis first.
    fn shape(&self) -> &[usize];

    /// Fills `out` with the values of the box, in C order; `out` holds exactly as many.
    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()>;

    /// The same values without a copy, where the box is one run of memory.
    fn contiguous(&self, start: &[usize], extents: &[usize]) -> Option<&[T]> {
        let _ = (start, extents);
        None
    }
}

/// An array in memory.
#[derive(Clone, Debug)]
pub struct SliceSource<'a, T> {
    data: &'a [T],
    shape: Vec<usize>,
}

impl<'a, T: Real> SliceSource<'a, T> {
    /// The array `data` of this shape, in C order.
    pub fn new(data: &'a [T], shape: &[usize]) -> Result<Self> {
        let bytes = grid::checked_bytes(shape, size_of::<T>());
        if bytes != Some(size_of_val(data) as u64) {
            return Err(Error::invalid(format!("shape {shape:?} does not fit {} values", data.len())));
        }
        Ok(Self { data, shape: shape.to_vec() })
    }
}

impl<T: Real> Source<T> for SliceSource<'_, T> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        check_box(&self.shape, start, extents, out.len())?;
        let zeros = vec![0; extents.len()];
        let to = Corner { shape: extents, start: &zeros };
        grid::copy_block(self.data, Corner { shape: &self.shape, start }, out, to, extents);
        Ok(())
    }

    fn contiguous(&self, start: &[usize], extents: &[usize]) -> Option<&[T]> {
        self.data.get(grid::contiguous_run(&self.shape, start, extents)?)
    }
}

/// Raw little-endian values in a file (or other [`ReadAt`]), from some offset on: a bare dump, or the data part of a
/// `.npy` file.
#[derive(Debug)]
pub struct FileSource<R> {
    reader: R,
    byte_offset: u64,
    shape: Vec<usize>,
    dtype: DType,
}

/// Boxes are read in spans that take in the gaps between their rows, up to this size and this share of useful bytes:
/// a system call costs as much as copying some kilobytes.
const SPAN_BYTES: usize = 1 << 20;
const SPAN_WASTE: usize = 16;

thread_local! {
    /// Bytes on their way to values; kept, as a worker reads many boxes of one size.
    static SPAN: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl<R: ReadAt> FileSource<R> {
    /// The array of `shape` and `dtype` that starts at `byte_offset`. More bytes may follow it.
    pub fn new(reader: R, byte_offset: u64, shape: &[usize], dtype: DType) -> Result<Self> {
        let end = grid::checked_bytes(shape, dtype.size()).and_then(|bytes| bytes.checked_add(byte_offset));
        let end = end.ok_or_else(|| Error::invalid(format!("shape {shape:?} is too large")))?;
        let there = reader.len()?;
        if end > there {
            return Err(Error::truncated(format!(
                "shape {shape:?} of {dtype} from byte {byte_offset} on needs {end} bytes, but there are {there}"
            )));
        }
        Ok(Self { reader, byte_offset, shape: shape.to_vec(), dtype })
    }

    /// The element type of the values.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
}

impl<T: Real, R: ReadAt> Source<T> for FileSource<R> {
    fn shape(&self) -> &[usize] {
        &self.shape
    }

    fn read_box(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        if T::DTYPE != self.dtype {
            return Err(Error::invalid(format!("the file holds {} values, not {}", self.dtype, T::DTYPE)));
        }
        check_box(&self.shape, start, extents, out.len())?;
        if out.is_empty() {
            return Ok(());
        }
        let axis = self.span_axis(extents);
        // Boxes of extent 1 on all axes before `axis`, each read as one span.
        let inner: usize = extents[axis..].iter().product();
        let (mut head_start, mut head_extents) = (start.to_vec(), extents.to_vec());
        head_extents[..axis].fill(1);
        for values in out.chunks_exact_mut(inner) {
            self.read_span(&head_start, &head_extents, values)?;
            for a in (0..axis).rev() {
                head_start[a] += 1;
                if head_start[a] < start[a] + extents[a] {
                    break;
                }
                head_start[a] = start[a];
            }
        }
        Ok(())
    }
}

impl<R: ReadAt> FileSource<R> {
    /// The first axis from which on the box is worth reading as one span.
    fn span_axis(&self, extents: &[usize]) -> usize {
        let last = extents.len().saturating_sub(1);
        (0..last)
            .find(|&axis| {
                let inner = &self.shape[axis + 1..];
                let span = extents[axis].saturating_mul(grid::n_values(inner)).saturating_mul(self.dtype.size());
                let useful = grid::n_values(&extents[axis..]) * self.dtype.size();
                span == useful || (span <= SPAN_BYTES && span <= useful.saturating_mul(SPAN_WASTE))
            })
            .unwrap_or(last)
    }

    /// Reads everything from the first to the last value of the box and copies what belongs to it.
    fn read_span<T: Real>(&self, start: &[usize], extents: &[usize], out: &mut [T]) -> Result<()> {
        let flat = |position: &mut dyn Iterator<Item = usize>| {
            position.zip(&self.shape).fold(0u64, |offset, (i, &n)| offset * n as u64 + i as u64)
        };
        let first = flat(&mut start.iter().copied());
        let last = flat(&mut start.iter().zip(extents).map(|(s, n)| s + n - 1));
        let value_bytes = size_of::<T>();
        let zeros = vec![0; extents.len()];
        SPAN.with_borrow_mut(|buffer| {
            let offset = self.byte_offset + first * value_bytes as u64;
            let span = read(&self.reader, offset, (last - first + 1) * value_bytes as u64, buffer)?;
            let from = Corner { shape: &self.shape, start: &zeros };
            let to = Corner { shape: extents, start: &zeros };
            grid::for_each_run(from, to, extents, |from_at, to_at, n| {
                let bytes = &span[from_at * value_bytes..(from_at + n) * value_bytes];
                T::copy_from_le_bytes(bytes, &mut out[to_at..to_at + n]);
                Ok(())
            })
        })
    }
}

fn check_box(shape: &[usize], start: &[usize], extents: &[usize], n_out: usize) -> Result<()> {
    let inside = start.len() == shape.len()
        && extents.len() == shape.len()
        && (0..shape.len()).all(|a| start[a].checked_add(extents[a]).is_some_and(|end| end <= shape[a]));
    if inside && grid::n_values(extents) == n_out {
        return Ok(());
    }
    Err(Error::invalid(format!("box at {start:?} of {extents:?} does not fit shape {shape:?} and {n_out} values")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    /// Hides the bytes' address, as a file does.
    struct Opaque(Vec<u8>);

    impl ReadAt for Opaque {
        fn len(&self) -> Result<u64> {
            ReadAt::len(&self.0)
        }

        fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<()> {
            self.0.read_exact_at(buf, offset)
        }
    }

    #[test]
    fn file_source_equals_slice_source() {
        let shape = [5, 6, 7, 300];
        let data: Vec<f32> = (0..5 * 6 * 7 * 300).map(|i| i as f32).collect();
        let mut bytes = vec![9; 13];
        f32::extend_le_bytes(&data, &mut bytes);
        let slice = SliceSource::new(&data, &shape).unwrap();
        let file = FileSource::new(Opaque(bytes.clone()), 13, &shape, DType::F32).unwrap();
        let memory = FileSource::new(bytes.as_slice(), 13, &shape, DType::F32).unwrap();
        for (start, extents) in [
            ([0, 0, 0, 0], shape),
            ([1, 2, 3, 4], [4, 3, 2, 1]),
            ([1, 2, 3, 40], [4, 3, 2, 200]),
            ([4, 0, 0, 0], [1, 6, 7, 300]),
            ([4, 5, 6, 299], [1, 1, 1, 1]),
            ([0, 0, 0, 0], [5, 6, 0, 300]),
        ] {
            let n = grid::n_values(&extents);
            let (mut a, mut b, mut c) = (vec![0f32; n], vec![1f32; n], vec![2f32; n]);
            slice.read_box(&start, &extents, &mut a).unwrap();
            file.read_box(&start, &extents, &mut b).unwrap();
            memory.read_box(&start, &extents, &mut c).unwrap();
            assert_eq!(a, b);
            assert_eq!(a, c);
            if let Some(run) = slice.contiguous(&start, &extents) {
                assert_eq!(a, run);
            }
        }
        assert!(Source::<f64>::read_box(&file, &[0; 4], &[1; 4], &mut [0.0]).is_err());
        assert!(file.read_box(&[0, 0, 0, 299], &[1, 1, 1, 2], &mut [0f32; 2]).is_err());
    }

    #[test]
    fn sizes_are_checked() {
        assert_eq!(SliceSource::new(&[0f32; 5], &[2, 3]).unwrap_err().kind(), ErrorKind::InvalidArgument);
        let short = FileSource::new(vec![0u8; 23], 0, &[2, 3], DType::F32).unwrap_err();
        assert_eq!(short.kind(), ErrorKind::Truncated);
        let scalar = FileSource::new(vec![0u8; 4], 0, &[], DType::F32).unwrap();
        scalar.read_box(&[], &[], &mut [1f32]).unwrap();
    }
}
