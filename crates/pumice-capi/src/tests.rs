//! Tests of the interface from Rust: what a C program cannot test, such as panics, and that all files that repeat the
//! interface agree. tests/misuse.c tests the mistakes of C programs.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::ptr::{null, null_mut};

use pumice::ErrorKind;

use crate::buffer::*;
use crate::config::*;
use crate::hdf5::*;
use crate::oneshot::*;
use crate::reader::*;
use crate::status::*;
use crate::writer::*;

const HEADER: &str = include_str!("../include/pumice.h");
const FORTRAN: &str = include_str!("../fortran/pumice.f90");

fn message() -> String {
    // SAFETY: always text.
    unsafe { CStr::from_ptr(pumice_last_error()) }.to_str().unwrap().to_owned()
}

#[test]
fn panics_become_a_status_and_errors_keep_their_code() {
    assert_eq!(guard(|| panic!("on {}", "purpose")), Status::Internal);
    assert_eq!(message(), "an error in Pumice itself, please report it: on purpose");
    assert_eq!(guard_or(5, || panic!("plainly")), 5);
    assert!(message().ends_with("plainly"));
    assert_eq!(guard(|| std::panic::panic_any(7)), Status::Internal);
    for kind in [
        ErrorKind::BoundBroken,
        ErrorKind::InvalidArgument,
        ErrorKind::Unsupported,
        ErrorKind::Corrupt,
        ErrorKind::Truncated,
        ErrorKind::Io,
        ErrorKind::LimitExceeded,
        ErrorKind::Device,
    ] {
        let status = guard(|| Err(pumice::Error::new(kind, "with\0NUL")));
        assert_eq!(status as i32, i32::from(kind.code()));
        assert_eq!(message(), "withNUL");
    }
    // Success leaves the message, and other threads have their own.
    assert_eq!(guard(|| Ok(())), Status::Ok);
    assert_eq!(message(), "withNUL");
    assert_eq!(std::thread::spawn(message).join().unwrap(), "");
}

/// Compresses, decodes with every decoding function, and returns all restored arrays.
fn round_trips<T: pumice::Element>(dtype: i32, config: *const Config, data: &[T], shape: &[usize]) -> Vec<Vec<T>> {
    let (values, n) = (data.as_ptr().cast::<c_void>(), data.len());
    let (rank, extents) = (shape.len(), shape.as_ptr());
    let (mut capacity, mut n_bytes) = (0, 0);
    let mut results = Vec::new();
    let out = || vec![T::default(); n];
    let ok = |status: Status| assert_eq!(status, Status::Ok, "{}", message());
    // SAFETY: all pointers are to what the calls expect, handles are freed once.
    unsafe {
        ok(pumice_max_compressed_size(config, dtype, rank, extents, &mut capacity));
        let mut bytes = vec![0u8; capacity];
        let to = bytes.as_mut_ptr().cast::<c_void>();
        ok(pumice_compress_into(config, dtype, values, rank, extents, to, capacity, &mut n_bytes));
        let mut buffer = null_mut();
        ok(pumice_compress(config, dtype, values, rank, extents, &mut buffer));
        let stream = std::slice::from_raw_parts(pumice_buffer_data(buffer).cast::<u8>(), pumice_buffer_size(buffer));
        assert_eq!(stream, &bytes[..n_bytes]);
        let from = stream.as_ptr().cast::<c_void>();

        let mut restored = out();
        ok(pumice_decompress_into(from, n_bytes, null(), dtype, restored.as_mut_ptr().cast(), n));
        results.push(restored);
        let mut reader = null_mut();
        ok(pumice_reader_open_memory(from, n_bytes, null(), &mut reader));
        assert_eq!((pumice_reader_dtype(reader), pumice_reader_n_values(reader)), (dtype, n));
        assert_eq!(std::slice::from_raw_parts(pumice_reader_shape(reader), pumice_reader_rank(reader)), shape);
        ok(pumice_reader_check(reader, dtype, values, n, null_mut()));
        let mut restored = out();
        ok(pumice_reader_read_into(reader, dtype, restored.as_mut_ptr().cast(), n));
        results.push(restored);
        for whole in [true, false] {
            let mut values = null_mut();
            ok(match whole {
                true => pumice_reader_read(reader, dtype, &mut values),
                false => {
                    let zeros = vec![0; rank];
                    pumice_reader_read_region(reader, dtype, rank, zeros.as_ptr(), extents, &mut values)
                }
            });
            results.push(std::slice::from_raw_parts(pumice_buffer_data(values).cast::<T>(), n).to_vec());
            pumice_buffer_free(values);
        }
        pumice_reader_free(reader);
        pumice_buffer_free(buffer);
    }
    results
}

