// Codec `balanced`, encoding: chunks in device memory to payloads in device memory, by a fixed sequence of launches
// over all chunks. The host reads nothing in between: sizes stay on the device, and grids have the largest size that
// may be needed.
//
//   sample     a warp per sampled run: the cost of its differences in every order
//   order      a block per chunk: chooses the order and the origin
//   split      a warp per strip of 128 values of four rows, plane after plane: differences, classes, bytes and low bits. This
//              is the only pass over the values. Chunks that are not plain are split by a warp per group.
//   tally      a block per tile of 4096 groups: counts of classes, lengths of runs
//   books      a block per chunk: the book of each class, and the offsets of the groups of each tile
//   place      a block per tile: sorts groups by book; symbols of classes
//   alphabets  a block per book: chooses the alphabet by a sample
//   layout     a warp per chunk: blocks of symbols
//   count      a warp per stream: histograms of symbols, and literals
//   codebooks  a block per codebook: code lengths, packed, and codes
//   write      a warp per stream: its size, and its bits at an offset found by look-back
//   finish     a block per tile: low bits and wide differences; everything before the sizes of streams
//
// A chunk with fill values or with values that cannot be quantised is left to the host (`needs_host`).
#include "balanced_codebooks.cuh"
#include "balanced_sort.cuh"

namespace balanced {

// ---- alphabets, layout ----

constexpr uint32_t COST_BITS = 16;

// log2 of a number that is not 0, equal to the table in crates/pumice/src/codec/histogram.rs.
DEVICE uint32_t log2_of(uint32_t x) {
    constexpr uint32_t INDEX_BITS = 12;
    uint32_t zeros = __clz(int(x));
    uint32_t index = (x << zeros) >> (31 - INDEX_BITS) & ((1u << INDEX_BITS) - 1);
    uint64_t square = uint64_t(2 * ((1u << INDEX_BITS) + index) + 1) << (30 - INDEX_BITS);
    uint32_t fraction = 0;
    for (uint32_t bit = COST_BITS; bit-- > 0;) {
        square = square * square >> 31;
        if (square >> 32 != 0) {
            fraction |= 1u << bit;
            square >>= 1;
        }
    }
    return ((31 - zeros) << COST_BITS) + fraction;
}

DEVICE uint64_t x_log2_x(uint32_t x) { return x == 0 ? 0 : uint64_t(x) * log2_of(x); }

struct ChooseShared {
    uint32_t counts[N_ALPHABETS][MAX_SYMBOLS];
    uint64_t bits[N_ALPHABETS];
};

DEVICE void load_group(const uint8_t* bytes, uint64_t group, uint32_t (&words)[8]) {
    const Piece<uint32_t>* from = (const Piece<uint32_t>*)(bytes + group * GROUP);
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        Piece<uint32_t> piece = from[i];
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) words[4 * i + k] = piece.of[k];
    }
}

constexpr uint32_t CHOOSE_THREADS = 128;

