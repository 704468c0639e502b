// What the kernels that decode `balanced` share.
#pragma once

#include "balanced_parameters.cuh"

namespace balanced {

// Room for escapes; a chunk with more is odd.
constexpr uint32_t ESCAPES_PER_GROUP = 4;

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
    // Of each stream: where it is in the payload, its size, and how many of its symbols are escapes.
    uint32_t* stream_at;
    uint16_t* sizes;
    uint32_t* escapes_of;
    // Escapes of all streams, in any order.
    uint64_t* escapes;
    // Of each group: where its low bits and wide differences are.
    uint32_t* group_low;
    uint32_t* group_wide;
    BitDecoder* coders;
    uint32_t n_chunks;
    // Units of class symbols, and of all symbols, that a chunk may have.
    uint32_t class_units, units;
    uint32_t reserved;
};

// Whether a chunk is left to the host; the same for all threads of a block, even if others find out just now.
DEVICE bool is_odd(const State& state) { return __syncthreads_or(state.is_odd != 0); }

// The difference at a lane's place of a group; by one warp.
DEVICE uint32_t load_difference(const DecodeWork& work, const Chunk& chunk, uint64_t group, uint32_t lane) {
    const uint32_t flags = work.classes[group], k = n_low_bits(flags & (HAS_WIDE - 1));
    if (flags == 0) return 0;
    const uint32_t byte = work.bytes[group * GROUP + lane];
    uint32_t d = (byte - ZERO) << k;
    const uint8_t* payload = (const uint8_t*)chunk.payload;
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

}  // namespace balanced
