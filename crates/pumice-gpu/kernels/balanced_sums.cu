// Codec `balanced`, decoding: differences to values, by sums along the axes of an order.
//
// Plain chunks (balanced.cuh) are taken in patches of 8 rows of 128 values:
//   edges       a warp a patch: sums of its columns, and of its rows
//   columns     a thread four columns: sums of all patches above
//   strips      a warp a row, or a block where rows are long: sums of all strips before
//   lines       a block a strip of all rows of a plane: sums of all rows above, or before in a line
//   sum         a warp a patch, plane after plane: along z in registers, along y from row to row, along x between lanes;
//               what is outside of the patch is in the sums made before. Values are written once.
//
// Where rows cut groups, differences are put in order before (part), and taken from there.
//
// Any order of any chunk: the differences are put where the values go (join), and summed up there along one axis after the
// other: starts of rows (starts), rows (rows), and the axes across them (across). Then they become values (restore).
#include "balanced_decode.cuh"

namespace balanced {

template <class T>
struct DecodeJob : DecodeWork {
    Coding<T> coding;
    // The axis across rows that `across` sums along.
    uint32_t axis;
};

constexpr uint32_t SUM_THREADS = 256;
// Blocks that work on a chunk.
constexpr uint32_t SUM_BLOCKS = 64;

struct SumShared {
    uint32_t sums[SUM_THREADS / 32 + 1];
};

template <class T>
DEVICE void join_groups(const DecodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain) return;
    typename Real<T>::Int* out = in_device_memory((typename Real<T>::Int*)chunk.values);
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32;
    for (uint32_t group = first; group < chunk.n_groups; group += SUM_BLOCKS * SUM_THREADS / 32) {
        const uint32_t d = load_difference(job, chunk, chunk.first_group + group, lane);
        if (group * GROUP + lane < chunk.n_values) out[group * GROUP + lane] = d;
    }
}

// Sums from the start of one row to that of the next; a warp a chain of rows.
template <class T>
DEVICE void sum_starts(const DecodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain || state.walk.n_along == 0 || state.walk.row.n_repeats == 1) return;
    typename Real<T>::Int* out = in_device_memory((typename Real<T>::Int*)chunk.values);
    const uint32_t n_repeats = state.walk.row.n_repeats, extent = state.walk.row.extent;
    const uint32_t n_chains = chunk.n_values / extent / n_repeats;
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32;
    for (uint32_t chain = first; chain < n_chains; chain += SUM_BLOCKS * SUM_THREADS / 32) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < n_repeats; i += 32) {
            const uint64_t at = (uint64_t(chain) * n_repeats + i + lane) * extent;
            const bool exists = i + lane < n_repeats;
            const uint32_t sum = before + prefix_of_warp(exists ? uint32_t(out[at]) : 0, lane);
            if (exists) out[at] = sum;
            before = __shfl_sync(ALL_LANES, sum, 31);
        }
    }
}

// Sums along rows, once or twice; a block a row.
template <class T>
DEVICE void sum_rows(const DecodeJob<T>& job, SumShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain || state.walk.n_along == 0) return;
    typename Real<T>::Int* out = in_device_memory((typename Real<T>::Int*)chunk.values);
    const uint32_t extent = state.walk.row.extent, n_rows = chunk.n_values / extent;
    constexpr uint32_t EACH = 4;
    for (uint32_t row = blockIdx.x % SUM_BLOCKS; row < n_rows; row += SUM_BLOCKS) {
        typename Real<T>::Int* values = out + uint64_t(row) * extent;
        uint32_t before_first = 0, before = 0;
        for (uint32_t first = 0; first < extent; first += SUM_THREADS * EACH) {
            uint32_t d[EACH], sum = 0, all;
            const uint32_t at = first + t * EACH;
            for (uint32_t k = 0; k < EACH; ++k) d[k] = at + k < extent ? uint32_t(values[at + k]) : 0;
            // Where differences were taken twice, the start of the row is not part of the first sums.
            const uint32_t start = d[0];
            if (state.walk.n_along == 2) {
                if (at == 0) d[0] = 0;
                for (uint32_t k = 0; k < EACH; ++k) {
                    sum += d[k];
                    d[k] = sum;
                }
                const uint32_t base = before_first + prefix_of_block<SUM_THREADS>(sum, s.sums, all);
                before_first += all;
                for (uint32_t k = 0; k < EACH; ++k) d[k] += base;
                if (at == 0) d[0] = start;
                sum = 0;
            }
            for (uint32_t k = 0; k < EACH; ++k) {
                if (at + k < extent) sum += d[k];
                d[k] = sum;
            }
            const uint32_t base = before + prefix_of_block<SUM_THREADS>(sum, s.sums, all);
            before += all;
            for (uint32_t k = 0; k < EACH; ++k) {
                if (at + k < extent) values[at + k] = d[k] + base;
            }
        }
    }
}