DEVICE void choose_alphabet(const Work& job, ChooseShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32;
    const uint32_t number = blockIdx.x / (REST_BOOK - 1), book = 1 + blockIdx.x % (REST_BOOK - 1);
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    const uint32_t start = state.starts[book], n_groups = state.starts[book + 1] - start;
    if (n_groups == 0) return;
    for (uint32_t i = t; i < N_ALPHABETS * MAX_SYMBOLS; i += CHOOSE_THREADS) ((uint32_t*)s.counts)[i] = 0;
    __syncthreads();
    const uint32_t n_sample = min(n_groups, CHOOSE_GROUPS);
    if (t < n_sample) {
        uint32_t group = job.sorted[chunk.first_group + start + t * n_groups / n_sample];
        uint32_t words[8];
        load_group(job.bytes, chunk.first_group + group, words);
#pragma unroll
        for (uint32_t i = 0; i < 8; ++i) {
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) atomicAdd(&s.counts[SINGLES][words[i] >> 8 * k & 0xFF], 1u);
            uint32_t pairs = pairs_of(words[i]);
            atomicAdd(&s.counts[PAIRS][pairs & 0xFF], 1u);
            atomicAdd(&s.counts[PAIRS][pairs >> 8], 1u);
            atomicAdd(&s.counts[FOURS][four_of(words[i])], 1u);
            if (i % 2 == 1) atomicAdd(&s.counts[EIGHTS][eight_of(words[i - 1], words[i])], 1u);
        }
        atomicAdd(&s.counts[ONES][one_of(words)], 1u);
    }
    __syncthreads();
    for (uint32_t alphabet = t / 32; alphabet < N_ALPHABETS; alphabet += CHOOSE_THREADS / 32) {
        uint32_t n = 0, most = 0;
        uint64_t sum = 0;
        for (uint32_t i = lane; i < MAX_SYMBOLS; i += 32) {
            uint32_t count = s.counts[alphabet][i];
            n += count;
            most = max(most, count);
            sum += x_log2_x(count);
        }
        n = __reduce_add_sync(ALL_LANES, n);
        most = __reduce_max_sync(ALL_LANES, most);
#pragma unroll
        for (uint32_t distance = 16; distance > 0; distance /= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
        if (lane == 0) {
            uint64_t bits = most > n / 2 ? (uint64_t(n) << COST_BITS) + x_log2_x(n - most) - (sum - x_log2_x(most))
                                         : x_log2_x(n) - sum;
            uint32_t n_escapes = alphabet == SINGLES ? 0 : s.counts[alphabet][escape_of(alphabet)];
            s.bits[alphabet] = (bits >> COST_BITS) + uint64_t(REST_BITS) * (n_escapes << width_log2(alphabet));
        }
    }
    __syncthreads();
    if (t == 0) {
        uint32_t best = 0;
        for (uint32_t alphabet = 1; alphabet < N_ALPHABETS; ++alphabet) {
            if (s.bits[alphabet] < s.bits[best]) best = alphabet;
        }
        state.alphabets[book] = best;
    }
}

// Divides the symbols of classes and books into blocks; by one warp.
DEVICE void lay_out(const Work& job) {
    const uint32_t lane = threadIdx.x;
    State& state = job.states[blockIdx.x];
    uint32_t before = 0;
    for (uint32_t first = 0; first < REST_BOOK; first += 32) {
        uint32_t book = first + lane, n_symbols = 0;
        if (book == CLASS_BOOK) {
            n_symbols = state.n_class_symbols;
        } else if (book < REST_BOOK) {
            uint32_t n_groups = state.starts[book + 1] - state.starts[book];
            if (n_groups > 0) n_symbols = n_groups * (GROUP >> width_log2(state.alphabets[book]));
        }
        uint32_t n_blocks = (n_symbols + BLOCK - 1) / BLOCK;
        uint32_t upto = prefix_of_warp(n_blocks);
        if (book < REST_BOOK) {
            state.n_symbols[book] = n_symbols;
            state.first_block[book] = before + upto - n_blocks;
        }
        before += __shfl_sync(ALL_LANES, upto, 31);
    }
    if (lane == 0) {
        state.first_block[REST_BOOK] = before;
        state.n_rest = 0;
    }
}

// ---- count ----

// The symbols of a lane: 32 consecutive symbols of a book, or fewer at its end.
struct Symbols {
    uint32_t words[8];
    uint32_t n;

    DEVICE uint32_t at(uint32_t i) const { return words[i / 4] >> i % 4 * 8 & 0xFF; }
    DEVICE void put(uint32_t i, uint32_t word) {
#pragma unroll
        for (uint32_t k = 0; k < 8; ++k) {
            if (k == i) words[k] = word;
        }
    }
};

// The book of a lane's symbols, and their position in it.
struct SymbolRange {
    uint32_t book, alphabet;
    // The lane's first symbol in its book.
    uint32_t first;
};

