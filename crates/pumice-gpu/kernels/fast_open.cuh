// Codec `fast`, decoding, phases 1 and 2: finds the body of a tile and its parts, and checks them.
#pragma once

#include "fast_tile.cuh"

// Error codes in `errors`: one word for all chunks of a launch, the minimum of `chunk << 8 | code`.
constexpr uint32_t WRONG_ANCHOR = 1;
constexpr uint32_t WRONG_SIZE = 2;
constexpr uint32_t WRONG_TILE = 3;
// Valid, but never written by our encoders, since such a tile is larger than a raw one.
constexpr uint32_t NEEDS_HOST = 4;
// Valid, but the integers need as many bits as the values.
constexpr uint32_t NEEDS_WIDE = 5;

// Threads that decode a tile to integers of this type.
template <class Int>
constexpr uint32_t DECODE_THREADS = sizeof(Int) == 4 ? 128 : 256;

// The number of payloads whose addresses are launch parameters: these are read without waiting for device memory, where
// stores are queued.
constexpr uint32_t N_NEAR = 128;

struct Payload {
    uint64_t at, n_bytes;
};

template <class T>
struct DecodeJob {
    Coding<T> coding;
    // Payloads of the first chunks.
    Payload near[N_NEAR];
    const Chunk* chunks;
    // One for each chunk.
    const Choice* choices;
    uint64_t* errors;
    // The slot of each block; null if the blocks decode all slots in order.
    const uint32_t* slots;
    uint32_t n_chunks;
    // The number of slots of a chunk, if all but the last have the same number; otherwise 0.
    uint32_t slots_per_chunk;
    // The number of tiles of all chunks.
    uint32_t n_slots;
    // Bodies of `n_at_once` tiles (whole runs) are prefetched together, by blocks that run `n_ahead` slots before the
    // first of them.
    uint32_t n_at_once;
    uint32_t n_ahead;
};

template <class T, class Int>
struct DecodeShared : TileMemory<Int> {
    // For each warp, the sum over its part of the row in which its last group is.
    Int tails[N_GROUPS / 32];
    Tile<T> tile;
    const uint32_t* from;
    uint32_t n_words;
    // The error code of phase 1, or 0.
    uint32_t body_error;
    // Results of phase 2: the flags of the body, the offset of masks and escapes, the base, and an error code or 0.
    // They have memory of their own, since other warps still read results of phase 1.
    uint32_t flags;
    uint32_t holes_at;
    typename Real<T>::Int base;
    uint32_t content_error;
};

// The position of a slot's tile in its payload.
struct TilePosition {
    uint32_t index, n_tiles;
    const uint8_t* payload;
    // Size of all bodies in bytes.
    uint64_t n_bytes;

    template <class T>
    DEVICE TilePosition(const DecodeJob<T>& job, uint32_t slot) {
        const uint32_t number = chunk_of(job.chunks, job.n_chunks, job.slots_per_chunk, slot);
        if (job.slots_per_chunk > 0 && job.n_chunks <= N_NEAR) {
            const uint32_t first = number * job.slots_per_chunk;
            index = slot - first;
            n_tiles = number + 1 == job.n_chunks ? job.n_slots - first : job.slots_per_chunk;
            payload = (const uint8_t*)job.near[number].at;
            n_bytes = job.near[number].n_bytes;
        } else {
            const Chunk& chunk = job.chunks[number];
            index = slot - chunk.first_slot;
            n_tiles = job.choices[number].n_tiles;
            payload = (const uint8_t*)chunk.payload;
            n_bytes = chunk.payload_bytes;
        }
        payload = in_device_memory(payload);
        n_bytes -= bodies_offset(n_tiles);
    }

    DEVICE uint32_t run() const { return index / TILES_PER_ANCHOR; }
    DEVICE uint32_t in_run() const { return index % TILES_PER_ANCHOR; }
    DEVICE bool is_last_run() const { return (run() + 1) * TILES_PER_ANCHOR >= n_tiles; }
    DEVICE const uint32_t* anchors() const { return (const uint32_t*)(payload + PARAMETER_BYTES); }
    DEVICE const uint16_t* sizes() const { return (const uint16_t*)(payload + words_offset(n_tiles)); }
    DEVICE const uint8_t* bodies() const { return payload + bodies_offset(n_tiles); }
};