constexpr uint32_t ACROSS_AT_ONCE = 8;

// Sums along an axis across rows; a thread a column.
template <class T>
DEVICE void sum_across(const DecodeJob<T>& job) {
    const uint32_t number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain || job.axis >= state.walk.n_across) return;
    typename Real<T>::Int* out = in_device_memory((typename Real<T>::Int*)chunk.values);
    const Axis axis = state.walk.across[job.axis];
    const uint32_t n_columns = chunk.n_values / (axis.extent * axis.n_repeats);
    const uint32_t first = blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x;
    for (uint32_t column = first; column < n_columns; column += SUM_BLOCKS * SUM_THREADS) {
        uint32_t at = column / axis.stride * axis.stride * axis.extent * axis.n_repeats + column % axis.stride;
        uint32_t start = 0;
        for (uint32_t repeat = 0; repeat < axis.n_repeats; ++repeat) {
            uint32_t sum = 0;
            for (uint32_t i = 0; i < axis.extent; i += ACROSS_AT_ONCE) {
                // All loads are under way before the first is waited for.
                uint32_t d[ACROSS_AT_ONCE];
#pragma unroll
                for (uint32_t k = 0; k < ACROSS_AT_ONCE; ++k) d[k] = i + k < axis.extent ? uint32_t(out[at + k * axis.stride]) : 0;
                if (i == 0) {
                    d[0] += start;
                    start = d[0];
                }
#pragma unroll
                for (uint32_t k = 0; k < ACROSS_AT_ONCE; ++k) {
                    sum += d[k];
                    if (i + k < axis.extent) out[at + k * axis.stride] = sum;
                }
                at += min(ACROSS_AT_ONCE, axis.extent - i) * axis.stride;
            }
        }
    }
}

template <class T>
DEVICE void restore_values(const DecodeJob<T>& job) {
    const uint32_t number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (is_odd(state) || state.is_plain) return;
    typename Real<T>::Int* integers = in_device_memory((typename Real<T>::Int*)chunk.values);
    T* values = in_device_memory((T*)chunk.values);
    const uint32_t first = blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x;
    for (uint32_t at = first; at < chunk.n_values; at += SUM_BLOCKS * SUM_THREADS) {
        const int64_t q = state.origin + int32_t(uint32_t(integers[at]));
        values[at] = job.coding.restore(typename Real<T>::Int(q));
    }
}

// ---- Plain chunks ----

// Rows of a patch.
constexpr uint32_t PATCH = 8;
constexpr uint32_t PLAIN_THREADS = 128;

// Where the patches of a plain chunk are.
struct Patches : Plain {
    uint32_t n_segments;

    DEVICE Patches(const Chunk& chunk, uint32_t order) : Plain(chunk, order) { n_segments = (ny + PATCH - 1) / PATCH; }

    // In the sums of rows: rows of a strip of a plane follow each other. Behind the last strip are the starts of rows.
    DEVICE uint32_t edge(uint32_t z, uint32_t strip, uint32_t y) const { return (z * (n_strips + 1) + strip) * ny + y; }
    // In the sums of columns, of which there are whole fours.
    DEVICE uint32_t column(uint32_t z, uint32_t segment, uint32_t x) const { return 4 * ((z * n_segments + segment) * fours()) + x; }
    DEVICE uint32_t fours() const { return (nx + 3) / 4; }
};

// A lane's part of each row of a patch, from where it is until it is needed: classes and bytes.
template <bool HAS_WHOLE_ROWS>
struct PatchRows {
    uint32_t flags[PATCH], bytes[PATCH];

