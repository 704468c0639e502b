// Shared by the kernels of codec `fast`: the layout of a chunk and its tiles (docs/format.md, section 6), and bit
// planes. The CPU's side is crates/pumice/src/codec/{geometry,tile,planes}.rs and quantize.rs; both must give the same
// bytes.
#pragma once

#include "values.cuh"

constexpr uint32_t TILE_VALUES = 4096;
constexpr uint32_t GROUP = 8;
constexpr uint32_t N_GROUPS = TILE_VALUES / GROUP;
constexpr uint32_t SUPER = 64;
constexpr uint32_t N_SUPER = TILE_VALUES / SUPER;
constexpr uint32_t TILES_PER_ANCHOR = 32;
constexpr uint32_t PARAMETER_BYTES = 8;

constexpr uint32_t X = 1;
constexpr uint32_t Y = 2;
constexpr uint32_t Z = 4;
constexpr uint32_t XX = 8;

// Flags in the first byte of a tile's body.
constexpr uint32_t KIND = 3;
constexpr uint32_t QUANTISED = 0;
constexpr uint32_t EXACT = 1;
constexpr uint32_t RAW = 2;
constexpr uint32_t WIDE_BASE = 4;
constexpr uint32_t SPARSE = 8;
constexpr uint32_t NO_PLANES = 16;
constexpr uint32_t MASK_0 = 32;
constexpr uint32_t ESCAPES = 128;

constexpr uint32_t MAX_FILLS = 2;
constexpr uint32_t VALUES_PER_ESCAPE = 16;
constexpr uint32_t LEAST_BITS = 5;
constexpr uint32_t MAX_LEAST = 31;

// A predictor and its view of the chunk. The host makes it: for the encoder one per candidate, for the decoder from the
// first bytes of a payload.
struct Choice {
    // The chunk is [nb][nz][ny][nx]; nb is implied by the number of tiles.
    uint64_t nz, ny, nx;
    // Number of tiles along each axis, and in total.
    uint32_t tiles_z, tiles_y, tiles_x, n_tiles;
    uint8_t axes, lag;
    uint8_t x_log2, y_log2, z_log2;
    uint8_t x_axes, y_axes, z_axes;
};

// A chunk, contiguous in memory.
struct Chunk {
    uint64_t values;
    uint64_t payload;
    // Its first slot among those of all chunks. Encoding: a slot is a ticket for a tile. Decoding: a slot is a tile.
    uint32_t first_slot;
    // Encoding: the index of the sampling of its shape, and that of the chosen predictor, which `fast_choose` writes.
    uint32_t sampling;
    uint32_t choice;
    // Encoding: the index of its first run of 32 slots.
    uint32_t first_run;
    // Size of the payload; the encoder writes it.
    uint64_t payload_bytes;
};

// Position and extents of a tile.
template <class T>
struct Tile {
    const T* values;
    uint8_t* payload;
    uint64_t stride_z, stride_y;
    uint32_t chunk, index, n_tiles;
    uint32_t ez, ey, ex, row;
    uint32_t n_codes;
    uint8_t axes, lag;
    // Whether the tile is not clipped, so that extents are powers of two, and whether its rows are also aligned to 16
    // bytes.
    uint8_t full, aligned;
    // For a clipped tile: the reciprocals of `row` and `ey`.
    float per_row, per_ey;
    uint8_t x_log2, y_log2;
    // One of the shapes below, or ANY_SHAPE.
    uint8_t shape;

    DEVICE uint32_t n_values() const { return ez * ey * ex; }
    DEVICE uint32_t n_super() const { return (n_codes + SUPER - 1) / SUPER; }

    // Row of a linear index, and position in it.
    DEVICE uint32_t line_of(uint32_t at) const { return full ? at >> x_log2 : divided(at, per_row); }
    DEVICE uint32_t y_of(uint32_t line) const { return full ? line & (ey - 1) : line - divided(line, per_ey) * ey; }
    DEVICE uint32_t z_of(uint32_t line) const { return full ? line >> y_log2 : divided(line, per_ey); }
    // Division by multiplication with the reciprocal `share`. It is exact for numbers below 2^13: the 0.5 outweighs
    // rounding.
    DEVICE static uint32_t divided(uint32_t number, float share) { return uint32_t(mul_rn(float(number) + 0.5f, share)); }

    // The address of its first value, and of the payload that it is part of.
    DEVICE const T* from() const { return in_device_memory(values); }
    DEVICE T* to() const { return in_device_memory((T*)values); }
    DEVICE uint8_t* bytes() const { return in_device_memory(payload); }