// Phase 1, by one warp: finds the body of a tile. Returns an error code, or 0.
template <class T, class Int>
DEVICE uint32_t find_body(const TilePosition& position, const uint32_t*& from, uint32_t& n_words) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t in_run = position.in_run(), run = position.run();
    const uint32_t size = lane <= in_run ? position.sizes()[position.index - in_run + lane] : 0;
    const uint32_t anchor = position.anchors()[run], next_anchor = position.is_last_run() ? 0 : position.anchors()[run + 1];
    const uint64_t end = anchor + uint64_t(__reduce_add_sync(ALL_LANES, size));
    n_words = __shfl_sync(ALL_LANES, size, in_run);
    from = (const uint32_t*)position.bodies() + (end - n_words);
    const bool is_last = position.index + 1 == position.n_tiles, is_end_of_run = in_run == TILES_PER_ANCHOR - 1;
    const uint64_t all_words = position.n_bytes / 4;
    if (end > all_words || (is_last && end != all_words)) return WRONG_SIZE;
    if (position.index == 0 && anchor != 0) return WRONG_ANCHOR;
    if (is_end_of_run && !is_last && next_anchor != end) return WRONG_ANCHOR;
    if (n_words > TileMemory<typename Real<T>::Int>::MOST_WORDS) return NEEDS_HOST;
    if (n_words > TileMemory<Int>::MOST_WORDS) return NEEDS_WIDE;
    return 0;
}

// Prefetches the bodies and sizes of the run of tiles that contains a slot, by one warp; anchors give the ends of the
// run. With a damaged payload, wrong addresses may be prefetched, which is harmless.
template <class T>
DEVICE void prefetch_run(const DecodeJob<T>& job, uint32_t slot) {
    if (slot >= job.n_slots) return;
    const TilePosition position(job, slot);
    const uint32_t run = position.run();
    const uint64_t first = 4 * uint64_t(position.anchors()[run]);
    const uint64_t end = position.is_last_run() ? position.n_bytes : 4 * uint64_t(position.anchors()[run + 1]);
    if (first > end || end > position.n_bytes) return;
    if (threadIdx.x % 32 == 0) prefetch(position.sizes() + run * TILES_PER_ANCHOR);
    const uint8_t* line = position.bodies() + first - size_t(position.bodies() + first) % 128;
    for (line += threadIdx.x % 32 * 128; line < position.bodies() + end; line += 32 * 128) prefetch(line);
}

// Prefetches bodies for later blocks, by one warp of each block. Memory is slow when a few reads mix with many writes,
// so bodies are prefetched in batches: the first blocks of each group of blocks prefetch all bodies of a later group,
// one run of tiles each.
template <class T>
DEVICE void prefetch_bodies(const DecodeJob<T>& job, uint32_t slot) {
    const uint32_t n_runs = job.n_at_once / TILES_PER_ANCHOR;
    const uint32_t later = slot + job.n_ahead, number = later % job.n_at_once;
    if (number < n_runs) prefetch_run(job, later - number + number * TILES_PER_ANCHOR);
    if (slot < n_runs) prefetch_run(job, slot * TILES_PER_ANCHOR);
}

// The most bits of residuals of f64 whose sums over a tile fit into 32 bits: a sum of 4096 has 12 bits more. Second
// differences are summed twice along x.
constexpr uint32_t NARROW_BITS = 19;
constexpr uint32_t NARROW_BITS_TWICE = 7;
// The limit on the base, so that base plus such a sum is below 2^51.
constexpr uint64_t NARROW_BASE = (uint64_t(1) << 51) - (uint64_t(1) << 31);

// Reads up to 64 bits of a mask, one per supergroup.
DEVICE uint64_t read_bits(const uint8_t* from, uint32_t n_bytes) {
    uint64_t bits = 0;
    for (uint32_t k = 0; k < n_bytes; ++k) bits |= uint64_t(from[k]) << 8 * k;
    return bits;
}

