// Codec `balanced`, decoding: symbols of classes and bytes of groups from their streams, which are Huffman-coded, a thread a
// stream.
#pragma once

#include "balanced_decode.cuh"

namespace balanced {

constexpr uint32_t UNIT_THREADS = UNIT_BLOCKS * STREAMS;

struct StreamsShared {
    // By the next bits: a symbol above the length of its code.
    uint16_t table[1 << MAX_BITS];
    // Bytes of symbols of several.
    uint32_t low[MAX_SYMBOLS], high[MAX_SYMBOLS];
    uint8_t order[MAX_SYMBOLS];
    uint32_t counts[MAX_SYMBOLS / 32][MAX_BITS + 1];
    uint32_t limits[MAX_BITS + 1], offsets[MAX_BITS + 1];
};

// The table of a codebook; false if its code is not complete. By a block.
DEVICE bool make_table(StreamsShared& s, const uint8_t* lengths) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    constexpr uint32_t ROUNDS = MAX_SYMBOLS / UNIT_THREADS;
    uint32_t length[ROUNDS], rank[ROUNDS], n_used = 0, share = 0;
    for (uint32_t i = t; i < MAX_SYMBOLS / 32 * (MAX_BITS + 1); i += UNIT_THREADS) ((uint32_t*)s.counts)[i] = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < ROUNDS; ++i) {
        const uint32_t part = warp * ROUNDS + i;
        uint32_t n_bits = lengths[part * 32 + lane];
        bool is_used = n_bits != NO_CODE;
        if (n_bits > MAX_BITS) n_bits = 0;
        length[i] = n_bits;
        n_used += is_used;
        share += is_used ? 1u << (MAX_BITS - n_bits) : 0;
        // Of those that have no code and of those that have one of no bits none is counted.
        uint32_t same = __match_any_sync(ALL_LANES, n_bits);
        rank[i] = __popc(same & ((1u << lane) - 1));
        if (rank[i] == 0 && n_bits > 0) s.counts[part][n_bits] = __popc(same);
        // A symbol that is alone.
        if (is_used && n_bits == 0) s.order[0] = uint8_t(part * 32 + lane);
    }
    n_used = __syncthreads_count(n_used > 0);
    uint32_t total = __reduce_add_sync(ALL_LANES, share);
    // Whether the shares of all add up: each warp knows its own.
    if (lane == 0) s.limits[warp] = total;
    __syncthreads();
    total = 0;
#pragma unroll
    for (uint32_t i = 0; i < UNIT_THREADS / 32; ++i) total += s.limits[i];
    __syncthreads();
    if (total != 1u << MAX_BITS) return false;
    if (t == 0) {
        uint32_t code = 0, n_before = 0;
        for (uint32_t bits = 1; bits <= MAX_BITS; ++bits) {
            uint32_t n = 0;
            for (uint32_t i = 0; i < MAX_SYMBOLS / 32; ++i) n += s.counts[i][bits];
            s.offsets[bits] = n_before - code;
            n_before += n;
            s.limits[bits] = (code + n) << (MAX_BITS - bits);
            code = (code + n) << 1;
        }
        s.offsets[0] = n_before;
    }
    __syncthreads();
    const bool is_alone = s.offsets[0] == 0;
    if (t <= MAX_BITS && t > 0 && !is_alone) {
        // From here on: where symbols of a length and a part begin in their order.
        uint32_t at = 0;
        for (uint32_t bits = 1; bits < t; ++bits) {
            for (uint32_t i = 0; i < MAX_SYMBOLS / 32; ++i) at += s.counts[i][bits];
        }
        // Other threads may still read the counts of this length.
        __syncwarp((1u << (MAX_BITS + 1)) - 2);
        for (uint32_t i = 0; i < MAX_SYMBOLS / 32; ++i) {
            uint32_t n = s.counts[i][t];
            s.counts[i][t] = at;
            at += n;
        }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < ROUNDS; ++i) {
        const uint32_t part = warp * ROUNDS + i;
        if (length[i] > 0) s.order[s.counts[part][length[i]] + rank[i]] = uint8_t(part * 32 + lane);
    }
    __syncthreads();
    for (uint32_t i = t; i < 1u << MAX_BITS; i += UNIT_THREADS) {
        const uint32_t bits = __brev(i) >> (32 - MAX_BITS);
        uint32_t n_bits = 1;
#pragma unroll
        for (uint32_t k = 1; k < MAX_BITS; ++k) n_bits += bits >= s.limits[k];
        uint32_t symbol = is_alone ? s.order[0] : s.order[(s.offsets[n_bits] + (bits >> (MAX_BITS - n_bits))) % MAX_SYMBOLS];
        s.table[i] = uint16_t(symbol << 4 | (is_alone ? 0 : n_bits));
    }
    __syncthreads();
    return true;
}

