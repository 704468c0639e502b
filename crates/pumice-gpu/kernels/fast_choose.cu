// Codec `fast`, choosing predictors, as crates/pumice/src/codec/choose.rs does.
//
// One block a chunk, a warp a sampled run: costs of all predictors, and the cheapest of them. Also sets to 0 what
// `fast_encode_*` counts with.
#include "fast_tile.cuh"

constexpr uint32_t RUN = 64;
constexpr uint32_t MAX_LAG = 16;
constexpr uint32_t RUN_AND_LAG = RUN + MAX_LAG;
constexpr uint32_t N_RUNS = 40;
constexpr uint32_t MAX_CANDIDATES = 32;
constexpr uint32_t CHOOSE_WARPS = 20;

// The chunks of one shape: where runs start, and candidates in order of preference.
struct Sampling {
    uint64_t starts[N_RUNS];
    // Distances of the rows or planes that are subtracted first; 0 for none.
    uint64_t across[MAX_CANDIDATES][2];
    uint32_t n_runs;
    uint32_t n_candidates;
    // Of its first candidate among all.
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
    typename Real<T>::Int runs[CHOOSE_WARPS][3][RUN_AND_LAG];
    uint32_t costs[MAX_CANDIDATES];
};

// Integers of consecutive values; what cannot be quantised repeats the one before. By one warp.
template <class T>
DEVICE void sample_run(const Coding<T>& coding, const T* values, typename Real<T>::Int* run, uint32_t lane) {
    using Int = typename Real<T>::Int;
    bool undecided = false;
    for (uint32_t i = lane; i < RUN_AND_LAG; i += 32) {
        Int q = 0;
        if (coding.is_lossless) q = to_ordered(values[i]);
        else undecided = !coding.quantize(values[i], q) || undecided;
        run[i] = q;
    }
    undecided = __any_sync(ALL_LANES, undecided);
    __syncwarp();
    if (undecided && lane == 0) {
        Int last = 0;
        for (uint32_t i = 0; i < RUN_AND_LAG; ++i) {
            Int q;
            if (coding.quantize(values[i], q)) last = q;
            run[i] = last;
        }
    }
    __syncwarp();
}

template <class T>
DEVICE void choose(const ChooseJob<T>& job, ChooseShared<T>& s) {
    using Int = typename Real<T>::Int;
    const uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Chunk& chunk = job.chunks[blockIdx.x];
    const Sampling& sampling = job.samplings[chunk.sampling];
    const Choice* candidates = job.choices + sampling.first_choice;
    if (threadIdx.x < MAX_CANDIDATES) s.costs[threadIdx.x] = 0;
    if (blockIdx.x == 0 && threadIdx.x == 0) *job.tickets = 0;
    __syncthreads();
    Int* here = s.runs[warp][0];
    Int* differences = s.runs[warp][1];
    for (uint32_t run = warp; run < sampling.n_runs; run += CHOOSE_WARPS) {
        const T* first = in_device_memory((const T*)chunk.values) + sampling.starts[run] - MAX_LAG;
        sample_run(job.coding, first, here, lane);
        for (uint32_t i = lane; i < RUN_AND_LAG; i += 32) differences[i] = here[i];
        uint64_t across[2] = {0, 0};
        for (uint32_t c = 0; c < sampling.n_candidates; ++c) {
            // Candidates that subtract the same rows stand together.
            if (sampling.across[c][0] != across[0] || sampling.across[c][1] != across[1]) {
                across[0] = sampling.across[c][0];
                across[1] = sampling.across[c][1];
                Int* other = s.runs[warp][2];
                __syncwarp();
                sample_run(job.coding, first - across[0], other, lane);
                for (uint32_t i = lane; i < RUN_AND_LAG; i += 32) differences[i] = here[i] - other[i];
                if (across[1] != 0) {
                    __syncwarp();
                    sample_run(job.coding, first - across[1], other, lane);
                    for (uint32_t i = lane; i < RUN_AND_LAG; i += 32) differences[i] -= other[i];
                    __syncwarp();
                    sample_run(job.coding, first - across[0] - across[1], other, lane);
                    for (uint32_t i = lane; i < RUN_AND_LAG; i += 32) differences[i] += other[i];
                }
            }
            __syncwarp();
            // Sum of the widths of the run's groups.
            const uint32_t axes = candidates[c].axes, lag = candidates[c].lag;
            uint32_t cost = 0;
            for (uint32_t i = MAX_LAG + lane; i < RUN_AND_LAG; i += 32) {
                Int code = differences[i];
                if (axes & X) code -= differences[i - lag];
                if (axes & XX) code -= differences[i - 1] - differences[i - 2];
                code = zigzag(code);
                for (uint32_t distance = 1; distance < 8; distance *= 2) {
                    code |= __shfl_xor_sync(ALL_LANES, code, distance);
                }
                if (lane % 8 == 0) cost += bit_length(code);
            }
            cost = __reduce_add_sync(ALL_LANES, cost);
            if (lane == 0) atomicAdd(&s.costs[c], cost);
        }
        __syncwarp();
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        uint32_t best = 0, least = 0xFFFFFFFF;
        for (uint32_t c = 0; c < sampling.n_candidates; ++c) {
            // A lag is coded by the slower path, so it must be worth it.
            uint32_t price = candidates[c].lag > 1 ? s.costs[c] + s.costs[c] / 16 : s.costs[c];
            if (price < least) {
                best = c;
                least = price;
            }
        }
        chunk.choice = sampling.first_choice + best;
        s.costs[0] = candidates[best].n_tiles;
    }
    __syncthreads();
    for (uint32_t run = threadIdx.x; run * TILES_PER_ANCHOR < s.costs[0]; run += CHOOSE_WARPS * 32) {
        job.sums[chunk.first_run + run] = 0;
    }
}

KERNEL(fast_choose_f32)(const __grid_constant__ ChooseJob<float> job) {
    SHARED(ChooseShared<float>, shared);
    choose(job, shared);
}

KERNEL(fast_choose_f64)(const __grid_constant__ ChooseJob<double> job) {
    SHARED(ChooseShared<double>, shared);
    choose(job, shared);
}

REGISTER_KERNEL(fast_choose_f32);
REGISTER_KERNEL(fast_choose_f64);
