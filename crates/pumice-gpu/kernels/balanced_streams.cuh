// Codec `balanced`, decoding: symbols of classes and bytes of groups from their Huffman-coded streams, one thread per
// stream.
#pragma once

#include "balanced_decode.cuh"

namespace balanced {

constexpr uint32_t UNIT_THREADS = UNIT_BLOCKS * STREAMS;

// Symbols that a thread decodes between requests for bytes of its stream, and the size of its ring buffer: bytes of the
// symbols that it decodes, and requested bytes of later ones.
constexpr uint32_t ROUND = 32;
constexpr uint32_t RING_BYTES = 128;
constexpr uint32_t PIECE_BYTES = sizeof(Piece<uint32_t>);
static_assert(RING_BYTES >= 2 * ROUND * MAX_BITS / 8 + PIECE_BYTES, "a round is there when the next is asked for");

// The largest number of groups whose indices a thread loads at a time.
constexpr uint32_t MAX_ROUND_GROUPS = 8;

// Bytes of a symbol of alphabet EIGHTS; of ONES, those of the word that is not all zeros.
struct alignas(8) Eight {
    uint32_t low, high;
};

// The number of symbols of EIGHTS; ONES has fewer.
constexpr uint32_t MAX_EIGHTS = 130;

struct StreamsShared {
    // Look-up table, indexed with the next bits: a symbol, or digits that give its bytes, above the length of its code.
    uint16_t table[1 << MAX_BITS];
    Eight eights[MAX_EIGHTS];
    // For each thread: a ring buffer with the next bytes of its stream.
    alignas(16) uint8_t ring[UNIT_THREADS * RING_BYTES];
    // For each thread: the indices of the groups of this round and of the next.
    uint32_t groups[2][MAX_ROUND_GROUPS][UNIT_THREADS];
    uint8_t order[MAX_SYMBOLS];
    uint32_t counts[MAX_SYMBOLS / 32][MAX_BITS + 1];
    uint32_t limits[MAX_BITS + 1], offsets[MAX_BITS + 1];
};

constexpr uint32_t LENGTH_BITS = 8;

// The entry of a symbol in the table, without the code length. A symbol of PAIRS is two digits of four bits, which
// count its bytes from 125; one of FOURS is four digits of two bits, from 127. An escape has all bits set.
DEVICE uint32_t in_table(uint32_t alphabet, uint32_t symbol) {
    const bool is_escape = symbol == escape_of(alphabet);
    if (alphabet == PAIRS) return is_escape ? 0x77 : symbol / 7 | symbol % 7 << 4;
    if (alphabet == FOURS) return is_escape ? 0xFF : symbol / 27 | symbol / 9 % 3 << 2 | symbol / 3 % 3 << 4 | symbol % 3 << 6;
    return symbol;
}

// The bytes of two symbols of PAIRS, and of one of FOURS; those of escapes are 0.
DEVICE uint32_t bytes_of_pairs(uint32_t a, uint32_t b) { return __byte_perm(0x807F7E7D, 0x00838281, a | b << 8); }
DEVICE uint32_t bytes_of_four(uint32_t digits) {
    digits = (digits | digits << 4) & 0x0F0F;
    return __byte_perm(0x0081807F, 0, (digits | digits << 2) & 0x3333);
}

// Builds the look-up table of a codebook; returns false if its code is not complete. By a block.
DEVICE bool make_table(StreamsShared& s, const uint8_t* lengths, uint32_t alphabet) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    constexpr uint32_t PARTS = MAX_SYMBOLS / 32, ROUNDS = MAX_SYMBOLS / UNIT_THREADS;
    uint32_t length[ROUNDS], rank[ROUNDS];
    for (uint32_t i = t; i < PARTS * (MAX_BITS + 1); i += UNIT_THREADS) ((uint32_t*)s.counts)[i] = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < ROUNDS; ++i) {
        const uint32_t part = warp * ROUNDS + i;
        length[i] = lengths[part * 32 + lane];
        const uint32_t same = __match_any_sync(ALL_LANES, length[i]);
        rank[i] = __popc(same & ((1u << lane) - 1));
        if (rank[i] == 0 && length[i] <= MAX_BITS) s.counts[part][length[i]] = __popc(same);
    }
    __syncthreads();
    if (warp == 0) {
        // One lane per code length; length 0 is that of the only symbol of a codebook.
        const bool is_length = lane <= MAX_BITS;
        const uint32_t n_free = is_length ? MAX_BITS - lane : 0;
        uint32_t n[PARTS], sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < PARTS; ++i) {
            n[i] = is_length ? s.counts[i][lane] : 0;
            sum += n[i];
        }
        // The number of symbols of all lengths up to this one, and the number of table entries they take.
        const uint32_t upto = prefix_of_warp(sum), limit = prefix_of_warp(sum << n_free);
        if (is_length) {
            s.limits[lane] = limit;
            s.offsets[lane] = upto - sum - ((limit - (sum << n_free)) >> n_free);
            // Replaces the counts by the offsets at which the symbols of a length and a part start in `order`.
            uint32_t at = upto - sum;
#pragma unroll
            for (uint32_t i = 0; i < PARTS; ++i) {
                s.counts[i][lane] = at;
                at += n[i];
            }
        }
    }
    __syncthreads();
    uint32_t limits[MAX_BITS + 1];
