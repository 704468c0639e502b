// Shared by the kernels of codec `balanced`: chunks, orders, groups, codebooks and alphabets (docs/format.md, section
// 9). The CPU's side is crates/pumice/src/codec/{balanced,differences,groups,alphabet}.rs; both must give the same
// bytes.
#pragma once

#include "values.cuh"

namespace balanced {

constexpr uint32_t GROUP = 32;
constexpr uint32_t N_CLASSES = 65;
constexpr uint32_t WIDE = 0;
constexpr uint32_t ZERO = 128;
constexpr uint32_t MAX_MAGNITUDE = 1u << 26;
// Flag in the stored class of a group with wide differences; in memory only.
constexpr uint32_t HAS_WIDE = 128;
// Integers differ from the origin by less than this.
constexpr uint64_t MAX_INTEGER = 1u << 29;

// Codebooks of a chunk: one for classes, books 1 to 64, and one for literals.
constexpr uint32_t CLASS_BOOK = 0;
constexpr uint32_t REST_BOOK = 65;
constexpr uint32_t N_BOOKS = 66;
constexpr uint32_t OWN_BOOK_GROUPS = 64;
constexpr uint32_t N_DIGITS = 2;
constexpr uint32_t CLASS_ALPHABET = N_DIGITS + 2 * N_CLASSES;
constexpr uint32_t MAX_SYMBOLS = 256;
constexpr uint32_t MAX_BITS = 12;
constexpr uint32_t NO_CODE = 255;

// Packed code lengths of a codebook: capacity for all that an encoder writes, and the bits that hold their size, below
// the alphabet.
constexpr uint32_t PACKED_BYTES = 512;
constexpr uint32_t SIZE_BITS = 13;

// Symbols of a block, and the number of its streams.
constexpr uint32_t BLOCK = 4096;
constexpr uint32_t STREAMS = 4;

// Blocks of symbols that a thread block decodes, one thread per stream.
constexpr uint32_t UNIT_BLOCKS = 16;
// The same for symbols of classes, of which there are few: a smaller number, so that they occupy the whole device.
constexpr uint32_t CLASS_BLOCKS = 8;

// Groups of a tile, which one thread block sorts.
constexpr uint32_t TILE = 4096;
constexpr uint32_t TILE_THREADS = 256;
constexpr uint32_t PER_THREAD = TILE / TILE_THREADS;

// Planes of low bits; each has a byte of each value.
constexpr uint32_t PLANES = 4;

// A payload has at least one byte for this many values, and at least three bytes.
constexpr uint32_t VALUES_PER_BYTE = 1 << 14;

struct Axis {
    uint32_t extent, stride, n_repeats;
};

// The axes along which an order takes differences of a chunk.
struct Walk {
    Axis row;
    uint32_t n_along;
    Axis across[3];
    uint32_t n_across;
};

// A chunk, contiguous in memory. The host writes it.
struct Chunk {
    uint64_t values;
    // Encoding: memory for the payload, whose body has offset RESERVE in it. Decoding: the payload.
    uint64_t payload;
    uint64_t payload_bytes;
    // Its first group among those of all chunks; a multiple of 32.
    uint64_t first_group;
    uint32_t dims[4];
    uint32_t n_values, n_groups;
    uint32_t first_tile, n_tiles;
    // Slots for its blocks of symbols among those of all chunks.
    uint32_t first_slot, n_slots;
    // Decoding: offsets of its sums of columns and of rows among those of all chunks.
    uint64_t first_column, first_edge;
};

// The largest number of groups in a chunk, so that no sum overflows.
constexpr uint32_t MAX_GROUPS = 1u << 22;

// What the device computes for a chunk.
struct State {
    int64_t origin;
    // Not 0 if the host has to code this chunk.
    uint32_t needs_host;
    // Encoding: offset of the payload in its memory, and its size.
    uint32_t payload_start;
    uint32_t payload_bytes;
    uint32_t order;
    Walk walk;
    uint32_t n_class_symbols;
    uint32_t n_rest;
    // Decoding: read from the payload.
    uint32_t n_blocks, n_codebooks;
    uint32_t low_bytes;
    uint32_t n_wide;
    uint32_t stream_bytes;
    uint32_t book_of[N_CLASSES];
    // The sorted groups of book b start at starts[b] and end at starts[b + 1].
    uint32_t starts[N_BOOKS + 1];
    uint32_t alphabets[N_BOOKS];
    uint32_t n_symbols[N_BOOKS];
    // The number of blocks of symbols before those of a codebook.
    uint32_t first_block[N_BOOKS + 1];
    // Decoding: the index of a codebook among the stored ones; the number of units of UNIT_BLOCKS blocks before those
    // of a codebook; offsets in the payload.
    uint32_t codebooks[N_BOOKS];
    uint32_t first_unit[N_BOOKS + 1];
    uint32_t low_at, wide_at;
    uint32_t has_escapes;
    // See `Plain`: NOT_PLAIN, WHOLE_ROWS or CUT_ROWS.
    uint32_t is_plain;
    uint32_t reserved[16];
};

// The host reads the first fields.
constexpr uint32_t STATE_BYTES = 2048;
static_assert(sizeof(State) == STATE_BYTES, "as in src/balanced.rs");

// What a tile contributes to the sequences of its chunk; the second half holds the sums over all previous tiles.
struct Tile {
    // The number of class symbols, without the run of empty groups before its first group that is not empty.
    uint32_t n_symbols;
    // The numbers of empty groups at its start and at its end.
    uint32_t n_leading, n_trailing;
    // The class of its last group that is not empty; 0 if all are empty.
    uint32_t last_class;
    uint32_t low_bytes, n_wide;