// Loads a lane's part of stream `stream` of block `block` of a chunk.
DEVICE SymbolRange load_symbols(const Work& job, const Chunk& chunk, const State& state, uint32_t book, uint32_t block,
                          uint32_t stream, uint32_t lane, Symbols& symbols) {
    SymbolRange range;
    range.book = book;
    range.alphabet = book == CLASS_BOOK || book == REST_BOOK ? SINGLES : state.alphabets[book];
    const uint32_t start = (block - state.first_block[book]) * BLOCK;
    const uint32_t n_symbols = min(state.n_symbols[book] - start, BLOCK);
    const uint32_t first = stream_start(n_symbols, stream) + lane;
    const bool exists = first < stream_start(n_symbols, stream + 1);
    range.first = start + first * 32;
    symbols.n = exists ? min(n_symbols - first * 32, 32u) : 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) symbols.words[i] = 0;
    if (!exists) return range;
    if (book == CLASS_BOOK) {
        load_group(job.class_symbols + chunk.first_group + range.first, 0, symbols.words);
        return range;
    }
    if (book == REST_BOOK) {
        load_group(job.rest + chunk.first_group * GROUP + range.first, 0, symbols.words);
        return range;
    }
    const uint32_t* sorted = job.sorted + chunk.first_group + state.starts[book];
    const uint8_t* bytes = job.bytes + chunk.first_group * GROUP;
    uint32_t words[8];
    switch (range.alphabet) {
        case SINGLES:
            load_group(bytes, sorted[range.first / 32], symbols.words);
            break;
        case PAIRS:
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                if (16 * j >= symbols.n) break;
                load_group(bytes, sorted[range.first / 16 + j], words);
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) {
                    symbols.words[4 * j + i] = pairs_of(words[2 * i]) | pairs_of(words[2 * i + 1]) << 16;
                }
            }
            break;
        // The loops below would be long and are not unrolled, so `put` selects words by comparison.
        case FOURS:
#pragma unroll 2
            for (uint32_t j = 0; j < 4; ++j) {
                if (8 * j >= symbols.n) break;
                load_group(bytes, sorted[range.first / 8 + j], words);
                uint32_t low = 0, high = 0;
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) {
                    low |= four_of(words[i]) << i * 8;
                    high |= four_of(words[4 + i]) << i * 8;
                }
                symbols.put(2 * j, low);
                symbols.put(2 * j + 1, high);
            }
            break;
        case EIGHTS:
#pragma unroll 2
            for (uint32_t j = 0; j < 8; ++j) {
                if (4 * j >= symbols.n) break;
                load_group(bytes, sorted[range.first / 4 + j], words);
                uint32_t word = 0;
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) word |= eight_of(words[2 * i], words[2 * i + 1]) << i * 8;
                symbols.put(j, word);
            }
            break;
        default:
#pragma unroll 1
            for (uint32_t j = 0; j < 8; ++j) {
                uint32_t word = 0;
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) {
                    if (4 * j + i >= symbols.n) break;
                    load_group(bytes, sorted[range.first + 4 * j + i], words);
                    word |= one_of(words) << i * 8;
                }
                symbols.put(j, word);
            }
    }
    return range;
}

constexpr uint32_t COUNT_THREADS = 128;
// Copies of the histogram, to avoid conflicts between lanes.
constexpr uint32_t COPIES = 16;

struct CountShared {
    uint32_t counts[MAX_SYMBOLS][COPIES];
    uint32_t rest_counts[MAX_SYMBOLS];
    uint32_t sums[COUNT_THREADS / 32 + 1];
    uint32_t before;
    uint32_t unit;
    // Whether blocks of the unit have literals.
    uint32_t has_rest[COUNT_SLOTS];
};

// A bit for each of a lane's symbols that is an escape.
DEVICE uint32_t escapes_of(const SymbolRange& range, const Symbols& symbols) {
    if (range.alphabet == SINGLES) return 0;
    const uint32_t escape = escape_of(range.alphabet) * 0x01010101;
    uint32_t escapes = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t x = symbols.words[i] ^ escape;
        // The bytes that are 0 are escapes.
        const uint32_t is_zero = ~(((x & 0x7F7F7F7F) + 0x7F7F7F7F) | x) & 0x80808080;
        escapes |= collect(is_zero >> 7) << 4 * i;
    }
    return symbols.n == 32 ? escapes : escapes & ((1u << symbols.n) - 1);
}

