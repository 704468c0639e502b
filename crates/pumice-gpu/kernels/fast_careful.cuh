// Codec `fast`, encoding: tiles with values that cannot be quantised: fill values, NaN, or values too far from the
// others.
#pragma once

#include "fast_encode.cuh"

// N values of a tile, all of whose loads a thread issues before it waits for the first. Their linear indices start at
// `first`, with the number of threads as stride.
template <class T, uint32_t N>
struct SomeValues {
    T values[N];
    uint32_t existing;

    DEVICE SomeValues(const Tile<T>& tile, uint32_t first) : existing(0) {
#pragma unroll
        for (uint32_t i = 0; i < N; ++i) {
            const uint32_t at = first + i * Real<T>::ENCODE_THREADS, line = tile.line_of(at), x = at - line * tile.row;
            values[i] = 0;
            if (at < tile.n_codes && x < tile.ex) {
                values[i] = tile.from()[tile.row_offset(line) + x];
                existing |= 1u << i;
            }
        }
    }

    // Whether value `i` exists; otherwise it is padding.
    DEVICE bool exists(uint32_t i) const { return existing >> i & 1; }
};

// Size in bytes of a mask of fill values; 0 if it is empty. By one warp.
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

// Phase 1 of a tile with holes: integers of the values that can be quantised, masks of fill values, and escapes; or, if
// there are too many escapes, the exact integers of all values. Subtracts the base from the integers; sets the base,
// and returns the kind.
template <class T>
DEVICE_CALL uint32_t take_care(const Coding<T>& of_job, EncodeShared<T>& s, const Tile<T>& tile,
                               typename Real<T>::Int& base) {
    const Coding<T> coding = of_job;
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    const uint32_t t = threadIdx.x, lane = t % 32;
    if (t == 0) {
        s.n_escapes = 0;
        s.first_valid = NO_TILE;
    }
    __syncthreads();
    // More loads at a time would cost registers; most values are in the cache, since the fast path has read them
    // before.
    constexpr uint32_t N_AT_ONCE = 2;
    bool is_exact = coding.is_lossless;
    if (!is_exact) {
#pragma unroll 1
        for (uint32_t first = t; first < TILE_VALUES; first += N_AT_ONCE * THREADS) {
            const SomeValues<T, N_AT_ONCE> some(tile, first);
#pragma unroll
            for (uint32_t i = 0; i < N_AT_ONCE; ++i) {
                const uint32_t at = first + i * THREADS;
                uint32_t fill = MAX_FILLS;
                bool escapes = false;
                Int q = 0;
                if (some.exists(i)) {
                    fill = coding.fill_of(some.values[i]);
                    if (fill == MAX_FILLS && !coding.quantize(some.values[i], q)) escapes = true;
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
                s.integers[swizzled_index<Int>(at)] = q;
            }
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
            Int q = x < tile.ex ? to_ordered(tile.from()[tile.row_offset(line) + x]) : 0;
            s.integers[swizzled_index<Int>(at)] = q;
        }
        __syncthreads();
        base = tile.axes == 0 ? 0 : s.integers[0];
        __syncthreads();
    } else {
        Int first = s.first_valid == NO_TILE ? 0 : s.integers[swizzled_index<Int>(s.first_valid)];
        __syncthreads();
        // A hole at the start of a row gets the first integer of the previous row.
        if (t == 0) {
            Int last = first;
            for (uint32_t at = 0; at < tile.n_codes; at += tile.row) {
                uint32_t bit = 1u << at % 32;
                if (s.holes[at / 32] & bit) {
                    s.integers[swizzled_index<Int>(at)] = last;
                    s.holes[at / 32] &= ~bit;
                } else {
                    last = s.integers[swizzled_index<Int>(at)];
                }
            }
        }
        __syncthreads();
        // Any other hole gets the nearest integer before it; the search ends at the start of the row, which is no
        // longer a hole.
        for (uint32_t at = t; at < tile.n_codes; at += THREADS) {
            uint32_t word = at / 32;
            if (!(s.holes[word] >> at % 32 & 1)) continue;
            uint32_t valid = ~s.holes[word] & ((1u << at % 32) - 1);
            while (valid == 0) valid = ~s.holes[--word];
            uint32_t from = word * 32 + 31 - __clz(int(valid));
            s.integers[swizzled_index<Int>(at)] = s.integers[swizzled_index<Int>(from)];
        }
        __syncthreads();
        base = tile.axes == 0 ? 0 : first;
    }
    for (uint32_t at = t; at < tile.n_codes; at += THREADS) s.integers[swizzled_index<Int>(at)] -= base;
    __syncthreads();
    return is_exact ? EXACT : QUANTISED;
}

// Writes masks and escapes of a tile with holes, after the base; by one warp.
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
        uint32_t upto = prefix_of_warp(uint32_t(__popc(bits)));
        uint32_t rank = n_before + upto - __popc(bits);
        for (; bits != 0; bits &= bits - 1, ++rank) {
            uint32_t index = (first + lane) * 32 + __ffs(int(bits)) - 1;
            put_bytes(body + at + 2 + 2 * rank, uint16_t(index));
            T value = tile.from()[tile.offset(index)];
            put_bytes(body + values_at + sizeof(T) * rank, typename Real<T>::Int(bits_of(value)));
        }
        n_before += __shfl_sync(ALL_LANES, upto, 31);
    }
}
