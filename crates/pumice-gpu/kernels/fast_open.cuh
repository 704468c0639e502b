// Codec `fast`, decoding, phases 1 and 2: finds the body of a tile, its parts, and checks them.
#pragma once

#include "fast_tile.cuh"

// Error codes in `errors`: one word for all chunks of a launch, the minimum of `chunk << 8 | code`.
constexpr uint32_t WRONG_ANCHOR = 1;
constexpr uint32_t WRONG_SIZE = 2;
constexpr uint32_t WRONG_TILE = 3;
// Not wrong, but nothing that our encoders write: such tiles are larger than raw ones.
constexpr uint32_t NEEDS_HOST = 4;
// Not wrong, but nothing for integers of fewer bits than values.
constexpr uint32_t NEEDS_WIDE = 5;

// Threads that decode a tile to integers of this type.
template <class Int>
constexpr uint32_t DECODE_THREADS = sizeof(Int) == 4 ? 128 : 256;

// Payloads whose addresses are launch parameters, since reading these does not access device memory, where stores are queued.
constexpr uint32_t N_NEAR = 128;

struct Payload {
    uint64_t at, n_bytes;
};

template <class T>
struct DecodeJob {
    Coding<T> coding;
    // Those of the first chunks.
    Payload near[N_NEAR];
    const Chunk* chunks;
    // One for each chunk.
    const Choice* choices;
    uint64_t* errors;
    // The slot of each block; 0 if these are all, in order.
    const uint32_t* slots;
    uint32_t n_chunks;
    // Slots of each chunk if all but the last have as many, else 0.
    uint32_t slots_per_chunk;
    // Tiles of all chunks.
    uint32_t n_slots;
    // Bodies of this many tiles, a multiple of those of a run, are asked for at once, by blocks that are so far ahead of the first of them.
    uint32_t n_at_once;
    uint32_t n_ahead;
};

template <class T, class Int>
struct DecodeShared : TileMemory<Int> {
    // Sum of the last row of each warp's groups, as far as these hold it.
    Int tails[N_GROUPS / 32];
    Tile<T> tile;
    const uint32_t* from;
    uint32_t n_words;
    // The error code of phase 1, or 0.
    uint32_t wrong_place;
    // What phase 2 found: the flags of the body, its base, where masks and escapes start, and what is wrong with it. Others
    // still read of phase 1 while it is written.
    uint32_t flags;
    uint32_t holes_at;
    typename Real<T>::Int base;
    uint32_t wrong_body;
};

// The tile of a slot in its payload.
struct Place {
    uint32_t index, n_tiles;
    const uint8_t* payload;
    // Bytes of all bodies.
    uint64_t n_bytes;

    template <class T>
    DEVICE Place(const DecodeJob<T>& job, uint32_t slot) {
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
DEVICE uint32_t find_body(const Place& place, const uint32_t*& from, uint32_t& n_words) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t in_run = place.in_run(), run = place.run();
    const uint32_t size = lane <= in_run ? place.sizes()[place.index - in_run + lane] : 0;
    const uint32_t anchor = place.anchors()[run], next_anchor = place.is_last_run() ? 0 : place.anchors()[run + 1];
    const uint64_t end = anchor + uint64_t(__reduce_add_sync(ALL_LANES, size));
    n_words = __shfl_sync(ALL_LANES, size, in_run);
    from = (const uint32_t*)place.bodies() + (end - n_words);
    const bool is_last = place.index + 1 == place.n_tiles, is_end_of_run = in_run == TILES_PER_ANCHOR - 1;
    const uint64_t all_words = place.n_bytes / 4;
    if (end > all_words || (is_last && end != all_words)) return WRONG_SIZE;
    if (place.index == 0 && anchor != 0) return WRONG_ANCHOR;
    if (is_end_of_run && !is_last && next_anchor != end) return WRONG_ANCHOR;
    if (n_words > TileMemory<typename Real<T>::Int>::MOST_WORDS) return NEEDS_HOST;
    if (n_words > TileMemory<Int>::MOST_WORDS) return NEEDS_WIDE;
    return 0;
}

// Prefetches the bodies of the run of tiles that a slot is in, and their sizes, by one warp; the anchors give the ends of the run. Wrong
// prefetches, for a damaged payload, do no harm.
template <class T>
DEVICE void prefetch_run(const DecodeJob<T>& job, uint32_t slot) {
    if (slot >= job.n_slots) return;
    const Place place(job, slot);
    const uint32_t run = place.run();
    const uint64_t first = 4 * uint64_t(place.anchors()[run]);
    const uint64_t end = place.is_last_run() ? place.n_bytes : 4 * uint64_t(place.anchors()[run + 1]);
    if (first > end || end > place.n_bytes) return;
    if (threadIdx.x % 32 == 0) prefetch(place.sizes() + run * TILES_PER_ANCHOR);
    const uint8_t* line = place.bodies() + first - size_t(place.bodies() + first) % 128;
    for (line += threadIdx.x % 32 * 128; line < place.bodies() + end; line += 32 * 128) prefetch(line);
}

// Prefetches what later blocks will read, by one warp of each block. A few reads among many writes slow memory down more than in
// proportion, so bodies are prefetched in batches: of each group of blocks, the first ones prefetch all that a later group will need, a run
// of tiles each.
template <class T>
DEVICE void prefetch_bodies(const DecodeJob<T>& job, uint32_t slot) {
    const uint32_t n_runs = job.n_at_once / TILES_PER_ANCHOR;
    const uint32_t later = slot + job.n_ahead, number = later % job.n_at_once;
    if (number < n_runs) prefetch_run(job, later - number + number * TILES_PER_ANCHOR);
    if (slot < n_runs) prefetch_run(job, slot * TILES_PER_ANCHOR);
}

// Bits of residuals of f64 up to which sums over a tile have 32: 4096 of them make 12 more. Where sums along x are summed again, that
// is so twice.
constexpr uint32_t NARROW_BITS = 19;
constexpr uint32_t NARROW_BITS_TWICE = 7;
// And how far the base may be from 0, so that with such a sum it is less than 2^51.
constexpr uint64_t NARROW_BASE = (uint64_t(1) << 51) - (uint64_t(1) << 31);

// Bits per supergroup, as masks have them.
DEVICE uint64_t read_bits(const uint8_t* from, uint32_t n_bytes) {
    uint64_t bits = 0;
    for (uint32_t k = 0; k < n_bytes; ++k) bits |= uint64_t(from[k]) << 8 * k;
    return bits;
}

// Checks masks and escapes, by one lane; moves `at` behind them. Returns whether they are valid.
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

// Eight bytes of shared memory from any address on.
DEVICE void read_eight(const uint32_t* words, uint32_t at, uint32_t& low, uint32_t& high) {
    const uint32_t* from = words + at / 4;
    // Shifts are modulo 32.
    const uint32_t second = from[1];
    low = __funnelshift_r(from[0], second, 8 * at);
    high = __funnelshift_r(second, from[2], 8 * at);
}

// The lowest `n` bits of each byte; n is 8 at most.
DEVICE uint32_t low_bits(uint32_t n) { return ((1u << n) - 1) * 0x01010101; }

// Phase 2, by one warp: flags and base, then widths of all groups and where the planes of each supergroup are. Returns
// what is wrong, or 0.
template <class T, class Int>
DEVICE uint32_t lay_open(const Coding<T>& coding, DecodeShared<T, Int>& s, const Tile<T>& tile) {
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
        // A variable of its own, since one whose address is passed to a call stays in memory.
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
            // Bytes after a shorter one do not belong to it.
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
