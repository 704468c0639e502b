// Codec `fast`, encoding: chunks in device memory to payloads in device memory.
//
// `fast_choose_*`: one block a chunk, a warp a sampled run. Costs of all predictors, and the cheapest of them.
//
// `fast_encode_*`: one launch for all chunks. A block takes tiles of 4096 values by ticket, so that a tile's
// predecessors are always under way, and codes each in these memory phases:
//   1. values are read once, 16 bytes a thread, quantised, checked against the decoder's own result, and put as integers
//      into shared memory;
//   2. a thread takes groups of 8 integers, with those above, behind and before them, to codes in registers, and leaves
//      the groups' widths;
//   3. one warp lays out the body from the widths and publishes its size;
//   4. each thread turns its groups into bit planes, in shared memory, over the integers;
//   5. one warp looks back for where the body goes, and all copy it there.
// A tile with values that cannot be quantised is coded again the careful way. Tiles are independent but for their place.
#include "fast_tile.cuh"

constexpr uint32_t MASK_WORDS = TILE_VALUES / 32;

// States of a tile for look-back: flag in bits 0 and 1, the launch in bits 2 to 31, words of 4 bytes above. A word of
// another launch is as good as none, so that nothing need be cleared.
constexpr uint32_t OWN_WORDS = 1;
constexpr uint32_t ALL_WORDS = 2;

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
    Tile<T> tiles[2];
    // Of the careful way: bits by linear index.
    uint32_t fill_masks[MAX_FILLS][MASK_WORDS];
    uint32_t escapes[MASK_WORDS];
    uint32_t holes[MASK_WORDS];
    uint32_t n_escapes;
    uint32_t first_valid;
    // What the body is, once it is laid out.
    uint32_t n_words;
    uint32_t is_raw;
    uint32_t is_too_wide;
    uint32_t words_before;
};

template <class T>
struct EncodeJob {
    Coding<T> coding;
    Chunk* chunks;
    const Choice* choices;
    uint64_t* states;
    uint32_t* tickets;
    uint32_t n_chunks;
    uint32_t n_slots;
    // Slots of each chunk if all but the last have as many, else 0.
    uint32_t slots_per_chunk;
    uint32_t launch;
};

// The tile that a ticket stands for.
template <class T>
DEVICE void locate(const EncodeJob<T>& job, uint32_t ticket, Tile<T>& tile) {
    tile.chunk = NO_TILE;
    if (ticket >= job.n_slots) return;
    uint32_t number = 0;
    if (job.slots_per_chunk > 0) {
        number = min(ticket / job.slots_per_chunk, job.n_chunks - 1);
    } else {
        // The last chunk that starts at or before the ticket.
        uint32_t end = job.n_chunks;
        while (end - number > 1) {
            uint32_t middle = (number + end) / 2;
            if (job.chunks[middle].first_slot <= ticket) number = middle;
            else end = middle;
        }
    }
    const Chunk& chunk = job.chunks[number];
    const Choice& view = job.choices[chunk.choice];
    uint32_t index = ticket - chunk.first_slot;
    // Room that the view chosen does not need.
    tile.index = NO_TILE;
    tile.chunk = number;
    if (index < view.n_tiles) place_tile(chunk, view, number, index, tile);
}

