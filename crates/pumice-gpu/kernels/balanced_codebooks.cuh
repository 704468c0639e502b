// Codec `balanced`, encoding: code lengths from the counts of symbols, and their packing; one block per codebook.
#pragma once

#include "balanced_encode.cuh"

namespace balanced {

struct CodebookShared {
    uint64_t keys[MAX_SYMBOLS];
    uint32_t leaves[MAX_SYMBOLS];
    // Items of two levels.
    uint32_t items[2][2 * MAX_SYMBOLS];
    uint8_t depths[MAX_SYMBOLS];
    uint32_t counts[MAX_SYMBOLS / 32][MAX_BITS + 1];
    // Packing: which symbols have codes, the length of each, and the bits.
    uint32_t used[MAX_SYMBOLS / 32];
    uint8_t lengths[MAX_SYMBOLS];
    uint32_t words[PACKED_BYTES / 4];
    uint32_t sums[MAX_SYMBOLS / 32 + 1];
};

// The first index in ascending numbers whose number is at least `x`, or with `is_above` greater than `x`.
DEVICE uint32_t lower_bound(const uint32_t* numbers, uint32_t n, uint32_t x, bool is_above) {
    uint32_t from = 0;
    while (n > 0) {
        uint32_t half = n / 2;
        uint32_t number = numbers[from + half];
        if (is_above ? number <= x : number < x) {
            from += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return from;
}

// The bits that a thread contributes to a packed codebook.
struct Bits {
    uint32_t bits, n;

    DEVICE void put(uint32_t more, uint32_t n_more) {
        bits |= more << n;
        n += n_more;
    }
    // Appends `n_ones` ones and a zero.
    DEVICE void put_ones(uint32_t n_ones) { put((1u << n_ones) - 1, n_ones + 1); }
};

// Packs the code lengths of a codebook (docs/format.md, section 9.2), one thread per symbol; `length` is that of symbol
// t, and `has_code` whether it has a code.
DEVICE void pack_lengths(const Work& job, CodebookShared& s, uint32_t alphabet, uint32_t length, bool has_code) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t mask = __ballot_sync(ALL_LANES, has_code);
    if (lane == 0) s.used[warp] = mask;
    s.lengths[t] = uint8_t(length);
    if (t < PACKED_BYTES / 4) s.words[t] = 0;
    __syncthreads();
    // The next symbol after t that has a code, or that has none; 256 if there is no such symbol.
    auto next = [&](bool is_used) {
        uint32_t of = warp, word = (is_used ? s.used[of] : ~s.used[of]) & (lane == 31 ? 0 : ~0u << (lane + 1));
        while (word == 0 && of + 1 < MAX_SYMBOLS / 32) {
            ++of;
            word = is_used ? s.used[of] : ~s.used[of];
        }
        return word == 0 ? MAX_SYMBOLS : 32 * of + __ffs(int(word)) - 1;
    };
    // The last symbol before t that has a code; 256 if there is none.
    uint32_t before = MAX_SYMBOLS;
    {
        uint32_t of = warp, word = mask & ((1u << lane) - 1);
        while (word == 0 && of > 0) {
            --of;
            word = s.used[of];
        }
        if (word != 0) before = 32 * of + bit_length(word) - 1;
    }
    const bool is_first = has_code && before == MAX_SYMBOLS;
    Bits own{0, 0};
    if (is_first) {
        own.put(t, 8);
        own.put(length, 4);
    }
    // A run begins between symbols with codes and symbols without; a last run without codes is not stored.
    const bool begins = has_code ? before == MAX_SYMBOLS || before + 1 < t : before + 1 == t && next(true) < MAX_SYMBOLS;
    if (begins && !(has_code && length == 0)) {
        const uint32_t run = next(!has_code) - t, n = bit_length(run) - 1;
        own.put_ones(n);
        own.put(run - (1u << n), n);
    }
    if (has_code && !is_first) {
        const int32_t rise = int32_t(length) - int32_t(s.lengths[before]);
        own.put_ones(uint32_t(rise < 0 ? -rise : rise));
        if (rise != 0) own.put(rise < 0, 1);
    }
    uint32_t n_bits;
    const uint32_t at = prefix_of_block<MAX_SYMBOLS>(own.n, s.sums, n_bits);
    if (own.n > 0) {
        atomicOr(&s.words[at / 32], own.bits << at % 32);
        if (at % 32 + own.n > 32) atomicOr(&s.words[at / 32 + 1], own.bits >> (32 - at % 32));
    }
    __syncthreads();
    uint32_t* to = (uint32_t*)(job.packed + uint64_t(blockIdx.x) * PACKED_BYTES);
    if (t < (n_bits + 31) / 32) to[t] = s.words[t];
    if (t == 0) job.heads[blockIdx.x] = n_bits | alphabet << SIZE_BITS;
}

// Code lengths and codes for the counts of one codebook: package-merge as in
// crates/pumice/src/codec/huffman/lengths.rs, with binary searches to merge levels. One thread per symbol.
DEVICE void fit_codebook(const Work& job, CodebookShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t number = blockIdx.x / N_BOOKS, book = blockIdx.x % N_BOOKS;
    State& state = job.states[number];
    if (book == REST_BOOK) {
        if (t == 0) {
            state.n_symbols[REST_BOOK] = state.n_rest;
            state.first_block[N_BOOKS] = state.first_block[REST_BOOK] + (state.n_rest + BLOCK - 1) / BLOCK;
        }
        if (state.n_rest == 0) return;
    } else if (state.n_symbols[book] == 0) {
        return;
    }
    const uint32_t alphabet = book == CLASS_BOOK || book == REST_BOOK ? SINGLES : state.alphabets[book];
    const uint64_t at = uint64_t(blockIdx.x) * MAX_SYMBOLS + t;
    const uint32_t count = job.counts[at];
    s.keys[t] = count == 0 ? ~uint64_t(0) : uint64_t(count) << 8 | t;
    const uint32_t n = __syncthreads_count(count != 0);
    if (n < 2) {
        job.codes[at] = 0;
        pack_lengths(job, s, alphabet, 0, count != 0);
        return;
    }
    // Rare symbols first, equally frequent ones in order.
    uint32_t rank = 0;
    const uint64_t key = s.keys[t];
    for (uint32_t i = 0; i < MAX_SYMBOLS; ++i) rank += s.keys[i] < key;
    if (count != 0) {
        s.leaves[rank] = count;
        s.items[0][rank] = count;
    }
    __syncthreads();
    // Index of leaf `t` at each level, the deepest first.
    uint32_t indices[MAX_BITS];
    indices[0] = t;
    uint32_t n_items = n;
    const uint32_t leaf = t < n ? s.leaves[t] : 0;
#pragma unroll
    for (uint32_t level = 1; level < MAX_BITS; ++level) {
        const uint32_t* below = s.items[(level - 1) % 2];
        uint32_t* items = s.items[level % 2];
        const uint32_t n_pairs = n_items / 2;
        uint32_t pair = 0;
        if (t < n_pairs) {
            pair = below[2 * t] + below[2 * t + 1];
            items[t + lower_bound(s.leaves, n, pair, true)] = pair;
        }
        // The leaf comes after all pairs whose sum is smaller; a binary search counts them.
        uint32_t from = 0, left = n_pairs;
        while (left > 0) {
            uint32_t half = left / 2, middle = from + half;
            if (below[2 * middle] + below[2 * middle + 1] < leaf) {
                from = middle + 1;
                left -= half + 1;
            } else {
                left = half;
            }
        }
        indices[level] = t + from;
        if (t < n) items[t + from] = leaf;
        n_items = n + n_pairs;
        __syncthreads();
    }
    uint32_t depth = 0, n_bought = 2 * n - 2;
#pragma unroll
    for (uint32_t level = MAX_BITS; level-- > 0;) {
        bool is_bought = t < n && indices[level] < n_bought;
        depth += is_bought;
        uint32_t n_leaves = __syncthreads_count(is_bought);
        n_bought = 2 * (n_bought - n_leaves);
    }
    s.depths[t] = uint8_t(depth);
    for (uint32_t i = t; i < MAX_SYMBOLS / 32 * (MAX_BITS + 1); i += MAX_SYMBOLS) ((uint32_t*)s.counts)[i] = 0;
    __syncthreads();
    const uint32_t length = count == 0 ? 0 : s.depths[rank];
    const uint32_t same = __match_any_sync(ALL_LANES, length);
    const uint32_t n_below = __popc(same & ((1u << lane) - 1));
    if (n_below == 0) s.counts[warp][length] = __popc(same);
    __syncthreads();
    uint32_t code = n_below, first = 0;
    if (length > 0) {
        for (uint32_t i = 0; i < warp; ++i) code += s.counts[i][length];
        for (uint32_t bits = 1; bits < length; ++bits) {
            uint32_t of_length = 0;
            for (uint32_t i = 0; i < MAX_SYMBOLS / 32; ++i) of_length += s.counts[i][bits];
            first = (first + of_length) << 1;
        }
        code = __brev(first + code) >> (32 - length);
    }
    job.codes[at] = length == 0 ? 0 : code << 8 | length;
    pack_lengths(job, s, alphabet, length, length != 0);
}

}  // namespace balanced
