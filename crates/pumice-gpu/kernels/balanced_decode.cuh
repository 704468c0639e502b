// Shared by the kernels that decode `balanced`.
#pragma once

#include "balanced.cuh"

namespace balanced {

// The largest number of symbols of a group that can be escapes.
constexpr uint32_t ESCAPES_PER_GROUP = GROUP / 2;

struct DecodeWork {
    const Chunk* chunks;
    State* states;
    const uint32_t* tile_chunks;
    uint8_t* classes;
    uint8_t* bytes;
    Tile* tiles;
    uint32_t* sorted;
    uint8_t* class_symbols;
    uint8_t* rest;
    uint8_t* lengths;
    // For each stream: its offset in the payload, its size, the number of escapes, and the offset of their literals.
    uint32_t* stream_at;
    uint16_t* sizes;
    uint32_t* escapes_of;
    uint32_t* apart_at;
    // The indices of escapes in their stream; those of a stream are stored from its first group on.
    uint16_t* escapes;
    // For each group: offsets of its low bits and wide differences in the payload.
    uint32_t* group_low;
    uint32_t* group_wide;
    // For each stored codebook: the size of its packed lengths in bits, below its alphabet.
    uint32_t* heads;
    uint32_t n_chunks;
    // The largest numbers of units of class symbols, and of all symbols, in a chunk.
    uint32_t class_units, units;
    // Thread blocks that sum the patches of a chunk, and their edges.
    uint32_t patch_blocks, edge_blocks;
    uint32_t reserved;
    // For plain chunks: sums of columns of stacks, of rows of strips, and the sums of these from the start of the
    // plane.
    uint32_t* columns;
    uint32_t* edges;
    uint32_t* edge_sums;
    // For chunks with CUT_ROWS: the difference of each value; null if there are no such chunks.
    uint32_t* differences;
};

// Whether a chunk is left to the host. All threads of a block get the same answer, even if another block sets the flag
// meanwhile.
DEVICE bool needs_host(const State& state) { return __syncthreads_or(state.needs_host != 0); }

// The difference at a lane's position in a group; by one warp.
DEVICE uint32_t load_difference(const DecodeWork& work, const Chunk& chunk, uint64_t group, uint32_t lane) {
    const uint32_t flags = work.classes[group], k = n_low_bits(flags & (HAS_WIDE - 1));
    if (flags == 0) return 0;
    const uint32_t byte = work.bytes[group * GROUP + lane];
    uint32_t d = (byte - ZERO) << k;
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    if (k > 0) {
        const uint8_t* low = payload + work.group_low[group];
        uint32_t shift = 0;
        for (; k - shift >= 8; shift += 8) {
            d |= uint32_t(low[lane]) << shift;
            low += GROUP;
        }
        const uint32_t n = k - shift, at = lane * n;
        if (n > 0) {
            uint32_t field = low[at / 8];
            if (at % 8 + n > 8) field |= uint32_t(low[at / 8 + 1]) << 8;
            d |= (field >> at % 8 & ((1u << n) - 1)) << shift;
        }
    }
    if (flags & HAS_WIDE) {
        const uint32_t wide = __ballot_sync(ALL_LANES, byte == WIDE);
        if (byte == WIDE) {
            const uint8_t* from = payload + work.group_wide[group] + 4 * __popc(wide & ((1u << lane) - 1));
            d = from[0] | uint32_t(from[1]) << 8 | uint32_t(from[2]) << 16 | uint32_t(from[3]) << 24;
        }
    }
    return d;
}

// Loads four bytes from any address; reads nothing from `end` on, except the rest of a word.
DEVICE uint32_t load_unaligned(const uint8_t* from, const uint8_t* end) {
    const uint32_t* word = in_device_memory((const uint32_t*)(uint64_t(from) & ~uint64_t(3)));
    const uint32_t low = *word, high = (const uint8_t*)(word + 1) < end ? word[1] : 0;
    return __funnelshift_r(low, high, 8 * uint32_t(uint64_t(from) & 3));
}

// The differences of four values with low bits or with wide differences. `at` is the index of the first among the
// values of all chunks, and `bytes` are their bytes.
DEVICE_CALL Piece<uint32_t> load_careful(const DecodeWork& work, const Chunk& chunk, uint64_t at, uint32_t flags, uint32_t bytes) {
    uint32_t d[4];
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) d[i] = (bytes >> 8 * i & 0xFF) - ZERO;
    const uint64_t group = at / GROUP;
    const uint32_t k = n_low_bits(flags & (HAS_WIDE - 1)), position = uint32_t(at % GROUP);
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    const uint8_t* end = payload + chunk.payload_bytes;
    if (k > 0) {
        const uint8_t* low = payload + work.group_low[group];
        uint32_t shift = 0;
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) d[i] <<= k;
        for (; k - shift >= 8; shift += 8) {
            const uint32_t four = load_unaligned(low + position, end);
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) d[i] |= (four >> 8 * i & 0xFF) << shift;
            low += GROUP;
        }
        const uint32_t n = k - shift, bit = position * n;
        if (n > 0) {
            // Positions are multiples of four, so four fields are in four bytes.
            const uint32_t fields = load_unaligned(low + bit / 8, end) >> bit % 8;
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) d[i] |= (fields >> i * n & ((1u << n) - 1)) << shift;
        }
    }
    if (flags & HAS_WIDE) {
        const uint32_t* words = (const uint32_t*)(work.bytes + group * GROUP);
        uint32_t number = 0;
        for (uint32_t i = 0; i < position / 4; ++i) number += n_zero_bytes(words[i]);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) {
            if ((bytes >> 8 * i & 0xFF) == WIDE) {
                d[i] = load_unaligned(payload + work.group_wide[group] + 4 * number, end);
                ++number;
            }
        }
    }
    return Piece<uint32_t>{{d[0], d[1], d[2], d[3]}};
}

// The first class whose differences have low bits.
constexpr uint32_t FIRST_WITH_LOW = 17;

// The differences of four values of a group; `at` is the index of the first in the chunk.
DEVICE void load_four_differences(const DecodeWork& work, const Chunk& chunk, uint32_t at, uint32_t flags, uint32_t bytes,
                                  uint32_t (&d)[4]) {
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) d[i] = (bytes >> 8 * i & 0xFF) - ZERO;
    if (flags >= FIRST_WITH_LOW) {
        const Piece<uint32_t> careful = load_careful(work, chunk, chunk.first_group * GROUP + at, flags, bytes);
#pragma unroll
        for (uint32_t i = 0; i < 4; ++i) d[i] = careful.of[i];
    }
}

}  // namespace balanced
