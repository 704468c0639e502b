//! Snapshots against plain compression, and what goes wrong on the way.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use pumice::{Config, ErrorBound, ErrorKind, Preset, Result, Stable};
use pumice_schedule::predict::Model;
use pumice_schedule::trace::{Activity, Lane};
use pumice_schedule::{Field, Folder, Options, Pending, Place, Scheduler, Sink, WhenFull, block_shape};

fn waves(n: usize, seed: usize) -> Vec<f32> {
    (0..n).map(|i| ((i + 7919 * seed) as f32 * 0.003).sin() * 40.0 + (i % 7) as f32).collect()
}

fn config(shape: &[usize], block: usize) -> Config {
    Config::new(ErrorBound::Rel(1e-3)).preset(Preset::Fast).chunk_shape(&block_shape::<f32>(shape, block))
}

fn read(folder: &Path, name: &str) -> Vec<u8> {
    std::fs::read(folder.join(name)).unwrap()
}

/// Blocks of 64 KiB.
const SHAPE: [usize; 3] = [40, 64, 64];

fn field(values: &[f32]) -> Field<'_> {
    Field::new("u", values, &SHAPE, &config(&SHAPE, 64 << 10)).unwrap()
}

fn a_field() -> Vec<f32> {
    waves(SHAPE.iter().product(), 1)
}

/// What a sink does wrong.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    Write(usize),
    Panic,
    Commit,
}

/// Writes to a folder and goes wrong in the first snapshot. A gate holds writes up.
struct Faulty {
    folder: Folder,
    fault: Fault,
    n_made: AtomicUsize,
    gate: Option<Arc<std::sync::Mutex<mpsc::Receiver<()>>>>,
}

impl Faulty {
    fn new(folder: &Path, fault: Fault) -> Self {
        Self { folder: Folder::new(folder), fault, n_made: AtomicUsize::new(0), gate: None }
    }
}

struct FaultyPending {
    pending: Box<dyn Pending>,
    fault: Fault,
    n_written: usize,
    gate: Option<Arc<std::sync::Mutex<mpsc::Receiver<()>>>>,
}

impl Sink for Faulty {
    fn create(&self, snapshot: &str, fields: &[String]) -> Result<Box<dyn Pending>> {
        let pending = self.folder.create(snapshot, fields)?;
        let is_first = self.n_made.fetch_add(1, Ordering::Relaxed) == 0;
        let fault = if is_first { self.fault } else { Fault::None };
        Ok(Box::new(FaultyPending { pending, fault, n_written: 0, gate: self.gate.clone() }))
    }
}

impl Pending for FaultyPending {
    fn write_at(&mut self, field: usize, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Some(gate) = &self.gate {
            let _ = gate.lock().unwrap().recv();
        }
        self.n_written += 1;
        match self.fault {
            Fault::Write(n) if n == self.n_written => Err(std::io::Error::other("the disk is full").into()),
            Fault::Panic => panic!("a fault on purpose"),
            _ => self.pending.write_at(field, offset, bytes),
        }
    }

    fn commit(self: Box<Self>) -> Result<()> {
        match self.fault {
            Fault::Commit => Err(std::io::Error::other("no name is left").into()),
            _ => self.pending.commit(),
        }
    }
}

