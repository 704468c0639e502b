//! Input arrays: files that can be read at any offset, and streams that can be read once.

use std::fs::File;
use std::io::{self, Cursor, Read};
use std::path::{Path, PathBuf};

use pumice::{DecodeOptions, Element, ErrorKind, FileSource, Reader};

use crate::cli::{LayoutArgs, is_stdio};
use crate::failure::{Failure, Result, io_context};
use crate::layout::{self, Layout};
use crate::npy;

/// First bytes of every Pumice file.
const PUMICE_MAGIC: &[u8; 4] = b"PUM\x1a";

/// An array in a file: raw or `.npy`.
pub(crate) struct Input {
    path: PathBuf,
    file: File,
    data_offset: u64,
    pub(crate) layout: Layout,
}

impl Input {
    /// Opens a file. Its layout, from the arguments and its header or name, must match its size.
    pub(crate) fn open(path: &Path, args: &LayoutArgs) -> Result<Self> {
        Self::open_with(path, args, |n_bytes| layout::of_file(path, n_bytes, args))
    }

    /// Opens a file that must have this layout; a shape in its name is ignored.
    pub(crate) fn open_as(path: &Path, expected: &Layout) -> Result<Self> {
        let input = Self::open_with(path, &LayoutArgs::default(), |n_bytes| {
            if expected.n_bytes() == Some(n_bytes) {
                return Ok(expected.clone());
            }
            let needed = expected.n_bytes().unwrap_or(u64::MAX);
            Err(Failure::invalid(format!("{}: expected {needed} bytes, found {n_bytes}", path.display())))
        })?;
        if input.layout != *expected {
            let (found, wanted) = (describe(&input.layout), describe(expected));
            return Err(Failure::invalid(format!("{}: holds {found}, not {wanted}", path.display())));
        }
        Ok(input)
    }

    fn open_with(path: &Path, args: &LayoutArgs, raw: impl FnOnce(u64) -> Result<Layout>) -> Result<Self> {
        let mut file = open_file(path)?;
        let n_bytes = file.metadata().map_err(io_context("read", path))?.len();
        let has_header = starts_with(&mut file, npy::MAGIC).map_err(io_context("read", path))?;
        let (layout, data_offset) = if has_header {
            let header = npy::read_header(&mut file).map_err(|f| f.at(path))?;
            (npy_layout(header.layout, args, path)?, header.data_offset)
        } else {
            (raw(n_bytes)?, 0)
        };
        let (found, needed) = (n_bytes.saturating_sub(data_offset), layout.n_bytes().unwrap_or(u64::MAX));
        if found != needed {
            let kind = if found < needed { ErrorKind::Truncated } else { ErrorKind::Corrupt };
            let message = format!("{}: expected {needed} bytes of values, found {found}", path.display());
            return Err(Failure::new(kind, message));
        }
        Ok(Self { path: path.into(), file, data_offset, layout })
    }

    /// An array in an unnamed temporary file, whose size matches the layout.
    pub(crate) fn from_spool(path: &Path, file: File, layout: Layout) -> Self {
        Self { path: path.into(), file, data_offset: 0, layout }
    }

    /// Size of the values in bytes.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.layout.n_bytes().expect("the layout was checked against the size of the file")
    }

    /// The values, box by box.
    pub(crate) fn source(&self) -> Result<FileSource<File>> {
        self.source_as(&self.layout.shape)
    }

    /// The values with another shape of the same size.
    pub(crate) fn source_as(&self, shape: &[usize]) -> Result<FileSource<File>> {
        let file = self.file.try_clone().map_err(io_context("read", &self.path))?;
        Ok(FileSource::new(file, self.data_offset, shape, self.layout.dtype)?)
    }

    /// All values.
    pub(crate) fn read<T: Element>(&self) -> Result<Vec<T>> {
        use pumice::Source;
        let mut values = vec![T::default(); self.layout.n_values().unwrap_or(0)];
        let start = vec![0; self.layout.shape.len()];
        self.source()?.read_box(&start, &self.layout.shape, &mut values)?;
        Ok(values)
    }
}

