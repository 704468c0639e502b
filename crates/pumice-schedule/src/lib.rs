//! Snapshots of iterative applications that are compressed and written while the application waits for something else,
//! such as for its GPU: scheduled compression, as in section 8 of the JLESC survey.
//!
//! ```
//! use pumice::{Config, ErrorBound};
//! use pumice_schedule::{Field, Folder, Options, Scheduler, block_shape};
//! # let folder = tempfile::tempdir()?;
//! # let step_on_gpu = |u: &mut Vec<f32>| u.iter_mut().for_each(|x| *x *= 0.99);
//! let shape = [64, 64, 64];
//! let mut u: Vec<f32> = (0..64 * 64 * 64).map(|i| (i as f32 * 0.001).sin()).collect();
//! let config = Config::new(ErrorBound::Rel(1e-3)).chunk_shape(&block_shape::<f32>(&shape, 256 << 10));
//!
//! let scheduler = Scheduler::new(Folder::new(folder.path()), Options::new())?;
//! let mut handles = Vec::new();
//! for step in 0..20 {
//!     scheduler.begin_iteration();
//!     // … what this thread computes …
//!     scheduler.idle(|| step_on_gpu(&mut u)); // blocks of earlier snapshots are compressed meanwhile
//!     if step % 10 == 9 {
//!         handles.push(scheduler.snapshot(&format!("step{step}"), &[Field::new("u", &u, &shape, &config)?])?);
//!     }
//! }
//! for handle in handles {
//!     let report = handle.wait()?;
//!     assert!(report.fields[0].1.ratio() > 5.0);
//! }
//! let read = pumice::decompress::<f32>(&std::fs::read(folder.path().join("step19/u.pum"))?)?;
//! assert_eq!(read.shape, shape);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The bytes of a file are those of [`pumice::compress`], whatever the schedule was. docs/scheduling.md is the guide.

mod buffers;
mod field;
mod phases;
pub mod predict;
mod runtime;
pub mod schedule;
pub mod sink;
pub mod trace;

pub use field::{Field, block_shape};
pub use runtime::{Background, Busy, Handle, Idle, Options, Place, Report, Scheduler, WhenFull};
pub use sink::{Folder, Limited, Pending, Sink};