    // Zeros where there is nothing.
    DEVICE PatchRows(const DecodeWork& work, const Chunk& chunk, const Patches& patches, uint32_t z, uint32_t y0, uint32_t x) {
        const uint8_t *all_classes = work.classes + chunk.first_group, *all_bytes = work.bytes + chunk.first_group * GROUP;
        const uint32_t first = (z * patches.ny + y0) * patches.nx + x;
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            flags[r] = 0;
            bytes[r] = 0x80808080;
            if (patches.n_at(y0 + r, x) > 0) {
                const uint32_t at = first + r * patches.nx;
                flags[r] = all_classes[at / GROUP];
                bytes[r] = *(const uint32_t*)(all_bytes + at);
            }
            // Empty groups have no bytes.
            if (flags[r] == 0) bytes[r] = 0x80808080;
        }
    }

    // The differences of row r, whose place among all values is `at`.
    DEVICE void differences(const DecodeWork& work, const Chunk& chunk, uint64_t at, uint32_t r, uint32_t (&d)[4]) const {
        load_four_differences(work, chunk, at, flags[r], bytes[r], d);
    }
};

// Where rows cut groups: the differences themselves.
template <>
struct PatchRows<false> {
    uint32_t all[PATCH][4];

    DEVICE PatchRows(const DecodeWork& work, const Chunk& chunk, const Patches& patches, uint32_t z, uint32_t y0, uint32_t x) {
        const uint32_t* from = work.differences + chunk.first_group * GROUP + ((z * patches.ny + y0) * patches.nx + x);
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            const uint32_t n = patches.n_at(y0 + r, x);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) all[r][k] = k < n ? from[r * patches.nx + k] : 0;
        }
    }

    DEVICE void differences(const DecodeWork&, const Chunk&, uint64_t, uint32_t r, uint32_t (&d)[4]) const {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) d[k] = all[r][k];
    }
};

// Puts the differences of chunks whose rows cut groups in order.
DEVICE void part_groups(const DecodeWork& work) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (state.is_odd || state.is_plain != CUT_ROWS) return;
    const uint64_t first_value = chunk.first_group * GROUP;
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32 * STRIP;
    for (uint32_t start = first; start < chunk.n_values; start += SUM_BLOCKS * SUM_THREADS / 32 * STRIP) {
        const uint32_t at = start + 4 * lane;
        if (at >= chunk.n_values) continue;
        const uint32_t flags = work.classes[chunk.first_group + at / GROUP];
        uint32_t d[4];
        load_four_differences(work, chunk, first_value + at, flags,
                              flags == 0 ? 0x80808080 : *(const uint32_t*)(work.bytes + first_value + at), d);
        *(Piece<uint32_t>*)(work.differences + first_value + at) = Piece<uint32_t>{{d[0], d[1], d[2], d[3]}};
    }
}

template <uint32_t KIND>
DEVICE void find_edges(const DecodeWork& work) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / work.patch_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (state.is_odd || state.is_plain != KIND) return;
    const Patches patches(chunk, state.order);
    // Where neither is of use, there is nothing to do.
    if (!patches.has_x && !patches.has_y) return;
    const uint64_t first_value = chunk.first_group * GROUP;
    uint32_t *all_columns = work.columns + chunk.first_column, *edges = work.edges + chunk.first_edge;
    const uint32_t n_units = patches.nz * patches.n_segments * patches.n_strips;
    for (uint32_t unit = blockIdx.x % work.patch_blocks * (PLAIN_THREADS / 32) + threadIdx.x / 32; unit < n_units;
         unit += work.patch_blocks * (PLAIN_THREADS / 32)) {
        const uint32_t strip = unit % patches.n_strips, rest = unit / patches.n_strips;
        const uint32_t segment = rest % patches.n_segments, z = rest / patches.n_segments;
        const uint32_t y0 = segment * PATCH, x = strip * STRIP + 4 * lane;
        const PatchRows<KIND == WHOLE_ROWS> rows(work, chunk, patches, z, y0, x);
        const uint64_t first = first_value + (z * patches.ny + y0) * patches.nx + x;
        uint32_t columns[4] = {0, 0, 0, 0}, own = 0, start = 0;
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            uint32_t d[4];
            rows.differences(work, chunk, first + r * patches.nx, r, d);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) columns[k] += d[k];
            const uint32_t sum = __reduce_add_sync(ALL_LANES, d[0] + d[1] + d[2] + d[3]);
            const uint32_t first_of_row = __shfl_sync(ALL_LANES, d[0], 0);
            if (lane == r) {
                own = sum;
                start = first_of_row;
            }
        }
        if (patches.has_y && x < patches.nx) {
            *(Piece<uint32_t>*)(all_columns + patches.column(z, segment, x)) =
                Piece<uint32_t>{{columns[0], columns[1], columns[2], columns[3]}};
        }
        if (patches.has_x && lane < PATCH && y0 + lane < patches.ny) {
            edges[patches.edge(z, strip, y0 + lane)] = own;
            if (strip == 0) edges[patches.edge(z, patches.n_strips, y0 + lane)] = start;
        }
    }
}