#[test]
fn files_have_the_bytes_of_plain_compression() {
    let folder = tempfile::tempdir().unwrap();
    let mut special = waves(30 * 41 * 50, 2);
    (3..special.len()).step_by(41).for_each(|i| special[i] = f32::NAN);
    (5..special.len()).step_by(57).for_each(|i| special[i] = -999.0);
    let doubles: Vec<f64> = waves(240 * 250, 3).into_iter().map(f64::from).collect();
    let plain = waves(60_000, 4);
    let configs = [
        Config::new(ErrorBound::Rel(1e-3)),
        Config::new(ErrorBound::Abs(0.02)).preset(Preset::Fast),
        Config::new(ErrorBound::PwRel(1e-3)).preset(Preset::Balanced),
        Config::new(ErrorBound::Rel(1e-3)).stable(Stable::On),
        Config::new(ErrorBound::Lossless),
    ];
    for (i, config) in configs.iter().enumerate() {
        let place = if i % 2 == 0 { Place::IdleTimes } else { Place::Threads(3) };
        let options = Options::new().place(place).write_bytes([1, 10_000, 1 << 20][i % 3]).backfill(i % 2 == 0);
        let scheduler = Scheduler::new(Folder::new(folder.path()), options).unwrap();
        let blocks = |shape: &[usize]| config.clone().chunk_shape(shape);
        let n = config.clone();
        let cubes = blocks(&[16, 20, 25]);
        let rows = blocks(&[50, 250]);
        let runs = blocks(&[9000]);
        let fields = [
            Field::new("special", &special, &[30, 41, 50], &cubes).unwrap(),
            Field::new("doubles", &doubles, &[240, 250], &rows).unwrap(),
            Field::new("plain", &plain, &[60_000], &runs).unwrap(),
            Field::new("whole", &plain, &[200, 300], &n).unwrap(),
            Field::new("empty", &plain[..0], &[0, 5], &n).unwrap(),
            Field::new("scalar", &plain[..1], &[], &n).unwrap(),
        ];
        let background = scheduler.background();
        let mut handles = Vec::new();
        for step in 0..3 {
            scheduler.begin_iteration();
            handles.push(scheduler.snapshot(&format!("s{step}"), &fields).unwrap());
            scheduler.idle(|| std::thread::sleep(Duration::from_millis(3 * step)));
            background.busy(|| std::thread::sleep(Duration::from_millis(1)));
        }
        for (step, handle) in handles.into_iter().enumerate() {
            let report = handle.wait().unwrap();
            assert_eq!((report.name, report.fields.len()), (format!("s{step}"), 6));
            let same = |name: &str, bytes: Vec<u8>| {
                assert!(read(folder.path(), &format!("s{step}/{name}.pum")) == bytes, "{name}, config {i}");
            };
            same("special", pumice::compress(&special, &[30, 41, 50], &cubes).unwrap());
            same("doubles", pumice::compress(&doubles, &[240, 250], &rows).unwrap());
            same("plain", pumice::compress(&plain, &[60_000], &runs).unwrap());
            same("whole", pumice::compress(&plain, &[200, 300], &n).unwrap());
            same("empty", pumice::compress(&plain[..0], &[0, 5], &n).unwrap());
            same("scalar", pumice::compress(&plain[..1], &[], &n).unwrap());
        }
        assert_eq!(scheduler.held_bytes(), 0);
        scheduler.finish().unwrap();
    }
}

#[test]
fn values_are_those_at_the_time_of_the_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new()).unwrap();
    let mut values = a_field();
    let expected = pumice::compress(&values, &SHAPE, &config(&SHAPE, 64 << 10)).unwrap();
    let handle = scheduler.snapshot("s", &[field(&values)]).unwrap();
    values.fill(0.0);
    assert!(!handle.is_done(), "the compute thread was never idle");
    assert!(!folder.path().join("s").exists());
    handle.wait().unwrap();
    assert!(read(folder.path(), "s/u.pum") == expected);
}