// Checks masks and escapes, by one lane; moves `at` to their end. Returns whether they are valid.
template <class T, class Int>
DEVICE_CALL bool check_holes(const DecodeShared<T, Int>& s, const Tile<T>& tile, uint32_t n_fills, uint32_t flags,
                             uint32_t& at) {
    const uint32_t n_bytes = 4 * s.n_words, n_super = tile.n_super(), mask_bytes = (n_super + 7) / 8;
    if ((flags & KIND) != QUANTISED) return false;
    const uint64_t beyond = n_super == 64 ? 0 : ~uint64_t(0) << n_super;
    for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
        if (!(flags & MASK_0 << fill)) continue;
        if (fill >= n_fills || at + 2 * mask_bytes > n_bytes) return false;
        uint64_t any = read_bits(s.body + at, mask_bytes), mixed = read_bits(s.body + at + mask_bytes, mask_bytes);
        if ((mixed & ~any) != 0 || (any & beyond) != 0) return false;
        at += 2 * mask_bytes + 8 * __popcll((long long)mixed);
        if (at > n_bytes) return false;
    }
    if (flags & ESCAPES) {
        if (at + 2 > n_bytes) return false;
        uint32_t n = s.body[at] | s.body[at + 1] << 8;
        if (n == 0 || at + 2 + n * (2 + sizeof(T)) > n_bytes) return false;
        uint32_t next = 0;
        for (uint32_t i = 0; i < n; ++i) {
            uint32_t index = s.body[at + 2 + 2 * i] | s.body[at + 3 + 2 * i] << 8;
            if (index < next || index >= tile.n_codes || index % tile.row >= tile.ex) return false;
            next = index + 1;
        }
        at += 2 + n * (2 + sizeof(T));
    }
    return true;
}

// Reads eight bytes of shared memory at any offset.
DEVICE void read_eight(const uint32_t* words, uint32_t at, uint32_t& low, uint32_t& high) {
    const uint32_t* from = words + at / 4;
    // The funnel shift takes the shift modulo 32.
    const uint32_t second = from[1];
    low = __funnelshift_r(from[0], second, 8 * at);
    high = __funnelshift_r(second, from[2], 8 * at);
}

// A mask of the lowest `n` bits of each byte; n is at most 8.
DEVICE uint32_t low_bits(uint32_t n) { return ((1u << n) - 1) * 0x01010101; }

