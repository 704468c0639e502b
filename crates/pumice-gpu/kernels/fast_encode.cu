// Codec `fast`, encoding: chunks in device memory to payloads in device memory.
//
// `fast_choose_*`: one block a chunk, a warp a sampled run. Costs of all predictors, and the cheapest of them; also sets
// what `fast_encode_*` counts with to 0.
//
// `fast_encode_*`: one launch for all chunks. A block takes tiles of 4096 values by ticket, so that a tile's
// predecessors are always under way, and codes each in these memory phases:
//   1. values are read once, 16 bytes a thread, quantised, checked against the decoder's own result, and put as integers
//      into shared memory;
//   2. a thread takes groups of 8 integers, with those above, behind and before them, to codes in registers, and leaves
//      the groups' widths;
//   3. one warp lays out the body from the widths and publishes its size;
//   4. each thread turns its groups into bit planes, in shared memory;
//   5. while the next tile is laid out, another warp looks back for where the body goes, and then all copy it there. By
//      then the sizes before it have long been published, so that nobody waits.
// Looking back is a matter of two looks: at the sizes of the tiles since the last anchor, and at the sums of 32 tiles each
// before that. A tile with values that cannot be quantised is coded again the careful way, and a body too large to be kept
// beside the next tile is copied at once. Tiles are independent but for their place.
#include "fast_tile.cuh"

constexpr uint32_t MASK_WORDS = TILE_VALUES / 32;

// Body that is kept beside the next tile, in words.
constexpr uint32_t KEPT_WORDS = 1024;

template <class T>
struct EncodeShared {
    union {
        typename Real<T>::Int integers[TILE_VALUES];
        uint8_t body[TILE_VALUES * sizeof(T) + 16];
        uint32_t words[TILE_VALUES * sizeof(T) / 4 + 4];
    };
    uint8_t widths[N_GROUPS];
    // Per supergroup: where its planes start in the body.
    uint16_t planes_at[N_SUPER];
    // The one before, this one and the next, in turns.
    Tile<T> tiles[4];
    // Bodies of this tile and the one before, in turns, and their words; NO_TILE if there is nothing to be placed.
    uint32_t kept[2][KEPT_WORDS];
    uint32_t n_kept[2];
    // Of the careful way: bits by linear index.
    uint32_t fill_masks[MAX_FILLS][MASK_WORDS];
    uint32_t escapes[MASK_WORDS];
    uint32_t holes[MASK_WORDS];
    uint32_t n_escapes;
    uint32_t first_valid;
    // Bytes of each mask of fill values; 0 if it is empty.
    uint32_t mask_bytes[MAX_FILLS];
    // What the body is, once it is laid out.
    uint32_t n_words;
    uint32_t is_raw;
    uint32_t is_too_wide;
    // Where the body of the tile before goes.
    uint32_t words_before;
};

template <class T>
struct EncodeJob {
    Coding<T> coding;
    Chunk* chunks;
    const Choice* choices;
    // For each slot the words of its tile, above the number of the launch: a word of another launch is as good as none,
    // so that nothing need be cleared.
    uint64_t* sizes;
    // For each 32 slots of a chunk how many tiles have a size, above the sum of their words.
    uint64_t* sums;
    // The same slots: the words before them in the chunk, above the number of the launch.
    uint64_t* places;
    uint32_t* tickets;
    uint32_t n_chunks;
    uint32_t n_slots;
    // Slots of each chunk if all but the last have as many, else 0.
    uint32_t slots_per_chunk;
    uint32_t launch;
};

// Takes a ticket and finds the tile that it stands for; its chunk is NO_TILE if there are no more.
template <class T>
DEVICE void take_tile(const EncodeJob<T>& job, Tile<T>& tile) {
    const uint32_t ticket = atomicAdd(job.tickets, 1);
    tile.chunk = NO_TILE;
    if (ticket < job.n_slots) locate(job.chunks, job.n_chunks, job.slots_per_chunk, job.choices, ticket, tile);
}

// Phase 1, for a tile without special values and of a common shape. Leaves the bits of rounded values, which are the integers
// plus MAGIC_BITS: that drops out of differences. Whether all values could be quantised; if not, what was written is void.
template <class T, class S>
DEVICE bool quantize_shape(const Coding<T>& coding, const Tile<T>& tile, EncodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    constexpr uint32_t n = 16 / sizeof(T);
    constexpr uint32_t N_LOADS = TILE_VALUES / n / THREADS;
    constexpr uint32_t LINES = THREADS * n / S::ROW;
    const uint32_t t = threadIdx.x;
    const uint32_t line = t * n / S::ROW, x = t * n % S::ROW;
    const T* from = tile.values + (line / S::EY * tile.stride_z + line % S::EY * tile.stride_y + x);
    // The rows that all threads read together make whole planes, or part of one.
    const uint64_t stride = LINES == 0 ? THREADS * n : S::EY <= LINES ? LINES / S::EY * tile.stride_z : LINES * tile.stride_y;
    Piece<T> values[N_LOADS];
#pragma unroll
    for (uint32_t i = 0; i < N_LOADS; ++i) values[i] = *(const Piece<T>*)(from + i * stride);
    Piece<Int>* to = (Piece<Int>*)s.integers + piece_of<Int>(t);
    bool fine = true;
#pragma unroll
    for (uint32_t i = 0; i < N_LOADS; ++i) {
        Piece<Int> integers;
        bool within = true;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) {
            T value = values[i].of[k];
            T sum = add_rn(mul_rn(value, coding.inv_step), Real<T>::MAGIC);
            within = within && magnitude(sub_rn(value, coding.restored(sum))) <= coding.tolerance;
            integers.of[k] = Int(bits_of(sum));
        }
        if (!within) {
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) {
                Int q;
                fine = coding.quantize_likely(values[i].of[k], q) && fine;
                integers.of[k] = q + Real<T>::MAGIC_BITS;
            }
        }
        to[i * THREADS] = integers;
    }
    if (coding.n_fills > 0) {
#pragma unroll
        for (uint32_t i = 0; i < N_LOADS; ++i) {
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) fine = fine && !coding.is_mistakable_fill(values[i].of[k]);
        }
    }
    return fine;
}