    // Offset of a row from the tile's first value, in the chunk.
    DEVICE uint64_t row_offset(uint32_t line) const { return z_of(line) * stride_z + y_of(line) * stride_y; }

    // The same for the value with this linear index, which is not padding.
    DEVICE uint64_t offset(uint32_t at) const {
        uint32_t line = line_of(at);
        return row_offset(line) + (at - line * row);
    }
};

constexpr uint32_t NO_TILE = 0xFFFFFFFF;

// The shapes of most tiles: full, with differences along the axes that the encoder chooses for such a view. Their
// extents are compile-time constants, except for planes, whose rows have 32 to 256 values.
constexpr uint32_t ANY_SHAPE = 0;
constexpr uint32_t LINE = 1;
constexpr uint32_t PLANE = 2;
constexpr uint32_t VOLUME = 3;
// Rows of planes are at most as long as what a warp codes at a time.
constexpr uint32_t MIN_PLANE_ROW_LOG2 = 5, MAX_PLANE_ROW_LOG2 = 8;

template <uint32_t ROW_LOG2, uint32_t ROWS, bool HAS_Y, bool HAS_Z>
struct Extents {
    static constexpr uint32_t EY = ROWS;
    static constexpr bool ALONG_Y = HAS_Y, ALONG_Z = HAS_Z;
    template <class T>
    DEVICE static uint32_t row_log2(const Tile<T>&) { return ROW_LOG2; }
};

template <uint32_t NUMBER>
struct Shape;

template <>
struct Shape<LINE> : Extents<12, 1, false, false> {};

template <>
struct Shape<VOLUME> : Extents<5, 16, true, true> {};

template <>
struct Shape<PLANE> {
    static constexpr bool ALONG_Y = true, ALONG_Z = false;
    template <class T>
    DEVICE static uint32_t row_log2(const Tile<T>& tile) { return tile.x_log2; }
};

// Tile `index` of a chunk.
template <class T>
DEVICE void place_tile(const Chunk& chunk, const Choice& view, uint32_t number, uint32_t index, Tile<T>& tile) {
    uint32_t rest = index;
    uint32_t x = rest % view.tiles_x;
    rest /= view.tiles_x;
    uint32_t y = rest % view.tiles_y;
    rest /= view.tiles_y;
    uint32_t z = rest % view.tiles_z;
    uint32_t b = rest / view.tiles_z;
    uint64_t at_x = uint64_t(x) << view.x_log2, at_y = uint64_t(y) << view.y_log2, at_z = uint64_t(z) << view.z_log2;
    uint32_t most_x = 1u << view.x_log2, most_y = 1u << view.y_log2, most_z = 1u << view.z_log2;
    tile.values = (const T*)chunk.values + ((b * view.nz + at_z) * view.ny + at_y) * view.nx + at_x;
    tile.payload = (uint8_t*)chunk.payload;
    tile.stride_z = view.ny * view.nx;
    tile.stride_y = view.nx;
    tile.chunk = number;
    tile.index = index;
    tile.n_tiles = view.n_tiles;
    tile.ex = uint32_t(min(view.nx - at_x, uint64_t(most_x)));
    tile.ey = uint32_t(min(view.ny - at_y, uint64_t(most_y)));
    tile.ez = uint32_t(min(view.nz - at_z, uint64_t(most_z)));
    tile.row = (tile.ex + GROUP - 1) / GROUP * GROUP;
    tile.n_codes = tile.ez * tile.ey * tile.row;
    tile.axes = view.axes;
    tile.lag = view.lag;
    tile.full = tile.n_codes == TILE_VALUES && tile.ex == most_x;
    tile.per_row = 1.0f / float(tile.row);
    tile.per_ey = 1.0f / float(tile.ey);
    constexpr uint32_t per_load = 16 / sizeof(T);
    tile.aligned = tile.full && chunk.values % 16 == 0 && view.nx % per_load == 0;
    tile.x_log2 = view.x_log2;
    tile.y_log2 = view.y_log2;
    tile.shape = ANY_SHAPE;
    if (tile.full && tile.lag == 1) {
        const uint32_t across = view.axes & (Y | Z);
        const bool is_twice = view.axes & XX;
        if (view.x_log2 == 12 && across == 0) tile.shape = LINE;
        const bool has_such_rows = view.x_log2 >= MIN_PLANE_ROW_LOG2 && view.x_log2 <= MAX_PLANE_ROW_LOG2;
        if (view.x_log2 + view.y_log2 == 12 && has_such_rows && across == Y && !is_twice) tile.shape = PLANE;
        if (view.x_log2 == 5 && view.y_log2 == 4 && across == (Y | Z) && !is_twice) tile.shape = VOLUME;
    }
}