// The bits of a stream.
struct BitReader {
    const uint32_t* next;
    const uint32_t* end;
    uint64_t held;
    uint32_t ahead;
    int32_t n_held;
    uint64_t start;

    // `end` is that of the payload: beyond it, there are zeros.
    DEVICE BitReader(const uint8_t* at, const uint8_t* end_of_all) {
        start = uint64_t(at);
        next = (const uint32_t*)(start & ~uint64_t(3));
        end = (const uint32_t*)((uint64_t(end_of_all) + 3) & ~uint64_t(3));
        const uint32_t n_skipped = 8 * uint32_t(start & 3);
        held = load() >> n_skipped;
        n_held = 32 - int32_t(n_skipped);
        ahead = load();
    }
    DEVICE uint32_t load() {
        uint32_t word = next < end ? *in_device_memory(next) : 0;
        ++next;
        return word;
    }
    // Afterwards there are at least 32 bits.
    DEVICE void refill() {
        if (n_held < 32) {
            held |= uint64_t(ahead) << n_held;
            n_held += 32;
            ahead = load();
        }
    }
    DEVICE uint32_t symbol(const uint16_t* table) {
        uint32_t entry = table[uint32_t(held) & ((1u << MAX_BITS) - 1)];
        held >>= entry & 15;
        n_held -= entry & 15;
        return entry >> 4;
    }
    // Whether just these bytes were used, and the rest of the last is 0.
    DEVICE bool is_used_up(uint32_t n_bytes) {
        refill();
        // One word was read ahead.
        int64_t n_bits = 8 * (int64_t(uint64_t(next - 1)) - int64_t(start)) - n_held;
        uint32_t n_rest = uint32_t(-n_bits) & 7;
        return (n_bits + 7) / 8 == int64_t(n_bytes) && (uint32_t(held) & ((1u << n_rest) - 1)) == 0;
    }
};

// Symbols that are bytes, one after the other.
DEVICE void decode_bytes(BitReader& reader, const StreamsShared& s, uint32_t n_symbols, uint8_t* to) {
    uint32_t at = 0;
    for (; at + 4 <= n_symbols; at += 4) {
        uint32_t word = 0;
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) {
            if (k % 2 == 0) reader.refill();
            word |= reader.symbol(s.table) << 8 * k;
        }
        *(uint32_t*)(to + at) = word;
    }
    for (; at < n_symbols; ++at) {
        reader.refill();
        to[at] = uint8_t(reader.symbol(s.table));
    }
}

// Says that bytes of a group stand for wide differences.
DEVICE void mark_wide(const DecodeWork& work, const Chunk& chunk, uint32_t group, uint32_t n_wide) {
    const uint64_t at = chunk.first_group + group;
    atomicOr((uint32_t*)(work.classes + (at & ~uint64_t(3))), HAS_WIDE << 8 * uint32_t(at & 3));
    atomicAdd(&work.tiles[chunk.first_tile + group / TILE].n_wide, n_wide);
}