    uint32_t symbols_before;
    // The number of empty groups right before the tile, and the class before them.
    uint32_t empty_before, class_before;
    uint32_t low_before, wide_before;
    uint32_t counts[N_CLASSES];
};

static_assert(sizeof(Tile) == 304, "as in src/balanced.rs");

DEVICE uint32_t n_low_bits(uint32_t group_class) {
    uint32_t exponent = group_class == 0 ? 0 : (group_class - 1) / 2;
    return exponent < 7 ? 0 : exponent - 7;
}

DEVICE uint32_t low_bytes(uint32_t group_class) { return 4 * n_low_bits(group_class); }

// Counts the bytes of a word that are 0.
DEVICE uint32_t n_zero_bytes(uint32_t word) {
    return __popc(~(((word & 0x7F7F7F7F) + 0x7F7F7F7F) | word) & 0x80808080);
}

// Nonzero if some byte of the word is 0.
DEVICE uint32_t has_zero_byte(uint32_t word) { return (word - 0x01010101) & ~word & 0x80808080; }

// The number of digits that encode the length of a run of empty groups.
DEVICE uint32_t n_digits(uint32_t n_empty) { return bit_length(n_empty + 1) - 1; }

// Exclusive prefix sum over the threads of a block; `all` becomes the total. `sums` has one element more than there are
// warps.
template <uint32_t THREADS>
DEVICE uint32_t prefix_of_block(uint32_t value, uint32_t* sums, uint32_t& all) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t upto = prefix_of_warp(value);
    if (lane == 31) sums[warp] = upto;
    __syncthreads();
    uint32_t before = 0;
    all = 0;
#pragma unroll
    for (uint32_t i = 0; i < THREADS / 32; ++i) {
        if (i < warp) before += sums[i];
        all += sums[i];
    }
    __syncthreads();
    return before + upto - value;
}

// The maximum over the threads before this one; 0 for the first.
template <uint32_t THREADS>
DEVICE uint32_t max_before_in_block(uint32_t value, uint32_t* sums) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t upto = value;
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        uint32_t other = __shfl_up_sync(ALL_LANES, upto, distance);
        if (lane >= distance) upto = max(upto, other);
    }
    if (lane == 31) sums[warp] = upto;
    uint32_t before = __shfl_up_sync(ALL_LANES, upto, 1);
    if (lane == 0) before = 0;
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < THREADS / 32; ++i) {
        if (i < warp) before = max(before, sums[i]);
    }
    __syncthreads();
    return before;
}

// ---- Differences ----

// Orders of differences by number: first the sets of axes, then second differences along the fastest axis. `order_bits`
// gives the stored byte.
constexpr uint32_t N_ORDERS = 16;

DEVICE uint32_t order_bits(uint32_t number) { return number == 15 ? 24 : number + 1; }

