// Codec `balanced`, decoding: payloads in device memory to values in device memory, by a fixed sequence of launches
// over all chunks.
//
//   open        a block per chunk: code lengths, by a thread per codebook, and offsets of streams
//   classes     a thread per stream: decodes symbols of classes
//   runs        a block per tile of 4096 such symbols: counts their groups
//   spread      a block per tile: the class of each group
//   tally, books, place: sort groups by book, as in balanced_encode.cu, and find the streams of each book
//   streams     a thread per stream: decodes bytes of groups to their positions, and literals
//   apart       a block per chunk: the offsets of the literals of each stream
//   patch       a thread per escape: copies literals to their positions
//   ends        a block per chunk: sums the numbers of wide differences; checks the end of the payload
//   offsets     a block per tile: offsets of the low bits and wide differences of each group
//   then differences are summed along all axes (balanced_sums.cu).
//
// No byte is trusted: every size and offset is checked. A chunk that is damaged, or that has exceptions, is left to the
// host (`needs_host`), which reports the error or decodes it.
#include "balanced_runs.cuh"
#include "balanced_sort.cuh"
#include "balanced_streams.cuh"

namespace balanced {

DEVICE uint32_t read_u16(const uint8_t* from) { return from[0] | uint32_t(from[1]) << 8; }

// Reads the sizes of `n` streams at offset `at` of a payload, and computes their offsets. Returns the end of the
// streams, or 0 if that is outside of the payload. By a block.
template <uint32_t THREADS>
DEVICE uint32_t find_streams(const Chunk& chunk, uint32_t at, uint32_t n, uint32_t* stream_at, uint16_t* sizes,
                             uint32_t* sums) {
    if (2 * n > chunk.payload_bytes - at) return 0;
    const uint8_t* table = in_device_memory((const uint8_t*)chunk.payload) + at;
    at += 2 * n;
    // One thread reads the sizes of all streams of a block.
    for (uint32_t first = 0; first < n; first += THREADS * STREAMS) {
        const uint32_t i = first + threadIdx.x * STREAMS;
        uint32_t size[STREAMS], sum = 0, all;
#pragma unroll
        for (uint32_t k = 0; k < STREAMS; ++k) {
            size[k] = i < n ? read_u16(table + 2 * (i + k)) : 0;
            sum += size[k];
        }
        uint32_t before = prefix_of_block<THREADS>(sum, sums, all);
        if (all > chunk.payload_bytes - at) return 0;
#pragma unroll
        for (uint32_t k = 0; k < STREAMS; ++k) {
            if (i < n) {
                stream_at[i + k] = at + before;
                sizes[i + k] = uint16_t(size[k]);
            }
            before += size[k];
        }
        at += all;
    }
    return at;
}

// ---- open ----

// Many threads, so that each warp has few codebooks, whose lanes would wait for each other.
constexpr uint32_t OPEN_THREADS = 1024;

struct OpenShared {
    alignas(16) uint8_t packed[N_BOOKS * PACKED_BYTES];
    uint32_t sums[OPEN_THREADS / 32 + 1];
    uint32_t needs_host, at, n_streams, n_codebooks;
    // For each codebook.
    uint32_t heads[N_BOOKS], packed_at[N_BOOKS];
};

// Reads a varint; returns false if it is not valid.
DEVICE bool take_varint(const Chunk& chunk, uint32_t& at, uint64_t& number) {
    number = 0;
    for (uint32_t i = 0; i < 10; ++i) {
        if (at >= chunk.payload_bytes) return false;
        const uint32_t byte = ((const uint8_t*)chunk.payload)[at];
        ++at;
        // The tenth byte has one bit.
        if (i == 9 && byte > 1) return false;
        number |= uint64_t(byte & 0x7F) << 7 * i;
        if (byte < 0x80) return byte != 0 || i == 0;
    }
    return false;
}

// Reads everything before the codebooks; by one thread. Returns false if the chunk is left to the host.
DEVICE bool open_numbers(const Chunk& chunk, State& state, OpenShared& s) {
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    if (chunk.n_groups > MAX_GROUPS || chunk.payload_bytes < 3 || chunk.payload_bytes >> 31 != 0) return false;
    if (payload[0] != 0) return false;
    uint32_t at = 1;
    uint64_t origin, n_symbols, n_rest, n_blocks;
    if (!take_varint(chunk, at, origin) || at >= chunk.payload_bytes) return false;
    state.origin = int64_t(origin >> 1) ^ -int64_t(origin & 1);
    state.order = payload[at];
    ++at;
    const uint32_t axes = state.order & 15, more = state.order >> 4;
    if (axes == 0 || more > 1 || (more == 1 && axes != 8)) return false;
    state.walk = make_walk(chunk.dims, state.order);
    if (!take_varint(chunk, at, n_symbols) || n_symbols == 0 || n_symbols > chunk.n_groups) return false;
    state.n_class_symbols = uint32_t(n_symbols);
    state.n_symbols[CLASS_BOOK] = uint32_t(n_symbols);
    if (!take_varint(chunk, at, n_rest)) return false;
    if (n_rest > chunk.n_values + GROUP || n_rest > uint64_t(chunk.n_groups) * GROUP) return false;
    state.n_rest = uint32_t(n_rest);
    if (!take_varint(chunk, at, n_blocks) || n_blocks > chunk.n_slots || at >= chunk.payload_bytes) return false;
    state.n_blocks = uint32_t(n_blocks);
    // The blocks of class symbols are included.
    if ((n_symbols + BLOCK - 1) / BLOCK > n_blocks) return false;
    s.n_codebooks = payload[at];
    ++at;
    state.n_codebooks = s.n_codebooks;
    s.n_streams = state.n_blocks * STREAMS;
    s.at = at;
    return s.n_codebooks > 0 && s.n_codebooks <= N_BOOKS && 2 * s.n_codebooks <= chunk.payload_bytes - at;
}

// Reads packed lengths from bit `at` to bit `end` of some words.
struct PackedReader {
    const uint32_t* words;
    uint32_t at, end;