#[test]
fn every_bound_and_type_comes_through() {
    let bounds = [
        (BoundKind::Lossless, 0.0),
        (BoundKind::Abs, 1e-3),
        (BoundKind::Rel, 1e-3),
        (BoundKind::PwRel, 1e-2),
        (BoundKind::Psnr, 60.0),
        (BoundKind::L2, 0.5),
        (BoundKind::Ratio, 5.0),
    ];
    let shape = [20, 30, 10];
    let data: Vec<f64> = (0..6000).map(|i| (f64::from(i) * 0.01).sin() + 2.0).collect();
    let narrow: Vec<f32> = data.iter().map(|&x| x as f32).collect();
    assert_eq!(bounds.len(), pumice::BoundKind::ALL.len());
    for ((kind, e), known) in bounds.into_iter().zip(pumice::BoundKind::ALL) {
        let kind = kind as i32;
        assert_eq!(kind, i32::from(known.code()));
        let config = pumice_config_new(kind, e);
        let wide = round_trips(Dtype::F64 as i32, config, &data, &shape);
        assert!(wide.iter().all(|restored| *restored == wide[0]));
        let narrow = round_trips(Dtype::F32 as i32, config, &narrow, &shape);
        assert!(narrow.iter().all(|restored| *restored == narrow[0]));
        // SAFETY: from `pumice_config_new`, and not used afterwards.
        unsafe { pumice_config_free(config) };
    }
    let lossless = pumice_config_new(BoundKind::Lossless as i32, f64::NAN);
    assert_eq!(round_trips::<f32>(Dtype::F32 as i32, lossless, &[], &[0, 5])[0], []);
    assert_eq!(round_trips(Dtype::F64 as i32, lossless, &[7.0], &[])[0], [7.0]);
    // SAFETY: from `pumice_config_new`, and not used afterwards.
    unsafe { pumice_config_free(lossless) };
}

