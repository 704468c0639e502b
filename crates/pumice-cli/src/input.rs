//! Input arrays: files that can be read at any offset, and streams that can be read once.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};

use pumice::{DecodeOptions, Element, ErrorKind, FileSource, Reader, StreamReader, with_dtype};

use crate::cli::{LayoutArgs, is_stdio};
use crate::failure::{Failure, Result, io_context};
use crate::foreign;
use crate::layout::{self, Layout};
use crate::npy::{self, Order};

/// First bytes of every Pumice file.
pub(crate) const PUMICE_MAGIC: &[u8; 4] = b"PUM\x1a";

/// Bytes of values that are brought into C order at a time.
const BLOCK_BYTES: usize = 32 << 20;

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
        Self::of_file(open_file(path)?, path, args)
    }

    /// As [`Self::open`], for a file that is open, at its start.
    pub(crate) fn of_file(file: File, path: &Path, args: &LayoutArgs) -> Result<Self> {
        Self::of_file_with(file, path, args, |n_bytes| layout::of_file(path, n_bytes, args))
    }

    /// A file that must have this layout; a shape in its name is ignored.
    pub(crate) fn of_file_as(file: File, path: &Path, expected: &Layout) -> Result<Self> {
        let input = Self::of_file_with(file, path, &LayoutArgs::default(), |n_bytes| {
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

    fn of_file_with(
        mut file: File,
        path: &Path,
        args: &LayoutArgs,
        raw: impl FnOnce(u64) -> Result<Layout>,
    ) -> Result<Self> {
        let n_bytes = file.metadata().map_err(io_context("read", path))?.len();
        let head = head_of(&mut file, foreign::HEAD_BYTES).map_err(io_context("read", path))?;
        let (stored, layout, order, data_offset) = if head.starts_with(npy::MAGIC) {
            file.seek(io::SeekFrom::Start(npy::MAGIC.len() as u64)).map_err(io_context("read", path))?;
            let npy::Header { layout, order, data_offset } = npy::read_header(&mut file).map_err(|f| f.at(path))?;
            (layout.clone(), npy_layout(layout, args, path)?, order, data_offset)
        } else {
            // What fits is raw, whatever its first values look like.
            let layout = raw(n_bytes).map_err(|failure| foreign::refuse(path, &head).unwrap_or(failure))?;
            (layout.clone(), layout, Order::default(), 0)
        };
        let (found, needed) = (n_bytes.saturating_sub(data_offset), layout.n_bytes().unwrap_or(u64::MAX));
        if found != needed {
            let kind = if found < needed { ErrorKind::Truncated } else { ErrorKind::Corrupt };
            let message = format!("{}: expected {needed} bytes of values, found {found}", path.display());
            return Err(Failure::new(kind, message));
        }
        if order.is_plain() {
            return Ok(Self { path: path.into(), file, data_offset, layout });
        }
        let file = plain(&file, data_offset, &stored, order, &std::env::temp_dir())?;
        Ok(Self { path: path.into(), file, data_offset: 0, layout })
    }

    /// An array in an unnamed temporary file in this folder, whose size matches the layout; values that do not lie as in
    /// raw files are copied once more.
    pub(crate) fn from_spool(path: &Path, file: File, stream: &Stream, folder: &Path) -> Result<Self> {
        let file = match stream.order.is_plain() {
            true => file,
            false => plain(&file, 0, &stream.stored, stream.order, folder)?,
        };
        Ok(Self { path: path.into(), file, data_offset: 0, layout: stream.layout.clone() })
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
        let n = self.layout.n_values().unwrap_or(0);
        let mut values: Vec<T> = zeros(n).map_err(|failure| failure.at(&self.path))?;
        let start = vec![0; self.layout.shape.len()];
        self.source()?.read_box(&start, &self.layout.shape, &mut values)?;
        Ok(values)
    }
}

/// So many zeros; an error if the system has not enough memory.
pub(crate) fn zeros<T: Default + Copy>(n: usize) -> Result<Vec<T>> {
    let mut values = Vec::new();
    values.try_reserve_exact(n).map_err(|_| {
        Failure::new(ErrorKind::LimitExceeded, format!("the system has no memory for {n} x {} bytes", size_of::<T>()))
    })?;
    values.resize(n, T::default());
    Ok(values)
}

/// An unnamed temporary file.
pub(crate) fn temporary_file(folder: &Path) -> Result<File> {
    tempfile::tempfile_in(folder).map_err(io_context("create a temporary file in", folder))
}

/// A copy of an array as raw files have it, little-endian and in C order, in an unnamed temporary file.
fn plain(file: &File, data_offset: u64, layout: &Layout, order: Order, folder: &Path) -> Result<File> {
    let mut copy = temporary_file(folder)?;
    let write = |bytes: &[u8], offset| {
        let written = copy.seek(io::SeekFrom::Start(offset)).and_then(|_| copy.write_all(bytes));
        written.map_err(io_context("write a temporary file in", folder))
    };
    with_dtype!(layout.dtype, T => {
        npy::for_each_plain::<T>((file, data_offset), layout, order, BLOCK_BYTES, write)
    })?;
    Ok(copy)
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
    /// Shape and order in which a `.npy` stream has its values.
    stored: Layout,
    pub(crate) order: Order,
}

impl Stream {
    /// Standard input for `-`, otherwise a pipe or device by name.
    pub(crate) fn open(path: &Path, args: &LayoutArgs) -> Result<Self> {
        let mut input = open_stream(path)?;
        let head = head_of(&mut input, foreign::HEAD_BYTES).map_err(io_context("read", path))?;
        let is_npy = head.starts_with(npy::MAGIC);
        let mut bytes = Cursor::new(head).chain(input);
        if is_npy {
            head_of(&mut bytes, npy::MAGIC.len())?;
            let npy::Header { layout: stored, order, .. } = npy::read_header(&mut bytes)?;
            let layout = npy_layout(stored.clone(), args, path)?;
            return Ok(Self { bytes: Box::new(bytes), layout, stored, order });
        }
        let head = bytes.get_ref().0.get_ref();
        let layout = layout::of_stream(args).map_err(|failure| foreign::refuse(path, head).unwrap_or(failure))?;
        Ok(Self { bytes: Box::new(bytes), stored: layout.clone(), layout, order: Order::default() })
    }
}

/// Opens standard input for `-`, otherwise a pipe or device by name.
pub(crate) fn open_stream(path: &Path) -> Result<Box<dyn Read>> {
    if is_stdio(path) { Ok(Box::new(io::stdin().lock())) } else { Ok(Box::new(open_file(path)?)) }
}

/// Opens a file; what must be read in order is copied to an unnamed temporary file first.
pub(crate) fn open_or_spool(path: &Path) -> Result<File> {
    if !is_stream(path) {
        return open_file(path);
    }
    let folder = std::env::temp_dir();
    let mut file = temporary_file(&folder)?;
    io::copy(&mut open_stream(path)?, &mut file).map_err(copy_failed(path, &folder))?;
    file.rewind()?;
    Ok(file)
}

/// The error if a stream cannot be copied to a temporary file.
pub(crate) fn copy_failed(path: &Path, folder: &Path) -> impl Fn(io::Error) -> Failure {
    move |e| {
        let message = format!("cannot copy {} to a temporary file in {}: {e}", shown(path), folder.display());
        Failure::new(ErrorKind::Io, message)
    }
}

/// How messages name an input.
pub(crate) fn shown(path: &Path) -> String {
    if is_stdio(path) { "standard input".into() } else { path.display().to_string() }
}

/// Whether a path must be read in order: standard input, a pipe, a device.
pub(crate) fn is_stream(path: &Path) -> bool {
    is_stdio(path) || path.metadata().is_ok_and(|m| !m.is_file() && !m.is_dir())
}

/// Whether a file is a Pumice stream, by its first bytes; leaves its position at the start.
pub(crate) fn is_pumice(file: &mut File, path: &Path) -> Result<bool> {
    let head = head_of(file, PUMICE_MAGIC.len()).and_then(|head| file.rewind().map(|()| head));
    Ok(head.map_err(io_context("read", path))? == PUMICE_MAGIC)
}

/// Whether a file is in HDF5: its signature is at the start, or behind a block of the user's, at 512 bytes or a power of two
/// times that. Leaves its position at the start.
pub(crate) fn is_hdf5(file: &mut File, path: &Path) -> Result<bool> {
    const SIGNATURE: &[u8] = b"\x89HDF\r\n\x1a\n";
    let n_bytes = file.metadata().map_err(io_context("read", path))?.len();
    let doubled = std::iter::successors(Some(512u64), |offset| offset.checked_mul(2));
    for offset in std::iter::once(0).chain(doubled).take_while(|offset| *offset < n_bytes) {
        let head = file.seek(io::SeekFrom::Start(offset)).and_then(|_| head_of(file, SIGNATURE.len()));
        if head.map_err(io_context("read", path))? == SIGNATURE {
            return Ok(true);
        }
    }
    file.rewind().map_err(io_context("read", path))?;
    Ok(false)
}

/// Whether a file starts with these bytes.
#[cfg(feature = "hdf5")]
pub(crate) fn has_magic(path: &Path, magic: &[u8]) -> Result<bool> {
    Ok(head_of(&mut open_file(path)?, magic.len()).map_err(io_context("read", path))? == magic)
}

/// Opens a compressed file; if it is damaged, the error hints at `pumice recover`.
pub(crate) fn open_reader(path: &Path, threads: usize) -> Result<Reader<File>> {
    reader_of(open_file(path)?, path, threads)
}

/// As [`open_reader`], for a file that is open.
pub(crate) fn reader_of(mut file: File, path: &Path, threads: usize) -> Result<Reader<File>> {
    let head = head_of(&mut file, foreign::HEAD_BYTES).and_then(|head| file.rewind().map(|()| head));
    let head = head.map_err(io_context("read", path))?;
    Reader::new(file, DecodeOptions::new().threads(threads)).map_err(|e| opening_hint(e.into(), path, &head))
}

/// Opens a compressed stream that can be read only once.
pub(crate) fn open_stream_reader(path: &Path, threads: usize) -> Result<StreamReader<Box<dyn Read>>> {
    let mut input = open_stream(path)?;
    let head = head_of(&mut input, foreign::HEAD_BYTES).map_err(io_context("read", path))?;
    let bytes: Box<dyn Read> = Box::new(Cursor::new(head.clone()).chain(input));
    StreamReader::new(bytes, DecodeOptions::new().threads(threads)).map_err(|e| opening_hint(e.into(), path, &head))
}

/// As [`damage_hint`], for a file that starts with these bytes and may not be a compressed one.
fn opening_hint(failure: Failure, path: &Path, head: &[u8]) -> Failure {
    match failure.kind() {
        ErrorKind::Corrupt | ErrorKind::Truncated if !head.starts_with(PUMICE_MAGIC) => {
            failure.at(path).hint(foreign::not_compressed(head))
        }
        _ => damage_hint(failure, path),
    }
}

/// Adds the file name and a hint to an error in the contents of a compressed file; other errors already name their file.
pub(crate) fn damage_hint(failure: Failure, path: &Path) -> Failure {
    if matches!(failure.kind(), ErrorKind::Io | ErrorKind::InvalidArgument) {
        return failure;
    }
    let failure = failure.at(path);
    if is_stream(path) {
        return match failure.kind() {
            ErrorKind::Corrupt | ErrorKind::Truncated => {
                failure.hint("`pumice recover` saves the chunks that are intact, from a pipe as well")
            }
            _ => failure,
        };
    }
    match failure.kind() {
        ErrorKind::Corrupt | ErrorKind::Truncated => {
            failure.hint(format!("`pumice recover {} -o OUT` saves the chunks that are intact", path.display()))
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
        return Err(foreign::refuse_folder(path));
    }
    Ok(file)
}

/// The next `n` bytes, or all that are left.
fn head_of(input: &mut impl Read, n: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    input.take(n as u64).read_to_end(&mut head)?;
    Ok(head)
}