// The chunk that a slot belongs to. `slots_per_chunk` is 0 if chunks have different numbers of them.
DEVICE uint32_t chunk_of(const Chunk* chunks, uint32_t n_chunks, uint32_t slots_per_chunk, uint32_t slot) {
    if (slots_per_chunk > 0) return min(slot / slots_per_chunk, n_chunks - 1);
    // The last chunk that starts at or before the slot.
    uint32_t number = 0, end = n_chunks;
    while (end - number > 1) {
        uint32_t middle = (number + end) / 2;
        if (chunks[middle].first_slot <= slot) number = middle;
        else end = middle;
    }
    return number;
}

// The tile of a slot. Its index is NO_TILE if its chunk has fewer tiles in the chosen view.
template <class T>
DEVICE void locate(const Chunk* chunks, uint32_t n_chunks, uint32_t slots_per_chunk, const Choice* choices,
                   uint32_t slot, Tile<T>& tile) {
    const uint32_t number = chunk_of(chunks, n_chunks, slots_per_chunk, slot);
    const Chunk& chunk = chunks[number];
    const Choice& view = choices[chunk.choice];
    uint32_t index = slot - chunk.first_slot;
    tile.index = NO_TILE;
    tile.chunk = number;
    if (index < view.n_tiles) place_tile(chunk, view, number, index, tile);
}

// Offset of the bodies in a payload.
DEVICE uint32_t bodies_offset(uint32_t n_tiles) {
    uint32_t anchors = (n_tiles + TILES_PER_ANCHOR - 1) / TILES_PER_ANCHOR;
    return PARAMETER_BYTES + 4 * anchors + 2 * (n_tiles + n_tiles % 2);
}

DEVICE uint32_t words_offset(uint32_t n_tiles) {
    return PARAMETER_BYTES + 4 * ((n_tiles + TILES_PER_ANCHOR - 1) / TILES_PER_ANCHOR);
}

// A tile in shared memory, in encoder and decoder: its integers or, in the same memory, its body; the widths of its
// groups; and the offset in the body of the planes of each supergroup.
template <class Int>
struct TileMemory {
    static constexpr uint32_t MOST_WORDS = TILE_VALUES * sizeof(Int) / 4 + 1;
    union {
        Int integers[TILE_VALUES];
        uint8_t body[4 * (MOST_WORDS + 3)];
        // With two more words, which are read after the end of the body, but not used.
        uint32_t words[MOST_WORDS + 3];
    };
    uint8_t widths[N_GROUPS];
    uint16_t planes_at[N_SUPER];
};

// Integers of a tile in shared memory are swizzled in pieces of 16 bytes, to avoid bank conflicts both when threads
// read a group each and when they read consecutive pieces.
template <class Int>
DEVICE uint32_t swizzled_piece(uint32_t piece) {
    // Two pieces make a group of 32-bit integers, four one of 64-bit integers.
    return sizeof(Int) == 4 ? piece ^ (piece >> 3 & 1) : piece ^ (piece >> 3 & 3);
}

template <class Int>
DEVICE uint32_t swizzled_index(uint32_t at) {
    constexpr uint32_t n = 16 / sizeof(Int);
    return swizzled_piece<Int>(at / n) * n + at % n;
}

template <class Int>
DEVICE void load_group(const Int* integers, uint32_t at, Int (&group)[GROUP]) {
    constexpr uint32_t n = 16 / sizeof(Int);
    const Piece<Int>* pieces = (const Piece<Int>*)integers;
#pragma unroll
    for (uint32_t i = 0; i < GROUP / n; ++i) {
        Piece<Int> piece = pieces[swizzled_piece<Int>(at / n + i)];
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) group[i * n + k] = piece.of[k];
    }
}

template <class Int>
DEVICE void store_group(Int* integers, uint32_t at, const Int (&group)[GROUP]) {
    constexpr uint32_t n = 16 / sizeof(Int);
    Piece<Int>* pieces = (Piece<Int>*)integers;
#pragma unroll
    for (uint32_t i = 0; i < GROUP / n; ++i) {
        Piece<Int> piece;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) piece.of[k] = group[i * n + k];
        pieces[swizzled_piece<Int>(at / n + i)] = piece;
    }
}

