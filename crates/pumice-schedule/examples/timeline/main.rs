//! What scheduled snapshots cost an application, beside other ways to write them:
//! `cargo run --release -p pumice-schedule --example timeline -- --picture schedule.svg`.
//!
//! A toy solver writes a snapshot in each iteration to storage of limited speed. Prints one JSON object: for each way the
//! time that an iteration takes longer than without snapshots, and what of compression and writes is hidden. The storage is a
//! [`Limited`] folder: a write takes as long as its bytes at the rate, and nothing else.

mod picture;
mod solver;

use std::sync::mpsc::sync_channel;
use std::time::{Duration, Instant};

use clap::Parser;
use pumice::{Config, ErrorBound, Preset};
use pumice_schedule::schedule::{Busy, Job, Span, order, place};
use pumice_schedule::trace::{Activity, Event, Lane, Trace};
use pumice_schedule::{Field, Folder, Limited, Options, Report, Scheduler, Sink, block_shape};
use serde_json::{Value, json};
use solver::Accelerator;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
struct Arguments {
    /// Cells along each edge of the cube
    #[arg(long, default_value_t = 128)]
    edge: usize,
    #[arg(long, default_value_t = 20)]
    iterations: usize,
    /// MB/s of storage
    #[arg(long, default_value_t = 50.0)]
    storage: f64,
    #[arg(long, default_value_t = 1e-4)]
    rel: f64,
    #[arg(long, default_value = "balanced")]
    preset: String,
    /// Size of blocks
    #[arg(long, default_value_t = 512)]
    block_kib: usize,
    /// Compressed blocks are written when they are so many
    #[arg(long, default_value_t = 64)]
    write_kib: usize,
    /// Where snapshots go for a moment; memory is best, as only the limit counts then
    #[arg(long, default_value_os_t = std::env::temp_dir())]
    folder: std::path::PathBuf,
    /// Where to draw the expected and the real schedule of one snapshot
    #[arg(long)]
    picture: Option<std::path::PathBuf>,
}

const NAMES: [&str; 3] = ["height", "speed", "energy"];

/// Passes over the results between steps, and the least time of each step.
const PHASES: [(usize, Duration); 3] =
    [(2, Duration::from_millis(70)), (1, Duration::from_millis(60)), (1, Duration::from_millis(50))];
/// What the background thread takes to communicate after each step.
const COMMUNICATION: Duration = Duration::from_millis(8);

/// The application, and what it tells a scheduler.
struct Application {
    accelerator: Accelerator,
    energy: Vec<f32>,
    checked: f64,
}

impl Application {
    fn new(edge: usize) -> Self {
        Self { accelerator: Accelerator::new(edge), energy: vec![0.0; edge * edge * edge], checked: 0.0 }
    }

    /// One iteration. Waits for the accelerator are idle times of this thread. The background thread communicates while
    /// the accelerator works.
    fn iterate(&mut self, scheduler: Option<&Scheduler>) {
        for (n_passes, least) in PHASES {
            for _ in 0..n_passes {
                self.checked += self.accelerator.wave().energy(&mut self.energy);
            }
            self.accelerator.start(least);
            let background = scheduler.map(Scheduler::background);
            let communication = std::thread::spawn(move || {
                let _busy = background.as_ref().map(|background| background.begin_busy());
                std::thread::sleep(COMMUNICATION);
            });
            match scheduler {
                Some(scheduler) => scheduler.idle(|| self.accelerator.wait()),
                None => self.accelerator.wait(),
            }
            communication.join().expect("it only sleeps");
        }
    }

    /// The fields of a snapshot.
    fn with_fields<R>(&self, then: impl FnOnce([&[f32]; 3]) -> R) -> R {
        let wave = self.accelerator.wave();
        then([&wave.height, &wave.speed, &self.energy])
    }
}

/// Seconds of a way to write snapshots.
struct Cost {
    total: f64,
    compression: f64,
    write: f64,
}

struct Bench {
    arguments: Arguments,
    shape: [usize; 3],
    config: Config,
}

impl Bench {
    fn sink(&self, folder: &std::path::Path) -> Result<Limited<Folder>> {
        Ok(Limited::new(Folder::new(folder), 1e6 * self.arguments.storage, Duration::ZERO)?)
    }