// Symbols of a stream of a book, from its symbol `first` on, to the bytes of groups. Returns how many are escapes.
template <uint32_t ALPHABET>
DEVICE uint32_t decode_groups(const DecodeWork& work, const Chunk& chunk, State& state, BitReader& reader,
                              const StreamsShared& s, uint32_t book, uint32_t first, uint32_t n_symbols) {
    constexpr uint32_t WIDTH_LOG2 = ALPHABET == ONES ? 5 : ALPHABET;
    constexpr uint32_t PER_GROUP = GROUP >> WIDTH_LOG2;
    const uint64_t first_sorted = chunk.first_group + state.starts[book] + first / PER_GROUP;
    const uint32_t* sorted = work.sorted + first_sorted;
    uint16_t* escaped = work.escapes + ESCAPES_PER_GROUP * first_sorted;
    const uint32_t n_groups = n_symbols / PER_GROUP;
    const uint32_t escape = escape_of(ALPHABET);
    uint32_t n_escapes = 0;
    // Two codes fit into what a refill leaves.
    auto next = [&](bool refills) {
        if (refills) reader.refill();
        return reader.symbol(s.table);
    };
    for (uint32_t i = 0; i < n_groups; ++i) {
        const uint32_t group = sorted[i];
        uint32_t words[8], n_wide = 0, escapes = 0;
        if (ALPHABET == SINGLES) {
#pragma unroll
            for (uint32_t w = 0; w < 8; ++w) {
                uint32_t word = 0;
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) word |= next(k % 2 == 0) << 8 * k;
                words[w] = word;
                n_wide |= (word - 0x01010101) & ~word & 0x80808080;
            }
            if (n_wide != 0) {
                n_wide = 0;
#pragma unroll
                for (uint32_t w = 0; w < 8; ++w) n_wide += n_zero_bytes(words[w]);
                mark_wide(work, chunk, group, n_wide);
            }
        } else if (ALPHABET == PAIRS) {
#pragma unroll
            for (uint32_t w = 0; w < 8; ++w) {
                uint32_t a = next(true), b = next(false);
                words[w] = s.low[a] | s.low[b] << 16;
                escapes |= (a == escape ? 1u : 0) << 2 * w | (b == escape ? 2u : 0) << 2 * w;
            }
        } else if (ALPHABET == FOURS) {
#pragma unroll
            for (uint32_t w = 0; w < 8; ++w) {
                uint32_t a = next(w % 2 == 0);
                words[w] = s.low[a];
                escapes |= (a == escape ? 1u : 0) << w;
            }
        } else if (ALPHABET == EIGHTS) {
#pragma unroll
            for (uint32_t w = 0; w < 8; w += 2) {
                uint32_t a = next(w % 4 == 0);
                words[w] = s.low[a];
                words[w + 1] = s.high[a];
                escapes |= (a == escape ? 1u : 0) << w / 2;
            }
        } else {
            uint32_t a = next(true);
            escapes = a == escape;
#pragma unroll
            for (uint32_t w = 0; w < 8; ++w) words[w] = a / 8 == w ? s.low[a] : 0x80808080;
        }
        Piece<uint32_t>* to = (Piece<uint32_t>*)(work.bytes + (chunk.first_group + group) * GROUP);
        to[0] = Piece<uint32_t>{{words[0], words[1], words[2], words[3]}};
        to[1] = Piece<uint32_t>{{words[4], words[5], words[6], words[7]}};
        while (escapes != 0) {
            uint32_t place = __ffs(int(escapes)) - 1;
            escapes &= escapes - 1;
            escaped[n_escapes] = uint16_t(i * PER_GROUP + place);
            ++n_escapes;
        }
    }
    return n_escapes;
}

// Bytes of the symbols of an alphabet. By a block.
DEVICE void make_bytes(StreamsShared& s, uint32_t alphabet) {
    for (uint32_t symbol = threadIdx.x; symbol < alphabet_size(alphabet); symbol += UNIT_THREADS) {
        uint32_t low = 0x80808080, high = 0x80808080;
        const bool is_escape = symbol == escape_of(alphabet);
        if (alphabet == PAIRS) {
            low = is_escape ? 0x8080 : (125 + symbol / 7) | (125 + symbol % 7) << 8;
        } else if (alphabet == FOURS && !is_escape) {
            low = (127 + symbol / 27) | (127 + symbol / 9 % 3) << 8 | (127 + symbol / 3 % 3) << 16 | (127 + symbol % 3) << 24;
        } else if (alphabet == EIGHTS && !is_escape && symbol > 0) {
            uint32_t first = (symbol - 1) / 2, second = 8, signs = (symbol - 1) % 2;
            if (symbol >= 17) {
                uint32_t pair = (symbol - 17) / 4;
                second = 1;
                while ((second + 1) * second / 2 <= pair) ++second;
                first = pair - second * (second - 1) / 2;
                signs = (symbol - 17) % 4;
            }
            // 127 or 129 where there is 128 otherwise.
            uint64_t all = uint64_t(signs & 1 ? 0x01 : 0xFF) << 8 * first;
            if (second < 8) all |= uint64_t(signs & 2 ? 0x01 : 0xFF) << 8 * second;
            low ^= uint32_t(all);
            high ^= uint32_t(all >> 32);
        } else if (alphabet == ONES && !is_escape) {
            // The word that is not all zeros.
            low ^= (symbol % 2 == 1 ? 0x01u : 0xFFu) << 8 * (symbol / 2 % 4);
        }
        s.low[symbol] = low;
        s.high[symbol] = high;
    }
    __syncthreads();
}