// The same for a tile of any shape. Leaves integers less the base.
template <class T>
DEVICE_CALL bool quantize_tile(const Coding<T>& coding, const Tile<T>& tile, typename Real<T>::Int base, EncodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    const uint32_t t = threadIdx.x;
    bool fine = true;
    if (tile.aligned) {
        constexpr uint32_t n = 16 / sizeof(T);
        constexpr uint32_t n_loads = TILE_VALUES / n / THREADS;
        Piece<T> values[n_loads];
#pragma unroll
        for (uint32_t i = 0; i < n_loads; ++i) {
            uint32_t at = (t + i * THREADS) * n;
            uint32_t line = at >> tile.x_log2;
            const T* row = tile.values + tile.row_offset(line);
            values[i] = *(const Piece<T>*)(row + (at - (line << tile.x_log2)));
        }
#pragma unroll
        for (uint32_t i = 0; i < n_loads; ++i) {
            Piece<Int> integers;
            bool within = true;
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) {
                T x = values[i].of[k];
                T sum = add_rn(mul_rn(x, coding.inv_step), Real<T>::MAGIC);
                within = within && magnitude(sub_rn(x, coding.restored(sum))) <= coding.tolerance;
                integers.of[k] = Int(bits_of(sum)) - (Real<T>::MAGIC_BITS + base);
            }
            if (!within) {
#pragma unroll
                for (uint32_t k = 0; k < n; ++k) {
                    Int q;
                    fine = coding.quantize_likely(values[i].of[k], q) && fine;
                    integers.of[k] = q - base;
                }
            }
            if (coding.n_fills > 0) {
#pragma unroll
                for (uint32_t k = 0; k < n; ++k) fine = fine && !coding.is_mistakable_fill(values[i].of[k]);
            }
            ((Piece<Int>*)s.integers)[piece_of<Int>(t + i * THREADS)] = integers;
        }
        return fine;
    }
    for (uint32_t at = t; at < tile.n_codes; at += THREADS) {
        uint32_t line = tile.line_of(at), x = at - line * tile.row;
        Int q = 0;
        if (x < tile.ex) {
            T value = tile.values[tile.row_offset(line) + x];
            fine = coding.quantize_likely(value, q) && !coding.is_mistakable_fill(value) && fine;
            q -= base;
        }
        s.integers[place_of<Int>(at)] = q;
    }
    return fine;
}

// The integer of linear index `at`, less those above and behind it.
template <class Int>
DEVICE Int difference_at(const Int* integers, uint32_t at, uint32_t row, uint32_t plane, bool above, bool behind) {
    Int value = integers[place_of<Int>(at)];
    if (above) value -= integers[place_of<Int>(at - row)];
    if (behind) value -= integers[place_of<Int>(at - plane)];
    if (above && behind) value += integers[place_of<Int>(at - plane - row)];
    return value;
}

// Phase 2 for a common shape: codes of all groups of this thread, from bits as `quantize_shape` leaves them. `zero` are those
// of the base, which all that is outside of the tile has.
template <class T, class S, uint32_t N>
DEVICE void code_shape(const Tile<T>& tile, const typename Real<T>::Int* integers, typename Real<T>::Int zero,
                       typename Real<T>::Int (&codes)[N][GROUP]) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    constexpr uint32_t n = 16 / sizeof(T);
    constexpr uint32_t PIECES = GROUP / n;
    constexpr uint32_t ROW_PIECES = S::ROW / n, PLANE_PIECES = S::EY * ROW_PIECES;
    const uint32_t t = threadIdx.x, lane = t % 32;
    const uint32_t line = t * GROUP / S::ROW;
    const bool along_x = tile.axes & X;
    // Whether all groups of a thread have the same y.
    constexpr bool SAME_Y = THREADS * GROUP / S::ROW % S::EY == 0;
    // Pieces of this thread's first group, and of the one above it (which need not exist); those of others are as far from
    // them as they seem.
    uint32_t own[PIECES], up[PIECES];
