// Codec `fast`, choosing predictors, as crates/pumice/src/codec/choose.rs does.
//
// One block per chunk; a warp computes the costs of all predictors that subtract the same rows, for one sampled run.
// The block then picks the cheapest predictor. It also clears the counters of `fast_encode_*`. The encoder waits for
// this kernel, so all rows are loaded together.
#include "fast_tile.cuh"

constexpr uint32_t RUN = 64;
constexpr uint32_t MAX_LAG = 16;
constexpr uint32_t RUN_AND_LAG = RUN + MAX_LAG;
constexpr uint32_t N_RUNS = 40;
constexpr uint32_t MAX_CANDIDATES = 32;
constexpr uint32_t CHOOSE_WARPS = 32;

// The sampling of chunks of one shape: offsets of the runs, and candidates in order of preference.
struct Sampling {
    uint64_t starts[N_RUNS];
    // Distances to the rows or planes that are subtracted first; 0 for none.
    uint64_t across[MAX_CANDIDATES][2];
    uint32_t n_runs;
    uint32_t n_candidates;
    // Index of its first candidate among those of all shapes.
    uint32_t first_choice;
    uint32_t reserved;
};

template <class T>
struct ChooseJob {
    Coding<T> coding;
    Chunk* chunks;
    const Choice* choices;
    const Sampling* samplings;
    uint64_t* sums;
    uint32_t* tickets;
};

template <class T>
struct ChooseShared {
    typename Real<T>::Int differences[CHOOSE_WARPS][RUN_AND_LAG];
    Sampling sampling;
    uint32_t axes[MAX_CANDIDATES], lags[MAX_CANDIDATES], n_tiles[MAX_CANDIDATES];
    uint32_t costs[MAX_CANDIDATES];
    // Candidates that subtract the same rows are adjacent: the start of each such group, and the number of groups.
    uint32_t first_of_group[MAX_CANDIDATES + 1];
    uint32_t n_groups;
};

// Values of a run per lane; only half of the lanes have the last one.
constexpr uint32_t PER_LANE = (RUN_AND_LAG + 31) / 32;

template <class T>
DEVICE void load_run(const T* values, T (&own)[PER_LANE], uint32_t lane) {
#pragma unroll
    for (uint32_t k = 0; k < PER_LANE; ++k) own[k] = lane + 32 * k < RUN_AND_LAG ? values[lane + 32 * k] : T(0);
}

// Integers of consecutive values; a value that cannot be quantised gets the previous integer. By one warp.
template <class T>
DEVICE void quantize_run(const Coding<T>& coding, const T* values, const T (&own)[PER_LANE],
                         typename Real<T>::Int (&run)[PER_LANE], typename Real<T>::Int* scratch, uint32_t lane) {
    using Int = typename Real<T>::Int;
    bool undecided = false;
#pragma unroll
    for (uint32_t k = 0; k < PER_LANE; ++k) {
        Int q = 0;
        if (coding.is_lossless) q = to_ordered(own[k]);
        else undecided = (!coding.quantize(own[k], q) && lane + 32 * k < RUN_AND_LAG) || undecided;
        run[k] = q;
    }
    if (!__any_sync(ALL_LANES, undecided)) return;
    __syncwarp();
    if (lane == 0) {
        Int last = 0;
        for (uint32_t i = 0; i < RUN_AND_LAG; ++i) {
            Int q;
            if (coding.quantize(values[i], q)) last = q;
            scratch[i] = last;
        }
    }
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < PER_LANE; ++k) {
        if (lane + 32 * k < RUN_AND_LAG) run[k] = scratch[lane + 32 * k];
    }
    __syncwarp();
}

// Sum of the widths of a run's groups, by one warp.
template <class Int>
DEVICE uint32_t cost_of_run(const Int* differences, uint32_t axes, uint32_t lag, uint32_t lane) {
    uint32_t cost = 0;
#pragma unroll
    for (uint32_t i = 0; i < RUN; i += 32) {
        const Int* at = differences + MAX_LAG + i + lane;
        Int code = at[0];
        if (axes & X) code -= *(at - lag);
        if (axes & XX) code -= *(at - 1) - *(at - 2);
        code = zigzag(code);
#pragma unroll
        for (uint32_t distance = 1; distance < 8; distance *= 2) code |= __shfl_xor_sync(ALL_LANES, code, distance);
        if (lane % 8 == 0) cost += bit_length(code);
    }
    return __reduce_add_sync(ALL_LANES, cost);
}

