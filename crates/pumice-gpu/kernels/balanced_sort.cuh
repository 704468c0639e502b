// Codec `balanced`: a stable sort of groups by the book of their class. Encoder and decoder share it; the jobs of both
// have the fields used here.
#pragma once

#include "balanced.cuh"

namespace balanced {

struct SortShared {
    alignas(16) uint8_t classes[TILE];
    uint32_t counts[TILE_THREADS / 32][N_CLASSES];
    uint32_t bases[N_CLASSES];
    uint32_t book_of[N_CLASSES];
    uint32_t sums[TILE_THREADS / 32 + 1];
};

// Loads the classes of a tile; returns the number of its groups.
template <class Job>
DEVICE uint32_t load_classes(const Job& job, const Chunk& chunk, uint32_t first, SortShared& s) {
    const uint32_t t = threadIdx.x, n = min(TILE, chunk.n_groups - first);
    const Piece<uint8_t>* from = (const Piece<uint8_t>*)(job.classes + chunk.first_group + first);
    if (t * PER_THREAD < n) ((Piece<uint8_t>*)s.classes)[t] = from[t];
    for (uint32_t i = t; i < N_CLASSES * TILE_THREADS / 32; i += TILE_THREADS) ((uint32_t*)s.counts)[i] = 0;
    __syncthreads();
    return n;
}

// Counts the groups of a tile by class or book, for each warp's part of the tile. `key` is 0 for groups that are not
// counted.
template <class F>
DEVICE void count_keys(SortShared& s, F key) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (uint32_t i = 0; i < PER_THREAD; ++i) {
        uint32_t k = key((warp * PER_THREAD + i) * 32 + lane);
        uint32_t same = __match_any_sync(ALL_LANES, k);
        if ((same & ((1u << lane) - 1)) == 0) s.counts[warp][k] += __popc(same);
        __syncwarp();
    }
    __syncthreads();
}

template <class Job>
DEVICE void tally(const Job& job, SortShared& s) {
    const uint32_t t = threadIdx.x;
    const Chunk& chunk = job.chunks[job.tile_chunks[blockIdx.x]];
    const uint32_t first = (blockIdx.x - chunk.first_tile) * TILE;
    const uint32_t n = load_classes(job, chunk, first, s);
    Tile& tile = job.tiles[blockIdx.x];
    // Positions beyond the end are not groups, not even empty ones.
    count_keys(s, [&](uint32_t i) { return i < n ? s.classes[i] & (HAS_WIDE - 1) : 0u; });

    uint32_t last = 0, low = 0, n_wide = 0, first_full = 0xFFFFFFFF;
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        uint32_t group_class = s.classes[i] & (HAS_WIDE - 1);
        if (group_class != 0) {
            last = (i + 1) << 8 | group_class;
            first_full = min(first_full, i);
        }
        low += low_bytes(group_class);
        if (s.classes[i] & HAS_WIDE) {
            const uint32_t* words = (const uint32_t*)(job.bytes + (chunk.first_group + first + i) * GROUP);
            for (uint32_t k = 0; k < 8; ++k) n_wide += n_zero_bytes(words[k]);
        }
    }
    uint32_t before = max_before_in_block<TILE_THREADS>(last, s.sums);
    uint32_t n_symbols = 0;
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        uint32_t group_class = s.classes[i] & (HAS_WIDE - 1);
        if (group_class == 0) continue;
        n_symbols += 1 + (before == 0 ? 0 : n_digits(i - (before >> 8)));
        before = (i + 1) << 8 | group_class;
    }
    uint32_t all_symbols, all_low, all_wide;
    prefix_of_block<TILE_THREADS>(n_symbols, s.sums, all_symbols);
    prefix_of_block<TILE_THREADS>(low, s.sums, all_low);
    prefix_of_block<TILE_THREADS>(n_wide, s.sums, all_wide);
    first_full = __reduce_min_sync(ALL_LANES, first_full);
    uint32_t final = __reduce_max_sync(ALL_LANES, last);
    if (t % 32 == 0) {
        s.bases[t / 32] = first_full;
        s.bases[32 + t / 32] = final;
    }
    __syncthreads();
    if (t < N_CLASSES) {
        uint32_t count = 0;
        for (uint32_t i = 0; i < TILE_THREADS / 32; ++i) count += s.counts[i][t];
        tile.counts[t] = count;
    }
    if (t == 0) {
        for (uint32_t i = 0; i < TILE_THREADS / 32; ++i) {
            first_full = min(first_full, s.bases[i]);
            final = max(final, s.bases[32 + i]);
        }
        tile.n_symbols = all_symbols;
        tile.n_leading = min(first_full, n);
        tile.n_trailing = n - (final >> 8);
        tile.last_class = final & 0xFF;
        tile.low_bytes = all_low;
        tile.n_wide = all_wide;
    }
}