#pragma unroll
    for (uint32_t k = 0; k < PIECES; ++k) {
        own[k] = piece_of<Int>(t * PIECES + k);
        up[k] = piece_of<Int>(t * PIECES + k - ROW_PIECES);
    }
    const Piece<Int>* pieces = (const Piece<Int>*)integers;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        constexpr uint32_t STEP = THREADS * PIECES;
        Int (&v)[GROUP] = codes[i];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] = pieces[own[k / n] + i * STEP].of[k % n];
        const bool above = S::ALONG_Y && (line % S::EY > 0 || (i > 0 && !SAME_Y));
        const bool behind = S::ALONG_Z && (i > 0 || t >= PLANE_PIECES / PIECES);
        if (above) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= pieces[up[k / n] + i * STEP].of[k % n];
        }
        if (behind) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= pieces[own[k / n] + i * STEP - PLANE_PIECES].of[k % n];
            if (above) {
#pragma unroll
                for (uint32_t k = 0; k < GROUP; ++k) v[k] += pieces[up[k / n] + i * STEP - PLANE_PIECES].of[k % n];
            }
        }
        // Differences across rows drop the base, but for the first row of all.
        if (S::ALONG_Y && !above && !behind) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= zero;
        }
        if (along_x) {
            Int before = __shfl_up_sync(ALL_LANES, v[GROUP - 1], 1), before_first = 0;
            if (S::ALONG_Y) {
                if (t % (S::ROW / GROUP) == 0) before = 0;
            } else {
                const uint32_t at = (t + i * THREADS) * GROUP;
                const bool is_first = at == 0;
                if (lane == 0) before = is_first ? zero : integers[place_of<Int>(at - 1)];
                if (tile.axes & XX) {
                    Int second = __shfl_up_sync(ALL_LANES, v[GROUP - 2], 1);
                    if (lane == 0) second = is_first ? zero : integers[place_of<Int>(at - 2)];
                    before_first = before - second;
                }
            }
#pragma unroll
            for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
            v[0] -= before;
            if (!S::ALONG_Y && (tile.axes & XX)) {
#pragma unroll
                for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
                v[0] -= before_first;
            }
        } else if (!S::ALONG_Y) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= zero;
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] = zigzag<T>(v[k]);
    }
}

// Phase 2 for any tile: codes of the group whose linear indices start at `at`, from integers less the base.
template <class T>
DEVICE void code_group(const Tile<T>& tile, const typename Real<T>::Int* integers, uint32_t at,
                       typename Real<T>::Int (&v)[GROUP]) {
    using Int = typename Real<T>::Int;
    const uint32_t lane = threadIdx.x % 32;
    const bool exists = at < tile.n_codes;
    const uint32_t line = tile.line_of(at), x = at - line * tile.row;
    const uint32_t plane = tile.ey * tile.row;
    const bool above = exists && (tile.axes & Y) && tile.y_of(line) > 0;
    const bool behind = exists && (tile.axes & Z) && at >= plane;
#pragma unroll
    for (uint32_t k = 0; k < GROUP; ++k) v[k] = 0;
    if (exists) load_group(integers, at, v);
    Int other[GROUP];
    if (above) {
        load_group(integers, at - tile.row, other);
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] -= other[k];
    }
    if (behind) {
        load_group(integers, at - plane, other);
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] -= other[k];
        if (above) {
            load_group(integers, at - plane - tile.row, other);
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] += other[k];
        }
    }
    if (tile.lag > 1) {
        // Only along x.
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) {
            if (exists && x + k >= tile.lag) v[k] -= integers[place_of<Int>(at + k - tile.lag)];
        }
    } else if (tile.axes & X) {
        // The group before is that of the lane before, or of another warp.
        Int before = __shfl_up_sync(ALL_LANES, v[GROUP - 1], 1);
        if (lane == 0 && x > 0 && exists) before = difference_at(integers, at - 1, tile.row, plane, above, behind);
        if (x == 0) before = 0;
        Int before_first = 0;
        if (tile.axes & XX) {
            Int second = __shfl_up_sync(ALL_LANES, v[GROUP - 2], 1);
            if (lane == 0 && x > 0 && exists) second = difference_at(integers, at - 2, tile.row, plane, above, behind);
            before_first = x == 0 ? 0 : before - second;
        }
#pragma unroll
        for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
        v[0] -= before;
        if (tile.axes & XX) {
#pragma unroll
            for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
            v[0] -= before_first;
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < GROUP; ++k) v[k] = zigzag<T>(v[k]);
    if (!tile.full) {
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) {
            if (x + k >= tile.ex) v[k] = 0;
        }
    }
}

// Bytes of a mask of fill values; 0 if it is empty. By one warp.
template <class T>
DEVICE uint32_t count_mask_bytes(const EncodeShared<T>& s, uint32_t fill, uint32_t n_super, uint32_t lane) {
    uint32_t n_any = 0, n_mixed = 0;
    for (uint32_t at = lane; at < n_super; at += 32) {
        uint32_t low = s.fill_masks[fill][2 * at], high = s.fill_masks[fill][2 * at + 1];
        n_any += (low | high) != 0;
        n_mixed += (low | high) != 0 && (low & high) != 0xFFFFFFFF;
    }
    n_any = __reduce_add_sync(ALL_LANES, n_any);
    n_mixed = __reduce_add_sync(ALL_LANES, n_mixed);
    return n_any == 0 ? 0 : 2 * ((n_super + 7) / 8) + 8 * n_mixed;
}