DEVICE void count_symbols(const Work& job, CountShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, stream = t / 32;
    if (t == 0) s.unit = atomicAdd(&job.tickets[0], 1u);
    for (uint32_t i = t; i < MAX_SYMBOLS * COPIES; i += COUNT_THREADS) ((uint32_t*)s.counts)[i] = 0;
    for (uint32_t i = t; i < MAX_SYMBOLS; i += COUNT_THREADS) s.rest_counts[i] = 0;
    if (t < COUNT_SLOTS) s.has_rest[t] = 0;
    __syncthreads();
    const uint32_t unit = s.unit, number = job.unit_chunks[unit];
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    const uint32_t n_blocks = state.first_block[REST_BOOK];
    const uint32_t index = unit - chunk.first_slot / COUNT_SLOTS;
    const uint32_t first = index * COUNT_SLOTS, end = min(first + COUNT_SLOTS, n_blocks);
    if (first >= n_blocks) return;

    uint32_t* counts = job.counts + number * N_BOOKS * MAX_SYMBOLS;
    auto flush = [&](uint32_t book) {
        __syncthreads();
        for (uint32_t i = t; i < MAX_SYMBOLS; i += COUNT_THREADS) {
            uint32_t count = 0;
#pragma unroll
            for (uint32_t k = 0; k < COPIES; ++k) {
                // Lanes start with different copies, which are in different banks.
                uint32_t copy = (k + lane) % COPIES;
                count += s.counts[i][copy];
                s.counts[i][copy] = 0;
            }
            if (count > 0) atomicAdd(&counts[book * MAX_SYMBOLS + i], count);
        }
        __syncthreads();
    };
    uint32_t n_rest = 0, book = book_of_block(state, first, REST_BOOK);
    for (uint32_t block = first; block < end; ++block) {
        if (block >= state.first_block[book + 1]) {
            flush(book);
            book = book_of_block(state, block, REST_BOOK);
        }
        Symbols symbols;
        const SymbolRange range = load_symbols(job, chunk, state, book, block, stream, lane, symbols);
        const uint32_t n_here = __popc(escapes_of(range, symbols)) << width_log2(range.alphabet);
        n_rest += n_here;
        if (n_here > 0) s.has_rest[block - first] = 1;
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            if (i < symbols.n) atomicAdd(&s.counts[symbols.at(i)][lane % COPIES], 1u);
        }
    }
    flush(book);

    // Literals: finds their offset, then copies the bytes.
    uint64_t* states = job.rest_states + chunk.first_slot / COUNT_SLOTS;
    uint32_t all;
    prefix_of_block<COUNT_THREADS>(n_rest, s.sums, all);
    if (t == 0) publish(states, index, job.launch, all);
    if (all == 0 && end < n_blocks) return;
    if (t < 32) {
        uint32_t before = look_back(states, index, job.launch, all);
        if (t == 0) {
            s.before = before;
            if (end == n_blocks) state.n_rest = before + all;
        }
    }
    __syncthreads();
    if (all == 0) return;
    uint8_t* rest = job.rest + chunk.first_group * GROUP;
    uint32_t at = s.before;
    for (uint32_t block = first; block < end; ++block) {
        if (!s.has_rest[block - first]) continue;
        Symbols symbols;
        book = book_of_block(state, block, REST_BOOK);
        const SymbolRange range = load_symbols(job, chunk, state, book, block, stream, lane, symbols);
        const uint32_t width = width_log2(range.alphabet);
        uint32_t here, escapes = escapes_of(range, symbols);
        uint32_t to = at + prefix_of_block<COUNT_THREADS>(__popc(escapes) << width, s.sums, here);
        at += here;
        for (; escapes != 0; escapes &= escapes - 1) {
            uint32_t from = (range.first + __ffs(int(escapes)) - 1) << width;
            uint32_t group = job.sorted[chunk.first_group + state.starts[book] + from / GROUP];
            const uint8_t* bytes = job.bytes + (chunk.first_group + group) * GROUP + from % GROUP;
            for (uint32_t k = 0; k < 1u << width; ++k) {
                rest[to] = bytes[k];
                ++to;
                atomicAdd(&s.rest_counts[bytes[k]], 1u);
            }
        }
    }
    __syncthreads();
    for (uint32_t i = t; i < MAX_SYMBOLS; i += COUNT_THREADS) {
        if (s.rest_counts[i] > 0) atomicAdd(&counts[REST_BOOK * MAX_SYMBOLS + i], s.rest_counts[i]);
    }
}

