//! Slabs of an array on all cores.

/// Calls `work(i, slab)` for the slabs of `len` values, each on one of the threads.
pub(crate) fn for_each_slab<T: Send>(values: &mut [T], len: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let n_slabs = values.len().div_ceil(len);
    let n_threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let per_thread = n_slabs.div_ceil(n_threads).max(1);
    std::thread::scope(|scope| {
        for (part, slabs) in values.chunks_mut(per_thread * len).enumerate() {
            let work = &work;
            scope.spawn(move || {
                slabs.chunks_mut(len).enumerate().for_each(|(i, slab)| work(part * per_thread + i, slab));
            });
        }
    });
}