    // The next 32 bits; those beyond the end are arbitrary, and a check of `at` finds that they were used.
    DEVICE uint32_t next() const { return __funnelshift_r(words[at / 32], words[at / 32 + 1], at); }
    DEVICE uint32_t take(uint32_t n) {
        const uint32_t bits = next() & ((1u << n) - 1);
        at += n;
        return bits;
    }
    // Takes the number of symbols of a run; if it is too large, the run ends outside of the alphabet.
    DEVICE uint32_t take_run() {
        const uint32_t bits = next(), n = n_ones(bits);
        at += 2 * n + 1;
        return n > 8 ? MAX_SYMBOLS + 1 : (1u << n) + (bits >> (n + 1) & ((1u << n) - 1));
    }
    // Takes the difference of a length from the previous one.
    DEVICE int32_t take_rise() {
        const uint32_t bits = next(), n = n_ones(bits);
        at += n + (n > 0 ? 2 : 1);
        return bits >> (n + 1) & 1 ? -int32_t(n) : int32_t(n);
    }
    // The number of ones before the first zero, at most 15.
    DEVICE static uint32_t n_ones(uint32_t bits) { return __ffs(int(~bits | 1u << 15)) - 1; }
};

// Unpacks the code lengths of a codebook; `lengths` must be initialised with NO_CODE. By one thread; returns false if
// they are damaged.
DEVICE bool unpack_lengths(PackedReader from, uint32_t n_symbols, uint8_t* lengths) {
    const uint32_t first = from.take(8);
    uint32_t at = first;
    int32_t length = int32_t(from.take(4));
    if (from.at > from.end || at >= n_symbols || length > int32_t(MAX_BITS)) return false;
    lengths[at] = uint8_t(length);
    while (from.at < from.end) {
        const uint32_t run = from.take_run();
        if (run > n_symbols - at) return false;
        for (const uint32_t end = at + run; at < end; ++at) {
            if (at == first) continue;
            length += from.take_rise();
            if (length < 1 || length > int32_t(MAX_BITS) || from.at > from.end) return false;
            lengths[at] = uint8_t(length);
        }
        if (from.at >= from.end) break;
        // A run without codes, which is not the last one.
        const uint32_t n_without = from.take_run();
        if (n_without >= n_symbols - at || from.at >= from.end) return false;
        at += n_without;
    }
    // The remaining bits of the last byte must be 0.
    return from.at == from.end && (from.next() & ((1u << ((0 - from.end) & 7)) - 1)) == 0;
}

DEVICE void open(const DecodeWork& work, OpenShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x;
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    if (t == 0) {
        s.needs_host = !open_numbers(chunk, state, s);
        state.needs_host = s.needs_host;
        state.has_escapes = 0;
        state.is_plain = 0;
    }
    // Initially, all groups are empty and no symbol has a code. The buffers have padding for whole pieces.
    Piece<uint32_t>* classes = (Piece<uint32_t>*)(work.classes + chunk.first_group);
    for (uint32_t i = t; i < (chunk.n_groups + 15) / 16; i += OPEN_THREADS) classes[i] = Piece<uint32_t>{};
    uint8_t* lengths = work.lengths + uint64_t(number) * N_BOOKS * MAX_SYMBOLS;
    for (uint32_t i = t; i < N_BOOKS * MAX_SYMBOLS / 16; i += OPEN_THREADS) {
        ((Piece<uint32_t>*)lengths)[i] = Piece<uint32_t>{{~0u, ~0u, ~0u, ~0u}};
    }
    __syncthreads();
    if (s.needs_host) return;

    const uint32_t n_codebooks = s.n_codebooks;
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    const uint32_t head = t < n_codebooks ? read_u16(payload + s.at + 2 * t) : 0, alphabet = head >> SIZE_BITS;
    const uint32_t n_bits = head & ((1u << SIZE_BITS) - 1);
    const bool is_rest = state.n_rest > 0 && t + 1 == n_codebooks;
    uint32_t n_packed;
    const uint32_t before = prefix_of_block<OPEN_THREADS>((n_bits + 7) / 8, s.sums, n_packed);
    uint32_t at = s.at + 2 * n_codebooks;
    bool is_fine = alphabet < N_ALPHABETS && n_bits <= 8 * PACKED_BYTES - 32;
    if (t == 0 || is_rest) is_fine = is_fine && alphabet == SINGLES;
    is_fine = __syncthreads_and(is_fine && n_packed <= chunk.payload_bytes - at);
    if (is_fine) {
        for (uint32_t i = t; i < n_packed; i += OPEN_THREADS) s.packed[i] = payload[at + i];
        if (t < n_codebooks) {
            work.heads[number * N_BOOKS + t] = head;
            s.heads[t] = head;
            s.packed_at[t] = before;
        }
    }
    __syncthreads();
    constexpr uint32_t WARPS = OPEN_THREADS / 32;
    const uint32_t own = t % 32 * WARPS + t / 32;
    if (is_fine && own < n_codebooks) {
        const uint32_t n_symbols = own == 0 ? CLASS_ALPHABET : alphabet_size(s.heads[own] >> SIZE_BITS);
        const uint32_t first_bit = 8 * s.packed_at[own], n_own = s.heads[own] & ((1u << SIZE_BITS) - 1);
        const PackedReader from{(const uint32_t*)s.packed, first_bit, first_bit + n_own};
        is_fine = unpack_lengths(from, n_symbols, lengths + own * MAX_SYMBOLS);
    }
    is_fine = __syncthreads_and(is_fine);
    at += n_packed;
    const uint64_t first = uint64_t(chunk.first_slot) * STREAMS;
    uint32_t end = 0;
    if (is_fine) {
        end = find_streams<OPEN_THREADS>(chunk, at, s.n_streams, work.stream_at + first, work.sizes + first, s.sums);
    }
    if (t == 0) {
        state.low_at = end;
        if (end == 0) state.needs_host = 1;
    }
}

// ---- books ----

// Finds alphabet, streams and codebook of each book, once its groups are known; by a block.
DEVICE void find_codebooks(const DecodeWork& work, BooksShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x;
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    const uint32_t n_groups = t > CLASS_BOOK && t < REST_BOOK ? s.starts[t + 1] - s.starts[t] : 0;
    const bool exists = t == CLASS_BOOK || n_groups > 0 || (t == REST_BOOK && state.n_rest > 0);
    uint32_t n_codebooks, n_blocks, n_units;
    const uint32_t codebook = prefix_of_block<BOOKS_THREADS>(exists, s.sums, n_codebooks);
    uint32_t n_symbols = 0, alphabet = SINGLES;
    if (exists && n_codebooks == state.n_codebooks) {
        alphabet = work.heads[number * N_BOOKS + codebook] >> SIZE_BITS;
        n_symbols = t == CLASS_BOOK ? state.n_symbols[CLASS_BOOK] : n_groups * (GROUP >> width_log2(alphabet));
        if (t == REST_BOOK) n_symbols = state.n_rest;
    }
    const uint32_t own_blocks = (n_symbols + BLOCK - 1) / BLOCK;
    // Class symbols are already decoded.
    const uint32_t own_units = t == CLASS_BOOK ? 0 : (own_blocks + UNIT_BLOCKS - 1) / UNIT_BLOCKS;
    const uint32_t first_block = prefix_of_block<BOOKS_THREADS>(own_blocks, s.sums, n_blocks);
    const uint32_t first_unit = prefix_of_block<BOOKS_THREADS>(own_units, s.sums, n_units);
    if (t <= N_BOOKS) {
        state.first_block[t] = first_block;
        state.first_unit[t] = first_unit;
    }
    if (t < N_BOOKS) {
        state.codebooks[t] = codebook;
        state.alphabets[t] = alphabet;
        state.n_symbols[t] = n_symbols;
    }
    if (t == 0) {
        state.wide_at = state.low_at + state.low_bytes;
        const bool is_fine = n_codebooks == state.n_codebooks && n_blocks == state.n_blocks && n_units <= work.units &&
                             state.low_bytes <= chunk.payload_bytes - state.low_at;
        if (!is_fine) state.needs_host = 1;
    }
}

// ---- apart, patch ----

constexpr uint32_t APART_THREADS = 256;

struct ApartShared {
    uint32_t sums[APART_THREADS / 32 + 1];
};

// Computes the offsets of the literals of each stream, from the numbers of escapes.
DEVICE void find_apart(const DecodeWork& work, ApartShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x;
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    if (needs_host(state) || (state.n_rest == 0 && !state.has_escapes)) return;
    const uint32_t n_streams = state.first_block[REST_BOOK] * STREAMS;
    const uint32_t* escapes_of = work.escapes_of + uint64_t(chunk.first_slot) * STREAMS;
    uint32_t* apart_at = work.apart_at + uint64_t(chunk.first_slot) * STREAMS;
    uint32_t at = 0;
    constexpr uint32_t EACH = 4;
    for (uint32_t first = 0; first < n_streams; first += APART_THREADS * EACH) {
        uint32_t n[EACH], sum = 0, all;
        for (uint32_t k = 0; k < EACH; ++k) {
            const uint32_t i = first + t * EACH + k;
            n[k] = 0;
            if (i < n_streams) {
                const uint32_t book = book_of_block(state, i / STREAMS, REST_BOOK);
                n[k] = book == CLASS_BOOK ? 0 : escapes_of[i] << width_log2(state.alphabets[book]);
            }
            sum += n[k];
        }
        uint32_t before = at + prefix_of_block<APART_THREADS>(sum, s.sums, all);
        for (uint32_t k = 0; k < EACH; ++k) {
            const uint32_t i = first + t * EACH + k;
            if (i < n_streams) apart_at[i] = before;
            before += n[k];
        }
        at += all;
    }
    if (t == 0 && at != state.n_rest) state.needs_host = 1;
}

constexpr uint32_t PATCH_THREADS = 256;
// Thread blocks that patch a chunk.
constexpr uint32_t PATCH_BLOCKS = 64;

// Copies literals to the positions of escapes; one warp per stream.
DEVICE void patch(const DecodeWork& work) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / PATCH_BLOCKS;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (needs_host(state) || !state.has_escapes) return;
    const uint8_t* rest = work.rest + chunk.first_group * GROUP;
    const uint32_t first = (blockIdx.x % PATCH_BLOCKS * PATCH_THREADS + threadIdx.x) / 32;
    const uint32_t n_streams = state.first_block[REST_BOOK] * STREAMS;
    for (uint32_t i = state.first_block[1] * STREAMS + first; i < n_streams; i += PATCH_BLOCKS * PATCH_THREADS / 32) {
        const uint64_t in_all = uint64_t(chunk.first_slot) * STREAMS + i;
        const uint32_t n_escapes = work.escapes_of[in_all];
        if (n_escapes == 0) continue;
        const uint32_t block = i / STREAMS, book = book_of_block(state, block, REST_BOOK);
        const uint32_t width = width_log2(state.alphabets[book]);
        // The position at which the stream wrote its symbols, as in `decode_groups`.
        const uint32_t in_book = (block - state.first_block[book]) * BLOCK;
        const uint32_t start = in_book + stream_start(min(state.n_symbols[book] - in_book, BLOCK), i % STREAMS) * 32;
        const uint64_t first_sorted = chunk.first_group + state.starts[book] + (start << width) / GROUP;
        const uint16_t* escaped = work.escapes + ESCAPES_PER_GROUP * first_sorted;
        const uint32_t apart_at = work.apart_at[in_all];
        for (uint32_t k = lane; k < n_escapes; k += 32) {
            const uint32_t in_stream = uint32_t(escaped[k]) << width;
            const uint32_t byte = work.sorted[first_sorted + in_stream / GROUP] * GROUP + in_stream % GROUP;
            const uint8_t* from = rest + apart_at + (k << width);
            uint8_t* to = work.bytes + chunk.first_group * GROUP + byte;
            uint32_t n_wide = 0;
            for (uint32_t j = 0; j < 1u << width; ++j) {
                to[j] = from[j];
                n_wide += from[j] == WIDE;
            }
            if (n_wide > 0) mark_wide(work, chunk, byte / GROUP, n_wide);
        }
    }
}