#pragma unroll
    for (uint32_t k = 0; k <= MAX_BITS; ++k) limits[k] = s.limits[k];
    if (limits[MAX_BITS] != 1u << MAX_BITS) return false;
#pragma unroll
    for (uint32_t i = 0; i < ROUNDS; ++i) {
        const uint32_t part = warp * ROUNDS + i;
        if (length[i] <= MAX_BITS) s.order[s.counts[part][length[i]] + rank[i]] = uint8_t(in_table(alphabet, part * 32 + lane));
    }
    __syncthreads();
    for (uint32_t i = t; i < 1u << MAX_BITS; i += UNIT_THREADS) {
        const uint32_t bits = __brev(i) >> (32 - MAX_BITS);
        uint32_t n_bits = 0;
#pragma unroll
        for (uint32_t k = 0; k < MAX_BITS; ++k) n_bits += bits >= limits[k];
        const uint32_t symbol = s.order[(s.offsets[n_bits] + (bits >> (MAX_BITS - n_bits))) % MAX_SYMBOLS];
        s.table[i] = uint16_t(symbol << LENGTH_BITS | n_bits);
    }
    __syncthreads();
    return true;
}

// The symbol of an entry of the table.
DEVICE uint32_t symbol_of(uint32_t entry) { return entry >> LENGTH_BITS; }

// Reads the bits of a stream. A thread loads bytes to shared memory long before it needs them: the lanes of a warp load
// at different times, and all of them would wait for each load from device memory.
struct BitReader {
    StreamsShared& shared;
    // Requested and taken bytes are counted from here, as are those available up to the end of the payload.
    const uint8_t* from;
    uint32_t n_available;
    uint32_t ring;
    uint32_t n_requested, n_taken;
    uint32_t n_bits_before;
    // Words of the stream, and the bit position of the next code in them minus one: the bits taken from there are twice
    // the index of an entry, which is its offset in bytes.
    uint32_t low, high, ahead;
    uint32_t shift;