// Phase 1, for a tile without special values. Whether all values could be quantised; if not, what was written is void.
template <class T>
DEVICE bool quantize_tile(const Coding<T>& coding, const Tile<T>& tile, typename Real<T>::Int base, EncodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::THREADS;
    const uint32_t t = threadIdx.x;
    bool fine = true;
    // Fill values that could be taken for ordinary ones.
    auto is_fill = [&](T x) { return x == x && coding.fill_of(x) < MAX_FILLS; };
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
                for (uint32_t k = 0; k < n; ++k) fine = fine && !is_fill(values[i].of[k]);
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
            fine = coding.quantize_likely(value, q) && !is_fill(value) && fine;
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

// Phase 2: codes of the group whose linear indices start at `at`.
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

// Phase 1 of a tile that needs care: integers of what can be quantised, masks of fill values, escapes; or, if escapes are
// too many, the exact integers of all. Leaves the integers less the base, and returns the kind; sets the base.
template <class T>
DEVICE_CALL uint32_t take_care(const Coding<T>& coding, EncodeShared<T>& s, const Tile<T>& tile,
                               typename Real<T>::Int& base) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::THREADS;
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

// Bytes of a mask of fill values; 0 if it is empty.
template <class T>
DEVICE_CALL uint32_t mask_bytes(const EncodeShared<T>& s, uint32_t fill, uint32_t n_super, uint32_t lane) {
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

template <class Word>
DEVICE void put_bytes(uint8_t* to, Word word) {
#pragma unroll
    for (uint32_t k = 0; k < sizeof(Word); ++k) to[k] = uint8_t(word >> 8 * k);
}

// Writes masks and escapes of a tile that needed care from `at` of the body on; by one warp.
template <class T>
DEVICE_CALL void put_holes(EncodeShared<T>& s, const Tile<T>& tile, uint32_t at, uint32_t lane) {
    const uint32_t n_super = tile.n_super(), n_bytes = (n_super + 7) / 8;
    for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
        uint32_t all = mask_bytes(s, fill, n_super, lane);
        if (all == 0) continue;
        for (uint32_t i = lane; i < 2 * n_bytes; i += 32) s.body[at + i] = 0;
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
                s.body[at + first / 8 + lane] = uint8_t(any >> 8 * lane);
                s.body[at + n_bytes + first / 8 + lane] = uint8_t(mixed >> 8 * lane);
            }
            if (is_mixed) {
                uint32_t rank = n_before + __popc(mixed & ((1u << lane) - 1));
                put_bytes(s.body + at + 2 * n_bytes + 8 * rank, uint64_t(high) << 32 | low);
            }
            n_before += __popc(mixed);
        }
        at += all;
    }
    if (s.n_escapes == 0) return;
    if (lane == 0) put_bytes(s.body + at, uint16_t(s.n_escapes));
    const uint32_t values_at = at + 2 + 2 * s.n_escapes;
    uint32_t n_before = 0;
    for (uint32_t first = 0; first < MASK_WORDS; first += 32) {
        uint32_t bits = s.escapes[first + lane];
        uint32_t upto = prefix_of_warp(uint32_t(__popc(bits)), lane);
        uint32_t rank = n_before + upto - __popc(bits);
        for (; bits != 0; bits &= bits - 1, ++rank) {
            uint32_t index = (first + lane) * 32 + __ffs(int(bits)) - 1;
            put_bytes(s.body + at + 2 + 2 * rank, uint16_t(index));
            T value = tile.values[tile.offset(index)];
            put_bytes(s.body + values_at + sizeof(T) * rank, typename Real<T>::Int(bits_of(value)));
        }
        n_before += __shfl_sync(ALL_LANES, upto, 31);
    }
}

// Phase 3, by one warp: everything of the body but the planes, and where these go. Publishes the size.
template <class T>
DEVICE void lay_out(const EncodeJob<T>& job, EncodeShared<T>& s, const Tile<T>& tile, uint32_t kind,
                    typename Real<T>::Int base, bool careful) {
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
    const uint32_t holes_at = at;
    if (careful && kind == QUANTISED) {
        for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
            uint32_t n = mask_bytes(s, fill, n_super, lane);
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
        uint32_t flag = tile.index == 0 ? ALL_WORDS : OWN_WORDS;
        uint32_t slot = job.chunks[tile.chunk].first_slot + tile.index;
        store_relaxed(job.states + slot, uint64_t(n_words) << 32 | job.launch << 2 | flag);
        ((uint16_t*)(tile.payload + words_offset(tile.n_tiles)))[tile.index] = uint16_t(n_words);
    }
    if (lane == 0) {
        s.is_too_wide = is_too_wide;
        s.is_raw = is_raw;
        s.n_words = n_words;
    }
    if (is_too_wide || is_raw || is_empty) return;

    __syncwarp();
    if (lane == 0) {
        s.words[end / 4] = 0;
        s.words[0] = is_wide ? flags : uint32_t(base) << 8 | flags;
        if (is_wide) put_bytes(s.body + 4, base);
    }
    __syncwarp();
    if (flags & (MASK_0 | MASK_0 << 1 | ESCAPES)) put_holes(s, tile, holes_at, lane);
    if (n_planes == 0) return;
    uint32_t before = upto - amounts[0] - amounts[1];
    uint32_t present = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        s.planes_at[2 * lane + i] = uint16_t(planes_at + (before & 0xFFFF));
        if (amounts[i] > 0) {
            present |= 1u << i;
            s.body[headers_at + (before >> 25)] = uint8_t(least[i]);
            uint32_t to = deltas_at + (before >> 16 & 0x1FF);
            uint32_t n_delta = least[i] >> LEAST_BITS;
            for (uint32_t k = 0; k < n_delta; ++k) {
                s.body[to + k] = uint8_t(k < 4 ? low[i] >> 8 * k : high[i] >> 8 * (k - 4));
            }
        }
        before += amounts[i];
    }
    if (flags & SPARSE) {
        // Two bits a lane, four lanes a byte.
        present <<= lane % 4 * 2;
        present |= __shfl_xor_sync(ALL_LANES, present, 1);
        present |= __shfl_xor_sync(ALL_LANES, present, 2);
        if (lane % 4 == 0 && lane / 4 < (n_super + 7) / 8) s.body[mask_at + lane / 4] = uint8_t(present);
    }
}