#[test]
fn all_settings_reach_the_stream() {
    let shape = [40, 50];
    let mut data: Vec<f32> = (0..2000).map(|i| i as f32 * 0.01).collect();
    data[5] = -9999.0;
    let ok = |status: Status| assert_eq!(status, Status::Ok, "{}", message());
    let config = pumice_config_new(BoundKind::Abs as i32, 0.1);
    let (mut buffer, mut reader) = (null_mut(), null_mut());
    // SAFETY: all pointers are to what the calls expect, handles are freed once.
    unsafe {
        ok(pumice_config_add_bound(config, BoundKind::Rel as i32, 1e-3));
        ok(pumice_config_set_range(config, 0.0, 10.0));
        ok(pumice_config_set_preset(config, c"max".as_ptr()));
        ok(pumice_config_set_fill(config, 0.0));
        ok(pumice_config_set_fills(config, 2, [-9999.0, 19.0].as_ptr()));
        ok(pumice_config_set_stable(config, Stable::On as i32));
        assert_eq!(pumice_config_set_stable(config, 3), Status::InvalidArgument);
        ok(pumice_config_set_threads(config, 1));
        ok(pumice_config_set_chunk_shape(config, 2, [40, 50].as_ptr()));
        ok(pumice_config_add_attribute(config, c"name".as_ptr(), c"ramp".as_ptr()));
        let (start, count) = ([30, 0], [1, 50]);
        ok(pumice_config_add_region(config, 2, start.as_ptr(), count.as_ptr(), BoundKind::Lossless as i32, 0.0));
        ok(pumice_compress(config, Dtype::F32 as i32, data.as_ptr().cast(), 2, shape.as_ptr(), &mut buffer));
        pumice_config_free(config);
        ok(pumice_reader_open_memory(pumice_buffer_data(buffer), pumice_buffer_size(buffer), null(), &mut reader));
        let (mut kind, mut e, mut key, mut value) = (0, 0.0, null(), null());
        assert_eq!(pumice_reader_n_bounds(reader), 2);
        ok(pumice_reader_bound(reader, 1, &mut kind, &mut e));
        assert_eq!((kind, e), (BoundKind::Rel as i32, 1e-3));
        assert_eq!(pumice_reader_abs_bound(reader), 0.01);
        assert_eq!((pumice_reader_is_stable(reader), pumice_reader_is_stable(null())), (1, 0));
        assert_eq!(CStr::from_ptr(pumice_reader_preset(reader)), c"max");
        let fills: Vec<f64> = (0..pumice_reader_n_fills(reader))
            .map(|i| {
                ok(pumice_reader_fill(reader, i, &mut e));
                e
            })
            .collect();
        assert_eq!(fills, [-9999.0, 19.0]);
        ok(pumice_reader_attribute(reader, 0, &mut key, &mut value));
        assert_eq!((CStr::from_ptr(key), CStr::from_ptr(value)), (c"name", c"ramp"));
        assert_eq!(pumice_reader_compressed_size(reader), pumice_buffer_size(buffer) as u64);
        assert_eq!(pumice_reader_format_version(reader), 1);
        assert_eq!(std::slice::from_raw_parts(pumice_reader_chunk_shape(reader), 2), shape);
        let mut row = [0f32; 50];
        let to = row.as_mut_ptr().cast();
        ok(pumice_reader_read_region_into(reader, 1, 2, start.as_ptr(), count.as_ptr(), to, 50));
        assert_eq!(row, data[1500..1550]);
        pumice_reader_free(reader);
        pumice_buffer_free(buffer);
    }
}

#[test]
fn cd_values_are_those_of_the_filter() {
    let of = |kind: BoundKind, e: f64, change: &dyn Fn(*mut Config) -> Status| {
        let config = pumice_config_new(kind as i32, e);
        let (mut cd_values, mut n) = ([0; HDF5_MAX_CD_VALUES], 0);
        assert_eq!(change(config), Status::Ok);
        // SAFETY: all pointers are to what the call expects, and the config is freed once.
        let status = unsafe {
            let status = pumice_hdf5_cd_values(config, cd_values.as_mut_ptr(), HDF5_MAX_CD_VALUES, &mut n);
            let mut untouched = 7;
            let small = pumice_hdf5_cd_values(config, cd_values.as_mut_ptr(), 2, &mut untouched);
            let expected = if status == Status::Ok { Status::LimitExceeded } else { status };
            assert_eq!((small, untouched), (expected, 7));
            pumice_config_free(config);
            status
        };
        (status, cd_values[..n].to_vec())
    };
    // Those of docs/hdf5.md, as `pumice.hdf5.parameters` gives them.
    let plain = of(BoundKind::Abs, 0.25, &|_| Status::Ok);
    assert_eq!(plain, (Status::Ok, vec![131_329, 1_070_596_096, 0]));
    // SAFETY: `of` passes a config that is alive.
    let ranged = of(BoundKind::Rel, 0.25, &|config| unsafe {
        assert_eq!(pumice_config_set_preset(config, c"fast".as_ptr()), Status::Ok);
        assert_eq!(pumice_config_set_fill(config, 1e20), Status::Ok);
        pumice_config_set_range(config, 0.0, 1.0)
    });
    assert_eq!(ranged.1, [0x0301_0201, 0x3fd0_0000, 0, 0, 0, 0x3ff0_0000, 0, 0x4415_af1d, 0x78b5_8c40]);
    assert_eq!(of(BoundKind::Abs, -1.0, &|_| Status::Ok).0, Status::InvalidArgument);
    // SAFETY: as above.
    unsafe {
        let (range, chunks) = (of(BoundKind::Abs, 1.0, &|config| pumice_config_set_range(config, 0.0, 1.0)), [4, 4]);
        assert_eq!(range.0, Status::InvalidArgument);
        let chunk_shape = of(BoundKind::Abs, 1.0, &|config| pumice_config_set_chunk_shape(config, 2, chunks.as_ptr()));
        assert_eq!(chunk_shape.0, Status::InvalidArgument);
        let two = of(BoundKind::Abs, 1.0, &|config| pumice_config_add_bound(config, BoundKind::Rel as i32, 1e-3));
        assert_eq!(two.0, Status::InvalidArgument);
        assert!(message().contains("several bounds cannot be given"));
    }
}