    // After the end of the payload, the reader returns zeros.
    DEVICE BitReader(StreamsShared& s, const uint8_t* at, const uint8_t* end) : shared(s) {
        // Threads start at different offsets of their rings, and so in different banks.
        n_requested = threadIdx.x * PIECE_BYTES % RING_BYTES;
        ring = threadIdx.x * RING_BYTES;
        const uint32_t n_skipped = uint32_t(uint64_t(at) % PIECE_BYTES);
        from = at - n_skipped - n_requested;
        n_available = uint32_t(end - from);
        n_bits_before = 8 * (n_requested + n_skipped);
        n_taken = (n_requested + n_skipped) / 4 * 4;
        request();
        await_batches<0>();
        low = 0;
        high = take();
        ahead = take();
        shift = n_bits_before % 32 + 31;
    }
    // Requests bytes until the ring is full. Must be called before every ROUND symbols.
    DEVICE void request() {
        while (n_requested + PIECE_BYTES <= n_taken + RING_BYTES) {
            uint8_t* to = shared.ring + (ring | n_requested % RING_BYTES);
            if (n_requested + PIECE_BYTES <= n_available) {
                copy_piece(to, in_device_memory(from + n_requested));
            } else {
                // The last piece may extend beyond the end of memory: copies words that have a byte of the payload, and
                // zeros.
#pragma unroll
                for (uint32_t k = 0; k < PIECE_BYTES; k += 4) {
                    if (n_requested + k < n_available) copy_word((uint32_t*)(to + k), (const uint32_t*)(from + n_requested + k));
                    else *(uint32_t*)(to + k) = 0;
                }
            }
            n_requested += PIECE_BYTES;
        }
        end_batch();
        await_batches<1>();
    }
    DEVICE uint32_t take() {
        const uint32_t word = *(const uint32_t*)(shared.ring + (ring | n_taken % RING_BYTES));
        n_taken += 4;
        return word;
    }
    DEVICE uint32_t window() {
        if (shift >= 32) {
            low = high;
            high = ahead;
            ahead = take();
            shift -= 32;
        }
        return __funnelshift_r(low, high, shift);
    }
    DEVICE uint32_t entry(uint32_t window) const {
        return *(const uint16_t*)((const uint8_t*)shared.table + (window & ((2u << MAX_BITS) - 2)));
    }
    // Takes the entries of two symbols.
    DEVICE void take_two(uint32_t& a, uint32_t& b) {
        const uint32_t both = window();
        a = entry(both);
        // The funnel shift uses only the low five bits of an entry, which hold the code length.
        b = entry(__funnelshift_r(both, 0, a));
        shift += (a + b) & 31;
    }
    DEVICE uint32_t take_one() {
        const uint32_t a = entry(window());
        shift += a & 31;
        return a;
    }
    // Takes four symbols that are bytes.
    DEVICE uint32_t take_bytes() {
        uint32_t a, b, c, d;
        take_two(a, b);
        take_two(c, d);
        return __byte_perm(__byte_perm(a, b, 0x0051), __byte_perm(c, d, 0x0051), 0x5410);
    }
    // Whether exactly this many bytes were used, and the remaining bits of the last one are 0.
    DEVICE bool is_used_up(uint32_t n_bytes) {
        await_batches<0>();
        const uint32_t next = window() >> 1;
        const uint32_t n_bits = 8 * (n_taken - 12) + shift + 1 - n_bits_before, n_rest = (0 - n_bits) & 7;
        return (n_bits + 7) / 8 == n_bytes && (next & ((1u << n_rest) - 1)) == 0;
    }
};
static_assert(LENGTH_BITS == 8 && 2 * MAX_BITS < 32, "entries of two symbols are added, and their symbols are bytes");

// Decodes symbols that are bytes; `to` is aligned to 16 bytes.
DEVICE void decode_bytes(BitReader& reader, uint32_t n_symbols, uint8_t* to) {
    for (uint32_t first = 0; first < n_symbols; first += ROUND) {
        reader.request();
        const uint32_t n = min(ROUND, n_symbols - first);
        uint32_t at = first;
        for (; at + PIECE_BYTES <= first + n; at += PIECE_BYTES) {
            Piece<uint32_t> piece;
#pragma unroll
            for (uint32_t i = 0; i < 4; ++i) piece.of[i] = reader.take_bytes();
            *(Piece<uint32_t>*)(to + at) = piece;
        }
        for (; at < first + n; ++at) to[at] = uint8_t(symbol_of(reader.take_one()));
    }
}

// Marks a group as having wide differences.
DEVICE void mark_wide(const DecodeWork& work, const Chunk& chunk, uint32_t group, uint32_t n_wide) {
    const uint64_t at = chunk.first_group + group;
    atomicOr((uint32_t*)(work.classes + (at & ~uint64_t(3))), HAS_WIDE << 8 * uint32_t(at & 3));
    atomicAdd(&work.tiles[chunk.first_tile + group / TILE].n_wide, n_wide);
}

