// Codec `balanced`, decoding: from differences to values, by prefix sums along the axes of an order.
//
// Plain chunks (balanced.cuh) are divided into patches of 8 rows of 128 values, and stacks of four patches:
//   edges       a block per stack, a warp per patch: sums of columns of the stack, and of rows
//   columns     a thread per four columns: sums over all stacks above
//   strips      a thread per row, or a block if rows are long: sums over all previous strips
//   lines       a block per strip of all rows of a plane: sums over all rows above, or over all previous rows of a line
//   sum         a block per stack, a warp per patch, plane after plane: sums along z in registers, along y from row to row and
//               between warps, along x between lanes; the sums above give what is outside of the stack. Values are written once.
//
// If groups cross the ends of rows, differences are first stored as an array (part).
//
// Other chunks, and any order: differences are stored at the positions of the values (join) and summed there along one
// axis after the other: starts of rows (starts), rows (rows), and the axes across them (across). Then they become
// values (restore).
#include "balanced_decode.cuh"

namespace balanced {

template <class T>
struct DecodeJob : DecodeWork {
    Coding<T> coding;
    // The axis across rows that `across` sums along.
    uint32_t axis;
};

constexpr uint32_t SUM_THREADS = 256;
// Thread blocks per chunk.
constexpr uint32_t SUM_BLOCKS = 64;

struct SumShared {
    uint32_t sums[SUM_THREADS / 32 + 1];
};

template <class T>
DEVICE void join_groups(const DecodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (needs_host(state) || state.is_plain) return;
    typename Real<T>::Int* out = in_device_memory((typename Real<T>::Int*)chunk.values);
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32;
    for (uint32_t group = first; group < chunk.n_groups; group += SUM_BLOCKS * SUM_THREADS / 32) {
        const uint32_t d = load_difference(job, chunk, chunk.first_group + group, lane);
        if (group * GROUP + lane < chunk.n_values) out[group * GROUP + lane] = d;
    }
}

// Sums over the starts of rows; one warp per chain of rows.
template <class T>
DEVICE void sum_starts(const DecodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (needs_host(state) || state.is_plain || state.walk.n_along == 0 || state.walk.row.n_repeats == 1) return;
    typename Real<T>::Int* out = in_device_memory((typename Real<T>::Int*)chunk.values);
    const uint32_t n_repeats = state.walk.row.n_repeats, extent = state.walk.row.extent;
    const uint32_t n_chains = chunk.n_values / extent / n_repeats;
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32;
    for (uint32_t chain = first; chain < n_chains; chain += SUM_BLOCKS * SUM_THREADS / 32) {
        uint32_t before = 0;
        for (uint32_t i = 0; i < n_repeats; i += 32) {
            const uint64_t at = (uint64_t(chain) * n_repeats + i + lane) * extent;
            const bool exists = i + lane < n_repeats;
            const uint32_t sum = before + prefix_of_warp(exists ? uint32_t(out[at]) : 0);
            if (exists) out[at] = sum;
            before = __shfl_sync(ALL_LANES, sum, 31);
        }
    }
}

// Sums along rows, once or twice; one block per row.
template <class T>
DEVICE void sum_rows(const DecodeJob<T>& job, SumShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (needs_host(state) || state.is_plain || state.walk.n_along == 0) return;
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
            // With second differences, the first sums exclude the start of the row.
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

// Sums along an axis across rows; one thread per column.
template <class T>
DEVICE void sum_across(const DecodeJob<T>& job) {
    const uint32_t number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (needs_host(state) || state.is_plain || job.axis >= state.walk.n_across) return;
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
                // All loads are issued before the first result is used.
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
    if (needs_host(state) || state.is_plain) return;
    typename Real<T>::Int* integers = in_device_memory((typename Real<T>::Int*)chunk.values);
    T* values = in_device_memory((T*)chunk.values);
    const uint32_t first = blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x;
    for (uint32_t at = first; at < chunk.n_values; at += SUM_BLOCKS * SUM_THREADS) {
        const int64_t q = state.origin + int32_t(uint32_t(integers[at]));
        values[at] = job.coding.restore(typename Real<T>::Int(q));
    }
}

// ---- Plain chunks ----

// Rows of a patch, and patches of a stack.
constexpr uint32_t PATCH = 8;
constexpr uint32_t STACK = 4;
constexpr uint32_t PLAIN_THREADS = 32 * STACK;

// The layout of the patches of a plain chunk, and of their sums.
struct Patches : Plain {
    uint32_t n_stacks;

    DEVICE Patches(const Chunk& chunk, uint32_t order) : Plain(chunk, order) {
        n_stacks = (ny + STACK * PATCH - 1) / (STACK * PATCH);
    }

    // Index in the sums of rows: the rows of a strip of a plane are consecutive.
    DEVICE uint32_t edge(uint32_t z, uint32_t strip, uint32_t y) const { return (z * n_strips + strip) * ny + y; }
    // Index in the sums of columns, whose number is padded to a multiple of four.
    DEVICE uint32_t column(uint32_t z, uint32_t stack, uint32_t x) const { return 4 * ((z * n_stacks + stack) * fours()) + x; }
    DEVICE uint32_t fours() const { return (nx + 3) / 4; }
    // The number of rows of a patch from row y0 on that have a value at x.
    DEVICE uint32_t n_rows_at(uint32_t y0, uint32_t x) const {
        const uint32_t at = y0 * STRIP + x;
        if (is_line) return at < n_plane ? min(PATCH, (n_plane - 1 - at) / STRIP + 1) : 0;
        return x < nx && y0 < ny ? min(PATCH, ny - y0) : 0;
    }
};

// Addresses of the groups of a chunk, or of its differences. Passed by value, since the compiler would reload them
// after each store.
struct Groups {
    const uint8_t* classes;
    const uint8_t* bytes;
    const uint32_t* differences;

    DEVICE Groups(const DecodeWork& work, const Chunk& chunk) {
        classes = in_device_memory(work.classes) + chunk.first_group;
        bytes = in_device_memory(work.bytes) + chunk.first_group * GROUP;
        differences = in_device_memory(work.differences) + chunk.first_group * GROUP;
    }
};

// A lane's part of each row of a patch, loaded ahead: classes and bytes.
template <bool HAS_WHOLE_ROWS>
struct PatchRows {
    uint32_t flags[PATCH], bytes[PATCH];

    // Loads the lane's part of `n_rows` rows from row y0 of plane z on; missing values are 0.
    DEVICE void load(const Groups& groups, const Patches& patches, uint32_t z, uint32_t y0, uint32_t x, uint32_t n_rows) {
        const uint32_t first = (z * patches.ny + y0) * patches.nx + x;
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            flags[r] = 0;
            bytes[r] = 0x80808080;
            if (r < n_rows) {
                const uint32_t at = first + r * patches.nx;
                flags[r] = groups.classes[at / GROUP];
                bytes[r] = *(const uint32_t*)(groups.bytes + at);
            }
        }
    }

    // The differences of row r, whose index in the chunk is `at`.
    DEVICE void differences(const DecodeWork& work, const Chunk& chunk, uint32_t at, uint32_t r, uint32_t (&d)[4]) const {
        load_four_differences(work, chunk, at, flags[r], used_bytes(r), d);
    }

    // Empty groups have no bytes.
    DEVICE uint32_t used_bytes(uint32_t r) const { return flags[r] == 0 ? 0x80808080 : bytes[r]; }

    // Sums of the columns and of the lane's part of each row; valid, and returns true, if all differences are single
    // bytes.
    DEVICE bool sum_bytes(uint32_t (&columns)[4], uint32_t (&of_rows)[PATCH]) const {
        uint32_t most = 0, even = 0, odd = 0;
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            const uint32_t own = used_bytes(r);
            most = max(most, flags[r]);
            even += own & 0x00FF00FF;
            odd += own >> 8 & 0x00FF00FF;
            of_rows[r] = __dp4a(own, 0x01010101u, 0 - 4 * ZERO);
        }
        columns[0] = (even & 0xFFFF) - PATCH * ZERO;
        columns[1] = (odd & 0xFFFF) - PATCH * ZERO;
        columns[2] = (even >> 16) - PATCH * ZERO;
        columns[3] = (odd >> 16) - PATCH * ZERO;
        return most < FIRST_WITH_LOW;
    }
};