// ---- ends, offsets ----

// Sums the numbers of wide differences over tiles, and checks the end of the payload; by one warp.
DEVICE void find_ends(const DecodeWork& work) {
    const uint32_t lane = threadIdx.x, number = blockIdx.x;
    const Chunk& chunk = work.chunks[number];
    State& state = work.states[number];
    if (needs_host(state)) return;
    // Cannot overflow: at most the number of values.
    uint32_t n_wide = 0;
    for (uint32_t i = 0; i < chunk.n_tiles; i += 32) {
        Tile& tile = work.tiles[chunk.first_tile + i + lane];
        const bool exists = i + lane < chunk.n_tiles;
        const uint32_t own = exists ? tile.n_wide : 0, upto = prefix_of_warp(own);
        if (exists) tile.wide_before = n_wide + upto - own;
        n_wide += __shfl_sync(ALL_LANES, upto, 31);
    }
    if (lane > 0) return;
    state.n_wide = n_wide;
    state.is_plain = plain_kind(chunk, state.order, work.differences != 0);
    const uint64_t end = state.wide_at + 4 * uint64_t(n_wide);
    if (end != chunk.payload_bytes) {
        // The payload may be padded with zeros up to its least size.
        bool is_padded = end < chunk.payload_bytes && chunk.payload_bytes == max(chunk.n_values / VALUES_PER_BYTE, 3u);
        for (uint64_t i = end; is_padded && i < chunk.payload_bytes; ++i) {
            is_padded = ((const uint8_t*)chunk.payload)[i] == 0;
        }
        if (!is_padded) state.needs_host = 1;
    }
}