/// The layout of a `.npy` file, with the shape of the arguments if they have one.
fn npy_layout(header: Layout, args: &LayoutArgs, path: &Path) -> Result<Layout> {
    if let Some(dtype) = args.dtype
        && pumice::DType::from(dtype) != header.dtype
    {
        return Err(Failure::invalid(format!("{}: the .npy header says {}", path.display(), header.dtype))
            .hint("leave --dtype out: .npy files store their type"));
    }
    let Some(shape) = layout::shape_from_args(args) else { return Ok(header) };
    let reshaped = Layout { dtype: header.dtype, shape };
    if reshaped.n_values() == header.n_values() {
        return Ok(reshaped);
    }
    let (found, wanted) = (describe(&header), describe(&reshaped));
    Err(Failure::invalid(format!("{}: holds {found}, which cannot be read as {wanted}", path.display()))
        .hint("leave --shape and --dims out: .npy files store their shape"))
}

/// `30 x 192 x 288 f32`.
fn describe(layout: &Layout) -> String {
    format!("{} {}", crate::text::shape(&layout.shape), layout.dtype)
}

/// An array that can be read only once, in order.
pub(crate) struct Stream {
    pub(crate) bytes: Box<dyn Read>,
    pub(crate) layout: Layout,
}

impl Stream {
    /// Standard input for `-`, otherwise a pipe or device by name.
    pub(crate) fn open(path: &Path, args: &LayoutArgs) -> Result<Self> {
        let mut input: Box<dyn Read> =
            if is_stdio(path) { Box::new(io::stdin().lock()) } else { Box::new(open_file(path)?) };
        let mut head = Vec::new();
        (&mut input).take(npy::MAGIC.len() as u64).read_to_end(&mut head)?;
        if head == npy::MAGIC {
            let layout = npy_layout(npy::read_header(&mut input)?.layout, args, path)?;
            return Ok(Self { bytes: input, layout });
        }
        Ok(Self { bytes: Box::new(Cursor::new(head).chain(input)), layout: layout::of_stream(args)? })
    }
}

/// Whether a path must be read in order: standard input, a pipe, a device.
pub(crate) fn is_stream(path: &Path) -> bool {
    is_stdio(path) || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
}

/// Whether a file is a Pumice stream, by its first bytes.
pub(crate) fn is_pumice(path: &Path) -> Result<bool> {
    starts_with(&mut open_file(path)?, PUMICE_MAGIC).map_err(io_context("read", path))
}

/// Opens a compressed file; if it is damaged, the error hints at `pumice recover`.
pub(crate) fn open_reader(path: &Path, threads: usize) -> Result<Reader<File>> {
    let file = open_file(path)?;
    Reader::new(file, DecodeOptions::new().threads(threads)).map_err(|e| damage_hint(e.into(), path))
}

/// Adds the file name and a hint to an error in the contents of a file; other errors already name their file.
pub(crate) fn damage_hint(failure: Failure, path: &Path) -> Failure {
    if matches!(failure.kind(), ErrorKind::Io | ErrorKind::InvalidArgument) {
        return failure;
    }
    let failure = failure.at(path);
    let has_magic = is_pumice(path).unwrap_or(false);
    match failure.kind() {
        ErrorKind::Corrupt | ErrorKind::Truncated if has_magic => {
            failure.hint(format!("`pumice recover {} -o OUT` saves the chunks that are intact", path.display()))
        }
        ErrorKind::Corrupt | ErrorKind::Truncated => {
            failure.hint("this does not look like a file written by `pumice compress`")
        }
        ErrorKind::Unsupported => failure.hint("a newer release of pumice may read it"),
        _ => failure,
    }
}

/// Opens a file for reading; refuses directories, for which the system's message is less clear.
pub(crate) fn open_file(path: &Path) -> Result<File> {
    if is_stdio(path) {
        return Err(Failure::invalid(
            "this command reads its input at any offset, which standard input does not allow",
        )
        .hint("save it to a file first"));
    }
    let file = File::open(path).map_err(io_context("open", path))?;
    if file.metadata().is_ok_and(|m| m.is_dir()) {
        return Err(Failure::new(ErrorKind::Io, format!("{} is a directory", path.display())));
    }
    Ok(file)
}

/// Whether the file starts with these bytes; leaves the file position right after them.
fn starts_with(file: &mut File, magic: &[u8]) -> io::Result<bool> {
    let mut head = Vec::new();
    file.take(magic.len() as u64).read_to_end(&mut head)?;
    Ok(head == magic)
}
