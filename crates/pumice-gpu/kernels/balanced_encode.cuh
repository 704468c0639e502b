// Shared by the kernels that encode `balanced`.
#pragma once

#include "balanced.cuh"

namespace balanced {

constexpr uint32_t SAMPLE_GROUPS = 384;
constexpr uint32_t SAMPLE_WARPS = 8;
constexpr uint32_t SAMPLE_BLOCKS = SAMPLE_GROUPS / SAMPLE_WARPS;
// Thread blocks that split a chunk that is not plain.
constexpr uint32_t SPLIT_BLOCKS = 64;
// Blocks of symbols that a thread block counts.
constexpr uint32_t COUNT_SLOTS = 8;
// Bytes reserved for everything before the body of a payload.
constexpr uint32_t RESERVE = 32768;
constexpr uint32_t CHOOSE_GROUPS = 128;
constexpr uint32_t REST_BITS = 7;

// The parameters of all launches.
struct Work {
    const Chunk* chunks;
    State* states;
    // The chunk of each tile, and of each unit of COUNT_SLOTS slots.
    const uint32_t* tile_chunks;
    const uint32_t* unit_chunks;
    uint32_t* sample_costs;
    uint8_t* classes;
    uint8_t* bytes;
    uint8_t* low;
    uint64_t plane_bytes;
    Tile* tiles;
    uint32_t* sorted;
    uint8_t* class_symbols;
    uint8_t* rest;
    uint32_t* counts;
    uint32_t* codes;
    // For each codebook: its packed lengths, and the head that precedes them: their size in bits and the alphabet.
    uint8_t* packed;
    uint32_t* heads;
    uint64_t* rest_states;
    uint64_t* stream_states;
    uint32_t* tickets;
    // For chunks with CUT_ROWS: the difference of each value; null if there are no such chunks.
    uint32_t* differences;
    uint32_t n_chunks;
    uint32_t launch;
    // Thread blocks that split a plain chunk.
    uint32_t split_blocks;
    uint32_t reserved;
};

// The parameters of launches that read values.
template <class T>
struct EncodeJob : Work {
    Coding<T> coding;
};

}  // namespace balanced