// Phase 1 of a tile that needs care: integers of what can be quantised, masks of fill values, escapes; or, if escapes are
// too many, the exact integers of all. Leaves the integers less the base, and returns the kind; sets the base.
template <class T>
DEVICE_CALL uint32_t take_care(const Coding<T>& coding, EncodeShared<T>& s, const Tile<T>& tile,
                               typename Real<T>::Int& base) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    const uint32_t t = threadIdx.x, lane = t % 32;
    if (t == 0) {
        s.n_escapes = 0;
        s.first_valid = NO_TILE;
    }
    __syncthreads();
    bool is_exact = coding.is_lossless;
    if (!is_exact) {
        for (uint32_t at = t; at < TILE_VALUES; at += THREADS) {
            uint32_t line = tile.line_of(at), x = at - line * tile.row;
            bool exists = at < tile.n_codes && x < tile.ex;
            uint32_t fill = MAX_FILLS;
            bool escapes = false;
            Int q = 0;
            if (exists) {
                T value = tile.values[tile.row_offset(line) + x];
                fill = coding.fill_of(value);
                if (fill == MAX_FILLS && !coding.quantize(value, q)) {
                    escapes = true;
                    q = 0;
                }
                if (fill < MAX_FILLS || escapes) q = 0;
                else atomicMin(&s.first_valid, at);
            }
            uint32_t fills_0 = __ballot_sync(ALL_LANES, fill == 0), fills_1 = __ballot_sync(ALL_LANES, fill == 1);
            uint32_t escaping = __ballot_sync(ALL_LANES, escapes);
            if (lane == 0) {
                s.fill_masks[0][at / 32] = fills_0;
                s.fill_masks[1][at / 32] = fills_1;
                s.escapes[at / 32] = escaping;
                s.holes[at / 32] = fills_0 | fills_1 | escaping;
                if (escaping != 0) atomicAdd(&s.n_escapes, uint32_t(__popc(escaping)));
            }
            s.integers[place_of<Int>(at)] = q;
        }
        __syncthreads();
        is_exact = s.n_escapes > tile.n_values() / VALUES_PER_ESCAPE;
        if (t < 32) {
            for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
                uint32_t n = count_mask_bytes(s, fill, tile.n_super(), lane);
                if (t == 0) s.mask_bytes[fill] = n;
            }
        }
    }
    if (is_exact) {
        for (uint32_t at = t; at < tile.n_codes; at += THREADS) {
            uint32_t line = tile.line_of(at), x = at - line * tile.row;
            Int q = x < tile.ex ? to_ordered(tile.values[tile.row_offset(line) + x]) : 0;
            s.integers[place_of<Int>(at)] = q;
        }
        __syncthreads();
        base = tile.axes == 0 ? 0 : s.integers[0];
        __syncthreads();
    } else {
        Int first = s.first_valid == NO_TILE ? 0 : s.integers[place_of<Int>(s.first_valid)];
        __syncthreads();
        // A hole at the start of a row takes the first integer of the row before.
        if (t == 0) {
            Int last = first;
            for (uint32_t at = 0; at < tile.n_codes; at += tile.row) {
                uint32_t bit = 1u << at % 32;
                if (s.holes[at / 32] & bit) {
                    s.integers[place_of<Int>(at)] = last;
                    s.holes[at / 32] &= ~bit;
                } else {
                    last = s.integers[place_of<Int>(at)];
                }
            }
        }
        __syncthreads();
        // Any other takes the nearest before it; the search ends at the start of its row, which is none any more.
        for (uint32_t at = t; at < tile.n_codes; at += THREADS) {
            uint32_t word = at / 32;
            if (!(s.holes[word] >> at % 32 & 1)) continue;
            uint32_t valid = ~s.holes[word] & ((1u << at % 32) - 1);
            while (valid == 0) valid = ~s.holes[--word];
            uint32_t from = word * 32 + 31 - __clz(int(valid));
            s.integers[place_of<Int>(at)] = s.integers[place_of<Int>(from)];
        }
        __syncthreads();
        base = tile.axes == 0 ? 0 : first;
    }
    for (uint32_t at = t; at < tile.n_codes; at += THREADS) s.integers[place_of<Int>(at)] -= base;
    __syncthreads();
    return is_exact ? EXACT : QUANTISED;
}

template <class Word>
DEVICE void put_bytes(uint8_t* to, Word word) {
#pragma unroll
    for (uint32_t k = 0; k < sizeof(Word); ++k) to[k] = uint8_t(word >> 8 * k);
}

