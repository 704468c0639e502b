//! Little memory. `unsafe` is allowed for a call to the C library.

/// Lets all threads allocate from the same arena if the address space is limited (`ulimit -v`): glibc reserves 64 MiB for
/// each further arena, some of it for a moment only, so that there may be no memory where there was some just before.
#[allow(unsafe_code)]
pub(crate) fn respect_limit() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        use nix::libc;
        use nix::sys::resource::{RLIM_INFINITY, Resource, getrlimit};
        if getrlimit(Resource::RLIMIT_AS).is_ok_and(|(limit, _)| limit != RLIM_INFINITY) {
            // SAFETY: sets a parameter of the allocator before another thread is started. If it fails, nothing changes.
            unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
        }
    }
}