#[test]
fn nothing_is_compressed_while_the_compute_thread_is_busy() {
    let folder = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new().trace(true)).unwrap();
    let values = a_field();
    let first = scheduler.snapshot("s", &[field(&values)]).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    assert!(!scheduler.take_trace().found.iter().any(|e| matches!(e.activity, Activity::Scan { .. })));
    // Writes need an idle background thread.
    let background = scheduler.background();
    let busy = background.begin_busy();
    scheduler.idle(|| {
        while scheduler.held_bytes() >= size_of_val(&values[..]) / 2 {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(100));
    });
    assert!(!first.is_done());
    drop(busy);
    while !first.is_done() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // Without a wait, all tasks are in idle intervals: they start there, and nothing was known of when they end.
    let trace = scheduler.take_trace();
    for lane in [Lane::Compute, Lane::Background] {
        let of_lane = || trace.found.iter().filter(move |event| event.lane == lane);
        for busy in of_lane().filter(|event| event.activity == Activity::Busy) {
            for task in of_lane().filter(|event| event.activity != Activity::Busy) {
                let starts_in = busy.span.start < task.span.start && task.span.start < busy.span.end;
                let is_ours = !matches!(task.activity, Activity::Capture { .. });
                assert!(!(starts_in && is_ours), "{task:?} starts within {busy:?}");
            }
        }
    }
    first.wait().unwrap();
}

#[test]
fn a_task_that_does_not_fit_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    // Ten seconds for each block.
    let model = Model { compressed_bytes_per_second: 6.5e3, ..Model::default() };
    let options = Options::new().trace(true).model(model);
    let scheduler = Scheduler::new(Folder::new(folder.path()), options).unwrap();
    let values = a_field();
    let iterate = || {
        scheduler.begin_iteration();
        scheduler.idle(|| std::thread::sleep(Duration::from_millis(20)));
        std::thread::sleep(Duration::from_millis(2));
    };
    (0..2).for_each(|_| iterate());
    let handle = scheduler.snapshot("s", &[field(&values)]).unwrap();
    (0..3).for_each(|_| iterate());
    let trace = scheduler.take_trace();
    assert!(!trace.found.iter().any(|event| matches!(event.activity, Activity::Compress { .. })));
    assert!(!handle.is_done());
    // Who waits is idle himself.
    handle.wait().unwrap();
}

#[test]
fn errors_arrive_at_wait_and_leave_the_old_snapshot() {
    let values = a_field();
    for fault in [Fault::Write(1), Fault::Write(3), Fault::Panic, Fault::Commit] {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("s")).unwrap();
        std::fs::write(folder.path().join("s/u.pum"), b"old").unwrap();
        let options = Options::new().write_bytes(1);
        let scheduler = Scheduler::new(Faulty::new(folder.path(), fault), options).unwrap();
        let handles =
            [scheduler.snapshot("s", &[field(&values)]).unwrap(), scheduler.snapshot("t", &[field(&values)]).unwrap()];
        let [first, second] = handles.map(|handle| handle.wait());
        let error = first.unwrap_err().to_string();
        assert!(error.starts_with("snapshot s: "), "{error}");
        second.unwrap();
        assert_eq!(read(folder.path(), "s/u.pum"), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2, "a temporary folder is left");
        assert_eq!(scheduler.held_bytes(), 0);
        scheduler.finish().unwrap();
    }
}

#[test]
fn a_dropped_handle_leaves_the_snapshot_to_the_scheduler() {
    let values = a_field();
    let folder = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new()).unwrap();
    drop(scheduler.snapshot("s", &[field(&values)]).unwrap());
    drop(scheduler);
    assert!(folder.path().join("s/u.pum").exists());

    let scheduler = Scheduler::new(Faulty::new(folder.path(), Fault::Commit), Options::new()).unwrap();
    drop(scheduler.snapshot("t", &[field(&values)]).unwrap());
    let error = scheduler.finish().unwrap_err();
    assert!(error.to_string().contains("no name is left"), "{error}");
    assert!(!folder.path().join("t").exists());

    // A handle that lives longer than its scheduler.
    let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new()).unwrap();
    let handle = scheduler.snapshot("u", &[field(&values)]).unwrap();
    scheduler.finish().unwrap();
    assert!(handle.wait().unwrap().fields[0].1.ratio() > 1.0);
}