// Writes masks and escapes of a tile that needed care, behind the base; by one warp.
template <class T>
DEVICE_CALL void put_holes(EncodeShared<T>& s, const Tile<T>& tile, uint8_t* body, uint32_t lane) {
    uint32_t at = body[0] & WIDE_BASE ? 4 + sizeof(T) : 4;
    const uint32_t n_super = tile.n_super(), n_bytes = (n_super + 7) / 8;
    for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
        const uint32_t all = s.mask_bytes[fill];
        if (all == 0) continue;
        for (uint32_t i = lane; i < 2 * n_bytes; i += 32) body[at + i] = 0;
        __syncwarp();
        uint32_t n_before = 0;
        for (uint32_t first = 0; first < n_super; first += 32) {
            uint32_t super = first + lane;
            bool exists = super < n_super;
            uint32_t low = exists ? s.fill_masks[fill][2 * super] : 0;
            uint32_t high = exists ? s.fill_masks[fill][2 * super + 1] : 0;
            bool is_any = (low | high) != 0, is_mixed = is_any && (low & high) != 0xFFFFFFFF;
            uint32_t any = __ballot_sync(ALL_LANES, is_any), mixed = __ballot_sync(ALL_LANES, is_mixed);
            if (lane < 4 && first / 8 + lane < n_bytes) {
                body[at + first / 8 + lane] = uint8_t(any >> 8 * lane);
                body[at + n_bytes + first / 8 + lane] = uint8_t(mixed >> 8 * lane);
            }
            if (is_mixed) {
                uint32_t rank = n_before + __popc(mixed & ((1u << lane) - 1));
                put_bytes(body + at + 2 * n_bytes + 8 * rank, uint64_t(high) << 32 | low);
            }
            n_before += __popc(mixed);
        }
        at += all;
    }
    if (s.n_escapes == 0) return;
    if (lane == 0) put_bytes(body + at, uint16_t(s.n_escapes));
    const uint32_t values_at = at + 2 + 2 * s.n_escapes;
    uint32_t n_before = 0;
    for (uint32_t first = 0; first < MASK_WORDS; first += 32) {
        uint32_t bits = s.escapes[first + lane];
        uint32_t upto = prefix_of_warp(uint32_t(__popc(bits)), lane);
        uint32_t rank = n_before + upto - __popc(bits);
        for (; bits != 0; bits &= bits - 1, ++rank) {
            uint32_t index = (first + lane) * 32 + __ffs(int(bits)) - 1;
            put_bytes(body + at + 2 + 2 * rank, uint16_t(index));
            T value = tile.values[tile.offset(index)];
            put_bytes(body + values_at + sizeof(T) * rank, typename Real<T>::Int(bits_of(value)));
        }
        n_before += __shfl_sync(ALL_LANES, upto, 31);
    }
}

// Whether the tile must be placed: bodies have places, and anchors, and the end.
template <class T>
DEVICE bool needs_place(const Tile<T>& tile, uint32_t n_words) {
    return n_words > 0 || tile.index % TILES_PER_ANCHOR == 0 || tile.index + 1 == tile.n_tiles;
}

// Phase 3, by one warp: everything of the body but holes and planes, and where the planes go. Publishes the size.
template <class T>
DEVICE void lay_out(const EncodeJob<T>& job, EncodeShared<T>& s, const Tile<T>& tile, uint32_t kind,
                    typename Real<T>::Int base, bool careful, uint32_t side) {
    using R = Real<T>;
    const uint32_t lane = threadIdx.x;
    const uint32_t n_super = tile.n_super();
    uint32_t low[2], high[2], least[2];
    // Planes in the low half, bytes of delta planes, supergroups with planes.
    uint32_t amounts[2];
    uint32_t widest = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t super = 2 * lane + i;
        low[i] = ((const uint32_t*)s.widths)[2 * super];
        high[i] = ((const uint32_t*)s.widths)[2 * super + 1];
        amounts[i] = sum_of_bytes(low[i]) + sum_of_bytes(high[i]);
        least[i] = 0;
        if (amounts[i] > 0) {
            // Groups that do not exist neither lower the least nor have a difference.
            uint32_t n_exist = min(tile.n_codes / GROUP - super * 8, 8u);
            uint32_t smallest = MAX_LEAST;
#pragma unroll
            for (uint32_t k = 0; k < 8; ++k) {
                uint32_t width = (k < 4 ? low[i] >> 8 * k : high[i] >> 8 * (k - 4)) & 0xFF;
                widest = max(widest, width);
                if (k < n_exist) smallest = min(smallest, width);
            }
            least[i] = smallest;
            uint64_t exist = n_exist == 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * n_exist) - 1;
            low[i] -= smallest * 0x01010101 & uint32_t(exist);
            high[i] -= smallest * 0x01010101 & uint32_t(exist >> 32);
            transpose_bits(low[i], high[i]);
            uint32_t n_delta = high[i] != 0 ? (bit_length(high[i]) + 7) / 8 + 4 : (bit_length(low[i]) + 7) / 8;
            least[i] |= n_delta << LEAST_BITS;
            amounts[i] |= n_delta << 16 | 1u << 25;
        }
    }
    const uint32_t upto = prefix_of_warp(amounts[0] + amounts[1], lane);
    const uint32_t all = __shfl_sync(ALL_LANES, upto, 31);
    const uint32_t n_planes = all & 0xFFFF, n_deltas = all >> 16 & 0x1FF, n_present = all >> 25;
    // Eight integers in a difference, and zigzag.
    constexpr uint32_t MAX_WIDTH = R::MANTISSA_BITS - 1 + 3 + 1;
    const bool is_too_wide = !careful && __any_sync(ALL_LANES, widest > MAX_WIDTH);

    const typename R::Signed signed_base = typename R::Signed(base);
    const bool is_wide = signed_base < -(1 << 23) || signed_base >= 1 << 23;
    const bool is_sparse = n_present < n_super;
    uint32_t flags = kind | (is_wide ? WIDE_BASE : 0);
    uint32_t at = 4 + (is_wide ? sizeof(T) : 0);
    if (careful && kind == QUANTISED) {
        for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
            const uint32_t n = s.mask_bytes[fill];
            flags |= n > 0 ? MASK_0 << fill : 0;
            at += n;
        }
        if (s.n_escapes > 0) {
            flags |= ESCAPES;
            at += 2 + s.n_escapes * (2 + sizeof(T));
        }
    }
    if (n_planes == 0) flags |= NO_PLANES;
    else if (is_sparse) flags |= SPARSE;
    const uint32_t mask_at = at;
    const uint32_t headers_at = mask_at + (flags & SPARSE ? (n_super + 7) / 8 : 0);
    const uint32_t deltas_at = headers_at + n_present;
    const uint32_t planes_at = deltas_at + n_deltas;
    const uint32_t end = n_planes == 0 ? at : planes_at + n_planes;
    const bool is_empty = end == 4 && base == 0 && (flags & ~EXACT) == NO_PLANES;
    uint32_t n_words = is_empty ? 0 : (end + 3) / 4;
    const uint32_t raw_words = 1 + tile.n_values() * (sizeof(T) / 4);
    const bool is_raw = n_words > raw_words;
    if (is_raw) n_words = raw_words;

    if (!is_too_wide && lane == 0) {
        const Chunk& chunk = job.chunks[tile.chunk];
        store_relaxed(job.sizes + (chunk.first_slot + tile.index), uint64_t(n_words) << 32 | job.launch);
        atomicAdd((unsigned long long*)(job.sums + (chunk.first_run + tile.index / TILES_PER_ANCHOR)),
                  (unsigned long long)(uint64_t(1) << 32 | n_words));
        ((uint16_t*)(tile.payload + words_offset(tile.n_tiles)))[tile.index] = uint16_t(n_words);
    }
    if (lane == 0) {
        s.is_too_wide = is_too_wide;
        s.is_raw = is_raw;
        s.n_words = n_words;
        s.n_kept[side] = n_words <= KEPT_WORDS && !is_raw && needs_place(tile, n_words) ? n_words : NO_TILE;
    }
    if (is_too_wide || is_raw || is_empty) return;

    uint32_t* words = n_words <= KEPT_WORDS ? s.kept[side] : s.words;
    uint8_t* body = (uint8_t*)words;
    __syncwarp();
    if (lane == 0) {
        // The padding, if there is any.
        words[n_words - 1] = 0;
        words[0] = is_wide ? flags : uint32_t(base) << 8 | flags;
        if (is_wide) put_bytes(body + 4, base);
    }
    __syncwarp();
    if (n_planes == 0) return;
    uint32_t before = upto - amounts[0] - amounts[1];
    uint32_t present = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        s.planes_at[2 * lane + i] = uint16_t(planes_at + (before & 0xFFFF));
        if (amounts[i] > 0) {
            present |= 1u << i;
            body[headers_at + (before >> 25)] = uint8_t(least[i]);
            uint32_t to = deltas_at + (before >> 16 & 0x1FF);
            uint32_t n_delta = least[i] >> LEAST_BITS;
            for (uint32_t k = 0; k < n_delta; ++k) {
                body[to + k] = uint8_t(k < 4 ? low[i] >> 8 * k : high[i] >> 8 * (k - 4));
            }
        }
        before += amounts[i];
    }
    if (flags & SPARSE) {
        // Two bits a lane, four lanes a byte.
        present <<= lane % 4 * 2;
        present |= __shfl_xor_sync(ALL_LANES, present, 1);
        present |= __shfl_xor_sync(ALL_LANES, present, 2);
        if (lane % 4 == 0 && lane / 4 < (n_super + 7) / 8) body[mask_at + lane / 4] = uint8_t(present);
    }
}