// Sums of columns become those of all patches above.
DEVICE void sum_columns(const DecodeWork& work) {
    const uint32_t number = blockIdx.x / work.edge_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (state.is_odd || !state.is_plain) return;
    const Patches patches(chunk, state.order);
    if (!patches.has_y) return;
    uint32_t* columns = work.columns + chunk.first_column;
    const uint32_t fours = patches.fours();
    const uint32_t first = blockIdx.x % work.edge_blocks * SUM_THREADS + threadIdx.x;
    for (uint32_t i = first; i < patches.nz * fours; i += work.edge_blocks * SUM_THREADS) {
        const uint32_t z = i / fours, x = i % fours * 4;
        uint32_t sum[4] = {0, 0, 0, 0};
        if (!patches.has_z) {
            // The first row of a plane comes after that of the plane before.
            for (uint32_t behind = 0; behind < z; ++behind) {
                const uint64_t at = chunk.first_group * GROUP + uint64_t(behind) * patches.ny * patches.nx + x;
                uint32_t d[4] = {0, 0, 0, 0};
                if (state.is_plain == WHOLE_ROWS) {
                    const uint32_t flags = work.classes[at / GROUP];
                    load_four_differences(work, chunk, at, flags, flags == 0 ? 0x80808080 : *(const uint32_t*)(work.bytes + at), d);
                } else {
                    const uint32_t n = patches.n_at(0, x);
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) d[k] = k < n ? work.differences[at + k] : 0;
                }
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) sum[k] += d[k];
            }
        }
        Piece<uint32_t>* at = (Piece<uint32_t>*)(columns + patches.column(z, 0, x));
        constexpr uint32_t AT_ONCE = 4;
        for (uint32_t segment = 0; segment < patches.n_segments; segment += AT_ONCE) {
            Piece<uint32_t> own[AT_ONCE];
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; ++j) {
                if (segment + j < patches.n_segments) own[j] = at[uint64_t(j) * fours];
            }
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; ++j) {
                if (segment + j < patches.n_segments) {
                    at[uint64_t(j) * fours] = Piece<uint32_t>{{sum[0], sum[1], sum[2], sum[3]}};
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) sum[k] += own[j].of[k];
                }
            }
            at += AT_ONCE * uint64_t(fours);
        }
    }
}

// Rows of more strips than this are a block's work.
constexpr uint32_t MANY_STRIPS = 256;

// Sums of rows become those of all strips before.
DEVICE void sum_strips(const DecodeWork& work, SumShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, number = blockIdx.x / work.edge_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (is_odd(state) || !state.is_plain) return;
    const Patches patches(chunk, state.order);
    // The rows of a line are all sums that there are.
    if (!patches.has_x || patches.is_line) return;
    uint32_t* edges = work.edges + chunk.first_edge;
    const uint32_t block = blockIdx.x % work.edge_blocks, n_rows = patches.nz * patches.ny;
    if (patches.n_strips > MANY_STRIPS) {
        for (uint32_t row = block; row < n_rows; row += work.edge_blocks) {
            uint32_t before = 0, all;
            for (uint32_t i = 0; i < patches.n_strips; i += SUM_THREADS) {
                const bool exists = i + t < patches.n_strips;
                const uint64_t at = patches.edge(row / patches.ny, i + t, row % patches.ny);
                const uint32_t sum = prefix_of_block<SUM_THREADS>(exists ? edges[at] : 0, s.sums, all);
                if (exists) edges[at] = before + sum;
                before += all;
            }
        }
        return;
    }
    for (uint32_t row = block * (SUM_THREADS / 32) + t / 32; row < n_rows; row += work.edge_blocks * (SUM_THREADS / 32)) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < patches.n_strips; i += 32) {
            const bool exists = i + lane < patches.n_strips;
            const uint64_t at = patches.edge(row / patches.ny, i + lane, row % patches.ny);
            const uint32_t own = exists ? edges[at] : 0;
            const uint32_t upto = before + prefix_of_warp(own, lane);
            if (exists) edges[at] = upto - own;
            before = __shfl_sync(ALL_LANES, upto, 31);
        }
    }
}