// ---- write ----

constexpr uint32_t WRITE_THREADS = 32 * STREAMS;
// Capacity of a block in words: codes of the largest length, and the padding of four streams.
constexpr uint32_t BLOCK_WORDS = BLOCK * MAX_BITS / 32 + STREAMS + 4;

struct WriteShared {
    uint32_t codes[MAX_SYMBOLS];
    uint32_t words[BLOCK_WORDS];
    uint32_t stream_bits[STREAMS];
    uint32_t before;
    uint32_t slot;
};

// Copies words to an unaligned address; by a block.
DEVICE void copy_unaligned(uint8_t* to, const uint32_t* words, uint32_t n_bytes) {
    const uint32_t t = threadIdx.x;
    // Bytes up to the first aligned word of the target, then whole words, then the rest.
    const uint32_t n_head = min(uint32_t(0 - uint64_t(to)) & 3, n_bytes);
    const uint32_t n_words = (n_bytes - n_head) / 4;
    uint32_t* aligned = (uint32_t*)(to + n_head);
    for (uint32_t i = t; i < n_words; i += blockDim.x) {
        aligned[i] = __funnelshift_r(words[i], words[i + 1], 8 * n_head);
    }
    const uint32_t tail = n_head + 4 * n_words;
    if (t < n_head) to[t] = uint8_t(words[0] >> 8 * t);
    if (t >= 32 && tail + t - 32 < n_bytes) {
        uint32_t at = tail + t - 32;
        to[at] = uint8_t(words[at / 4] >> at % 4 * 8);
    }
}

DEVICE void write_streams(const Work& job, WriteShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, stream = t / 32;
    if (t == 0) s.slot = atomicAdd(&job.tickets[1], 1u);
    __syncthreads();
    const uint32_t slot = s.slot;
    const uint32_t number = job.unit_chunks[slot / COUNT_SLOTS];
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    const uint32_t block = slot - chunk.first_slot, n_blocks = state.first_block[N_BOOKS];
    if (block >= n_blocks) return;
    const uint32_t book = book_of_block(state, block, N_BOOKS);
    const uint32_t* codes = job.codes + (uint64_t(number) * N_BOOKS + book) * MAX_SYMBOLS;
    for (uint32_t i = t; i < MAX_SYMBOLS; i += WRITE_THREADS) s.codes[i] = codes[i];
    for (uint32_t i = t; i < BLOCK_WORDS; i += WRITE_THREADS) s.words[i] = 0;
    Symbols symbols;
    load_symbols(job, chunk, state, book, block, stream, lane, symbols);
    __syncthreads();
    uint32_t n_bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        uint32_t code = s.codes[symbols.at(i)];
        if (i < symbols.n) n_bits += code & 0xFF;
    }
    const uint32_t upto = prefix_of_warp(n_bits);
    if (lane == 31) s.stream_bits[stream] = upto;
    __syncthreads();
    // Each stream starts at a byte.
    uint32_t first = 0, n_bytes = 0;