// Where the body of the tile goes: the words of all tiles before it in the chunk. By one warp.
template <class T>
DEVICE uint32_t look_back(const EncodeJob<T>& job, const Tile<T>& tile, uint32_t n_words) {
    const uint32_t lane = threadIdx.x % 32;
    uint64_t* states = job.states + job.chunks[tile.chunk].first_slot;
    uint32_t before = 0;
    // The tile that lane 0 looks at, plus 1.
    uint32_t end = tile.index;
    while (end > 0) {
        uint64_t state = uint64_t(0) << 32 | job.launch << 2 | ALL_WORDS;
        if (end > lane) state = load_relaxed(states + (end - 1 - lane));
        bool is_own = uint32_t(state) == (job.launch << 2 | OWN_WORDS);
        bool is_all = uint32_t(state) == (job.launch << 2 | ALL_WORDS);
        uint32_t all = __ballot_sync(ALL_LANES, is_all);
        uint32_t known = __ballot_sync(ALL_LANES, is_own || is_all);
        // Lanes up to the first that knows everything before it.
        uint32_t needed = all != 0 ? (all & (0 - all)) * 2 - 1 : ALL_LANES;
        if ((known & needed) != needed) {
            spin_pause();
            continue;
        }
        before += __reduce_add_sync(ALL_LANES, needed >> lane & 1 ? uint32_t(state >> 32) : 0);
        if (all != 0) break;
        end -= 32;
    }
    if (lane == 0 && tile.index > 0) {
        store_relaxed(states + tile.index, uint64_t(before + n_words) << 32 | job.launch << 2 | ALL_WORDS);
    }
    return before;
}

