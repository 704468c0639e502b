//! Writing while the caller goes on.
//!
//! The call itself looks at the values, exchanges the pieces of chunks that boxes cut, and copies the chunks of each rank.
//! All else is for a thread, if MPI lets several threads call it at once. If not, the thread encodes, and the ranks write
//! when they wait.
#![allow(unsafe_code, reason = "moves a communicator to a thread")]

use std::panic;
use std::path::Path;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};

use mpi::Threading;
use mpi::collective::SystemOperation;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use pumice::backend::SharedStream;
use pumice::{Config, Error, ErrorKind, Result, Summary};

use super::partial::PartialFile;
use super::write::{Distributed, write_frames};
use crate::agreement::agree;
use crate::collective::reduce;
use crate::local::{LocalBox, Value};
use crate::messages::Wire;
use crate::passes::Everywhere;

/// As [`write`](crate::write()), while the caller goes on: when this returns, the values may change. [`Writing::wait`] says
/// how it has ended. Each rank needs memory for a copy of its values until then.
///
/// If MPI was initialised with [`Threading::Multiple`], the file is written meanwhile, and `wait` only waits. Otherwise,
/// values are encoded meanwhile, and written by `wait`.
///
/// ```no_run
/// use mpi::traits::*;
/// use pumice::{Config, ErrorBound};
/// use pumice_mpi::LocalBox;
///
/// let (universe, _) = mpi::initialize_with_threading(mpi::Threading::Multiple).expect("MPI is not yet in use");
/// let world = universe.world();
/// let (rank, n_ranks) = (world.rank() as usize, world.size() as usize);
/// let mut values = vec![rank as f32; 100 * 500];
/// let mine = LocalBox { start: &[100 * rank, 0], extents: &[100, 500], values: &values };
/// let config = Config::new(ErrorBound::Rel(1e-3));
/// let writing = pumice_mpi::iwrite(&world, "field.pum", &[100 * n_ranks, 500], &[mine], &config)?;
/// values.fill(1.0); // the next time step
/// writing.wait()?;
/// # Ok::<(), pumice::Error>(())
/// ```
pub fn iwrite<T: Value>(
    comm: &impl Communicator,
    path: impl AsRef<Path>,
    shape: &[usize],
    boxes: &[LocalBox<'_, T>],
    config: &Config,
) -> Result<Writing> {
    let comm = comm.duplicate();
    let array = Distributed::new(&comm, path.as_ref(), shape, boxes, config, Wire::Compressed)?;
    let everywhere = agree(&comm, Everywhere::new(&comm, shape, boxes, array.threads))?;
    let stream = agree(&comm, SharedStream::new(config, &everywhere))?;
    let array = agree(&comm, array.captured())?;
    let [level] = reduce(&comm, [mpi::environment::threading_support() as i32], SystemOperation::min());
    let (give, take) = mpsc::channel::<Work>();
    let named = thread::Builder::new().name("pumice-write".into());
    let thread = named.spawn(move || take.recv().ok().map(|work| work()));
    let thread = agree(&comm, thread.map_err(Error::from))?;
    // Nothing fails from here on, so that no partial file is left.
    let output = PartialFile::create(&comm, path.as_ref())?;
    let comm = Moved(comm);
    let work: Work = Box::new(move || {
        let frames = array.encode(&stream);
        let finish = move |comm: &SimpleCommunicator| {
            let written = agree(comm, frames)
                .and_then(|frames| write_frames(comm, &output, stream, array.chunks.count(), frames));
            output.end(comm, written)
        };
        if level < Threading::Multiple as i32 {
            return (comm, Err(Box::new(finish) as Finish));
        }
        let written = finish(comm.get());
        (comm, Ok(written))
    });
    // The thread has it, or this rank ends.
    let _ = give.send(work);
    Ok(Writing { thread: Some(thread) })
}

/// What a thread does, and what is left to do with all ranks when they wait.
type Work = Box<dyn FnOnce() -> (Moved, Done) + Send>;
type Done = std::result::Result<Result<Summary>, Finish>;
type Finish = Box<dyn FnOnce(&SimpleCommunicator) -> Result<Summary> + Send>;

/// A communicator, which goes to a thread and comes back.
struct Moved(SimpleCommunicator);

// SAFETY: a handle is a number or an address that any thread may use. Only one thread has it at a time, and another than
// that of the caller calls MPI only where MPI allows several threads to do so.
unsafe impl Send for Moved {}

impl Moved {
    /// A method, so that a closure takes all of it.
    fn get(&self) -> &SimpleCommunicator {
        &self.0
    }
}

/// A file that is being written. Dropped, it is waited for where the thread does all the work; otherwise it is not written,
/// and an empty partial file stays.
#[must_use = "the file is complete, and errors are known, after `wait`"]
pub struct Writing {
    thread: Option<JoinHandle<Option<(Moved, Done)>>>,
}

impl Writing {
    /// Whether [`Self::wait`] has nothing to wait for but other ranks. Not collective: ranks may get different answers.
    pub fn is_done(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Waits until the file is in its place, together with all other ranks, which call this in the same order for all
    /// files. All get the same summary, or the same error.
    pub fn wait(mut self) -> Result<Summary> {
        let Some(thread) = self.thread.take() else {
            return Err(Error::new(ErrorKind::InvalidArgument, "this file was already waited for"));
        };
        match thread.join() {
            Ok(Some((_, Ok(written)))) => written,
            Ok(Some((comm, Err(finish)))) => finish(comm.get()),
            Ok(None) => Err(Error::new(ErrorKind::InvalidArgument, "nothing was given to the thread that writes")),
            Err(panicked) => panic::resume_unwind(panicked),
        }
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        // A thread that calls MPI must end before MPI does.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