// Decodes up to UNIT_BLOCKS blocks of a codebook, from `block` of the chunk on. By a block.
DEVICE void decode_unit(const DecodeWork& work, uint32_t number, uint32_t book, uint32_t unit, StreamsShared& s) {
    const uint32_t t = threadIdx.x;
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    const uint32_t codebook = book == CLASS_BOOK ? 0 : state.codebooks[book];
    if (!make_table(s, work.lengths + (uint64_t(number) * N_BOOKS + codebook) * MAX_SYMBOLS)) {
        if (t == 0) state.is_odd = 1;
        return;
    }
    const bool is_plain = book == CLASS_BOOK || book == REST_BOOK;
    const uint32_t alphabet = is_plain ? SINGLES : state.alphabets[book];
    if (alphabet != SINGLES) make_bytes(s, alphabet);
    const uint32_t block = unit * UNIT_BLOCKS + t / STREAMS, stream = t % STREAMS;
    if (block * BLOCK >= state.n_symbols[book]) return;
    const uint32_t n_block = min(state.n_symbols[book] - block * BLOCK, BLOCK);
    const uint32_t start = min(stream_start(n_block, stream) * 32, n_block);
    const uint32_t n_symbols = min(stream_start(n_block, stream + 1) * 32, n_block) - start;
    const uint32_t first = block * BLOCK + start;
    const uint32_t in_chunk = (book == CLASS_BOOK ? block : state.first_block[book] + block) * STREAMS + stream;
    const uint64_t in_all = uint64_t(chunk.first_slot) * STREAMS + in_chunk;
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    BitReader reader(payload + work.stream_at[in_all], payload + chunk.payload_bytes);
    uint32_t n_escapes = 0;
    if (is_plain) {
        uint8_t* to = book == CLASS_BOOK ? work.class_symbols + chunk.first_group : work.rest + chunk.first_group * GROUP;
        decode_bytes(reader, s, n_symbols, to + first);
    } else if (alphabet == SINGLES) {
        decode_groups<SINGLES>(work, chunk, state, reader, s, book, first, n_symbols);
    } else if (alphabet == PAIRS) {
        n_escapes = decode_groups<PAIRS>(work, chunk, state, reader, s, book, first, n_symbols);
    } else if (alphabet == FOURS) {
        n_escapes = decode_groups<FOURS>(work, chunk, state, reader, s, book, first, n_symbols);
    } else if (alphabet == EIGHTS) {
        n_escapes = decode_groups<EIGHTS>(work, chunk, state, reader, s, book, first, n_symbols);
    } else {
        n_escapes = decode_groups<ONES>(work, chunk, state, reader, s, book, first, n_symbols);
    }
    work.escapes_of[in_all] = n_escapes;
    if (n_escapes > 0) state.has_escapes = 1;
    if (!reader.is_used_up(work.sizes[in_all])) state.is_odd = 1;
}

DEVICE void decode_classes(const DecodeWork& work, StreamsShared& s) {
    const uint32_t number = blockIdx.x / work.class_units, unit = blockIdx.x % work.class_units;
    const State& state = work.states[number];
    if (is_odd(state) || unit * UNIT_BLOCKS * BLOCK >= state.n_class_symbols) return;
    decode_unit(work, number, CLASS_BOOK, unit, s);
}

DEVICE void decode_books(const DecodeWork& work, StreamsShared& s) {
    const uint32_t number = blockIdx.x / work.units, unit = blockIdx.x % work.units;
    const State& state = work.states[number];
    if (is_odd(state) || unit >= state.first_unit[N_BOOKS]) return;
    uint32_t book = 0, end = N_BOOKS;
    while (end - book > 1) {
        uint32_t middle = (book + end) / 2;
        if (state.first_unit[middle] <= unit) book = middle;
        else end = middle;
    }
    decode_unit(work, number, book, unit - state.first_unit[book], s);
}

}  // namespace balanced
