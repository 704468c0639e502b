//! Signals that end the program: a thread waits for them, removes the temporary files, and lets the program die of the
//! signal, which is what shells and batch systems look at.
//!
//! `unsafe` is allowed for two calls: one asks how a signal is handled, the other ends the process.

/// For so long, a second signal is taken for the first one: `timeout`, for one, sends it twice.
#[cfg(unix)]
const SAME_SIGNAL: std::time::Duration = std::time::Duration::from_secs(1);

/// Starts the thread. Must be called before any other thread is started, as those inherit which signals are blocked.
#[cfg(unix)]
pub(crate) fn clean_up() {
    use std::thread::Builder;
    use std::time::Instant;

    use nix::sys::signal::{SigSet, Signal};
    // Those that people, terminals and batch systems send. What the parent ignores stays ignored: `nohup`, `&`.
    let ending = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGQUIT,
        Signal::SIGTERM,
        Signal::SIGALRM,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
        Signal::SIGXCPU,
    ];
    let ending: SigSet = ending.into_iter().filter(|signal| !is_ignored(*signal)).collect();
    // Without this signal, a write beyond the largest allowed size of a file is an error like any other.
    let _ = SigSet::from(Signal::SIGXFSZ).thread_block();
    if ending.thread_block().is_err() {
        return;
    }
    let files = pumice::UnfinishedFiles::track();
    let wait = move || {
        let Ok(signal) = ending.wait() else { return };
        let begun = Instant::now();
        let discard = move || {
            files.discard_all();
            end_by(signal)
        };
        if Builder::new().name("clean-up".into()).spawn(discard).is_err() {
            discard();
        }
        // Much may have to be removed: another signal ends the program at once.
        while let Ok(again) = ending.wait() {
            if begun.elapsed() > SAME_SIGNAL {
                end_by(again);
            }
        }
    };
    if Builder::new().name("signals".into()).spawn(wait).is_err() {
        let _ = ending.thread_unblock();
    }
}

/// On other systems, what is left is removed by hand (docs/files.md).
#[cfg(not(unix))]
pub(crate) fn clean_up() {}

/// Ends the program as the signal does by itself. The first process of a container survives that, so it exits with the
/// code that a shell gives a program that has died of the signal.
#[cfg(unix)]
#[allow(unsafe_code)]
fn end_by(signal: nix::sys::signal::Signal) -> ! {
    use nix::{libc, sys::signal};
    let _ = signal::SigSet::from(signal).thread_unblock();
    let _ = signal::raise(signal);
    // SAFETY: ends the process without running any more of its code, which other threads may be in.
    unsafe { libc::_exit(128 + signal as libc::c_int) }
}

#[cfg(unix)]
#[allow(unsafe_code)]
fn is_ignored(signal: nix::sys::signal::Signal) -> bool {
    use nix::libc;
    let mut handling = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: without a new handling, the call only writes the present one to `handling`.
    let found = unsafe { libc::sigaction(signal as libc::c_int, std::ptr::null(), handling.as_mut_ptr()) };
    // SAFETY: the struct has only integers, a function's address among them, for which zeros are valid.
    found == 0 && unsafe { handling.assume_init() }.sa_sigaction == libc::SIG_IGN
}