#pragma unroll
    for (uint32_t i = 0; i < STREAMS; ++i) {
        if (i < stream) first += (s.stream_bits[i] + 7) / 8;
        n_bytes += (s.stream_bits[i] + 7) / 8;
    }
    uint64_t* states = job.stream_states + chunk.first_slot;
    if (t == 0) publish(states, block, job.launch, n_bytes);
    // The sizes of all streams precede the first stream.
    const uint64_t body = RESERVE + 2 * STREAMS * uint64_t(n_blocks);
    if (lane == 0 && body <= chunk.payload_bytes) {
        ((uint16_t*)(chunk.payload + RESERVE))[block * STREAMS + stream] = uint16_t((s.stream_bits[stream] + 7) / 8);
    }

    // A lane stores whole words; it may share the first and the last with other lanes.
    const uint32_t at = 8 * first + upto - n_bits;
    uint32_t word = at / 32, n_held = at % 32;
    uint64_t held = 0;
    bool is_shared = n_held > 0;
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        uint32_t code = i < symbols.n ? s.codes[symbols.at(i)] : 0;
        held |= uint64_t(code >> 8) << n_held;
        n_held += code & 0xFF;
        if (n_held >= 32) {
            if (is_shared) atomicOr(&s.words[word], uint32_t(held));
            else s.words[word] = uint32_t(held);
            is_shared = false;
            ++word;
            held >>= 32;
            n_held -= 32;
        }
    }
    if (n_held > 0 && uint32_t(held) != 0) atomicOr(&s.words[word], uint32_t(held));

    if (t < 32) {
        uint32_t before = look_back(states, block, job.launch, n_bytes);
        if (t == 0) {
            s.before = before;
            if (block + 1 == n_blocks) state.stream_bytes = before + n_bytes;
        }
    }
    __syncthreads();
    const uint64_t to = body + s.before;
    if (to + n_bytes <= chunk.payload_bytes) copy_unaligned(in_device_memory((uint8_t*)chunk.payload) + to, s.words, n_bytes);
}

// ---- finish ----

struct FinishShared {
    uint32_t sums[TILE_THREADS / 32 + 1];
    uint32_t low[TILE];
    uint32_t wide[TILE];
    alignas(16) uint8_t classes[TILE];
};

// Appends a varint.
DEVICE uint8_t* put_varint(uint8_t* to, uint64_t number) {
    for (; number >= 0x80; number >>= 7) *to++ = uint8_t(number) | 0x80;
    *to++ = uint8_t(number);
    return to;
}

// Writes everything before the sizes of streams; by a block.
DEVICE void write_front(const Work& job, const Chunk& chunk, uint32_t number, FinishShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32;
    State& state = job.states[number];
    uint8_t* body = in_device_memory((uint8_t*)chunk.payload) + RESERVE;
    const uint32_t head = t < N_BOOKS && state.n_symbols[t] > 0 ? job.heads[number * N_BOOKS + t] : 0;
    const uint32_t n_bytes = ((head & ((1u << SIZE_BITS) - 1)) + 7) / 8;
    uint32_t n_codebooks, n_packed;
    const uint32_t ordinal = prefix_of_block<TILE_THREADS>(head != 0, s.sums, n_codebooks);
    const uint32_t packed_before = prefix_of_block<TILE_THREADS>(n_bytes, s.sums, n_packed);
    uint8_t* heads = body - n_packed - 2 * n_codebooks;
    if (head != 0) {
        heads[2 * ordinal] = uint8_t(head);
        heads[2 * ordinal + 1] = uint8_t(head >> 8);
    }
    if (t < N_BOOKS) {
        s.low[t] = n_bytes;
        s.wide[t] = packed_before;
    }
    __syncthreads();
    for (uint32_t book = t / 32; book < N_BOOKS; book += TILE_THREADS / 32) {
        const uint8_t* from = job.packed + (uint64_t(number) * N_BOOKS + book) * PACKED_BYTES;
        uint8_t* to = body - n_packed + s.wide[book];
        for (uint32_t i = lane; i < s.low[book]; i += 32) to[i] = from[i];
    }
    if (t == 0) {
        const uint32_t n_blocks = state.first_block[N_BOOKS];
        // The numbers are assembled first, since their total size determines the start of the payload.
        uint8_t front[40];
        uint8_t* end = front;
        *end++ = 0;
        end = put_varint(end, uint64_t(state.origin) << 1 ^ uint64_t(state.origin >> 63));
        *end++ = uint8_t(state.order);
        end = put_varint(end, state.n_class_symbols);
        end = put_varint(end, state.n_rest);
        end = put_varint(end, n_blocks);
        *end++ = uint8_t(n_codebooks);
        const uint32_t n_numbers = uint32_t(end - front), n_front = n_numbers + 2 * n_codebooks + n_packed;
        for (uint32_t i = 0; i < n_numbers; ++i) *(heads - n_numbers + i) = front[i];
        const uint32_t n_body = 2 * STREAMS * n_blocks + state.stream_bytes + state.low_bytes + 4 * state.n_wide;
        const uint32_t n_all = max(n_front + n_body, max(chunk.n_values / VALUES_PER_BYTE, 3u));
        for (uint32_t i = n_front + n_body; i < n_all; ++i) *(body - n_front + i) = 0;
        state.payload_start = RESERVE - n_front;
        state.payload_bytes = n_all;
    }
    __syncthreads();
}