// If groups cross the ends of rows: the differences themselves.
template <>
struct PatchRows<false> {
    uint32_t all[PATCH][4];

    DEVICE void load(const Groups& groups, const Patches& patches, uint32_t z, uint32_t y0, uint32_t x, uint32_t n_rows) {
        const uint32_t* from = groups.differences + ((z * patches.ny + y0) * patches.nx + x);
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            const uint32_t n = r < n_rows ? patches.n_at(y0 + r, x) : 0;
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) all[r][k] = k < n ? from[r * patches.nx + k] : 0;
        }
    }

    DEVICE void differences(const DecodeWork&, const Chunk&, uint32_t, uint32_t r, uint32_t (&d)[4]) const {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) d[k] = all[r][k];
    }

    DEVICE bool sum_bytes(uint32_t (&)[4], uint32_t (&)[PATCH]) const { return false; }
};

// Loads four differences of a plain chunk, outside of a patch.
DEVICE void load_single(const DecodeWork& work, const Chunk& chunk, const State& state, const Patches& patches, uint32_t z,
                        uint32_t y, uint32_t x, uint32_t (&d)[4]) {
    const Groups groups(work, chunk);
    const uint32_t at = (z * patches.ny + y) * patches.nx + x;
    if (state.is_plain == WHOLE_ROWS) {
        const uint32_t flags = groups.classes[at / GROUP];
        load_four_differences(work, chunk, at, flags, flags == 0 ? 0x80808080 : *(const uint32_t*)(groups.bytes + at), d);
    } else {
        const uint32_t n = patches.n_at(y, x);
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) d[k] = k < n ? groups.differences[at + k] : 0;
    }
}