constexpr uint32_t BOOKS_THREADS = 128;

struct BooksShared {
    uint32_t n_of_class[N_CLASSES];
    uint32_t book_of[N_CLASSES];
    uint32_t starts[N_BOOKS + 1];
    // For some of the tiles: number of symbols, empty groups at both ends, last class.
    uint32_t tiles[BOOKS_THREADS][4];
    uint32_t sums[BOOKS_THREADS / 32 + 1];
};

// Replaces the counts of tiles by sums over the previous tiles; one thread per class.
DEVICE uint32_t sum_counts(Tile* tiles, uint32_t n_tiles, uint32_t group_class) {
    // Several loads at a time, to hide their latency.
    constexpr uint32_t AT_ONCE = 8;
    uint32_t before = 0;
    for (uint32_t i = 0; i < n_tiles; i += AT_ONCE) {
        uint32_t counts[AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; ++k) counts[k] = i + k < n_tiles ? tiles[i + k].counts[group_class] : 0;
#pragma unroll
        for (uint32_t k = 0; k < AT_ONCE; ++k) {
            if (i + k < n_tiles) tiles[i + k].counts[group_class] = before;
            before += counts[k];
        }
    }
    return before;
}

template <class Job>
DEVICE void find_books(const Job& job, BooksShared& s) {
    const uint32_t t = threadIdx.x;
    const Chunk& chunk = job.chunks[blockIdx.x];
    State& state = job.states[blockIdx.x];
    Tile* tiles = job.tiles + chunk.first_tile;
    if (t < N_CLASSES) s.n_of_class[t] = sum_counts(tiles, chunk.n_tiles, t);
    uint32_t symbols = 0, n_empty = 0, last = 1, low = 0, wide = 0;
    for (uint32_t first = 0; first < chunk.n_tiles; first += BOOKS_THREADS) {
        const bool exists = first + t < chunk.n_tiles;
        Tile& tile = tiles[first + t];
        uint32_t own_low = 0, own_wide = 0, all;
        if (exists) {
            own_low = tile.low_bytes;
            own_wide = tile.n_wide;
            s.tiles[t][0] = tile.n_symbols;
            s.tiles[t][1] = tile.n_leading;
            s.tiles[t][2] = tile.n_trailing;
            s.tiles[t][3] = tile.last_class;
        }
        const uint32_t low_before = low + prefix_of_block<BOOKS_THREADS>(own_low, s.sums, all);
        low += all;
        const uint32_t wide_before = wide + prefix_of_block<BOOKS_THREADS>(own_wide, s.sums, all);
        wide += all;
        if (t == 0) {
            for (uint32_t i = 0; i < min(BOOKS_THREADS, chunk.n_tiles - first); ++i) {
                const uint32_t own = s.tiles[i][0], n_leading = s.tiles[i][1], n_trailing = s.tiles[i][2];
                const uint32_t own_last = s.tiles[i][3];
                s.tiles[i][0] = symbols;
                s.tiles[i][1] = n_empty;
                s.tiles[i][2] = last;
                if (own_last == 0) {
                    n_empty += n_trailing;
                } else {
                    symbols += own + n_digits(n_empty + n_leading);
                    n_empty = n_trailing;
                    last = own_last;
                }
            }
        }
        __syncthreads();
        if (exists) {
            tile.symbols_before = s.tiles[t][0];
            tile.empty_before = s.tiles[t][1];
            tile.class_before = s.tiles[t][2];
            tile.low_before = low_before;
            tile.wide_before = wide_before;
        }
        __syncthreads();
    }
    __syncthreads();
    if (t == 0) {
        state.n_class_symbols = symbols + n_digits(n_empty);
        state.low_bytes = low;
        state.n_wide = wide;
        for (uint32_t c = 0; c < N_CLASSES; ++c) {
            const bool shares = c > 2 && s.n_of_class[c] < OWN_BOOK_GROUPS;
            s.book_of[c] = shares ? s.book_of[c - 2] : c;
        }
        for (uint32_t b = 0; b <= N_BOOKS; ++b) s.starts[b] = 0;
        for (uint32_t c = 1; c < N_CLASSES; ++c) s.starts[s.book_of[c] + 1] += s.n_of_class[c];
        for (uint32_t b = 0; b < N_BOOKS; ++b) s.starts[b + 1] += s.starts[b];
    }
    __syncthreads();
    if (t < N_CLASSES) state.book_of[t] = s.book_of[t];
    if (t <= N_BOOKS) state.starts[t] = s.starts[t];
}