// Writes the low bits of a group; by eight lanes, of which this is lane `part`.
DEVICE void write_low(const Work& job, uint64_t group, uint32_t k, uint8_t* to, uint32_t part) {
    const uint8_t* from = job.low + group * GROUP;
    for (; k >= 8; k -= 8) {
#pragma unroll
        for (uint32_t i = 0; i < GROUP; i += 8) to[i + part] = from[i + part];
        to += GROUP;
        from += job.plane_bytes;
    }
    // Fields of eight differences take k bytes; two lanes hold them, and one of these writes.
    if (k == 0 || part % 2 == 1) return;
    const uint32_t first = *(const uint32_t*)(from + 4 * part), second = *(const uint32_t*)(from + 4 * part + 4);
    uint64_t fields = 0;
#pragma unroll
    for (uint32_t i = 0; i < 4; ++i) {
        fields |= uint64_t(first >> 8 * i & ((1u << k) - 1)) << i * k;
        fields |= uint64_t(second >> 8 * i & ((1u << k) - 1)) << (4 + i) * k;
    }
    to += part / 2 * k;
    for (uint32_t i = 0; i < k; ++i) to[i] = uint8_t(fields >> 8 * i);
}

template <class T>
DEVICE void finish(const EncodeJob<T>& job, FinishShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t number = job.tile_chunks[blockIdx.x];
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    const uint64_t n_streams = 2 * STREAMS * uint64_t(state.first_block[N_BOOKS]) + state.stream_bytes;
    const uint64_t n_body = n_streams + state.low_bytes + 4 * uint64_t(state.n_wide);
    if (RESERVE + n_body > chunk.payload_bytes) {
        // The payload is too long to be worthwhile.
        if (t == 0) state.needs_host = 1;
        return;
    }
    if (blockIdx.x == chunk.first_tile) write_front(job, chunk, number, s);
    const Tile& tile = job.tiles[blockIdx.x];
    if (tile.low_bytes == 0 && tile.n_wide == 0) return;
    const uint32_t first = (blockIdx.x - chunk.first_tile) * TILE, n = min(TILE, chunk.n_groups - first);
    if (t * PER_THREAD < n) {
        const Piece<uint8_t>* from = (const Piece<uint8_t>*)(job.classes + chunk.first_group + first);
        ((Piece<uint8_t>*)s.classes)[t] = from[t];
    }
    __syncthreads();
    uint32_t low = 0, n_wide = 0;
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        low += low_bytes(s.classes[i] & (HAS_WIDE - 1));
        s.wide[i] = 0;
        if (s.classes[i] & HAS_WIDE) {
            const uint32_t* words = (const uint32_t*)(job.bytes + (chunk.first_group + first + i) * GROUP);
            uint32_t n_here = 0;
            for (uint32_t k = 0; k < 8; ++k) n_here += n_zero_bytes(words[k]);
            s.wide[i] = n_here;
            n_wide += n_here;
        }
    }
    uint32_t all;
    low = tile.low_before + prefix_of_block<TILE_THREADS>(low, s.sums, all);
    n_wide = tile.wide_before + prefix_of_block<TILE_THREADS>(n_wide, s.sums, all);
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        s.low[i] = low;
        low += low_bytes(s.classes[i] & (HAS_WIDE - 1));
        uint32_t n_here = s.wide[i];
        s.wide[i] = n_wide;
        n_wide += n_here;
    }
    __syncthreads();
    uint8_t* to_low = in_device_memory((uint8_t*)chunk.payload) + RESERVE + n_streams;
    uint8_t* to_wide = to_low + state.low_bytes;
    const T* values = in_device_memory((const T*)chunk.values);
    if (tile.low_bytes > 0) {
        for (uint32_t i = t / 8; i < n; i += TILE_THREADS / 8) {
            const uint32_t k = n_low_bits(s.classes[i] & (HAS_WIDE - 1));
            if (k > 0) write_low(job, chunk.first_group + first + i, k, to_low + s.low[i], t % 8);
        }
    }
    if (tile.n_wide == 0) return;
    for (uint32_t i = warp; i < n; i += TILE_THREADS / 32) {
        if (!(s.classes[i] & HAS_WIDE)) continue;
        const uint64_t group = chunk.first_group + first + i;
        const bool is_wide = job.bytes[group * GROUP + lane] == WIDE;
        const uint32_t wide = __ballot_sync(ALL_LANES, is_wide);
        if (is_wide) {
            const uint32_t d = difference_at(state.walk, (first + i) * GROUP + lane, [&](uint32_t index) {
                return integer_at(job.coding, values[index], state.origin);
            });
            uint8_t* to = to_wide + 4 * uint64_t(s.wide[i] + __popc(wide & ((1u << lane) - 1)));
            for (uint32_t b = 0; b < 4; ++b) to[b] = uint8_t(d >> 8 * b);
        }
    }
}

}  // namespace balanced