// What is left of each strip of each row, with all rows above or with the start of the row.
DEVICE void sum_lines(const DecodeWork& work, SumShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x / work.edge_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (is_odd(state) || !state.is_plain) return;
    const Patches patches(chunk, state.order);
    if (!patches.has_x) return;
    const uint32_t* edges = work.edges + chunk.first_edge;
    uint32_t* sums = work.edge_sums + chunk.first_edge;
    for (uint32_t line = blockIdx.x % work.edge_blocks; line < patches.nz * patches.n_strips; line += work.edge_blocks) {
        const uint32_t z = line / patches.n_strips, strip = line % patches.n_strips;
        uint32_t before = 0, all;
        if (patches.has_y && !patches.has_z) {
            // The first row of a plane comes after that of the plane before.
            uint32_t sum = 0;
            for (uint32_t i = t; i < z; i += SUM_THREADS) sum += edges[patches.edge(i, strip, 0)];
            prefix_of_block<SUM_THREADS>(sum, s.sums, before);
        }
        for (uint32_t y = t; y < patches.ny + t; y += SUM_THREADS) {
            const bool exists = y < patches.ny;
            const uint32_t own = exists ? edges[patches.edge(z, strip, y)] : 0;
            const bool adds_own = patches.has_y || patches.is_line;
            const uint32_t added = adds_own ? own : exists ? edges[patches.edge(z, patches.n_strips, y)] : 0;
            const uint32_t sum = before + prefix_of_block<SUM_THREADS>(added, s.sums, all);
            if (exists) sums[patches.edge(z, strip, y)] = patches.is_line ? sum : sum + own;
            before += all;
        }
    }
}

template <class T>
DEVICE void store_four(T* to, const T (&x)[4]) {
    constexpr uint32_t n = 16 / sizeof(T);
#pragma unroll
    for (uint32_t i = 0; i < 4 / n; ++i) {
        Piece<T> piece;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) piece.of[k] = x[i * n + k];
        ((Piece<T>*)to)[i] = piece;
    }
}

// Values of a patch; by one warp.
template <class T, bool HAS_WHOLE_ROWS>
DEVICE void sum_patch(const DecodeJob<T>& job, const Chunk& chunk, const Patches& patches, int64_t origin, uint32_t segment,
                      uint32_t strip) {
    using Int = typename Real<T>::Int;
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t y0 = segment * PATCH, x = strip * STRIP + 4 * lane;
    T* values = in_device_memory((T*)chunk.values);
    const Int base = Int(origin) + Real<T>::MAGIC_BITS;
    const uint32_t* columns = job.columns + chunk.first_column;
    const uint32_t* edges = job.edge_sums + chunk.first_edge;
    const uint64_t first_value = chunk.first_group * GROUP;
    // What is kept from plane to plane, and from row to row.
    const uint32_t kept_z = patches.has_z ? ALL_LANES : 0, kept_y = patches.has_y ? ALL_LANES : 0;

    // Along z: of the lane's values, of the columns above, and in lane r of what is left of row r.
    uint32_t sums[PATCH][4], above[4] = {0, 0, 0, 0}, left = 0;
#pragma unroll
    for (uint32_t r = 0; r < PATCH; ++r) {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) sums[r][k] = 0;
    }
    for (uint32_t z = 0; z < patches.nz; ++z) {
        const PatchRows<HAS_WHOLE_ROWS> rows(job, chunk, patches, z, y0, x);
        if (patches.has_y && x < patches.nx) {
            const Piece<uint32_t> piece = *(const Piece<uint32_t>*)(columns + patches.column(z, segment, x));
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) above[k] = (above[k] & kept_z) + piece.of[k];
        }
        if (patches.has_x && lane < PATCH && y0 + lane < patches.ny) {
            left = (left & kept_z) + edges[patches.edge(z, strip, y0 + lane)];
        }
        uint32_t upto[4];
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) upto[k] = above[k];
        const uint32_t first = (z * patches.ny + y0) * patches.nx + x;
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            if (y0 + r >= patches.ny) break;
            uint32_t d[4];
            const uint32_t at = first + r * patches.nx;
            rows.differences(job, chunk, first_value + at, r, d);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) {
                sums[r][k] = (sums[r][k] & kept_z) + d[k];
                upto[k] = (upto[k] & kept_y) + sums[r][k];
            }
            uint32_t along[4];
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) along[k] = upto[k];
            if (patches.has_x) {
                along[1] += along[0];
                along[2] += along[1];
                along[3] += along[2];
                const uint32_t before = prefix_of_warp(along[3], lane) - along[3] + __shfl_sync(ALL_LANES, left, r);
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) along[k] += before;
            }
            const uint32_t n = patches.n_at(y0 + r, x);
            if (n > 0) {
                T restored[4];
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) {
                    const Int q = base + Int(typename Real<T>::Signed(int32_t(along[k])));
                    restored[k] = job.coding.restored(of_bits<T>(q));
                }
                if constexpr (HAS_WHOLE_ROWS) {
                    store_four(values + at, restored);
                } else {
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) {
                        if (k < n) values[at + k] = restored[k];
                    }
                }
            }
        }
    }
}