    /// Seconds of all iterations, with what `dump` and `end` do about snapshots.
    fn run(
        &self,
        scheduler: Option<&Scheduler>,
        mut dump: impl FnMut(usize, &Application) -> Result<()>,
        end: impl FnOnce() -> Result<()>,
    ) -> Result<f64> {
        let mut application = Application::new(self.arguments.edge);
        application.iterate(None);
        let start = Instant::now();
        for step in 0..self.arguments.iterations {
            if let Some(scheduler) = scheduler {
                scheduler.begin_iteration();
            }
            application.iterate(scheduler);
            dump(step, &application)?;
        }
        end()?;
        Ok(start.elapsed().as_secs_f64())
    }

    fn synchronous(&self, compress: bool) -> Result<Cost> {
        let folder = tempfile::tempdir_in(&self.arguments.folder)?;
        let sink = self.sink(folder.path())?;
        let (mut compression, mut write) = (0.0, 0.0);
        let total = self.run(
            None,
            |step, application| {
                let start = Instant::now();
                let files: Vec<Vec<u8>> = application.with_fields(|fields| {
                    let file = |values: &[f32]| match compress {
                        true => pumice::compress(values, &self.shape, &self.config),
                        false => Ok(bytes_of(values)),
                    };
                    fields.into_iter().map(file).collect::<pumice::Result<_>>()
                })?;
                compression += start.elapsed().as_secs_f64();
                let start = Instant::now();
                write_all(&sink, step, &files)?;
                write += start.elapsed().as_secs_f64();
                Ok(())
            },
            || Ok(()),
        )?;
        Ok(Cost { total, compression: if compress { compression } else { 0.0 }, write })
    }

    /// Values are copied, and written by a thread: one snapshot at a time, and one more waits.
    fn asynchronous(&self) -> Result<Cost> {
        let folder = tempfile::tempdir_in(&self.arguments.folder)?;
        let sink = self.sink(folder.path())?;
        let (to_writer, snapshots) = sync_channel::<(usize, Vec<Vec<u8>>)>(0);
        let writer = std::thread::spawn(move || -> pumice::Result<f64> {
            let mut seconds = 0.0;
            for (step, files) in snapshots {
                let start = Instant::now();
                write_all(&sink, step, &files)?;
                seconds += start.elapsed().as_secs_f64();
            }
            Ok(seconds)
        });
        let mut write = 0.0;
        let sender = std::cell::RefCell::new(Some(to_writer));
        let total = self.run(
            None,
            |step, application| {
                let files = application.with_fields(|fields| fields.map(bytes_of).to_vec());
                let sender = sender.borrow();
                Ok(sender.as_ref().ok_or("the writer has ended")?.send((step, files))?)
            },
            || {
                sender.borrow_mut().take();
                write = writer.join().expect("the writer does not panic")?;
                Ok(())
            },
        )?;
        Ok(Cost { total, compression: 0.0, write })
    }

    fn scheduled(&self) -> Result<(Cost, Vec<Report>, Trace)> {
        let folder = tempfile::tempdir_in(&self.arguments.folder)?;
        let snapshot_bytes = 3 * 4 * self.shape.iter().product::<usize>();
        let options = Options::new().memory(2 * snapshot_bytes).write_bytes(self.arguments.write_kib << 10).trace(true);
        let scheduler = Scheduler::new(self.sink(folder.path())?, options)?;
        let handles = std::cell::RefCell::new(Vec::new());
        let mut reports = Vec::new();
        let total = self.run(
            Some(&scheduler),
            |step, application| {
                application.with_fields(|values| {
                    let fields = NAMES.iter().zip(values);
                    let fields = fields.map(|(name, values)| Field::new(*name, values, &self.shape, &self.config));
                    let fields: Vec<Field<'_>> = fields.collect::<pumice::Result<_>>()?;
                    handles.borrow_mut().push(scheduler.snapshot(&format!("step{step}"), &fields)?);
                    Ok(())
                })
            },
            || {
                let ended = handles.take().into_iter().map(pumice_schedule::Handle::wait);
                reports = ended.collect::<pumice::Result<_>>()?;
                Ok(())
            },
        )?;
        let sum = |of: fn(&Report) -> f64| reports.iter().map(of).sum();
        let cost = Cost { total, compression: sum(|r| r.compression_seconds), write: sum(|r| r.write_seconds) };
        Ok((cost, reports, scheduler.take_trace()))
    }
}