// Finds the groups of candidates, copies the candidates to shared memory, and sets costs to 0.
template <class T>
DEVICE void group_candidates(const ChooseJob<T>& job, ChooseShared<T>& s, uint32_t n_candidates, uint32_t warp,
                             uint32_t lane) {
    if (warp == 0) {
        const uint64_t* across = s.sampling.across[lane];
        const bool is_first = lane < n_candidates &&
                              (lane == 0 || across[0] != s.sampling.across[lane - 1][0] ||
                               across[1] != s.sampling.across[lane - 1][1]);
        const uint32_t firsts = __ballot_sync(ALL_LANES, is_first);
        if (is_first) s.first_of_group[__popc(firsts & ((1u << lane) - 1))] = lane;
        if (lane == 0) {
            s.n_groups = __popc(firsts);
            s.first_of_group[__popc(firsts)] = n_candidates;
        }
        s.costs[lane] = 0;
    } else if (warp == 1 && lane < n_candidates) {
        const Choice& candidate = job.choices[s.sampling.first_choice + lane];
        s.axes[lane] = candidate.axes;
        s.lags[lane] = candidate.lag;
        s.n_tiles[lane] = candidate.n_tiles;
    }
}

template <class T>
DEVICE void choose(const ChooseJob<T>& job, ChooseShared<T>& s) {
    using Int = typename Real<T>::Int;
    const uint32_t t = threadIdx.x, warp = t / 32, lane = t % 32;
    Chunk& chunk = job.chunks[blockIdx.x];
    const Sampling* sampling = job.samplings + chunk.sampling;
    const uint64_t first_run = chunk.first_run;
    const T* values = in_device_memory((const T*)chunk.values);
    for (uint32_t i = t; i < sizeof(Sampling) / 8; i += CHOOSE_WARPS * 32) {
        ((uint64_t*)&s.sampling)[i] = ((const uint64_t*)sampling)[i];
    }
    if (blockIdx.x == 0 && t == 0) *job.tickets = 0;
    __syncthreads();
    const uint32_t n_candidates = s.sampling.n_candidates, n_runs = s.sampling.n_runs;
    group_candidates(job, s, n_candidates, warp, lane);
    __syncthreads();
    Int* differences = s.differences[warp];
    const uint32_t n_groups = s.n_groups;
    for (uint32_t task = warp; task < n_runs * n_groups; task += CHOOSE_WARPS) {
        const uint32_t group = task % n_groups, first_candidate = s.first_of_group[group], end = s.first_of_group[group + 1];
        const uint64_t row = s.sampling.across[first_candidate][0], plane = s.sampling.across[first_candidate][1];
        const T* here = values + s.sampling.starts[task / n_groups] - MAX_LAG;
        const T* from[4] = {here, here - row, here - plane, here - row - plane};
        const uint32_t n_rows = row == 0 ? 1 : plane == 0 ? 2 : 4;
        // All loads are issued before the first result is used.
        T own[4][PER_LANE];
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) {
            if (r < n_rows) load_run(from[r], own[r], lane);
        }
        Int sums[PER_LANE];
#pragma unroll
        for (uint32_t r = 0; r < 4; ++r) {
            if (r >= n_rows) continue;
            Int run[PER_LANE];
            quantize_run(job.coding, from[r], own[r], run, differences, lane);
#pragma unroll
            for (uint32_t k = 0; k < PER_LANE; ++k) sums[k] = r == 0 ? run[k] : r == 3 ? sums[k] + run[k] : sums[k] - run[k];
        }
#pragma unroll
        for (uint32_t k = 0; k < PER_LANE; ++k) {
            if (lane + 32 * k < RUN_AND_LAG) differences[lane + 32 * k] = sums[k];
        }
        __syncwarp();
        for (uint32_t c = first_candidate; c < end; ++c) {
            const uint32_t cost = cost_of_run(differences, s.axes[c], s.lags[c], lane);
            if (lane == 0) atomicAdd(&s.costs[c], cost);
        }
        __syncwarp();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t best = 0, least = 0xFFFFFFFF;
        for (uint32_t c = 0; c < n_candidates; ++c) {
            // Tiles with a lag are coded by a slower path, so a lag costs a surcharge of 1/16.
            uint32_t price = s.lags[c] > 1 ? s.costs[c] + s.costs[c] / 16 : s.costs[c];
            if (price < least) {
                best = c;
                least = price;
            }
        }
        chunk.choice = s.sampling.first_choice + best;
        s.costs[0] = s.n_tiles[best];
    }
    __syncthreads();
    for (uint32_t run = threadIdx.x; run * TILES_PER_ANCHOR < s.costs[0]; run += CHOOSE_WARPS * 32) {
        job.sums[first_run + run] = 0;
    }
}

KERNEL_BOUNDED(1024, 1, fast_choose_f32)(const __grid_constant__ ChooseJob<float> job) {
    SHARED(ChooseShared<float>, shared);
    choose(job, shared);
}

KERNEL_BOUNDED(1024, 1, fast_choose_f64)(const __grid_constant__ ChooseJob<double> job) {
    SHARED(ChooseShared<double>, shared);
    choose(job, shared);
}

REGISTER_KERNEL(fast_choose_f32);
REGISTER_KERNEL(fast_choose_f64);