DEVICE bool is_useful(const uint32_t (&dims)[4], uint32_t number) {
    uint32_t is_long = (dims[0] > 1 ? 1 : 0) | (dims[1] > 1 ? 2 : 0) | (dims[2] > 1 ? 4 : 0) | 8;
    return number == 15 || ((number + 1) & ~is_long) == 0;
}

DEVICE Walk make_walk(const uint32_t (&dims)[4], uint32_t order) {
    Walk walk;
    walk.row = Axis{dims[3], 1, 1};
    walk.n_along = (order >> 3 & 1) + (order >> 4);
    walk.n_across = 0;
    walk.across[0] = walk.across[1] = walk.across[2] = Axis{1, 1, 1};
    uint32_t stride = dims[3];
#pragma unroll
    for (int a = 2; a >= 0; --a) {
        if (order >> a & 1) {
#pragma unroll
            for (uint32_t i = 0; i < 3; ++i) {
                if (i == walk.n_across) walk.across[i] = Axis{dims[a], stride, 1};
            }
            ++walk.n_across;
        } else if (walk.n_across > 0) {
#pragma unroll
            for (uint32_t i = 0; i < 3; ++i) {
                if (i + 1 == walk.n_across) walk.across[i].n_repeats *= dims[a];
            }
        } else if (walk.n_along > 0) {
            walk.row.n_repeats *= dims[a];
        } else {
            walk.row.extent *= dims[a];
        }
        stride *= dims[a];
    }
    return walk;
}

// The distance to the previous neighbour along an axis; 0 if there is none.
DEVICE uint32_t distance_back(const Axis& axis, uint32_t at) {
    uint32_t line = at / axis.stride;
    if (line % axis.extent > 0) return axis.stride;
    return line / axis.extent % axis.n_repeats > 0 ? axis.stride * axis.extent : 0;
}

// The difference at an index; the function `integer` gives the integer of any index.
template <class F>
DEVICE uint32_t difference_at(const Walk& walk, uint32_t at, F integer) {
    if (walk.n_along == 2 && at % walk.row.extent >= 2) return integer(at) - 2 * integer(at - 1) + integer(at - 2);
    uint32_t distances[4];
    distances[0] = walk.n_along > 0 ? distance_back(walk.row, at) : 0;
#pragma unroll
    for (uint32_t a = 0; a < 3; ++a) distances[1 + a] = a < walk.n_across ? distance_back(walk.across[a], at) : 0;
    uint32_t sum = 0;
#pragma unroll 1
    for (uint32_t set = 0; set < 16; ++set) {
        uint32_t back = 0;
        bool exists = true, is_negative = false;
#pragma unroll
        for (uint32_t a = 0; a < 4; ++a) {
            if (set >> a & 1) {
                exists = exists && distances[a] > 0;
                back += distances[a];
                is_negative = !is_negative;
            }
        }
        if (exists) sum = is_negative ? sum - integer(at - back) : sum + integer(at - back);
    }
    return sum;
}

// Sets the integer of a value minus the origin; returns false if the value cannot be quantised.
template <class T>
DEVICE bool integer_of(const Coding<T>& coding, T x, int64_t origin, uint32_t& q) {
    typename Real<T>::Int found = 0;
    bool is_fine = coding.quantize(x, found);
    int64_t from_origin = int64_t(typename Real<T>::Signed(found)) - origin;
    q = uint32_t(from_origin);
    if (sizeof(T) == 8) {
        uint64_t size = uint64_t(from_origin < 0 ? -from_origin : from_origin);
        is_fine = is_fine && size < MAX_INTEGER;
    }
    return is_fine;
}

// As `integer_of`, for code that is rarely executed.
template <class T>
DEVICE_CALL uint32_t integer_at(const Coding<T>& coding, T x, int64_t origin) {
    uint32_t q;
    integer_of(coding, x, origin, q);
    return q;
}

DEVICE uint32_t magnitude_of(uint32_t difference) {
    return int32_t(difference) < 0 ? 0 - difference : difference;
}

// Values of a row that a warp processes, four per lane.
constexpr uint32_t STRIP = 128;