// Stores the differences of chunks with CUT_ROWS as an array.
DEVICE void part_groups(const DecodeWork& work) {
    const uint32_t lane = threadIdx.x % 32, number = blockIdx.x / SUM_BLOCKS;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (state.needs_host || state.is_plain != CUT_ROWS) return;
    const uint64_t first_value = chunk.first_group * GROUP;
    const uint32_t first = (blockIdx.x % SUM_BLOCKS * SUM_THREADS + threadIdx.x) / 32 * STRIP;
    for (uint32_t start = first; start < chunk.n_values; start += SUM_BLOCKS * SUM_THREADS / 32 * STRIP) {
        const uint32_t at = start + 4 * lane;
        if (at >= chunk.n_values) continue;
        const uint32_t flags = work.classes[chunk.first_group + at / GROUP];
        uint32_t d[4];
        load_four_differences(work, chunk, at, flags,
                              flags == 0 ? 0x80808080 : *(const uint32_t*)(work.bytes + first_value + at), d);
        *(Piece<uint32_t>*)(work.differences + first_value + at) = Piece<uint32_t>{{d[0], d[1], d[2], d[3]}};
    }
}

// The number of stacks that a block processes one after the other.
constexpr uint32_t RUN_STACKS = 8;

// Sums of columns of the patches of a stack, double-buffered.
struct StackShared {
    Piece<uint32_t> columns[2][STACK][32];
};