template <class T>
DEVICE void encode_tiles(const EncodeJob<T>& job, EncodeShared<T>& s) {
    using R = Real<T>;
    using Int = typename R::Int;
    constexpr uint32_t THREADS = R::THREADS;
    constexpr uint32_t PER_THREAD = N_GROUPS / THREADS;
    const uint32_t t = threadIdx.x;
    const Coding<T>& coding = job.coding;
    // The ticket after the next one: it comes while a tile is coded.
    uint32_t ahead = 0;
    if (t == 0) {
        locate(job, atomicAdd(job.tickets, 1), s.tiles[0]);
        ahead = atomicAdd(job.tickets, 1);
    }
    for (uint32_t turn = 0;; turn ^= 1) {
        __syncthreads();
        const Tile<T>& tile = s.tiles[turn];
        if (tile.chunk == NO_TILE) return;
        const bool exists = tile.index != NO_TILE;
        bool careful = true;
        Int base = 0;
        if (exists && !coding.is_lossless && tile.lag == 1) {
            Int first;
            careful = !coding.quantize(tile.values[0], first);
            base = careful || tile.axes == 0 ? 0 : first;
            if (!careful) careful = !quantize_tile(coding, tile, base, s);
        }
        if (t == 0) {
            locate(job, ahead, s.tiles[turn ^ 1]);
            ahead = atomicAdd(job.tickets, 1);
        }
        careful = __syncthreads_or(careful);
        if (!exists) continue;

        Int codes[PER_THREAD][GROUP];
        uint32_t widths[PER_THREAD];
        uint32_t kind = QUANTISED;
        while (true) {
            if (careful) kind = take_care(coding, s, tile, base);
#pragma unroll
            for (uint32_t i = 0; i < PER_THREAD; ++i) {
                const uint32_t group = t + i * THREADS;
                code_group(tile, s.integers, group * GROUP, codes[i]);
                Int all = 0;
#pragma unroll
                for (uint32_t k = 0; k < GROUP; ++k) all |= codes[i][k];
                widths[i] = bit_length(all);
                s.widths[group] = uint8_t(widths[i]);
            }
            __syncthreads();
            if (t < 32) lay_out(job, s, tile, kind, base, careful);
            __syncthreads();
            if (!s.is_too_wide) break;
            // Some integer is far outside of the range of quantised ones.
            careful = true;
        }
        const uint32_t n_words = s.n_words;
        if (n_words > 0 && !s.is_raw) {
#pragma unroll
            for (uint32_t i = 0; i < PER_THREAD; ++i) {
                if (widths[i] == 0) continue;
                const uint32_t group = t + i * THREADS;
                // Widths of the groups before this one in its supergroup.
                const uint32_t number = group % 8;
                uint32_t low = ((const uint32_t*)s.widths)[group / 8 * 2];
                uint32_t high = ((const uint32_t*)s.widths)[group / 8 * 2 + 1];
                low = number < 4 ? low & ((1u << 8 * number) - 1) : low;
                high = number > 4 ? high & ((1u << 8 * (number - 4)) - 1) : 0;
                uint8_t* to = s.body + s.planes_at[group / 8] + sum_of_bytes(low) + sum_of_bytes(high);
#pragma unroll
                for (uint32_t number = 0; number < sizeof(T); ++number) {
                    if (widths[i] <= 8 * number) break;
                    uint32_t first = gather_bytes(&codes[i][0], number), second = gather_bytes(&codes[i][4], number);
                    transpose_bits(first, second);
#pragma unroll
                    for (uint32_t k = 0; k < 8; ++k) {
                        if (widths[i] > 8 * number + k) {
                            to[8 * number + k] = uint8_t(k < 4 ? first >> 8 * k : second >> 8 * (k - 4));
                        }
                    }
                }
            }
        }
        __syncthreads();
        const bool is_anchor = tile.index % TILES_PER_ANCHOR == 0, is_last = tile.index + 1 == tile.n_tiles;
        // A tile without a body has no place, unless it is asked for.
        if (n_words == 0 && !is_anchor && !is_last) continue;
        if (t < 32) {
            uint32_t before = look_back(job, tile, n_words);
            if (t == 0) {
                s.words_before = before;
                uint8_t* payload = tile.payload;
                if (is_anchor) ((uint32_t*)(payload + PARAMETER_BYTES))[tile.index / TILES_PER_ANCHOR] = before;
                Chunk& chunk = job.chunks[tile.chunk];
                if (tile.index == 0) {
                    const Choice& view = job.choices[chunk.choice];
                    const uint8_t parameters[PARAMETER_BYTES] = {uint8_t(view.axes | (view.lag - 1) << 4),
                                                                 view.x_axes, view.y_axes, view.z_axes,
                                                                 view.x_log2, view.y_log2, view.z_log2, 0};
                    for (uint32_t k = 0; k < PARAMETER_BYTES; ++k) payload[k] = parameters[k];
                }
                if (is_last) {
                    chunk.payload_bytes = bodies_offset(tile.n_tiles) + 4 * uint64_t(before + n_words);
                    if (tile.n_tiles % 2 == 1) {
                        ((uint16_t*)(payload + words_offset(tile.n_tiles)))[tile.n_tiles] = 0;
                    }
                }
            }
        }
        __syncthreads();
        uint32_t* to = (uint32_t*)(tile.payload + bodies_offset(tile.n_tiles)) + s.words_before;
        if (s.is_raw) {
            if (t == 0) to[0] = RAW;
            constexpr uint32_t per_value = sizeof(T) / 4;
            for (uint32_t i = t; i + 1 < n_words; i += THREADS) {
                uint32_t line = i / per_value / tile.ex, x = i / per_value % tile.ex;
                const T* value = tile.values + tile.row_offset(line) + x;
                to[1 + i] = ((const uint32_t*)value)[i % per_value];
            }
        } else {
            for (uint32_t i = t; i < n_words; i += THREADS) to[i] = s.words[i];
        }
    }
}

KERNEL_BOUNDED(128, 8, fast_encode_f32)(const __grid_constant__ EncodeJob<float> job) {
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
    if (__any_sync(ALL_LANES, undecided) && lane == 0) {
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
