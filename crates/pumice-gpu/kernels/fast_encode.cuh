// Shared by the parts of the encoder of `fast`: its jobs, and the shared memory of a block.
#pragma once

#include "fast_tile.cuh"

constexpr uint32_t MASK_WORDS = TILE_VALUES / 32;

// Body that is kept beside the next tile, in words.
constexpr uint32_t KEPT_WORDS = 1024;

template <class T>
struct EncodeShared : TileMemory<typename Real<T>::Int> {
    // The one before, this one and the next, in turns.
    Tile<T> tiles[4];
    // Bodies of this tile and the one before, in turns, and their words; NO_TILE if there is nothing to be placed.
    uint32_t kept[2][KEPT_WORDS];
    uint32_t n_kept[2];
    // For tiles with holes: bits by linear index.
    uint32_t fill_masks[MAX_FILLS][MASK_WORDS];
    uint32_t escapes[MASK_WORDS];
    uint32_t holes[MASK_WORDS];
    uint32_t n_escapes;
    uint32_t first_valid;
    // Bytes of each mask of fill values; 0 if it is empty.
    uint32_t mask_bytes[MAX_FILLS];
    // The body, once its size is known.
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

template <class Word>
DEVICE void put_bytes(uint8_t* to, Word word) {
#pragma unroll
    for (uint32_t k = 0; k < sizeof(Word); ++k) to[k] = uint8_t(word >> 8 * k);
}