// Decodes a stream of a book, whose first symbol has index `first` in the book, to the bytes of groups. Returns the
// number of escapes.
template <uint32_t ALPHABET>
DEVICE uint32_t decode_groups(const DecodeWork& work, const Chunk& chunk, State& state, BitReader& reader,
                              StreamsShared& s, uint32_t book, uint32_t first, uint32_t n_symbols) {
    constexpr uint32_t WIDTH_LOG2 = ALPHABET == ONES ? 5 : ALPHABET;
    constexpr uint32_t PER_GROUP = GROUP >> WIDTH_LOG2;
    constexpr uint32_t PER_ROUND = ROUND / PER_GROUP < MAX_ROUND_GROUPS ? ROUND / PER_GROUP : MAX_ROUND_GROUPS;
    const uint64_t first_sorted = chunk.first_group + state.starts[book] + first / PER_GROUP;
    const uint32_t* sorted = in_device_memory(work.sorted) + first_sorted;
    uint8_t* bytes = in_device_memory(work.bytes) + chunk.first_group * GROUP;
    uint16_t* escaped = work.escapes + ESCAPES_PER_GROUP * first_sorted;
    const uint32_t n_groups = n_symbols / PER_GROUP;
    uint32_t n_escapes = 0;
    const auto ask_for_groups = [&](uint32_t from) {
#pragma unroll
        for (uint32_t k = 0; k < PER_ROUND; ++k) {
            if (from + k < n_groups) copy_word(&s.groups[from / PER_ROUND % 2][k][threadIdx.x], sorted + from + k);
        }
    };
    ask_for_groups(0);
    end_batch();
    for (uint32_t i = 0; i < n_groups; ++i) {
        if (i % PER_ROUND == 0) {
            ask_for_groups(i + PER_ROUND);
            reader.request();
        }
        const uint32_t group = s.groups[i / PER_ROUND % 2][i % PER_ROUND][threadIdx.x];
        uint32_t words[8], n_wide = 0, escapes = 0;
        if (ALPHABET == SINGLES) {
#pragma unroll
            for (uint32_t w = 0; w < 8; ++w) {
                words[w] = reader.take_bytes();
                n_wide |= has_zero_byte(words[w]);
            }
            if (n_wide != 0) {
                n_wide = 0;
#pragma unroll
                for (uint32_t w = 0; w < 8; ++w) n_wide += n_zero_bytes(words[w]);
                mark_wide(work, chunk, group, n_wide);
            }
        } else if (ALPHABET == ONES) {
            const uint32_t a = symbol_of(reader.take_one());
            escapes = a == escape_of(ALPHABET);
#pragma unroll
            for (uint32_t w = 0; w < 8; ++w) words[w] = a / 8 == w ? s.eights[a].low : 0x80808080;
        } else {
            // Until they are patched, the bytes of escapes are 0, and no other bytes are.
            uint32_t has_escapes = 0;
#pragma unroll
            for (uint32_t w = 0; w < 8;) {
                uint32_t a, b;
                reader.take_two(a, b);
                a = symbol_of(a);
                b = symbol_of(b);
                if (ALPHABET == PAIRS) {
                    words[w] = bytes_of_pairs(a, b);
                    has_escapes |= has_zero_byte(words[w]);
                    w += 1;
                } else if (ALPHABET == FOURS) {
                    words[w] = bytes_of_four(a);
                    words[w + 1] = bytes_of_four(b);
                    has_escapes |= has_zero_byte(words[w]) | has_zero_byte(words[w + 1]);
                    w += 2;
                } else {
                    const Eight first_eight = s.eights[a], second_eight = s.eights[b];
                    words[w] = first_eight.low;
                    words[w + 1] = first_eight.high;
                    words[w + 2] = second_eight.low;
                    words[w + 3] = second_eight.high;
                    has_escapes |= has_zero_byte(words[w]) | has_zero_byte(words[w + 2]);
                    w += 4;
                }
            }
            if (has_escapes != 0) {
#pragma unroll
                for (uint32_t k = 0; k < PER_GROUP; ++k) {
                    const uint32_t first_byte = k << WIDTH_LOG2;
                    escapes |= (words[first_byte / 4] >> 8 * (first_byte % 4) & 0xFF) == 0 ? 1u << k : 0;
                }
            }
        }
        Piece<uint32_t>* to = (Piece<uint32_t>*)(bytes + uint64_t(group) * GROUP);
        to[0] = Piece<uint32_t>{{words[0], words[1], words[2], words[3]}};
        to[1] = Piece<uint32_t>{{words[4], words[5], words[6], words[7]}};
        while (escapes != 0) {
            uint32_t position = __ffs(int(escapes)) - 1;
            escapes &= escapes - 1;
            escaped[n_escapes] = uint16_t(i * PER_GROUP + position);
            ++n_escapes;
        }
    }
    return n_escapes;
}