fn bytes_of(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Writes a snapshot in pieces of 1 MiB.
fn write_all(sink: &impl Sink, step: usize, files: &[Vec<u8>]) -> pumice::Result<()> {
    let mut pending = sink.create(&format!("step{step}"), &NAMES.map(str::to_owned))?;
    for (field, bytes) in files.iter().enumerate() {
        for (i, piece) in bytes.chunks(1 << 20).enumerate() {
            pending.write_at(field, (i << 20) as u64, piece)?;
        }
    }
    pending.commit()
}

/// The snapshot of a task.
fn snapshot_of(event: &Event) -> Option<u64> {
    match &event.activity {
        Activity::Capture { snapshot }
        | Activity::Scan { snapshot, .. }
        | Activity::Compress { snapshot, .. }
        | Activity::Write { snapshot, .. } => Some(*snapshot),
        _ => None,
    }
}

/// When the last block of a snapshot is written, after its values were copied.
fn end_of(events: &[Event], snapshot: u64, copied: f64) -> Option<f64> {
    let ends = events.iter().filter(|event| snapshot_of(event) == Some(snapshot)).map(|event| event.span.end);
    ends.max_by(f64::total_cmp).map(|end| end - copied)
}

/// When the schedule that is made from the measured times and intervals would write the last block.
fn simulated_end(found: &[Event], snapshot: u64, copied: f64) -> f64 {
    let mut jobs: Vec<Job> = Vec::new();
    let tasks = || found.iter().filter(|event| snapshot_of(event) == Some(snapshot));
    for chain in 0..NAMES.len() {
        let seconds = |wanted: &dyn Fn(&Activity) -> f64| {
            tasks().map(|event| wanted(&event.activity) * event.span.seconds()).sum::<f64>()
        };
        let is_scan = |a: &Activity| f64::from(matches!(a, Activity::Scan { field, .. } if *field == chain));
        jobs.push(Job { chain, compression: seconds(&is_scan), io: 0.0 });
        let n_blocks =
            tasks().filter(|e| matches!(e.activity, Activity::Compress { field, .. } if field == chain)).count();
        for i in 0..n_blocks {
            let is_it = |a: &Activity| {
                f64::from(matches!(a, Activity::Compress { field, block, .. } if *field == chain && *block == i))
            };
            // Blocks that were written together share the time.
            let share = |a: &Activity| match a {
                Activity::Write { field, blocks, .. } if *field == chain && blocks.contains(&i) => {
                    1.0 / blocks.len() as f64
                }
                _ => 0.0,
            };
            jobs.push(Job { chain, compression: seconds(&is_it), io: seconds(&share) });
        }
    }
    let spans = |lane: Lane| {
        let busy = found.iter().filter(|event| event.lane == lane && event.activity == Activity::Busy);
        let spans = busy.map(|event| event.span.later(-copied)).filter(|span| span.end > 0.0);
        spans.map(|span| Span { start: span.start.max(0.0), ..span }).collect()
    };
    let busy = Busy { compute: spans(Lane::Compute), background: spans(Lane::Background) };
    place(&jobs, &order(&jobs), &busy, true).end()
}

/// When the values of a snapshot were copied.
fn copy_of(trace: &Trace, snapshot: u64) -> Option<Span> {
    let is_it = |event: &&Event| event.activity == Activity::Capture { snapshot };
    trace.found.iter().find(is_it).map(|event| event.span)
}

/// What was expected after a snapshot.
fn expected(trace: &Trace, snapshot: u64) -> Option<&[Event]> {
    trace.expected.iter().find(|(of, _)| *of == snapshot).map(|(_, events)| &events[..])
}

/// Milliseconds from the copy of a snapshot to its last write: expected, simulated and real, on average. The first snapshots,
/// of which little is known, and the last, which are waited for, do not count.
fn ends(trace: &Trace, n: u64) -> Value {
    let mut sums = [0.0; 3];
    let mut n_counted = 0.0;
    for snapshot in 4..n.saturating_sub(2) {
        let Some(Span { end: copied, .. }) = copy_of(trace, snapshot) else { continue };
        let (Some(expected), Some(found)) = (
            expected(trace, snapshot).and_then(|events| end_of(events, snapshot, copied)),
            end_of(&trace.found, snapshot, copied),
        ) else {
            continue;
        };
        let all = [expected, simulated_end(&trace.found, snapshot, copied), found];
        sums.iter_mut().zip(all).for_each(|(sum, end)| *sum += 1e3 * end);
        n_counted += 1.0;
    }
    let [expected, simulated, found] = sums.map(|sum| sum / n_counted);
    json!({ "expected": expected, "simulated": simulated, "real": found })
}

fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let shape = [arguments.edge; 3];
    let preset: Preset = arguments.preset.parse()?;
    let block = block_shape::<f32>(&shape, arguments.block_kib << 10);
    // One thread, as the application has one core for each process.
    let config = Config::new(ErrorBound::Rel(arguments.rel)).preset(preset).threads(1).chunk_shape(&block);
    let bench = Bench { arguments, shape, config };
    let none = bench.run(None, |_, _| Ok(()), || Ok(()))?;
    let raw = bench.synchronous(false)?;
    let compressed = bench.synchronous(true)?;
    let asynchronous = bench.asynchronous()?;
    let (scheduled, reports, trace) = bench.scheduled()?;
    let again = bench.run(None, |_, _| Ok(()), || Ok(()))?;
    let arguments = &bench.arguments;
    let n = arguments.iterations as f64;
    let compute = (none + again) / 2.0;
    let ms = |seconds: f64| 1e3 * seconds / n;
    let overhead = |cost: &Cost| cost.total - compute;
    let line = |cost: &Cost| {
        let work = cost.compression + cost.write;
        json!({
            "total_ms": ms(cost.total),
            "overhead_ms": ms(overhead(cost)),
            "compression_ms": ms(cost.compression),
            "write_ms": ms(cost.write),
            "visible_share": overhead(cost) / work,
        })
    };
    let seconds = |wanted: fn(&Activity) -> bool| {
        trace.found.iter().filter(|event| wanted(&event.activity)).map(|event| event.span.seconds()).sum::<f64>()
    };
    let raw_bytes: u64 = reports.iter().flat_map(|report| &report.fields).map(|(_, field)| field.raw_bytes).sum();
    let bytes: u64 = reports.iter().flat_map(|report| &report.fields).map(|(_, field)| field.compressed_bytes).sum();
    let mut scheduled_line = line(&scheduled);
    scheduled_line["copy_ms"] = ms(seconds(|a| matches!(a, Activity::Capture { .. }))).into();
    scheduled_line["wait_ms"] = ms(seconds(|a| *a == Activity::Wait)).into();
    scheduled_line["end_after_copy_ms"] = ends(&trace, reports.len() as u64);
    let result = json!({
        "iterations": arguments.iterations,
        "mib_per_snapshot": raw_bytes as f64 / n / 1048576.0,
        "storage_mb_per_s": arguments.storage,
        "ratio": raw_bytes as f64 / bytes as f64,
        "compute_ms": ms(compute),
        "compute_differs_by_ms": ms((none - again).abs()),
        "synchronous_uncompressed": line(&raw),
        "synchronous_compressed": line(&compressed),
        "asynchronous_uncompressed": line(&asynchronous),
        "scheduled": scheduled_line,
        "hidden_of_synchronous": 1.0 - overhead(&scheduled) / overhead(&compressed),
        "asynchronous_over_scheduled": overhead(&asynchronous) / overhead(&scheduled),
    });
    println!("{result:#}");
    if let Some(path) = &arguments.picture {
        let snapshot = reports.len() as u64 / 2;
        let start = copy_of(&trace, snapshot).ok_or("there is no such snapshot")?.start;
        let window = Span { start, end: start + 1.05 * compute / n };
        let expected = expected(&trace, snapshot).ok_or("the snapshot was not planned")?;
        let about = format!(
            "A snapshot of {:.0} MiB, ratio {:.0}, to storage of {:.0} MB/s, in the idle times of the next iteration.",
            raw_bytes as f64 / n / 1048576.0,
            raw_bytes as f64 / bytes as f64,
            arguments.storage
        );
        std::fs::write(path, picture::draw(expected, &trace.found, window, &NAMES, &about))?;
    }
    Ok(())
}