/// A handle that threads share, as C programs do.
#[derive(Clone, Copy)]
struct Shared(*const Reader);
// SAFETY: a reader may be used by several threads at once; `threads_share_a_reader` asks the compiler whether that is so.
unsafe impl Send for Shared {}

impl Shared {
    fn get(self) -> *const Reader {
        self.0
    }
}

#[test]
fn threads_share_a_reader() {
    fn is_shareable<T: Send + Sync>() {}
    is_shareable::<Reader>();
    is_shareable::<Config>();
    is_shareable::<DecodeOptions>();
    let data: Vec<f32> = (0..90_000).map(|i| i as f32).collect();
    let config = pumice::Config::new(pumice::ErrorBound::Lossless).chunk_shape(&[50, 300]);
    let bytes = pumice::compress(&data, &[300, 300], &config).unwrap();
    let mut reader = null_mut();
    // SAFETY: `bytes` outlive the reader.
    let opened = unsafe { pumice_reader_open_memory(bytes.as_ptr().cast(), bytes.len(), null(), &mut reader) };
    assert_eq!(opened, Status::Ok);
    let shared = Shared(reader);
    std::thread::scope(|scope| {
        for row in 0..8 {
            let data = &data;
            scope.spawn(move || {
                for i in 0..20 {
                    let row = row * 37 + i;
                    let mut values = [0f32; 300];
                    let (to, start) = (values.as_mut_ptr().cast(), [row, 0]);
                    // SAFETY: the pointers have as much as the calls say, and the reader lives until all threads end.
                    let (read, refused) = unsafe {
                        let (reader, count, beyond) = (shared.get(), [1, 300], [301 + row, 1]);
                        (
                            pumice_reader_read_region_into(reader, 1, 2, start.as_ptr(), count.as_ptr(), to, 300),
                            pumice_reader_read_region_into(reader, 1, 2, start.as_ptr(), beyond.as_ptr(), to, 300),
                        )
                    };
                    assert_eq!((read, refused), (Status::Ok, Status::InvalidArgument));
                    assert_eq!(values, data[row * 300..][..300]);
                    // The message is that of this thread.
                    assert!(message().contains(&format!("{row}..{}", 301 + 2 * row)), "{}", message());
                }
            });
        }
    });
    // SAFETY: not used afterwards.
    unsafe { pumice_reader_free(reader) };
}

/// Keeps the bytes, and the threads that brought them.
#[derive(Default)]
struct Kept {
    bytes: Vec<u8>,
    threads: Vec<std::thread::ThreadId>,
}

unsafe extern "C" fn keep(user: *mut c_void, bytes: *const c_void, n_bytes: usize) -> c_int {
    // SAFETY: the test passes a `Kept`, and the writer bytes that are alive.
    let (kept, bytes) = unsafe { (&mut *user.cast::<Kept>(), std::slice::from_raw_parts(bytes.cast(), n_bytes)) };
    kept.bytes.extend_from_slice(bytes);
    kept.threads.push(std::thread::current().id());
    0
}