// Phase 2, by one warp: flags and base, then widths of all groups and the offset of the planes of each supergroup.
// Returns an error code, or 0.
template <class T, class Int>
DEVICE uint32_t parse_body(const Coding<T>& coding, DecodeShared<T, Int>& s, const Tile<T>& tile) {
    using R = Real<T>;
    constexpr bool IS_NARROW = sizeof(Int) < sizeof(T);
    const uint32_t lane = threadIdx.x;
    const uint32_t n_bytes = 4 * s.n_words, n_super = tile.n_super();
    const uint32_t head = s.words[0], flags = head & 0xFF, kind = flags & KIND;
    typename R::Int base = typename R::Int(typename R::Signed(int32_t(head) >> 8));
    if (kind == RAW) {
        uint32_t raw_words = 1 + tile.n_values() * (sizeof(T) / 4);
        if (head != RAW || s.n_words != raw_words) return WRONG_TILE;
        if (lane == 0) s.flags = flags;
        return 0;
    }
    if (kind != EXACT && (kind != QUANTISED || coding.is_lossless)) return WRONG_TILE;
    uint32_t at = 4;
    if (flags & WIDE_BASE) {
        if (base != 0 || s.n_words < 1 + sizeof(T) / 4) return WRONG_TILE;
        base = s.words[1];
        if (sizeof(T) == 8) base |= typename R::Int(s.words[2]) << (sizeof(T) * 4);
        at += sizeof(T);
    }
    if (lane == 0) {
        s.flags = flags;
        s.base = base;
        s.holes_at = at;
    }
    if (flags & (MASK_0 | MASK_0 << 1 | ESCAPES)) {
        bool fine = true;
        // A separate variable, since the compiler keeps one whose address is passed to a call in memory.
        uint32_t behind = at;
        if (lane == 0) fine = check_holes(s, tile, coding.n_fills, flags, behind);
        at = __shfl_sync(ALL_LANES, behind, 0);
        if (!__all_sync(ALL_LANES, fine)) return WRONG_TILE;
    }
    uint32_t end = at;
    if (flags & NO_PLANES) {
        if (flags & SPARSE) return WRONG_TILE;
    } else {
        const uint64_t all = n_super == 64 ? ~uint64_t(0) : (uint64_t(1) << n_super) - 1;
        uint64_t mask = all;
        if (flags & SPARSE) {
            const uint32_t mask_bytes = (n_super + 7) / 8;
            if (at + mask_bytes > n_bytes) return WRONG_TILE;
            uint32_t low, high;
            read_eight(s.words, at, low, high);
            mask = uint64_t(high) << 32 | low;
            // A shorter mask ends before the eight bytes that were read.
            if (mask_bytes < 8) mask &= (uint64_t(1) << 8 * mask_bytes) - 1;
            if (mask & ~all) return WRONG_TILE;
            at += mask_bytes;
        }
        const uint32_t n_present = __popcll((long long)mask);
        const uint32_t deltas_at = at + n_present;
        if (deltas_at > n_bytes) return WRONG_TILE;
        uint32_t headers[2], n_deltas = 0;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t super = 2 * lane + i;
            headers[i] = 0;
            if (mask >> super & 1) {
                const bool is_dense = mask == ~uint64_t(0);
                const uint32_t before = is_dense ? super : __popcll((long long)(mask & ((uint64_t(1) << super) - 1)));
                headers[i] = s.body[at + before];
            }
            n_deltas += headers[i] >> LEAST_BITS;
        }
        const uint32_t deltas_upto = prefix_of_warp(n_deltas);
        const uint32_t planes_at = deltas_at + __shfl_sync(ALL_LANES, deltas_upto, 31);
        if (planes_at > n_bytes) return WRONG_TILE;
        uint32_t from = deltas_at + deltas_upto - n_deltas;
        uint32_t n_planes[2];
        bool fine = true, is_wide = false;
        const uint32_t narrow = tile.axes & XX ? NARROW_BITS_TWICE : NARROW_BITS;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t super = 2 * lane + i;
            uint32_t low = 0, high = 0;
            if (mask >> super & 1) {
                const uint32_t n_delta = headers[i] >> LEAST_BITS, least = headers[i] & MAX_LEAST;
                uint32_t even, odd;
                read_eight(s.words, from, low, high);
                from += n_delta;
                bytes_of_planes(low, high, even, odd);
                low = __byte_perm(even, odd, 0x5140) & low_bits(n_delta);
                high = __byte_perm(even, odd, 0x7362) & low_bits(n_delta);
                uint32_t least_low = least * 0x01010101, least_high = least_low;
                if (!tile.full) {
                    // Groups that do not exist have no planes.
                    const uint32_t n_exist = min(tile.n_codes / GROUP - super * 8, 8u);
                    const uint64_t exist = n_exist == 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * n_exist) - 1;
                    fine = fine && (low & ~uint32_t(exist)) == 0 && (high & ~uint32_t(exist >> 32)) == 0;
                    least_low &= uint32_t(exist);
                    least_high &= uint32_t(exist >> 32);
                }
                low += least_low;
                high += least_high;
                fine = fine && !any_byte_above(low, R::BITS) && !any_byte_above(high, R::BITS);
                is_wide = is_wide || any_byte_above(low, narrow) || any_byte_above(high, narrow);
            }
            ((uint32_t*)s.widths)[2 * super] = low;
            ((uint32_t*)s.widths)[2 * super + 1] = high;
            n_planes[i] = sum_of_bytes(low) + sum_of_bytes(high);
        }
        const uint32_t upto = prefix_of_warp(n_planes[0] + n_planes[1]);
        end = planes_at + __shfl_sync(ALL_LANES, upto, 31);
        const uint32_t before = planes_at + upto - n_planes[0] - n_planes[1];
        s.planes_at[2 * lane] = uint16_t(before);
        s.planes_at[2 * lane + 1] = uint16_t(before + n_planes[0]);
        if (!__all_sync(ALL_LANES, fine)) return WRONG_TILE;
        if constexpr (IS_NARROW) {
            const bool is_near = base + NARROW_BASE < 2 * NARROW_BASE;
            if (__any_sync(ALL_LANES, is_wide) || !is_near || kind == EXACT) return NEEDS_WIDE;
        }
    }
    if (end > n_bytes || n_bytes - end > 3) return WRONG_TILE;
    // The padding is 0.
    const bool is_clean = end == n_bytes || s.words[s.n_words - 1] >> end % 4 * 8 == 0;
    return is_clean ? 0 : WRONG_TILE;
}