template <uint32_t KIND>
DEVICE void find_edges(const DecodeWork& work, StackShared& s) {
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, number = blockIdx.x / work.patch_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (state.needs_host || state.is_plain != KIND) return;
    const Patches patches(chunk, state.order);
    // Without differences along x and y, no sums are needed.
    if (!patches.has_x && !patches.has_y) return;
    const Groups groups(work, chunk);
    uint32_t *all_columns = in_device_memory(work.columns) + chunk.first_column;
    uint32_t *edges = in_device_memory(work.edges) + chunk.first_edge;
    // Several stacks one after the other: the next one is loaded while this one is summed.
    const uint32_t n_all = patches.nz * patches.n_stacks, n_runs = (n_all + RUN_STACKS - 1) / RUN_STACKS;
    uint32_t turn = 0;
    for (uint32_t unit = blockIdx.x % work.patch_blocks; unit < n_runs * patches.n_strips; unit += work.patch_blocks) {
        const uint32_t strip = unit % patches.n_strips, first_stack = unit / patches.n_strips * RUN_STACKS;
        const uint32_t x = strip * STRIP + 4 * lane, end = min(first_stack + RUN_STACKS, n_all);
        uint32_t next_z = first_stack / patches.n_stacks, next_stack = first_stack % patches.n_stacks;
        PatchRows<KIND == WHOLE_ROWS> rows;
        const auto load_next = [&] {
            const uint32_t y0 = (next_stack * STACK + warp) * PATCH;
            rows.load(groups, patches, next_z, y0, x, patches.n_rows_at(y0, x));
        };
        load_next();
        for (uint32_t i = first_stack; i < end; ++i) {
            const uint32_t z = next_z, stack = next_stack, y0 = (stack * STACK + warp) * PATCH;
            uint32_t columns[4], of_rows[PATCH];
            if (!rows.sum_bytes(columns, of_rows)) {
                const uint32_t first = (z * patches.ny + y0) * patches.nx + x;
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) columns[k] = 0;
#pragma unroll
                for (uint32_t r = 0; r < PATCH; ++r) {
                    uint32_t d[4];
                    rows.differences(work, chunk, first + r * patches.nx, r, d);
                    of_rows[r] = d[0] + d[1] + d[2] + d[3];
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) columns[k] += d[k];
                }
            }
            ++next_stack;
            if (next_stack == patches.n_stacks) {
                next_stack = 0;
                ++next_z;
            }
            if (i + 1 < end) load_next();
            if (patches.has_x) {
                uint32_t own = 0;
#pragma unroll
                for (uint32_t r = 0; r < PATCH; ++r) {
                    const uint32_t sum = __reduce_add_sync(ALL_LANES, of_rows[r]);
                    if (lane == r) own = sum;
                }
                if (lane < PATCH && y0 + lane < patches.ny) edges[patches.edge(z, strip, y0 + lane)] = own;
            }
            if (patches.has_y) {
                s.columns[turn][warp][lane] = Piece<uint32_t>{{columns[0], columns[1], columns[2], columns[3]}};
                __syncthreads();
                if (warp == 0 && x < patches.nx) {
#pragma unroll
                    for (uint32_t w = 1; w < STACK; ++w) {
                        const Piece<uint32_t> other = s.columns[turn][w][lane];
#pragma unroll
                        for (uint32_t k = 0; k < 4; ++k) columns[k] += other.of[k];
                    }
                    *(Piece<uint32_t>*)(all_columns + patches.column(z, stack, x)) =
                        Piece<uint32_t>{{columns[0], columns[1], columns[2], columns[3]}};
                }
                turn = 1 - turn;
            }
        }
    }
}

// Replaces the sums of columns by sums over all stacks above.
DEVICE void sum_columns(const DecodeWork& work) {
    const uint32_t number = blockIdx.x / work.edge_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (state.needs_host || !state.is_plain) return;
    const Patches patches(chunk, state.order);
    if (!patches.has_y) return;
    uint32_t* columns = work.columns + chunk.first_column;
    const uint32_t fours = patches.fours();
    const uint32_t first = blockIdx.x % work.edge_blocks * SUM_THREADS + threadIdx.x;
    for (uint32_t i = first; i < patches.nz * fours; i += work.edge_blocks * SUM_THREADS) {
        const uint32_t z = i / fours, x = i % fours * 4;
        uint32_t sum[4] = {0, 0, 0, 0};
        if (!patches.has_z) {
            // The first row of a plane continues the first row of the previous plane.
            for (uint32_t behind = 0; behind < z; ++behind) {
                uint32_t d[4];
                load_single(work, chunk, state, patches, behind, 0, x, d);
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) sum[k] += d[k];
            }
        }
        Piece<uint32_t>* at = (Piece<uint32_t>*)(columns + patches.column(z, 0, x));
        constexpr uint32_t AT_ONCE = 4;
        for (uint32_t stack = 0; stack < patches.n_stacks; stack += AT_ONCE) {
            Piece<uint32_t> own[AT_ONCE];
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; ++j) {
                if (stack + j < patches.n_stacks) own[j] = at[uint64_t(j) * fours];
            }
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; ++j) {
                if (stack + j < patches.n_stacks) {
                    at[uint64_t(j) * fours] = Piece<uint32_t>{{sum[0], sum[1], sum[2], sum[3]}};
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) sum[k] += own[j].of[k];
                }
            }
            at += AT_ONCE * uint64_t(fours);
        }
    }
}