struct OffsetsShared {
    uint32_t sums[TILE_THREADS / 32 + 1];
};

DEVICE void find_offsets(const DecodeWork& work, OffsetsShared& s) {
    const uint32_t t = threadIdx.x, number = work.tile_chunks[blockIdx.x];
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    const Tile& tile = work.tiles[blockIdx.x];
    if (needs_host(state) || (tile.low_bytes == 0 && tile.n_wide == 0)) return;
    const uint32_t first = (blockIdx.x - chunk.first_tile) * TILE, n = min(TILE, chunk.n_groups - first);
    const uint64_t at = chunk.first_group + first;
    auto n_wide_at = [&](uint32_t i) {
        uint32_t n_wide = 0;
        if (work.classes[at + i] & HAS_WIDE) {
            const uint32_t* words = (const uint32_t*)(work.bytes + (at + i) * GROUP);
            for (uint32_t k = 0; k < 8; ++k) n_wide += n_zero_bytes(words[k]);
        }
        return n_wide;
    };
    uint32_t low = 0, n_wide = 0, all;
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        low += low_bytes(work.classes[at + i] & (HAS_WIDE - 1));
        n_wide += n_wide_at(i);
    }
    low = state.low_at + tile.low_before + prefix_of_block<TILE_THREADS>(low, s.sums, all);
    n_wide = tile.wide_before + prefix_of_block<TILE_THREADS>(n_wide, s.sums, all);
    for (uint32_t i = t * PER_THREAD; i < min((t + 1) * PER_THREAD, n); ++i) {
        work.group_low[at + i] = low;
        work.group_wide[at + i] = state.wide_at + 4 * n_wide;
        low += low_bytes(work.classes[at + i] & (HAS_WIDE - 1));
        n_wide += n_wide_at(i);
    }
}

}  // namespace balanced

