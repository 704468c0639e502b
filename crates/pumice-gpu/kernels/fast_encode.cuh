// Shared by the parts of the encoder of `fast`: launch parameters, and the shared memory of a block.
#pragma once

#include "fast_tile.cuh"

constexpr uint32_t MASK_WORDS = TILE_VALUES / 32;

// Capacity in words for a body that is kept during the next tile.
constexpr uint32_t KEPT_WORDS = 1024;

template <class T>
struct EncodeShared : TileMemory<typename Real<T>::Int> {
    // The previous, current and next tile, by iteration modulo 4.
    Tile<T> tiles[4];
    // Bodies of the current and previous tile, by iteration modulo 2, and their sizes in words; NO_TILE if there is
    // none to copy.
    uint32_t kept[2][KEPT_WORDS];
    uint32_t n_kept[2];
    // For tiles with holes: one bit per linear index.
    uint32_t fill_masks[MAX_FILLS][MASK_WORDS];
    uint32_t escapes[MASK_WORDS];
    uint32_t holes[MASK_WORDS];
    uint32_t n_escapes;
    uint32_t first_valid;
    // Size of each mask of fill values in bytes; 0 if it is empty.
    uint32_t mask_bytes[MAX_FILLS];
    // Size of the body in words.
    uint32_t n_words;
    uint32_t is_raw;
    uint32_t is_too_wide;
    // The offset of the body of the previous tile.
    uint32_t words_before;
};

template <class T>
struct EncodeJob {
    Coding<T> coding;
    Chunk* chunks;
    const Choice* choices;
    // For each slot: the size of its body in words (high half) and the number of the launch. Entries of other launches
    // count as not published, so nothing needs clearing.
    uint64_t* sizes;
    // For each run of 32 slots of a chunk: how many sizes are published (high half), and their sum in words.
    uint64_t* sums;
    // For each such run: its offset in the chunk in words (high half) and the number of the launch.
    uint64_t* run_offsets;
    uint32_t* tickets;
    uint32_t n_chunks;
    uint32_t n_slots;
    // The number of slots of a chunk, if all but the last have the same number; otherwise 0.
    uint32_t slots_per_chunk;
    uint32_t launch;
};

template <class Word>
DEVICE void put_bytes(uint8_t* to, Word word) {
#pragma unroll
    for (uint32_t k = 0; k < sizeof(Word); ++k) to[k] = uint8_t(word >> 8 * k);
}