using namespace balanced;

#define KERNELS_OF_VALUES(Suffix, T)                                                       \
    KERNEL(balanced_finish_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) { \
        SHARED(FinishShared, shared);                                                      \
        finish(job, shared);                                                               \
    }                                                                                      \
    REGISTER_KERNEL(balanced_finish_##Suffix)

KERNELS_OF_VALUES(f32, float);
KERNELS_OF_VALUES(f64, double);

KERNEL(balanced_tally)(const __grid_constant__ Work work) {
    SHARED(SortShared, shared);
    tally(work, shared);
}

KERNEL(balanced_books)(const __grid_constant__ Work work) {
    SHARED(BooksShared, shared);
    find_books(work, shared);
}

KERNEL(balanced_place)(const __grid_constant__ Work work) {
    SHARED(SortShared, shared);
    place<true>(work, shared);
}

KERNEL(balanced_alphabets)(const __grid_constant__ Work work) {
    SHARED(ChooseShared, shared);
    choose_alphabet(work, shared);
}

KERNEL(balanced_layout)(const __grid_constant__ Work work) {
    lay_out(work);
}

KERNEL(balanced_count)(const __grid_constant__ Work work) {
    SHARED(CountShared, shared);
    count_symbols(work, shared);
}

KERNEL(balanced_codebooks)(const __grid_constant__ Work work) {
    SHARED(CodebookShared, shared);
    fit_codebook(work, shared);
}

KERNEL(balanced_write)(const __grid_constant__ Work work) {
    SHARED(WriteShared, shared);
    write_streams(work, shared);
}

REGISTER_KERNEL(balanced_tally);
REGISTER_KERNEL(balanced_books);
REGISTER_KERNEL(balanced_place);
REGISTER_KERNEL(balanced_alphabets);
REGISTER_KERNEL(balanced_layout);
REGISTER_KERNEL(balanced_count);
REGISTER_KERNEL(balanced_codebooks);
REGISTER_KERNEL(balanced_write);