template <class T, uint32_t KIND>
DEVICE void sum_plain(const DecodeJob<T>& job) {
    const uint32_t number = blockIdx.x / job.patch_blocks;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (state.is_odd || state.is_plain != KIND) return;
    const Patches patches(chunk, state.order);
    const uint32_t n_units = patches.n_segments * patches.n_strips;
    for (uint32_t unit = blockIdx.x % job.patch_blocks * (PLAIN_THREADS / 32) + threadIdx.x / 32; unit < n_units;
         unit += job.patch_blocks * (PLAIN_THREADS / 32)) {
        sum_patch<T, KIND == WHOLE_ROWS>(job, chunk, patches, state.origin, unit / patches.n_strips, unit % patches.n_strips);
    }
}

}  // namespace balanced

using namespace balanced;

KERNEL_BOUNDED(256, 4, balanced_part)(const __grid_constant__ DecodeWork work) { part_groups(work); }

KERNEL_BOUNDED(128, 6, balanced_edges)(const __grid_constant__ DecodeWork work) { find_edges<WHOLE_ROWS>(work); }

KERNEL_BOUNDED(128, 6, balanced_edges_cut)(const __grid_constant__ DecodeWork work) { find_edges<CUT_ROWS>(work); }

KERNEL_BOUNDED(256, 4, balanced_columns)(const __grid_constant__ DecodeWork work) { sum_columns(work); }

KERNEL_BOUNDED(256, 4, balanced_strips)(const __grid_constant__ DecodeWork work) {
    SHARED(SumShared, shared);
    sum_strips(work, shared);
}

KERNEL_BOUNDED(256, 4, balanced_lines)(const __grid_constant__ DecodeWork work) {
    SHARED(SumShared, shared);
    sum_lines(work, shared);
}

REGISTER_KERNEL(balanced_part);
REGISTER_KERNEL(balanced_edges);
REGISTER_KERNEL(balanced_edges_cut);
REGISTER_KERNEL(balanced_columns);
REGISTER_KERNEL(balanced_strips);
REGISTER_KERNEL(balanced_lines);

#define KERNELS_OF_VALUES(Suffix, T)                                                                \
    KERNEL_BOUNDED(256, 4, balanced_join_##Suffix)(const __grid_constant__ DecodeJob<T> job) {      \
        join_groups(job);                                                                           \
    }                                                                                               \
    KERNEL_BOUNDED(128, 4, balanced_sum_##Suffix)(const __grid_constant__ DecodeJob<T> job) {       \
        sum_plain<T, WHOLE_ROWS>(job);                                                              \
    }                                                                                               \
    KERNEL_BOUNDED(128, 4, balanced_sum_cut_##Suffix)(const __grid_constant__ DecodeJob<T> job) {   \
        sum_plain<T, CUT_ROWS>(job);                                                                \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_starts_##Suffix)(const __grid_constant__ DecodeJob<T> job) {    \
        sum_starts(job);                                                                            \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_rows_##Suffix)(const __grid_constant__ DecodeJob<T> job) {      \
        SHARED(SumShared, shared);                                                                  \
        sum_rows(job, shared);                                                                      \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_across_##Suffix)(const __grid_constant__ DecodeJob<T> job) {    \
        sum_across(job);                                                                            \
    }                                                                                               \
    KERNEL_BOUNDED(256, 4, balanced_restore_##Suffix)(const __grid_constant__ DecodeJob<T> job) {   \
        restore_values(job);                                                                        \
    }                                                                                               \
    REGISTER_KERNEL(balanced_sum_##Suffix);                                                         \
    REGISTER_KERNEL(balanced_sum_cut_##Suffix);                                                     \
    REGISTER_KERNEL(balanced_join_##Suffix);                                                        \
    REGISTER_KERNEL(balanced_starts_##Suffix);                                                      \
    REGISTER_KERNEL(balanced_rows_##Suffix);                                                        \
    REGISTER_KERNEL(balanced_across_##Suffix);                                                      \
    REGISTER_KERNEL(balanced_restore_##Suffix)

KERNELS_OF_VALUES(f32, float);
KERNELS_OF_VALUES(f64, double);