// Where the body of a tile goes: the words of all tiles before it in the chunk. By one warp.
template <class T>
DEVICE uint32_t look_back(const EncodeJob<T>& job, const Tile<T>& tile) {
    const uint32_t lane = threadIdx.x % 32;
    const Chunk& chunk = job.chunks[tile.chunk];
    const uint64_t* sums = job.sums + chunk.first_run;
    uint64_t* places = job.places + chunk.first_run;
    const uint32_t run = tile.index / TILES_PER_ANCHOR, in_run = tile.index % TILES_PER_ANCHOR;
    const uint64_t* sizes = job.sizes + (chunk.first_slot + tile.index - in_run);
    uint32_t before = 0;
    // One more than the run that lane 0 looks at.
    uint32_t end = run;
    bool is_own_known = in_run == 0, is_done = end == 0;
    while (!is_own_known || !is_done) {
        uint64_t size = !is_own_known && lane < in_run ? load_relaxed(sizes + lane) : job.launch;
        const bool exists = !is_done && end > lane;
        uint64_t sum = exists ? load_relaxed(sums + (end - 1 - lane)) : 0;
        uint64_t place = exists && end - 1 - lane > 0 ? load_relaxed(places + (end - 1 - lane)) : job.launch;
        if (!is_own_known && __all_sync(ALL_LANES, uint32_t(size) == job.launch)) {
            before += __reduce_add_sync(ALL_LANES, uint32_t(size >> 32));
            is_own_known = true;
        }
        if (!is_done) {
            const uint32_t known = __ballot_sync(ALL_LANES, !exists || sum >> 32 == TILES_PER_ANCHOR);
            const uint32_t placed = __ballot_sync(ALL_LANES, uint32_t(place) == job.launch);
            // Lanes up to the first whose place is known.
            const uint32_t needed = placed != 0 ? (placed & (0 - placed)) * 2 - 1 : ALL_LANES;
            if ((known & needed) == needed) {
                uint32_t words = needed >> lane & 1 ? uint32_t(sum) : 0;
                // The last of them adds its place.
                if ((needed >> lane) == 1) words += uint32_t(place >> 32);
                before += __reduce_add_sync(ALL_LANES, words);
                is_done = placed != 0;
                end -= 32;
            }
        }
        if (!is_own_known || !is_done) spin_pause();
    }
    if (lane == 0 && in_run == 0) store_relaxed(places + run, uint64_t(before) << 32 | job.launch);
    return before;
}