// The dimensions of a plain chunk: at most three axes, with first differences only. If differences are taken along the
// fastest axis only, the other axes are merged. A chunk of one axis is folded to rows of one strip each, where each row
// continues the previous one.
struct Plain {
    uint32_t nz, ny, nx, n_strips;
    // Number of values in a plane; the last row of a folded line may be incomplete.
    uint32_t n_plane;
    bool has_x, has_y, has_z, is_line;

    DEVICE Plain(const Chunk& chunk, uint32_t order) {
        has_x = order >> 3 & 1;
        has_y = order >> 2 & 1;
        has_z = order >> 1 & 1;
        nz = chunk.dims[1];
        ny = chunk.dims[2];
        nx = chunk.dims[3];
        if (has_x && !has_y && !has_z) {
            ny *= nz;
            nz = 1;
        }
        n_plane = nx * ny;
        is_line = nz * ny == 1;
        if (is_line) {
            // There are no differences along axes of extent 1.
            has_y = has_z = false;
            ny = (nx + STRIP - 1) / STRIP;
            nx = STRIP;
        }
        n_strips = (nx + STRIP - 1) / STRIP;
    }

    // How many of the four values at a position of a plane exist in its row. Row -1 wraps around to far beyond the last
    // row.
    DEVICE uint32_t n_at(uint32_t y, uint32_t x) const {
        const uint32_t at = y * nx + x;
        return x < nx && at < n_plane ? min(4u, min(nx - x, n_plane - at)) : 0;
    }
};

// Whether a chunk is plain in an order. If groups cross the ends of rows (CUT_ROWS), differences are stored as an array
// in between, for which memory must have been allocated (`has_room`).
constexpr uint32_t NOT_PLAIN = 0, WHOLE_ROWS = 1, CUT_ROWS = 2;

DEVICE uint32_t plain_kind(const Chunk& chunk, uint32_t order, bool has_room) {
    if (chunk.dims[0] != 1 || order >= 16) return NOT_PLAIN;
    if (chunk.dims[3] % GROUP == 0 && chunk.values % 16 == 0) return WHOLE_ROWS;
    return has_room ? CUT_ROWS : NOT_PLAIN;
}

// ---- Alphabets ----

constexpr uint32_t N_ALPHABETS = 5;
constexpr uint32_t SINGLES = 0, PAIRS = 1, FOURS = 2, EIGHTS = 3, ONES = 4;

DEVICE uint32_t width_log2(uint32_t alphabet) { return alphabet == ONES ? 5 : alphabet; }

// The number of symbols of an alphabet.
DEVICE uint32_t alphabet_size(uint32_t alphabet) {
    return alphabet == SINGLES ? 256 : alphabet == PAIRS ? 50 : alphabet == FOURS ? 82 : alphabet == EIGHTS ? 130 : 65;
}

// The escape symbol; 256 if there is none.
DEVICE uint32_t escape_of(uint32_t alphabet) { return alphabet == SINGLES ? 256 : alphabet_size(alphabet) - 1; }

// Adds bytes separately, each modulo 256.
DEVICE uint32_t add_bytes(uint32_t bytes, uint32_t summand) {
    return ((bytes & 0x7F7F7F7F) + summand) ^ (bytes & 0x80808080);
}

// Two symbols of four bytes.
DEVICE uint32_t pairs_of(uint32_t bytes) {
    // 125 becomes 0.
    uint32_t x = add_bytes(bytes ^ 0x80808080, 0x03030303);
    uint32_t is_over = (x | ((x & 0x7F7F7F7F) + 0x79797979)) & 0x80808080;
    uint32_t first = (x & 0xFF) * 7 + (x >> 8 & 0xFF), second = (x >> 16 & 0xFF) * 7 + (x >> 24);
    if (is_over & 0x8080) first = 49;
    if (is_over & 0x80800000) second = 49;
    return first | second << 8;
}

// One symbol of four bytes.
DEVICE uint32_t four_of(uint32_t bytes) {
    uint32_t x = add_bytes(bytes ^ 0x80808080, 0x01010101);
    uint32_t is_over = (x | ((x & 0x7F7F7F7F) + 0x7D7D7D7D)) & 0x80808080;
    return is_over ? 81 : (x * (27u << 24 | 9 << 16 | 3 << 8 | 1)) >> 24;
}

// Collects the lowest bit of each byte into four bits.
DEVICE uint32_t collect(uint32_t bits) { return (bits & 0x01010101) * 0x01020408 >> 24; }

