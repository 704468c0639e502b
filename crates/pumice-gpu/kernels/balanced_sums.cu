// Codec `balanced`, decoding: differences to values, by sums along the axes of an order.
//
// Any order of any chunk: the differences are put where the values go (join), and summed up there along one axis after the
// other: starts of rows (starts), rows (rows), and the axes across them (across). Then they become values (restore).
#include "balanced_decode.cuh"

namespace balanced {

template <class T>
struct DecodeJob : DecodeWork {
    Coding<T> coding;
    // The axis across rows that `across` sums along.
    uint32_t axis;
};

constexpr uint32_t SUM_THREADS = 256;
// Groups that a block joins.
constexpr uint32_t JOIN_GROUPS = 128;
// Blocks that work on a chunk.
constexpr uint32_t SUM_BLOCKS = 64;

struct SumShared {
    uint32_t sums[SUM_THREADS / 32 + 1];
};

template <class T>
DEVICE void join_groups(const DecodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t tile = blockIdx.x / (TILE / JOIN_GROUPS), part = blockIdx.x % (TILE / JOIN_GROUPS);
    const uint32_t number = job.tile_chunks[tile];
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain) return;
    typename Real<T>::Int* out = (typename Real<T>::Int*)chunk.values;
    const uint32_t first = (tile - chunk.first_tile) * TILE + part * JOIN_GROUPS;
    for (uint32_t group = first + warp; group < min(first + JOIN_GROUPS, chunk.n_groups); group += SUM_THREADS / 32) {
        const uint32_t d = load_difference(job, chunk, chunk.first_group + group, lane);
        if (group * GROUP + lane < chunk.n_values) out[group * GROUP + lane] = d;
    }
}

// Sums from the start of one row to that of the next; a warp a chain of rows.
template <class T>
DEVICE void sum_starts(const DecodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain || state.walk.n_along == 0 || state.walk.row.n_repeats == 1) return;
    typename Real<T>::Int* out = (typename Real<T>::Int*)chunk.values;
    const uint32_t n_repeats = state.walk.row.n_repeats, extent = state.walk.row.extent;
    const uint32_t n_chains = chunk.n_values / extent / n_repeats;
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32;
    for (uint32_t chain = first; chain < n_chains; chain += SUM_BLOCKS * SUM_THREADS / 32) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < n_repeats; i += 32) {
            const uint64_t at = (uint64_t(chain) * n_repeats + i + lane) * extent;
            const bool exists = i + lane < n_repeats;
            const uint32_t sum = before + prefix_of_warp(exists ? uint32_t(out[at]) : 0, lane);
            if (exists) out[at] = sum;
            before = __shfl_sync(ALL_LANES, sum, 31);
        }
    }
}

// Sums along rows, once or twice; a block a row.
template <class T>
DEVICE void sum_rows(const DecodeJob<T>& job, SumShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain || state.walk.n_along == 0) return;
    typename Real<T>::Int* out = (typename Real<T>::Int*)chunk.values;
    const uint32_t extent = state.walk.row.extent, n_rows = chunk.n_values / extent;
    constexpr uint32_t EACH = 4;
    for (uint32_t row = blockIdx.x % SUM_BLOCKS; row < n_rows; row += SUM_BLOCKS) {
        typename Real<T>::Int* values = out + uint64_t(row) * extent;
        uint32_t before_first = 0, before = 0;
        for (uint32_t first = 0; first < extent; first += SUM_THREADS * EACH) {
            uint32_t d[EACH], sum = 0, all;
            const uint32_t at = first + t * EACH;
            for (uint32_t k = 0; k < EACH; ++k) d[k] = at + k < extent ? uint32_t(values[at + k]) : 0;
            // Where differences were taken twice, the start of the row is not part of the first sums.
            const uint32_t start = d[0];
            if (state.walk.n_along == 2) {
                if (at == 0) d[0] = 0;
                for (uint32_t k = 0; k < EACH; ++k) {
                    sum += d[k];
                    d[k] = sum;
                }
                const uint32_t base = before_first + prefix_of_block<SUM_THREADS>(sum, s.sums, all);
                before_first += all;
                for (uint32_t k = 0; k < EACH; ++k) d[k] += base;
                if (at == 0) d[0] = start;
                sum = 0;
            }
            for (uint32_t k = 0; k < EACH; ++k) {
                if (at + k < extent) sum += d[k];
                d[k] = sum;
            }
            const uint32_t base = before + prefix_of_block<SUM_THREADS>(sum, s.sums, all);
            before += all;
            for (uint32_t k = 0; k < EACH; ++k) {
                if (at + k < extent) values[at + k] = d[k] + base;
            }
        }
    }
}

// Sums along an axis across rows; a thread a column.
template <class T>
DEVICE void sum_across(const DecodeJob<T>& job) {
    const uint32_t number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain || job.axis >= state.walk.n_across) return;
    typename Real<T>::Int* out = (typename Real<T>::Int*)chunk.values;
    const Axis axis = state.walk.across[job.axis];
    const uint32_t n_columns = chunk.n_values / (axis.extent * axis.n_repeats);
    const uint32_t first = blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x;
    for (uint32_t column = first; column < n_columns; column += SUM_BLOCKS * SUM_THREADS) {
        uint32_t at = column / axis.stride * axis.stride * axis.extent * axis.n_repeats + column % axis.stride;
        uint32_t start = 0;
        for (uint32_t repeat = 0; repeat < axis.n_repeats; ++repeat) {
            start += uint32_t(out[at]);
            out[at] = start;
            uint32_t sum = start;
            at += axis.stride;
            for (uint32_t i = 1; i < axis.extent; ++i) {
                sum += uint32_t(out[at]);
                out[at] = sum;
                at += axis.stride;
            }
        }
    }
}

template <class T>
DEVICE void restore_values(const DecodeJob<T>& job) {
    const uint32_t number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain) return;
    typename Real<T>::Int* integers = (typename Real<T>::Int*)chunk.values;
    T* values = (T*)chunk.values;
    const uint32_t first = blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x;
    for (uint32_t at = first; at < chunk.n_values; at += SUM_BLOCKS * SUM_THREADS) {
        const int64_t q = state.origin + int32_t(uint32_t(integers[at]));
        values[at] = job.coding.restore(typename Real<T>::Int(q));
    }
}

}  // namespace balanced

using namespace balanced;

#define KERNELS_OF_VALUES(Suffix, T)                                                                \
    KERNEL_BOUNDED(256, 4, balanced_join_##Suffix)(const __grid_constant__ DecodeJob<T> job) {      \
        join_groups(job);                                                                           \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_starts_##Suffix)(const __grid_constant__ DecodeJob<T> job) {    \
        sum_starts(job);                                                                            \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_rows_##Suffix)(const __grid_constant__ DecodeJob<T> job) {      \
        SHARED(SumShared, shared);                                                                  \
        sum_rows(job, shared);                                                                      \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_across_##Suffix)(const __grid_constant__ DecodeJob<T> job) {    \
        sum_across(job);                                                                            \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_restore_##Suffix)(const __grid_constant__ DecodeJob<T> job) {   \
        restore_values(job);                                                                        \
    }                                                                                               \
    REGISTER_KERNEL(balanced_join_##Suffix);                                                        \
    REGISTER_KERNEL(balanced_starts_##Suffix);                                                      \
    REGISTER_KERNEL(balanced_rows_##Suffix);                                                        \
    REGISTER_KERNEL(balanced_across_##Suffix);                                                      \
    REGISTER_KERNEL(balanced_restore_##Suffix)

KERNELS_OF_VALUES(f32, float);
KERNELS_OF_VALUES(f64, double);