using namespace balanced;

KERNEL_BOUNDED(1024, 1, balanced_open)(const __grid_constant__ DecodeWork work) {
    SHARED(OpenShared, shared);
    open(work, shared);
}

KERNEL_BOUNDED(64, 4, balanced_classes)(const __grid_constant__ DecodeWork work) {
    SHARED(StreamsShared, shared);
    decode_classes(work, shared);
}

KERNEL_BOUNDED(256, 2, balanced_runs)(const __grid_constant__ DecodeWork work) {
    SHARED(RunsShared, shared);
    sum_runs(work, shared);
}

KERNEL_BOUNDED(256, 2, balanced_spread)(const __grid_constant__ DecodeWork work) {
    SHARED(RunsShared, shared);
    spread_classes(work, shared);
}

KERNEL_BOUNDED(256, 2, balanced_decode_tally)(const __grid_constant__ DecodeWork work) {
    SHARED(SortShared, shared);
    if (!needs_host(work.states[work.tile_chunks[blockIdx.x]])) tally(work, shared);
}

KERNEL_BOUNDED(128, 1, balanced_decode_books)(const __grid_constant__ DecodeWork work) {
    SHARED(BooksShared, shared);
    if (needs_host(work.states[blockIdx.x])) return;
    find_books(work, shared);
    __syncthreads();
    find_codebooks(work, shared);
}