// Rows of more strips than this are summed by a block.
constexpr uint32_t MANY_STRIPS = 256;

// Replaces the sums of rows by sums over all previous strips.
DEVICE void sum_strips(const DecodeWork& work, SumShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x / work.edge_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (needs_host(state) || !state.is_plain) return;
    const Patches patches(chunk, state.order);
    // A line has one strip, so its rows need only `sum_lines`.
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
    for (uint32_t row = block * SUM_THREADS + t; row < n_rows; row += work.edge_blocks * SUM_THREADS) {
        uint32_t* at = edges + patches.edge(row / patches.ny, 0, row % patches.ny);
        constexpr uint32_t AT_ONCE = 4;
        uint32_t before = 0;
        for (uint32_t i = 0; i < patches.n_strips; i += AT_ONCE) {
            uint32_t own[AT_ONCE];
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; ++j) own[j] = i + j < patches.n_strips ? at[j * patches.ny] : 0;
#pragma unroll
            for (uint32_t j = 0; j < AT_ONCE; ++j) {
                if (i + j < patches.n_strips) at[j * patches.ny] = before;
                before += own[j];
            }
            at += AT_ONCE * patches.ny;
        }
    }
}

// The sums of all differences to the left of each strip of each row: over all rows above, or with the start of the row.
DEVICE void sum_lines(const DecodeWork& work, SumShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x / work.edge_blocks;
    const Chunk& chunk = work.chunks[number];
    const State& state = work.states[number];
    if (needs_host(state) || !state.is_plain) return;
    const Patches patches(chunk, state.order);
    if (!patches.has_x) return;
    const uint32_t* edges = work.edges + chunk.first_edge;
    uint32_t* sums = work.edge_sums + chunk.first_edge;
    for (uint32_t line = blockIdx.x % work.edge_blocks; line < patches.nz * patches.n_strips; line += work.edge_blocks) {
        const uint32_t z = line / patches.n_strips, strip = line % patches.n_strips;
        uint32_t before = 0, all;
        if (patches.has_y && !patches.has_z) {
            // The first row of a plane continues the first row of the previous plane.
            uint32_t sum = 0;
            for (uint32_t i = t; i < z; i += SUM_THREADS) sum += edges[patches.edge(i, strip, 0)];
            prefix_of_block<SUM_THREADS>(sum, s.sums, before);
        }
        // Several rows per thread, since a line may have very many.
        constexpr uint32_t EACH = 8;
        const bool adds_own = patches.has_y || patches.is_line;
        for (uint32_t first = 0; first < patches.ny; first += SUM_THREADS * EACH) {
            const uint32_t y0 = first + t * EACH;
            uint32_t own[EACH], added[EACH], sum = 0;
#pragma unroll
            for (uint32_t k = 0; k < EACH; ++k) own[k] = y0 + k < patches.ny ? edges[patches.edge(z, strip, y0 + k)] : 0;
#pragma unroll
            for (uint32_t k = 0; k < EACH; ++k) {
                added[k] = own[k];
                if (!adds_own) {
                    uint32_t d[4] = {0, 0, 0, 0};
                    if (y0 + k < patches.ny) load_single(work, chunk, state, patches, z, y0 + k, 0, d);
                    added[k] = d[0];
                }
                sum += added[k];
            }
            uint32_t upto = before + prefix_of_block<SUM_THREADS>(sum, s.sums, all);
            before += all;
#pragma unroll
            for (uint32_t k = 0; k < EACH; ++k) {
                if (y0 + k < patches.ny) sums[patches.edge(z, strip, y0 + k)] = patches.is_line ? upto : upto + own[k];
                upto += added[k];
            }
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

// The sums outside of a stack: over the columns above it, and over the rows to its left.
struct PatchEdges {
    Piece<uint32_t> above;
    uint32_t left;

    DEVICE void load(const uint32_t* columns, const uint32_t* edges, const Patches& patches, uint32_t z, uint32_t stack,
                     uint32_t strip, uint32_t y0, uint32_t x) {
        above = Piece<uint32_t>{};
        left = 0;
        if (patches.has_y && x < patches.nx) above = *(const Piece<uint32_t>*)(columns + patches.column(z, stack, x));
        const uint32_t lane = threadIdx.x % 32;
        if (patches.has_x && lane < PATCH && y0 + lane < patches.ny) left = edges[patches.edge(z, strip, y0 + lane)];
    }
};

// Computes the values of a stack in all planes, or of several stacks of a single plane; by a block. `HAS_ALL` means
// differences along all axes, as most chunks have.
template <class T, bool HAS_WHOLE_ROWS, bool HAS_ALL>
DEVICE void sum_stacks(const DecodeJob<T>& job, const Chunk& chunk, const Patches& patches, int64_t origin, uint32_t stack,
                       uint32_t strip, StackShared& s) {
    using Int = typename Real<T>::Int;
    const uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const uint32_t x = strip * STRIP + 4 * lane;
    const bool has_x = HAS_ALL || patches.has_x, has_y = HAS_ALL || patches.has_y, has_z = HAS_ALL || patches.has_z;
    const Groups groups(job, chunk);
    T* values = in_device_memory((T*)chunk.values);
    const Int base = Int(origin) + Real<T>::MAGIC_BITS;
    const uint32_t* columns = in_device_memory(job.columns) + chunk.first_column;
    const uint32_t* edges = in_device_memory(job.edge_sums) + chunk.first_edge;

    // Sums along z: of the lane's values, of the columns above the stack, and in lane r of the values left of row r.
    uint32_t sums[PATCH][4], above[4] = {0, 0, 0, 0}, left = 0;
#pragma unroll
    for (uint32_t r = 0; r < PATCH; ++r) {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) sums[r][k] = 0;
    }
    // The next plane is loaded as soon as this one has been summed; it arrives while values are written.
    const bool goes_down = patches.nz == 1;
    const uint32_t n_steps = goes_down ? min(RUN_STACKS, patches.n_stacks - stack) : patches.nz;
    uint32_t z = 0, y0 = (stack * STACK + warp) * PATCH, n_rows = patches.n_rows_at(y0, x);
    PatchRows<HAS_WHOLE_ROWS> rows;
    PatchEdges outside;
    rows.load(groups, patches, z, y0, x, n_rows);
    outside.load(columns, edges, patches, z, stack, strip, y0, x);
    for (uint32_t step = 0; step < n_steps; ++step) {
        if (!has_z || goes_down) {
            left = 0;
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) above[k] = 0;
#pragma unroll
            for (uint32_t r = 0; r < PATCH; ++r) {
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) sums[r][k] = 0;
            }
        }
        left += outside.left;
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) above[k] += outside.above.of[k];
        const uint32_t first = (z * patches.ny + y0) * patches.nx + x, n_rows_here = n_rows;
        const uint32_t y_here = y0;
        uint32_t upto[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            uint32_t d[4];
            rows.differences(job, chunk, first + r * patches.nx, r, d);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) {
                sums[r][k] += d[k];
                upto[k] += sums[r][k];
            }
        }
        if (step + 1 < n_steps) {
            if (goes_down) {
                ++stack;
                y0 += STACK * PATCH;
                n_rows = patches.n_rows_at(y0, x);
            } else {
                ++z;
            }
            rows.load(groups, patches, z, y0, x, n_rows);
            outside.load(columns, edges, patches, z, stack, strip, y0, x);
        }
        if (has_y) {
            s.columns[step % 2][warp][lane] = Piece<uint32_t>{{upto[0], upto[1], upto[2], upto[3]}};
            __syncthreads();
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) upto[k] = above[k];
#pragma unroll
            for (uint32_t i = 0; i + 1 < STACK; ++i) {
                if (i < warp) {
                    const Piece<uint32_t> other = s.columns[step % 2][i][lane];
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) upto[k] += other.of[k];
                }
            }
        }
        T* to = values + first;