// Writes what the directory says of a tile, whose body goes to `before`; by one thread.
template <class T>
DEVICE_CALL void put_entries(const EncodeJob<T>& job, const Tile<T>& tile, uint32_t before, uint32_t n_words) {
    uint8_t* payload = tile.payload;
    Chunk& chunk = job.chunks[tile.chunk];
    if (tile.index % TILES_PER_ANCHOR == 0) {
        ((uint32_t*)(payload + PARAMETER_BYTES))[tile.index / TILES_PER_ANCHOR] = before;
    }
    if (tile.index == 0) {
        const Choice& view = job.choices[chunk.choice];
        const uint8_t parameters[PARAMETER_BYTES] = {uint8_t(view.axes | (view.lag - 1) << 4), view.x_axes, view.y_axes,
                                                     view.z_axes, view.x_log2, view.y_log2, view.z_log2, 0};
        for (uint32_t k = 0; k < PARAMETER_BYTES; ++k) payload[k] = parameters[k];
    }
    if (tile.index + 1 == tile.n_tiles) {
        chunk.payload_bytes = bodies_offset(tile.n_tiles) + 4 * uint64_t(before + n_words);
        if (tile.n_tiles % 2 == 1) ((uint16_t*)(payload + words_offset(tile.n_tiles)))[tile.n_tiles] = 0;
    }
}

// Copies a body that is in shared memory to its place.
template <class T>
DEVICE void copy_body(const Tile<T>& tile, uint32_t before, const uint32_t* words, uint32_t n_words) {
    uint32_t* to = (uint32_t*)(tile.payload + bodies_offset(tile.n_tiles)) + before;
    for (uint32_t i = threadIdx.x; i < n_words; i += Real<T>::ENCODE_THREADS) to[i] = words[i];
}

// Places and copies a body that was not kept: one that is large, or the values themselves.
template <class T>
DEVICE_CALL void copy_now(const EncodeJob<T>& job, EncodeShared<T>& s, const Tile<T>& tile) {
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    constexpr uint32_t PER_VALUE = sizeof(T) / 4;
    const uint32_t t = threadIdx.x, n_words = s.n_words;
    __syncthreads();
    if (t < 32) {
        uint32_t before = look_back(job, tile);
        if (t == 0) {
            s.words_before = before;
            put_entries(job, tile, before, n_words);
        }
    }
    __syncthreads();
    const uint32_t before = s.words_before;
    if (!s.is_raw) {
        copy_body(tile, before, s.words, n_words);
    } else {
        uint32_t* to = (uint32_t*)(tile.payload + bodies_offset(tile.n_tiles)) + before;
        if (t == 0) to[0] = RAW;
        for (uint32_t i = t; i + 1 < n_words; i += THREADS) {
            uint32_t line = i / PER_VALUE / tile.ex, x = i / PER_VALUE % tile.ex;
            const T* value = tile.values + tile.row_offset(line) + x;
            to[1 + i] = ((const uint32_t*)value)[i % PER_VALUE];
        }
    }
    __syncthreads();
}

// Phase 4: the bit planes of this thread's groups.
template <class T, uint32_t N>
DEVICE void put_planes(EncodeShared<T>& s, uint8_t* body, const typename Real<T>::Int (&codes)[N][GROUP],
                       const uint32_t (&widths)[N]) {
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint32_t width = widths[i];
        if (width == 0) continue;
        const uint32_t group = threadIdx.x + i * Real<T>::ENCODE_THREADS;
        // Widths of the groups before this one in its supergroup.
        const uint32_t number = group % 8;
        uint32_t low = ((const uint32_t*)s.widths)[group / 8 * 2];
        uint32_t high = ((const uint32_t*)s.widths)[group / 8 * 2 + 1];
        low = number < 4 ? low & ((1u << 8 * number) - 1) : low;
        high = number > 4 ? high & ((1u << 8 * (number - 4)) - 1) : 0;
        uint8_t* to = body + (s.planes_at[group / 8] + sum_of_bytes(low) + sum_of_bytes(high));
        // Eight planes at a time; one turn for most groups, so that unrolling would only cost instruction memory.
#pragma unroll 1
        for (uint32_t done = 0; done < width; done += 8, to += 8) {
            uint32_t first = gather_bytes(&codes[i][0], done / 8), second = gather_bytes(&codes[i][4], done / 8);
            transpose_bits(first, second);
            const uint32_t left = width - done;
            to[0] = uint8_t(first);
            if (left > 1) to[1] = uint8_t(first >> 8);
            if (left > 2) to[2] = uint8_t(first >> 16);
            if (left > 3) to[3] = uint8_t(first >> 24);
            if (left > 4) to[4] = uint8_t(second);
            if (left > 5) to[5] = uint8_t(second >> 8);
            if (left > 6) to[6] = uint8_t(second >> 16);
            if (left > 7) to[7] = uint8_t(second >> 24);
        }
    }
}