#[test]
fn slabs_go_to_files_and_to_callbacks_in_the_thread_of_the_caller() {
    let folder = tempfile::tempdir().unwrap();
    let path = CString::new(folder.path().join("slabs.pum").to_str().unwrap()).unwrap();
    let data: Vec<f32> = (0..400_000).map(|i| (i as f32 * 1e-3).cos()).collect();
    let ok = |status: Status| assert_eq!(status, Status::Ok, "{}", message());
    let config = pumice_config_new(BoundKind::Abs as i32, 1e-3);
    let mut kept = Kept::default();
    let user = (&raw mut kept).cast::<c_void>();
    let dtype = Dtype::F32 as i32;
    // SAFETY: all pointers are to what the calls expect, handles are freed once.
    unsafe {
        ok(pumice_config_set_threads(config, 3));
        ok(pumice_config_set_chunk_shape(config, 2, [40, 1000].as_ptr()));
        let (mut file, mut stream) = (null_mut(), null_mut());
        ok(pumice_writer_create_file(path.as_ptr(), config, dtype, 1, [1000].as_ptr(), &mut file));
        ok(pumice_writer_create_callback(Some(keep), user, config, dtype, 1, [1000].as_ptr(), &mut stream));
        for slab in data.chunks(150_000) {
            ok(pumice_writer_write(file, slab.as_ptr().cast(), slab.len()));
            ok(pumice_writer_write(stream, slab.as_ptr().cast(), slab.len()));
        }
        let (mut file_size, mut stream_size) = (0, 0);
        ok(pumice_writer_finish(file, &mut file_size));
        ok(pumice_writer_finish(stream, &mut stream_size));
        assert_eq!((file_size, stream_size), (kept.bytes.len() as u64, kept.bytes.len() as u64));
        assert_eq!(pumice_writer_finish(file, null_mut()), Status::InvalidArgument);
        pumice_writer_free(file);
        pumice_writer_free(stream);
        pumice_config_free(config);

        let mut more = null_mut();
        ok(pumice_writer_append_file(path.as_ptr(), dtype, 1, &mut more));
        ok(pumice_writer_write(more, data.as_ptr().cast(), 2000));
        ok(pumice_writer_finish(more, null_mut()));
        pumice_writer_free(more);
        let mut reader = null_mut();
        ok(pumice_reader_open_file(path.as_ptr(), null(), &mut reader));
        assert_eq!(std::slice::from_raw_parts(pumice_reader_shape(reader), 2), [402, 1000]);
        let whole: Vec<f32> = data.iter().chain(&data[..2000]).copied().collect();
        ok(pumice_reader_check(reader, dtype, whole.as_ptr().cast(), whole.len(), null_mut()));
        pumice_reader_free(reader);
    }
    assert!(kept.threads.len() > 1 && kept.threads.iter().all(|id| *id == std::thread::current().id()));
    let restored = pumice::decompress::<f32>(&kept.bytes).unwrap();
    assert!(restored.data.iter().zip(&data).all(|(a, b)| (a - b).abs() <= 1e-3));
}

/// Names that a text declares.
fn functions(text: &str, before: &str, after: char) -> BTreeSet<String> {
    let parts = text.split(before).skip(1).filter_map(|rest| rest.split_once(after));
    let is_name =
        |name: &str| !name.is_empty() && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    parts.filter(|(name, _)| is_name(name)).map(|(name, _)| name.to_owned()).collect()
}

#[test]
fn header_and_fortran_module_have_the_same_functions() {
    let code: String = HEADER.lines().filter(|line| !line.trim_start().starts_with(['*', '/'])).collect();
    let header = functions(&code, "pumice_", '(');
    let fortran = functions(FORTRAN, "bind(C, name='pumice_", '\'');
    assert!(header.len() > 50, "{header:?}");
    assert_eq!(header, fortran);
}

#[test]
fn versions_agree() {
    let version = format!("{VERSION_MAJOR}.{VERSION_MINOR}.{VERSION_PATCH}");
    assert_eq!(version, env!("CARGO_PKG_VERSION"));
    // SAFETY: always text.
    assert_eq!(unsafe { CStr::from_ptr(pumice_version()) }.to_str(), Ok(version.as_str()));
    let cmake = include_str!("../cmake/PumiceConfigVersion.cmake");
    assert!(cmake.contains(&format!("set(PACKAGE_VERSION \"{version}\")")));
}