#pragma unroll
        for (uint32_t r = 0; r < PATCH; ++r) {
            uint32_t along[4];
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) {
                upto[k] = has_y ? upto[k] + sums[r][k] : sums[r][k];
                along[k] = upto[k];
            }
            if (has_x) {
                along[1] += along[0];
                along[2] += along[1];
                along[3] += along[2];
                const uint32_t before = prefix_of_warp(along[3]) - along[3] + __shfl_sync(ALL_LANES, left, r);
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) along[k] += before;
            }
            if (r < n_rows_here) {
                T restored[4];
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) {
                    const Int q = base + Int(typename Real<T>::Signed(int32_t(along[k])));
                    restored[k] = job.coding.restored(of_bits<T>(q));
                }
                if constexpr (HAS_WHOLE_ROWS) {
                    store_four(to, restored);
                } else {
                    const uint32_t n = patches.n_at(y_here + r, x);
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) {
                        if (k < n) to[k] = restored[k];
                    }
                }
            }
            to += patches.nx;
        }
    }
}

template <class T, uint32_t KIND>
DEVICE void sum_plain(const DecodeJob<T>& job, StackShared& s) {
    const uint32_t number = blockIdx.x / job.patch_blocks;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (state.needs_host || state.is_plain != KIND) return;
    const Patches patches(chunk, state.order);
    const int64_t origin = state.origin;
    const bool has_all = patches.has_x && patches.has_y && (patches.has_z || patches.nz == 1);
    const uint32_t at_once = patches.nz == 1 ? RUN_STACKS : 1;
    const uint32_t n_units = (patches.n_stacks + at_once - 1) / at_once * patches.n_strips;
    for (uint32_t unit = blockIdx.x % job.patch_blocks; unit < n_units; unit += job.patch_blocks) {
        // Other warps may still read the sums of the previous stack.
        __syncthreads();
        const uint32_t stack = unit / patches.n_strips * at_once, strip = unit % patches.n_strips;
        if (has_all) sum_stacks<T, KIND == WHOLE_ROWS, true>(job, chunk, patches, origin, stack, strip, s);
        else sum_stacks<T, KIND == WHOLE_ROWS, false>(job, chunk, patches, origin, stack, strip, s);
    }
}

}  // namespace balanced

using namespace balanced;

KERNEL_BOUNDED(256, 4, balanced_part)(const __grid_constant__ DecodeWork work) { part_groups(work); }

KERNEL_BOUNDED(128, 5, balanced_edges)(const __grid_constant__ DecodeWork work) {
    SHARED(StackShared, shared);
    find_edges<WHOLE_ROWS>(work, shared);
}

KERNEL_BOUNDED(128, 6, balanced_edges_cut)(const __grid_constant__ DecodeWork work) {
    SHARED(StackShared, shared);
    find_edges<CUT_ROWS>(work, shared);
}

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
        SHARED(StackShared, shared);                                                                \
        sum_plain<T, WHOLE_ROWS>(job, shared);                                                      \
    }                                                                                               \
    KERNEL_BOUNDED(128, 4, balanced_sum_cut_##Suffix)(const __grid_constant__ DecodeJob<T> job) {   \
        SHARED(StackShared, shared);                                                                \
        sum_plain<T, CUT_ROWS>(job, shared);                                                        \
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