// A step of transposing 8 x 8 bits, for all rows at once. The rows of `lower` are DISTANCE below those of `upper`.
// Swaps bits of `upper` in columns whose index has the bit DISTANCE with bits of `lower` in columns without it, which
// are `COLUMNS`.
template <uint32_t DISTANCE, uint32_t COLUMNS>
DEVICE void swap_blocks(uint32_t& upper, uint32_t& lower) {
    const uint32_t moved = (upper & COLUMNS) | (lower << DISTANCE & ~COLUMNS);
    lower = (lower & ~COLUMNS) | (upper >> DISTANCE & COLUMNS);
    upper = moved;
}

// Transposes the bytes of eight codes, those with even and with odd indices separately, to bit planes: bit k of byte i
// becomes bit i of plane k; `low` holds planes 0 to 3. In this order, rows that are swapped are never in the same word.
DEVICE void planes_of_bytes(uint32_t even, uint32_t odd, uint32_t& low, uint32_t& high) {
    swap_blocks<1, 0x55555555>(even, odd);
    // Rows 0, 1, 4, 5 and 2, 3, 6, 7.
    uint32_t upper = __byte_perm(even, odd, 0x6240), lower = __byte_perm(even, odd, 0x7351);
    swap_blocks<2, 0x33333333>(upper, lower);
    low = __byte_perm(upper, lower, 0x5410);
    high = __byte_perm(upper, lower, 0x7632);
    swap_blocks<4, 0x0F0F0F0F>(low, high);
}

// The inverse.
DEVICE void bytes_of_planes(uint32_t low, uint32_t high, uint32_t& even, uint32_t& odd) {
    swap_blocks<4, 0x0F0F0F0F>(low, high);
    uint32_t upper = __byte_perm(low, high, 0x5410), lower = __byte_perm(low, high, 0x7632);
    swap_blocks<2, 0x33333333>(upper, lower);
    even = __byte_perm(upper, lower, 0x6240);
    odd = __byte_perm(upper, lower, 0x7351);
    swap_blocks<1, 0x55555555>(even, odd);
}

// Byte `number` of every second of eight integers.
template <class Uint>
DEVICE uint32_t gather_bytes(const Uint* codes, uint32_t number) {
    uint32_t shift = number / 4 * 16 * (sizeof(Uint) / 8);
    uint32_t a = uint32_t(codes[0] >> shift >> shift), b = uint32_t(codes[2] >> shift >> shift);
    uint32_t c = uint32_t(codes[4] >> shift >> shift), d = uint32_t(codes[6] >> shift >> shift);
    uint32_t pick = number % 4 | (number % 4 + 4) << 4;
    return __byte_perm(__byte_perm(a, b, pick), __byte_perm(c, d, pick), 0x5410);
}

// Whether any of four bytes is above `limit`, which is below 128.
DEVICE bool any_byte_above(uint32_t bytes, uint32_t limit) {
    return ((bytes | ((bytes & 0x7F7F7F7F) + (127 - limit) * 0x01010101)) & 0x80808080) != 0;
}

// The minimum of each pair of bytes, which are below 128.
DEVICE uint32_t lesser_bytes(uint32_t a, uint32_t b) {
    const uint32_t is_b = (((a | 0x80808080) - b) >> 7 & 0x01010101) * 0xFF;
    return (b & is_b) | (a & ~is_b);
}

// The minimum of eight bytes, which are below 128.
DEVICE uint32_t least_of_bytes(uint32_t low, uint32_t high) {
    const uint32_t four = lesser_bytes(low, high), two = lesser_bytes(four, four >> 16);
    return lesser_bytes(two, two >> 8) & 0xFF;
}

// The groups of a supergroup before one of them.
struct Neighbours {
    // The index of the group, 0 to 7, and a byte of 1 for each group before it.
    uint32_t number, before_low, before_high;

    DEVICE explicit Neighbours(uint32_t number) : number(number) {
        before_low = number < 4 ? ((1u << 8 * number) - 1) & 0x01010101 : 0x01010101;
        before_high = number > 4 ? ((1u << 8 * (number - 4)) - 1) & 0x01010101 : 0;
    }

    DEVICE uint32_t own(uint32_t low, uint32_t high) const { return __byte_perm(low, high, number) & 0xFF; }
    // Adds the widths of the groups before to `sum`.
    DEVICE uint32_t add_before(uint32_t low, uint32_t high, uint32_t sum) const {
        return dot_of_bytes(high, before_high, dot_of_bytes(low, before_low, sum));
    }
};