template <class T>
DEVICE void encode_tiles(const EncodeJob<T>& job, EncodeShared<T>& s) {
    using R = Real<T>;
    using Int = typename R::Int;
    constexpr uint32_t THREADS = R::ENCODE_THREADS;
    constexpr uint32_t PER_THREAD = N_GROUPS / THREADS;
    const uint32_t t = threadIdx.x;
    const Coding<T>& coding = job.coding;
    if (t == 0) {
        take_tile(job, s.tiles[0]);
        s.n_kept[1] = NO_TILE;
    }
    for (uint32_t turn = 0;; ++turn) {
        __syncthreads();
        const Tile<T>& tile = s.tiles[turn % 4];
        const uint32_t side = turn % 2;
        // What the last warp does for the tile before, and after that all do.
        auto place_previous = [&] {
            if (t >= THREADS - 32 && s.n_kept[side ^ 1] != NO_TILE) {
                uint32_t before = look_back(job, s.tiles[(turn - 1) % 4]);
                if (t == THREADS - 32) s.words_before = before;
            }
        };
        auto copy_previous = [&] {
            const uint32_t n_words = s.n_kept[side ^ 1];
            if (n_words == NO_TILE) return;
            const Tile<T>& previous = s.tiles[(turn - 1) % 4];
            copy_body(previous, s.words_before, s.kept[side ^ 1], n_words);
            if (t == THREADS - 32) put_entries(job, previous, s.words_before, n_words);
        };
        const bool is_end = tile.chunk == NO_TILE;
        if (is_end || tile.index == NO_TILE) {
            place_previous();
            __syncthreads();
            copy_previous();
            if (is_end) return;
            if (t == 0) {
                s.n_kept[side] = NO_TILE;
                take_tile(job, s.tiles[(turn + 1) % 4]);
            }
            continue;
        }
        bool careful = true;
        Int base = 0;
        if (!coding.is_lossless && tile.lag == 1) {
            Int first;
            careful = !coding.quantize(tile.values[0], first);
            base = careful || tile.axes == 0 ? 0 : first;
            if (!careful) {
                if (tile.shape == VOLUME) careful = !quantize_shape<T, Shape<VOLUME>>(coding, tile, s);
                else if (tile.shape == PLANE) careful = !quantize_shape<T, Shape<PLANE>>(coding, tile, s);
                else if (tile.shape == LINE) careful = !quantize_shape<T, Shape<LINE>>(coding, tile, s);
                else careful = !quantize_tile(coding, tile, base, s);
            }
        }
        careful = __syncthreads_or(careful);

        Int codes[PER_THREAD][GROUP];
        uint32_t widths[PER_THREAD];
        uint32_t kind = QUANTISED;
        for (bool is_first = true;; is_first = false) {
            if (careful) kind = take_care(coding, s, tile, base);
            const uint32_t shape = careful ? ANY_SHAPE : tile.shape;
            const Int zero = R::MAGIC_BITS + base;
            if (shape == VOLUME) {
                code_shape<T, Shape<VOLUME>>(tile, s.integers, zero, codes);
            } else if (shape == PLANE) {
                code_shape<T, Shape<PLANE>>(tile, s.integers, zero, codes);
            } else if (shape == LINE) {
                code_shape<T, Shape<LINE>>(tile, s.integers, zero, codes);
            } else {
#pragma unroll
                for (uint32_t i = 0; i < PER_THREAD; ++i) {
                    code_group(tile, s.integers, (t + i * THREADS) * GROUP, codes[i]);
                }
            }
#pragma unroll
            for (uint32_t i = 0; i < PER_THREAD; ++i) {
                const uint32_t group = t + i * THREADS;
                Int all = 0;
#pragma unroll
                for (uint32_t k = 0; k < GROUP; ++k) all |= codes[i][k];
                widths[i] = bit_length(all);
                s.widths[group] = uint8_t(widths[i]);
            }
            __syncthreads();
            if (t < 32) lay_out(job, s, tile, kind, base, careful, side);
            // Meanwhile others place the body before, and take the next tile: not earlier, since while one is held but
            // not begun, all later ones wait.
            if (is_first) {
                place_previous();
                if (t == 32) take_tile(job, s.tiles[(turn + 1) % 4]);
            }
            __syncthreads();
            if (!s.is_too_wide) break;
            // Some integer is far outside of the range of quantised ones.
            careful = true;
        }
        const uint32_t n_words = s.n_words;
        const bool keeps = n_words <= KEPT_WORDS && !s.is_raw;
        if (n_words > 0 && !s.is_raw) {
            uint8_t* body = keeps ? (uint8_t*)s.kept[side] : s.body;
            put_planes(s, body, codes, widths);
            if (careful && kind == QUANTISED && t < 32) put_holes(s, tile, body, t);
        }
        copy_previous();
        if (!keeps) copy_now(job, s, tile);
    }
}

KERNEL_BOUNDED(256, 5, fast_encode_f32)(const __grid_constant__ EncodeJob<float> job) {
    SHARED(EncodeShared<float>, shared);
    encode_tiles(job, shared);
}

KERNEL_BOUNDED(256, 3, fast_encode_f64)(const __grid_constant__ EncodeJob<double> job) {
    SHARED(EncodeShared<double>, shared);
    encode_tiles(job, shared);
}

// Choosing the predictor, as crates/pumice/src/codec/choose.rs does.

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
        const T* first = (const T*)chunk.values + sampling.starts[run] - MAX_LAG;
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
                code = zigzag<T>(code);
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

REGISTER_KERNEL(fast_encode_f32);
REGISTER_KERNEL(fast_encode_f64);
REGISTER_KERNEL(fast_choose_f32);
REGISTER_KERNEL(fast_choose_f64);