#[test]
fn memory_is_bounded() {
    let values = a_field();
    let bytes = size_of_val(&values[..]);
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new().memory(bytes + bytes / 2);
    let refusing = Scheduler::new(Folder::new(folder.path()), options.clone().when_full(WhenFull::Refuse)).unwrap();
    let first = refusing.snapshot("a", &[field(&values)]).unwrap();
    assert_eq!(refusing.held_bytes(), bytes);
    let error = refusing.snapshot("b", &[field(&values)]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    assert!(error.to_string().contains("earlier snapshots"), "{error}");
    first.wait().unwrap();
    refusing.snapshot("b", &[field(&values)]).unwrap().wait().unwrap();

    let (open, gate) = mpsc::channel();
    let gate = Some(Arc::new(std::sync::Mutex::new(gate)));
    let sink = Faulty { gate, ..Faulty::new(folder.path(), Fault::None) };
    let blocking = Scheduler::new(sink, options.write_bytes(1 << 30)).unwrap();
    // The second waits until the first is compressed, without any idle interval.
    let handles = ["c", "d", "e"].map(|name| {
        let handle = blocking.snapshot(name, &[field(&values)]).unwrap();
        assert!(blocking.held_bytes() <= bytes + bytes / 2);
        open.send(()).unwrap();
        handle
    });
    handles.into_iter().for_each(|handle| assert!(handle.wait().is_ok()));

    let small = Scheduler::new(Folder::new(folder.path()), Options::new().memory(bytes - 1)).unwrap();
    let error = small.snapshot("f", &[field(&values)]).unwrap_err();
    assert!(error.to_string().contains("allow more"), "{error}");
}

#[test]
fn small_writes_are_merged() {
    let values = a_field();
    let folder = tempfile::tempdir().unwrap();
    let n_writes = |bytes: usize| {
        let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new().write_bytes(bytes)).unwrap();
        scheduler.snapshot("s", &[field(&values)]).unwrap().wait().unwrap().n_writes
    };
    assert!(n_writes(1) > 5);
    assert_eq!(n_writes(1 << 30), 1);
}

#[test]
fn arguments_are_checked() {
    let values = a_field();
    let folder = tempfile::tempdir().unwrap();
    let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new()).unwrap();
    let refused = |fields: &[Field<'_>]| scheduler.snapshot("s", fields).unwrap_err().to_string();
    assert!(refused(&[]).contains("no fields"));
    assert!(refused(&[field(&values), field(&values)]).contains("two fields"));
    let target = Config::new(ErrorBound::Ratio(10.0));
    let error = Field::new("u", &values, &SHAPE, &target).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(Field::new("u", &values, &[3, 3], &config(&[3, 3], 64)).is_err());
    let error = scheduler.snapshot("../s", &[field(&values)]).unwrap().wait().unwrap_err();
    assert!(error.to_string().contains("without slashes"), "{error}");
    let error = Field::new("u", &values, &SHAPE, &Config::new(ErrorBound::Abs(-1.0)))
        .map(|field| scheduler.snapshot("s", &[field]).unwrap().wait().unwrap_err());
    assert_eq!(error.unwrap().kind(), ErrorKind::InvalidArgument);
    assert!(Scheduler::new(Folder::new(folder.path()), Options::new().place(Place::Threads(0))).is_err());
    assert!(Scheduler::new(Folder::new(folder.path()), Options::new().margin(f64::NAN)).is_err());
}

#[test]
fn blocks_have_about_the_size_that_is_asked_for() {
    for shape in [&[100_usize, 256, 256][..], &[1 << 20], &[3, 1 << 20], &[7, 5, 3, 1000], &[512, 512, 8], &[]] {
        for bytes in [1 << 12, 1 << 16, 1 << 20, 1 << 30] {
            let block = block_shape::<f32>(shape, bytes);
            let size = 4 * block.iter().product::<usize>();
            let all = 4 * shape.iter().product::<usize>();
            assert!(size <= bytes && (size == all || 4 * size >= bytes), "{shape:?}: {block:?} for {bytes}");
        }
    }
}
