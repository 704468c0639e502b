// Codec `balanced`, decoding: the class of each group, from class symbols, some of which are digits of run lengths.
#pragma once

#include "balanced_decode.cuh"

namespace balanced {

// A summary of a sequence of class symbols, for a scan: `join` is associative.
struct Runs {
    // The number of groups without those of leading digits, and the sum of steps.
    uint32_t n_groups;
    int32_t steps;
    // The number of leading digits, and their value if no digits precede them.
    uint32_t n_leading, leading;
    // The number of trailing digits; of all, if there is nothing else.
    uint32_t n_trailing;
    uint32_t is_all_digits;
};

// More groups than any chunk has; sums saturate at this.
constexpr uint32_t TOO_MANY = 2 * MAX_GROUPS;

// The value of digits that follow `n_before` other digits.
DEVICE uint32_t shifted(uint32_t digits, uint32_t n_before) {
    return digits == 0 ? 0 : n_before >= 24 ? TOO_MANY : uint32_t(min(uint64_t(digits) << n_before, uint64_t(TOO_MANY)));
}

DEVICE Runs join(const Runs& a, const Runs& b) {
    Runs all;
    const uint32_t leading = shifted(b.leading, a.n_trailing);
    all.is_all_digits = a.is_all_digits & b.is_all_digits;
    all.n_leading = a.is_all_digits ? min(a.n_leading + b.n_leading, 64u) : a.n_leading;
    all.leading = a.is_all_digits ? min(a.leading + leading, TOO_MANY) : a.leading;
    all.n_groups = min((a.is_all_digits ? 0 : a.n_groups + leading) + b.n_groups, TOO_MANY);
    all.n_trailing = b.is_all_digits ? min(a.n_trailing + b.n_trailing, 64u) : b.n_trailing;
    all.steps = a.steps + b.steps;
    return all;
}

DEVICE Runs no_runs() { return Runs{0, 0, 0, 0, 0, 1}; }

DEVICE Runs runs_of(uint32_t symbol) {
    if (symbol < N_DIGITS) return Runs{0, 0, 1, 1 + symbol, 1, 1};
    int32_t step = int32_t(symbol - N_DIGITS);
    return Runs{1, (step >> 1) ^ -(step & 1), 0, 0, 0, 0};
}

struct RunsShared {
    alignas(16) uint8_t symbols[TILE];
    Runs warps[TILE_THREADS / 32];
    Runs before;
};

// Fetches the summary of another lane; `number` fetches one field.
template <class F>
DEVICE Runs fetch(const Runs& runs, F number) {
    return Runs{number(runs.n_groups),   number(runs.steps),      number(runs.n_leading),
                number(runs.leading),    number(runs.n_trailing), number(runs.is_all_digits)};
}

DEVICE Runs shuffle_up(const Runs& runs, uint32_t distance) {
    return fetch(runs, [=](auto number) { return __shfl_up_sync(ALL_LANES, number, distance); });
}

DEVICE Runs shuffle(const Runs& runs, uint32_t lane) {
    return fetch(runs, [=](auto number) { return __shfl_sync(ALL_LANES, number, lane); });
}

// Inclusive scan over the lanes of a warp.
DEVICE Runs join_lanes(Runs runs) {
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        Runs other = shuffle_up(runs, distance);
        if (threadIdx.x % 32 >= distance) runs = join(other, runs);
    }
    return runs;
}

// The summary of the symbols of a tile before this thread's; `all` becomes that of the whole tile.
DEVICE Runs runs_before(const DecodeWork& work, const Chunk& chunk, uint32_t first, uint32_t n, RunsShared& s, Runs& all) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const Piece<uint8_t>* from = (const Piece<uint8_t>*)(work.class_symbols + chunk.first_group + first);
    Piece<uint8_t> own{};
    if (t * PER_THREAD < n) own = from[t];
    ((Piece<uint8_t>*)s.symbols)[t] = own;
    Runs runs = no_runs();
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; ++i) {
        if (t * PER_THREAD + i < n) runs = join(runs, runs_of(own.of[i]));
    }
    runs = join_lanes(runs);
    if (lane == 31) s.warps[warp] = runs;
    Runs before = shuffle_up(runs, 1);
    if (lane == 0) before = no_runs();
    __syncthreads();
    Runs warps_before = no_runs();
    all = no_runs();
    for (uint32_t i = 0; i < TILE_THREADS / 32; ++i) {
        if (i == warp) warps_before = all;
        all = join(all, s.warps[i]);
    }
    return join(warps_before, before);
}

// The summary of a tile, stored in the memory of its fields until these are set.
DEVICE Runs* runs_of_tile(const DecodeWork& work, uint32_t tile) { return (Runs*)&work.tiles[tile]; }

DEVICE void sum_runs(const DecodeWork& work, RunsShared& s) {
    const uint32_t number = work.tile_chunks[blockIdx.x];
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    const uint32_t first = (blockIdx.x - chunk.first_tile) * TILE;
    if (needs_host(state) || first >= state.n_class_symbols) return;
    Runs all;
    runs_before(work, chunk, first, min(TILE, state.n_class_symbols - first), s, all);
    if (threadIdx.x == 0) *runs_of_tile(work, blockIdx.x) = all;
}

DEVICE void spread_classes(const DecodeWork& work, RunsShared& s) {
    const uint32_t t = threadIdx.x, number = work.tile_chunks[blockIdx.x];
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    const uint32_t first = (blockIdx.x - chunk.first_tile) * TILE;
    if (needs_host(state) || first >= state.n_class_symbols) return;
    const uint32_t n = min(TILE, state.n_class_symbols - first);
    if (t < 32) {
        // No symbols precede the chunk, so its leading digits are a complete run length.
        Runs before = Runs{0, 0, 0, 0, 0, 0};
        for (uint32_t tile = chunk.first_tile; tile < blockIdx.x; tile += 32) {
            Runs runs = tile + t < blockIdx.x ? *runs_of_tile(work, tile + t) : no_runs();
            runs = join_lanes(runs);
            before = join(before, shuffle(runs, 31));
        }
        if (t == 0) s.before = before;
    }
    Runs all;
    const Runs inside = runs_before(work, chunk, first, n, s, all);
    __syncthreads();
    Runs runs = join(s.before, inside);
    uint8_t* classes = work.classes + chunk.first_group;
    bool is_wrong = false;
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        const uint32_t symbol = s.symbols[i];
        const uint32_t at = runs.n_groups;
        runs = join(runs, runs_of(symbol));
        if (symbol >= N_DIGITS) {
            const int32_t group_class = 1 + runs.steps;
            if (group_class < 1 || group_class >= int32_t(N_CLASSES) || at >= chunk.n_groups) is_wrong = true;
            else classes[at] = uint8_t(group_class);
        }
    }
    // The thread with the last symbol knows the number of groups.
    const uint32_t last = n - 1;
    if (first + n == state.n_class_symbols && t == last / PER_THREAD && runs.n_groups != chunk.n_groups) is_wrong = true;
    if (is_wrong) state.needs_host = 1;
}

}  // namespace balanced