// One symbol of eight bytes.
DEVICE uint32_t eight_of(uint32_t low, uint32_t high) {
    uint32_t x = add_bytes(low ^ 0x80808080, 0x01010101), y = add_bytes(high ^ 0x80808080, 0x01010101);
    uint32_t is_over = (x | ((x & 0x7F7F7F7F) + 0x7D7D7D7D) | y | ((y & 0x7F7F7F7F) + 0x7D7D7D7D)) & 0x80808080;
    uint32_t set = collect(~x) | collect(~y) << 4, above = collect(x >> 1) | collect(y >> 1) << 4;
    uint32_t n = __popc(set);
    if (is_over || n > 2) return 129;
    if (n == 0) return 0;
    uint32_t first = __ffs(int(set)) - 1, last = bit_length(set) - 1;
    uint32_t base = n == 1 ? 1 + 2 * first : 17 + 4 * (last * (last - 1) / 2 + first);
    uint32_t first_bit = 1u << first;
    return base + (above & first_bit ? 1 : 0) + (above & ~first_bit ? 2 : 0);
}

// One symbol of a group.
DEVICE uint32_t one_of(const uint32_t (&words)[8]) {
    uint32_t n = 0, position = 0, rest = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        uint32_t x = words[i] ^ 0x80808080;
        if (x != 0) {
            ++n;
            position = 4 * i;
            rest = x;
        }
    }
    if (n != 1) return 64;
    uint32_t byte = (__ffs(int(rest)) - 1) / 8;
    rest >>= 8 * byte;
    return rest == 1 ? 2 * (position + byte) + 1 : rest == 0xFF ? 2 * (position + byte) : 64;
}

// ---- Streams ----

// The number of groups of 32 symbols before stream `stream` of a block of `n_symbols`.
DEVICE uint32_t stream_start(uint32_t n_symbols, uint32_t stream) {
    return (n_symbols + 31) / 32 * stream / STREAMS;
}

// The last codebook whose blocks start at or before this one.
DEVICE uint32_t book_of_block(const State& state, uint32_t block, uint32_t n_books) {
    uint32_t book = 0, end = n_books;
    while (end - book > 1) {
        uint32_t middle = (book + end) / 2;
        if (state.first_block[middle] <= block) book = middle;
        else end = middle;
    }
    return book;
}

// ---- Look-back ----

// States for look-back: a flag in bits 0 and 1, the number of the launch in bits 2 to 31, a sum above.
constexpr uint32_t OWN_SUM = 1;
constexpr uint32_t SUM_OF_ALL = 2;

DEVICE void publish(uint64_t* states, uint32_t index, uint32_t launch, uint32_t sum) {
    uint32_t flag = index == 0 ? SUM_OF_ALL : OWN_SUM;
    store_relaxed(states + index, uint64_t(sum) << 32 | launch << 2 | flag);
}

// Look-back: returns the sum over all predecessors, and publishes it plus the block's own. By one warp.
DEVICE uint32_t look_back(uint64_t* states, uint32_t index, uint32_t launch, uint32_t own) {
    const uint32_t lane = threadIdx.x % 32;
    uint32_t before = 0, end = index;
    while (end > 0) {
        uint64_t state = launch << 2 | SUM_OF_ALL;
        if (end > lane) state = load_relaxed(states + (end - 1 - lane));
        bool is_own = uint32_t(state) == (launch << 2 | OWN_SUM), is_all = uint32_t(state) == (launch << 2 | SUM_OF_ALL);
        uint32_t all = __ballot_sync(ALL_LANES, is_all);
        uint32_t known = __ballot_sync(ALL_LANES, is_own || is_all);
        // Lanes up to the first with a sum over all predecessors.
        uint32_t needed = all != 0 ? (all & (0 - all)) * 2 - 1 : ALL_LANES;
        if ((known & needed) != needed) {
            spin_pause();
            continue;
        }
        before += __reduce_add_sync(ALL_LANES, needed >> lane & 1 ? uint32_t(state >> 32) : 0u);
        if (all != 0) break;
        end -= 32;
    }
    if (lane == 0 && index > 0) store_relaxed(states + index, uint64_t(before + own) << 32 | launch << 2 | SUM_OF_ALL);
    return before;
}

}  // namespace balanced