KERNEL_BOUNDED(256, 2, balanced_decode_place)(const __grid_constant__ DecodeWork work) {
    SHARED(SortShared, shared);
    if (!needs_host(work.states[work.tile_chunks[blockIdx.x]])) place<false>(work, shared);
}

KERNEL_BOUNDED(64, 10, balanced_streams)(const __grid_constant__ DecodeWork work) {
    SHARED(StreamsShared, shared);
    decode_books(work, shared);
}

KERNEL_BOUNDED(256, 1, balanced_apart)(const __grid_constant__ DecodeWork work) {
    SHARED(ApartShared, shared);
    find_apart(work, shared);
}

KERNEL_BOUNDED(256, 4, balanced_patch)(const __grid_constant__ DecodeWork work) { patch(work); }

KERNEL_BOUNDED(32, 1, balanced_ends)(const __grid_constant__ DecodeWork work) { find_ends(work); }

KERNEL_BOUNDED(256, 4, balanced_offsets)(const __grid_constant__ DecodeWork work) {
    SHARED(OffsetsShared, shared);
    find_offsets(work, shared);
}

REGISTER_KERNEL(balanced_open);
REGISTER_KERNEL(balanced_classes);
REGISTER_KERNEL(balanced_runs);
REGISTER_KERNEL(balanced_spread);
REGISTER_KERNEL(balanced_decode_tally);
REGISTER_KERNEL(balanced_decode_books);
REGISTER_KERNEL(balanced_decode_place);
REGISTER_KERNEL(balanced_streams);
REGISTER_KERNEL(balanced_apart);
REGISTER_KERNEL(balanced_patch);
REGISTER_KERNEL(balanced_ends);
REGISTER_KERNEL(balanced_offsets);