template <bool WITH_SYMBOLS, class Job>
DEVICE void place(const Job& job, SortShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t number = job.tile_chunks[blockIdx.x];
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    const Tile& tile = job.tiles[blockIdx.x];
    const uint32_t first = (blockIdx.x - chunk.first_tile) * TILE;
    const uint32_t n = load_classes(job, chunk, first, s);

    // Sorts groups by book.
    if (t < N_CLASSES) {
        s.bases[t] = state.starts[t];
        s.book_of[t] = state.book_of[t];
    }
    __syncthreads();
    if (t > 0 && t < N_CLASSES) atomicAdd(&s.bases[s.book_of[t]], tile.counts[t]);
    auto book_at = [&](uint32_t i) { return i < n ? s.book_of[s.classes[i] & (HAS_WIDE - 1)] : 0u; };
    count_keys(s, book_at);
    if (t < N_CLASSES) {
        uint32_t before = s.bases[t];
        for (uint32_t i = 0; i < TILE_THREADS / 32; ++i) {
            uint32_t count = s.counts[i][t];
            s.counts[i][t] = before;
            before += count;
        }
    }
    __syncthreads();
    uint32_t* sorted = job.sorted + chunk.first_group;
    for (uint32_t i = 0; i < PER_THREAD; ++i) {
        uint32_t group = (warp * PER_THREAD + i) * 32 + lane;
        uint32_t book = book_at(group);
        uint32_t same = __match_any_sync(ALL_LANES, book);
        uint32_t n_below = __popc(same & ((1u << lane) - 1));
        uint32_t to = s.counts[warp][book] + n_below;
        if (book != 0) sorted[to] = first + group;
        __syncwarp();
        if (n_below == 0) s.counts[warp][book] += __popc(same);
        __syncwarp();
    }

    if (!WITH_SYMBOLS) return;

    // Writes symbols of classes.
    uint32_t last = 0;
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        uint32_t group_class = s.classes[i] & (HAS_WIDE - 1);
        if (group_class != 0) last = (i + 1) << 8 | group_class;
    }
    __syncthreads();
    const uint32_t before = max_before_in_block<TILE_THREADS>(last, s.sums);
    auto for_runs = [&](auto each) {
        uint32_t at = before;
        for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
            uint32_t group_class = s.classes[i] & (HAS_WIDE - 1);
            if (group_class == 0) continue;
            bool is_first = at == 0;
            each(is_first ? tile.empty_before + i : i - (at >> 8), is_first ? tile.class_before : at & 0xFF, group_class);
            at = (i + 1) << 8 | group_class;
        }
        // The end of the chunk also ends a run.
        if (t == TILE_THREADS - 1 && first + n == chunk.n_groups) {
            each(at == 0 ? tile.empty_before + n : n - (at >> 8), 0u, 0u);
        }
    };
    uint32_t n_symbols = 0, all;
    for_runs([&](uint32_t n_empty, uint32_t, uint32_t group_class) { n_symbols += n_digits(n_empty) + (group_class != 0); });
    uint8_t* to = job.class_symbols + chunk.first_group + tile.symbols_before;
    to += prefix_of_block<TILE_THREADS>(n_symbols, s.sums, all);
    for_runs([&](uint32_t n_empty, uint32_t class_before, uint32_t group_class) {
        // Bijective base 2: digits 1 and 2, least significant first.
        for (; n_empty > 0; n_empty = (n_empty - 1) / 2) *to++ = n_empty % 2 == 0;
        if (group_class != 0) {
            int32_t rise = int32_t(group_class) - int32_t(class_before);
            *to++ = uint8_t(N_DIGITS + uint32_t((rise << 1) ^ (rise >> 31)));
        }
    });
}

}  // namespace balanced