// Computes the bytes of the symbols of EIGHTS or ONES. By a block.
DEVICE void make_eights(StreamsShared& s, uint32_t alphabet) {
    for (uint32_t symbol = threadIdx.x; symbol < alphabet_size(alphabet); symbol += UNIT_THREADS) {
        uint32_t low = 0x80808080, high = 0x80808080;
        if (symbol == escape_of(alphabet)) {
            low = 0;
            high = 0;
        } else if (alphabet == EIGHTS && symbol > 0) {
            uint32_t first = (symbol - 1) / 2, second = 8, signs = (symbol - 1) % 2;
            if (symbol >= 17) {
                uint32_t pair = (symbol - 17) / 4;
                second = 1;
                while ((second + 1) * second / 2 <= pair) ++second;
                first = pair - second * (second - 1) / 2;
                signs = (symbol - 17) % 4;
            }
            // The byte is 127 or 129; all others are 128.
            uint64_t all = uint64_t(signs & 1 ? 0x01 : 0xFF) << 8 * first;
            if (second < 8) all |= uint64_t(signs & 2 ? 0x01 : 0xFF) << 8 * second;
            low ^= uint32_t(all);
            high ^= uint32_t(all >> 32);
        } else if (alphabet == ONES) {
            // Only the word that is not all zeros is stored.
            low ^= (symbol % 2 == 1 ? 0x01u : 0xFFu) << 8 * (symbol / 2 % 4);
        }
        s.eights[symbol] = Eight{low, high};
    }
    __syncthreads();
}

// Decodes up to N_BLOCKS blocks of symbols of a codebook, from its block N_BLOCKS * `unit` on. By a thread block.
template <uint32_t N_BLOCKS>
DEVICE void decode_unit(const DecodeWork& work, uint32_t number, uint32_t book, uint32_t unit, StreamsShared& s) {
    static_assert(N_BLOCKS <= UNIT_BLOCKS, "a thread a stream");
    const uint32_t t = threadIdx.x;
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    const uint32_t codebook = book == CLASS_BOOK ? 0 : state.codebooks[book];
    const bool is_plain = book == CLASS_BOOK || book == REST_BOOK;
    const uint32_t alphabet = is_plain ? SINGLES : state.alphabets[book];
    if (!make_table(s, work.lengths + (uint64_t(number) * N_BOOKS + codebook) * MAX_SYMBOLS, alphabet)) {
        if (t == 0) state.needs_host = 1;
        return;
    }
    if (alphabet == EIGHTS || alphabet == ONES) make_eights(s, alphabet);
    const uint32_t block = unit * N_BLOCKS + t / STREAMS, stream = t % STREAMS;
    if (t >= N_BLOCKS * STREAMS || block * BLOCK >= state.n_symbols[book]) return;
    const uint32_t n_block = min(state.n_symbols[book] - block * BLOCK, BLOCK);
    const uint32_t start = min(stream_start(n_block, stream) * 32, n_block);
    const uint32_t n_symbols = min(stream_start(n_block, stream + 1) * 32, n_block) - start;
    const uint32_t first = block * BLOCK + start;
    const uint32_t in_chunk = (book == CLASS_BOOK ? block : state.first_block[book] + block) * STREAMS + stream;
    const uint64_t in_all = uint64_t(chunk.first_slot) * STREAMS + in_chunk;
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    BitReader reader(s, payload + work.stream_at[in_all], payload + chunk.payload_bytes);
    uint32_t n_escapes = 0;
    if (is_plain) {
        uint8_t* to = book == CLASS_BOOK ? work.class_symbols + chunk.first_group : work.rest + chunk.first_group * GROUP;
        decode_bytes(reader, n_symbols, in_device_memory(to) + first);
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
    if (!reader.is_used_up(work.sizes[in_all])) state.needs_host = 1;
}

DEVICE void decode_classes(const DecodeWork& work, StreamsShared& s) {
    const uint32_t number = blockIdx.x / work.class_units, unit = blockIdx.x % work.class_units;
    const State& state = work.states[number];
    if (needs_host(state) || unit * CLASS_BLOCKS * BLOCK >= state.n_class_symbols) return;
    decode_unit<CLASS_BLOCKS>(work, number, CLASS_BOOK, unit, s);
}

DEVICE void decode_books(const DecodeWork& work, StreamsShared& s) {
    const uint32_t number = blockIdx.x / work.units, unit = blockIdx.x % work.units;
    const State& state = work.states[number];
    if (needs_host(state) || unit >= state.first_unit[N_BOOKS]) return;
    uint32_t book = 0, end = N_BOOKS;
    while (end - book > 1) {
        uint32_t middle = (book + end) / 2;
        if (state.first_unit[middle] <= unit) book = middle;
        else end = middle;
    }
    decode_unit<UNIT_BLOCKS>(work, number, book, unit - state.first_unit[book], s);
}

}  // namespace balanced
