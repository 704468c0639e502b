// Codec `balanced`, encoding: chunks in device memory to payloads in device memory, by a fixed sequence of launches over
// all chunks. Nothing goes back to the host in between: sizes stay on the device, and grids are as large as can be needed.
//
//   sample     a warp a sampled run: what its differences cost in every order
//   order      a block a chunk: the order, the origin
//   split      a warp strips of 128 values of four rows, plane after plane: differences, classes, bytes and low bits. This is
//              the only pass over the values. Chunks that are not plain are split a warp a group.
//   tally      a block a tile of 4096 groups: counts of classes, lengths of runs
//   books      a block a chunk: which book a class has, and where the groups of each tile go
//   place      a block a tile: groups sorted by book; symbols of classes
//   alphabets  a block a book: the alphabet, by a sample
//   layout     a warp a chunk: blocks of symbols
//   count      a warp a stream: histograms of symbols, and the bytes apart
//   codebooks  a block a codebook: lengths of codes and codes
//   write      a warp a stream: its bits, at their place by look-back. The first blocks code the parameters meanwhile.
//   finish     a block a tile: low bits and wide differences; sizes of streams, and what stands before them
//
// A chunk that needs more (fill values, values that cannot be quantised) is marked as odd and left to the host.
#include "balanced_parameters.cuh"
#include "balanced_sort.cuh"

namespace balanced {

constexpr uint32_t SAMPLE_GROUPS = 384;
constexpr uint32_t SAMPLE_WARPS = 8;
constexpr uint32_t SAMPLE_BLOCKS = SAMPLE_GROUPS / SAMPLE_WARPS;
// Blocks that split a chunk that is not plain.
constexpr uint32_t SPLIT_BLOCKS = 64;
// Blocks of symbols that a block of threads counts.
constexpr uint32_t COUNT_SLOTS = 8;
// Room for what stands before the body of a payload.
constexpr uint32_t RESERVE = 32768;
constexpr uint32_t CHOOSE_GROUPS = 128;
constexpr uint32_t REST_BITS = 7;

// What all launches get.
struct Work {
    const Chunk* chunks;
    State* states;
    // Chunk of each tile, and of each unit of COUNT_SLOTS slots.
    const uint32_t* tile_chunks;
    const uint32_t* unit_chunks;
    uint32_t* sample_costs;
    uint8_t* classes;
    uint8_t* bytes;
    uint8_t* low;
    uint64_t plane_bytes;
    Tile* tiles;
    uint32_t* sorted;
    uint8_t* class_symbols;
    uint8_t* rest;
    uint32_t* counts;
    uint32_t* codes;
    uint8_t* lengths;
    uint16_t* sizes;
    uint64_t* rest_states;
    uint64_t* stream_states;
    uint8_t* parameters;
    uint32_t* tickets;
    uint32_t n_chunks;
    uint32_t launch;
    // Blocks that split a plain chunk.
    uint32_t split_blocks;
    uint32_t reserved;
};

// What those get that look at values.
template <class T>
struct EncodeJob : Work {
    Coding<T> coding;
};

// ---- sample, order ----

// What a run of differences, one a lane, costs: about the logarithm of their mean magnitude.
DEVICE uint32_t cost_of_run(uint32_t difference) {
    const uint32_t size = magnitude_of(difference);
    const uint64_t low = __reduce_add_sync(ALL_LANES, size & 0xFFFF), high = __reduce_add_sync(ALL_LANES, size >> 16);
    const uint64_t scaled = (high << 16) + low + 8;
    const uint32_t exponent = bit_length(scaled) - 1;
    // Linear between powers of two, and near 0.
    return (exponent << 4 | (uint32_t(scaled << 4 >> exponent) & 15)) - 48;
}

template <class T>
DEVICE void sample(const EncodeJob<T>& job, uint32_t* costs) {
    const uint32_t t = threadIdx.x, lane = t % 32;
    const uint32_t number = blockIdx.x / SAMPLE_BLOCKS, run = blockIdx.x % SAMPLE_BLOCKS * SAMPLE_WARPS + t / 32;
    const Chunk& chunk = job.chunks[number];
    if (t < N_ORDERS) costs[t] = 0;
    __syncthreads();
    const uint32_t n_runs = min(chunk.n_values / (2 * GROUP), SAMPLE_GROUPS);
    if (run < n_runs) {
        const T* values = (const T*)chunk.values;
        const uint32_t at = uint32_t(uint64_t(run) * (chunk.n_values - GROUP) / n_runs) + lane;
        typename Real<T>::Int first = 0;
        job.coding.quantize(values[0], first);
        const int64_t origin = typename Real<T>::Signed(first);
        auto integer = [&](uint32_t place) { return integer_at(job.coding, values[place], origin); };
        // Away from all edges, the neighbours along any axes are the same in all orders.
        const uint32_t nx = chunk.dims[3], ny = chunk.dims[2], nz = chunk.dims[1];
        const uint32_t x = at % nx, y = at / nx % ny, z = at / nx / ny % nz, b = at / nx / ny / nz;
        const bool is_inside = x >= 2 && (y > 0 || ny == 1) && (z > 0 || nz == 1) && (b > 0 || chunk.dims[0] == 1);
        uint32_t own = 0;
        if (__all_sync(ALL_LANES, is_inside)) {
            const uint32_t strides[4] = {nx * ny * nz, nx * ny, nx, 1};
            // Integers at the corners of a box, by the axes along which they lie back; then differences along those.
            uint32_t corners[16];
#pragma unroll
            for (uint32_t set = 0; set < 16; ++set) {
                uint32_t back = 0;
#pragma unroll
                for (uint32_t a = 0; a < 4; ++a) back += set >> a & 1 ? strides[a] : 0;
                corners[set] = set == 0 || is_useful(chunk.dims, set - 1) ? integer(at - back) : 0;
            }
            const uint32_t second = corners[0] - 2 * corners[8] + integer(at - 2);
#pragma unroll
            for (uint32_t a = 0; a < 4; ++a) {
#pragma unroll
                for (uint32_t set = 0; set < 16; ++set) {
                    if (set >> a & 1) corners[set] = corners[set ^ 1 << a] - corners[set];
                }
            }
#pragma unroll
            for (uint32_t order = 0; order < N_ORDERS; ++order) {
                if (!is_useful(chunk.dims, order)) continue;
                const uint32_t cost = cost_of_run(order == 15 ? second : corners[(order + 1) % 16]);
                if (lane == order) own = cost;
            }
        } else {
            for (uint32_t order = 0; order < N_ORDERS; ++order) {
                if (!is_useful(chunk.dims, order)) continue;
                const Walk walk = make_walk(chunk.dims, order_bits(order));
                const uint32_t cost = cost_of_run(difference_at(walk, at, integer));
                if (lane == order) own = cost;
            }
        }
        if (lane < N_ORDERS) atomicAdd(&costs[lane], own);
    }
    __syncthreads();
    if (t < N_ORDERS) job.sample_costs[blockIdx.x * N_ORDERS + t] = costs[t];
}

struct OrderShared {
    uint32_t costs[N_ORDERS];
};

template <class T>
DEVICE void choose_order(const EncodeJob<T>& job, OrderShared& s) {
    const uint32_t t = threadIdx.x, number = blockIdx.x;
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    if (number == 0 && t < 2) job.tickets[t] = 0;
    if (t < N_ORDERS) {
        uint32_t cost = 0;
        for (uint32_t i = 0; i < SAMPLE_BLOCKS; ++i) {
            cost += job.sample_costs[(number * SAMPLE_BLOCKS + i) * N_ORDERS + t];
        }
        s.costs[t] = cost;
    }
    for (uint32_t i = t; i < N_BOOKS * MAX_SYMBOLS; i += blockDim.x) job.counts[number * N_BOOKS * MAX_SYMBOLS + i] = 0;
    __syncthreads();
    if (t == 0) {
        uint32_t best = 7, least = 0xFFFFFFFF;
        for (uint32_t order = 0; order < N_ORDERS; ++order) {
            if (is_useful(chunk.dims, order) && s.costs[order] < least) {
                best = order;
                least = s.costs[order];
            }
        }
        state.order = order_bits(best);
        state.walk = make_walk(chunk.dims, state.order);
        typename Real<T>::Int first = 0;
        bool is_fine = job.coding.quantize(*(const T*)chunk.values, first);
        state.origin = typename Real<T>::Signed(first);
        state.is_odd = !is_fine || job.coding.is_lossless;
        state.is_plain = is_plain_order(chunk, state.order);
    }
}

// ---- split ----

// What becomes of a group whose differences a warp holds. Returns whether all values had integers.
template <class T>
DEVICE void take_apart(const EncodeJob<T>& job, uint64_t group, uint32_t difference, uint32_t lane) {
    const int32_t d = int32_t(difference);
    const uint32_t sum = __reduce_add_sync(ALL_LANES, min(magnitude_of(difference), MAX_MAGNITUDE));
    uint32_t group_class = 0;
    if (sum != 0) {
        uint32_t exponent = bit_length(sum) - 1;
        group_class = 1 + 2 * exponent + (exponent > 0 ? sum >> (exponent - 1) & 1 : 0);
    }
    const uint32_t k = n_low_bits(group_class);
    const uint32_t shifted = uint32_t(d >> k) + ZERO;
    const bool is_wide = shifted - 1 >= 255;
    job.bytes[group * GROUP + lane] = is_wide ? uint8_t(WIDE) : uint8_t(shifted);
    if (__any_sync(ALL_LANES, is_wide)) group_class |= HAS_WIDE;
    if (lane == 0) job.classes[group] = uint8_t(group_class);
    for (uint32_t plane = 0; 8 * plane < k; ++plane) {
        job.low[plane * job.plane_bytes + group * GROUP + lane] = uint8_t(difference >> 8 * plane);
    }
}

template <class T>
DEVICE void split(const EncodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    const uint32_t number = blockIdx.x / SPLIT_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (state.is_plain) return;
    const T* values = (const T*)chunk.values;
    const Walk walk = state.walk;
    const int64_t origin = state.origin;
    bool is_odd = false;
    const uint32_t first = blockIdx.x % SPLIT_BLOCKS * n_warps + threadIdx.x / 32;
    for (uint32_t group = first; group < chunk.n_groups; group += SPLIT_BLOCKS * n_warps) {
        const uint32_t at = group * GROUP + lane;
        uint32_t difference = 0;
        if (at < chunk.n_values) {
            difference = difference_at(walk, at, [&](uint32_t place) {
                uint32_t q;
                integer_of(job.coding, values[place], origin, q);
                return q;
            });
            uint32_t own;
            is_odd = !integer_of(job.coding, values[at], origin, own) || job.coding.fill_of(values[at]) < 2 || is_odd;
        }
        take_apart(job, chunk.first_group + group, difference, lane);
    }
    if (is_odd) job.states[number].is_odd = 1;
}

// Rows that a warp works on at the same time.
constexpr uint32_t SPLIT_ROWS = 4;

struct CarefulFour {
    uint32_t q[4];
    uint32_t is_fine;
};

template <class T>
DEVICE_CALL CarefulFour quantize_carefully(const Coding<T>& coding, T a, T b, T c, T d, int64_t origin) {
    CarefulFour all;
    const bool first = integer_of(coding, a, origin, all.q[0]), second = integer_of(coding, b, origin, all.q[1]);
    const bool third = integer_of(coding, c, origin, all.q[2]), fourth = integer_of(coding, d, origin, all.q[3]);
    all.is_fine = first && second && third && fourth;
    return all;
}

// The integers of a lane's four values, less the origin; false if one of them has none.
template <class T>
DEVICE bool quantize_four(const Coding<T>& coding, const T (&x)[4], int64_t origin, uint32_t (&q)[4]) {
    using R = Real<T>;
    using Int = typename R::Int;
    bool is_fine = true;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        T t = mul_rn(x[k], coding.inv_step);
        T s = add_rn(t, R::MAGIC);
        is_fine = is_fine && magnitude(sub_rn(x[k], coding.restored(s))) <= coding.tolerance && magnitude(t) < R::MAX_QUANTUM;
        Int from_origin = Int(bits_of(s)) - (R::MAGIC_BITS + Int(origin));
        q[k] = uint32_t(from_origin);
        if (sizeof(T) == 8) is_fine = is_fine && uint64_t(from_origin) + (MAX_INTEGER - 1) < 2 * MAX_INTEGER - 1;
    }
    if (is_fine) return true;
    const CarefulFour careful = quantize_carefully(coding, x[0], x[1], x[2], x[3], origin);
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) q[k] = careful.q[k];
    return careful.is_fine;
}

template <class T>
DEVICE void load_four(const T* from, T (&x)[4]) {
    constexpr uint32_t n = 16 / sizeof(T);
#pragma unroll
    for (uint32_t i = 0; i < 4 / n; ++i) {
        Piece<T> piece = ((const Piece<T>*)from)[i];
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) x[i * n + k] = piece.of[k];
    }
}

DEVICE uint32_t pack_bytes(uint32_t a, uint32_t b, uint32_t c, uint32_t d) {
    return __byte_perm(__byte_perm(a, b, 0x0040), __byte_perm(c, d, 0x0040), 0x5410);
}

// What becomes of a lane's four differences; eight lanes have a group. `at` is their place among all values.
template <class T>
DEVICE void take_four_apart(const EncodeJob<T>& job, uint64_t at, const uint32_t (&d)[4], bool exists, uint32_t lane) {
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) sum += min(magnitude_of(d[k]), MAX_MAGNITUDE);
#pragma unroll
    for (uint32_t distance = 1; distance < 8; distance *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    uint32_t group_class = 0;
    if (sum != 0) {
        // 1 + 2 e + the bit below the highest.
        const uint32_t exponent = bit_length(sum) - 1;
        group_class = 2 * exponent + (exponent > 0 ? sum >> (exponent - 1) & 1 : 0) + 1;
    }
    const uint32_t k_low = n_low_bits(group_class);
    uint32_t bytes[4];
    bool is_wide = false;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        bytes[k] = uint32_t(int32_t(d[k]) >> k_low) + ZERO;
        if (bytes[k] - 1 >= 255) {
            bytes[k] = WIDE;
            is_wide = true;
        }
    }
    const uint32_t wide = __ballot_sync(ALL_LANES, is_wide);
    if (!exists) return;
    if (wide >> lane / 8 * 8 & 0xFF) group_class |= HAS_WIDE;
    *(uint32_t*)(job.bytes + at) = pack_bytes(bytes[0], bytes[1], bytes[2], bytes[3]);
    if (lane % 8 == 0) job.classes[at / GROUP] = uint8_t(group_class);
    for (uint32_t plane = 0; 8 * plane < k_low; ++plane) {
        const uint32_t shift = 8 * plane;
        *(uint32_t*)(job.low + plane * job.plane_bytes + at) =
            pack_bytes(d[0] >> shift, d[1] >> shift, d[2] >> shift, d[3] >> shift);
    }
}

// Differences of rows `y0` on, a strip wide, of all planes; by one warp.
template <class T>
DEVICE bool split_patch(const EncodeJob<T>& job, const Chunk& chunk, const Plain& plain, int64_t origin, uint32_t y0, uint32_t x0) {
    const uint32_t lane = threadIdx.x % 32, nx = plain.nx, ny = plain.ny;
    const bool has_y = plain.has_y, has_z = plain.has_z;
    const T* values = (const T*)chunk.values;
    const uint32_t x = x0 + 4 * lane;
    const bool exists = x < nx;
    // Along z, differences along y of the plane before: of the lane's values, and in lane r of the one left of row r. If
    // there are none along z, the first row's integers, from which those of its first row are taken along y.
    uint32_t before[SPLIT_ROWS][4], first_before[4] = {0, 0, 0, 0};
    uint32_t left_before = 0;
    bool is_fine = true;
#pragma unroll
    for (uint32_t r = 0; r < SPLIT_ROWS; ++r) {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) before[r][k] = 0;
    }
    for (uint32_t z = 0; z < plain.nz; ++z) {
        const T* plane = values + uint64_t(z) * ny * nx;
        // The row above and those of the warp: row y0 - 1 + r is r. Row -1 wraps to far beyond the last.
        T x_of[SPLIT_ROWS + 1][4];
#pragma unroll
        for (uint32_t r = 0; r <= SPLIT_ROWS; ++r) {
            const uint32_t y = y0 + r - 1;
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) x_of[r][k] = T(0);
            if (exists && y < ny && (r > 0 || has_y)) load_four(plane + uint64_t(y) * nx + x, x_of[r]);
        }
        // What comes before the first value of each row.
        uint32_t left_difference = 0;
        if (plain.has_x && x0 > 0) {
            uint32_t left = 0;
            if (lane <= SPLIT_ROWS && y0 + lane - 1 < ny) {
                left = integer_at(job.coding, plane[uint64_t(y0 + lane - 1) * nx + x0 - 1], origin);
            }
            uint32_t left_above = __shfl_up_sync(ALL_LANES, left, 1);
            if (!has_z && y0 == 0 && lane == 1) left_above = left_before;
            const uint32_t left_along = has_y ? left - left_above : left;
            left_difference = has_z ? left_along - left_before : left_along;
            left_before = has_z ? left_along : left;
        } else if (plain.has_x && !has_y) {
            // The start of a row comes after that of the row before.
            if (lane <= SPLIT_ROWS && lane > 0 && y0 + lane - 1 < ny && y0 + lane > 1) {
                const T* start = plane + uint64_t(y0 + lane - 2) * nx;
                left_difference = integer_at(job.coding, *start, origin);
                if (has_z && z > 0) left_difference -= integer_at(job.coding, *(start - uint64_t(ny) * nx), origin);
            }
        }
        uint32_t above[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t r = 0; r <= SPLIT_ROWS; ++r) {
            const uint32_t y = y0 + r - 1;
            uint32_t q[4] = {0, 0, 0, 0};
            if (r == 0 && !has_y) continue;
            if (exists && y < ny) {
                is_fine = quantize_four(job.coding, x_of[r], origin, q) && is_fine;
                if (job.coding.n_fills > 0) {
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) is_fine = is_fine && job.coding.fill_of(x_of[r][k]) == 2;
                }
            }
            if (r > 0 && y < ny) {
                if (r == 1 && y0 == 0 && !has_z) {
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) {
                        above[k] = first_before[k];
                        first_before[k] = q[k];
                    }
                }
                uint32_t d[4];
#pragma unroll
                for (uint32_t k = 0; k < 4; ++k) {
                    const uint32_t along = has_y ? q[k] - above[k] : q[k];
                    d[k] = along - before[r - 1][k];
                    before[r - 1][k] = has_z ? along : 0;
                }
                if (plain.has_x) {
                    uint32_t previous = __shfl_up_sync(ALL_LANES, d[3], 1);
                    const uint32_t edge = __shfl_sync(ALL_LANES, left_difference, r);
                    if (lane == 0) previous = edge;
                    d[3] -= d[2];
                    d[2] -= d[1];
                    d[1] -= d[0];
                    d[0] -= previous;
                }
                const uint64_t at = chunk.first_group * GROUP + (uint64_t(z) * ny + y) * nx + x;
                take_four_apart(job, at, d, exists, lane);
            }
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) above[k] = q[k];
        }
    }
    return is_fine;
}

template <class T>
DEVICE void split_plain(const EncodeJob<T>& job) {
    const uint32_t number = blockIdx.x / job.split_blocks, n_warps = blockDim.x / 32;
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    if (!state.is_plain) return;
    const Plain plain(chunk, state.order);
    const uint32_t n_units = (plain.ny + SPLIT_ROWS - 1) / SPLIT_ROWS * plain.n_strips;
    bool is_fine = true;
    for (uint32_t unit = blockIdx.x % job.split_blocks * n_warps + threadIdx.x / 32; unit < n_units;
         unit += job.split_blocks * n_warps) {
        const uint32_t y0 = unit / plain.n_strips * SPLIT_ROWS, x0 = unit % plain.n_strips * STRIP;
        is_fine = split_patch(job, chunk, plain, state.origin, y0, x0) && is_fine;
    }
    if (!is_fine) state.is_odd = 1;
}

// ---- alphabets, layout ----

constexpr uint32_t COST_BITS = 16;

// log2 of a number that is not 0, as crates/pumice/src/codec/histogram.rs has it in a table.
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

// Blocks of the symbols of classes and books; by one warp.
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
        uint32_t upto = prefix_of_warp(n_blocks, lane);
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

// The symbols of a lane: 32 that follow each other in a book, or fewer at its end.
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

// Where a block of symbols lies.
struct Place {
    uint32_t book, alphabet;
    // The lane's first symbol in its book.
    uint32_t first;
};

// A lane's part of stream `stream` of block `block` of a chunk.
DEVICE Place load_symbols(const Work& job, const Chunk& chunk, const State& state, uint32_t book, uint32_t block,
                          uint32_t stream, uint32_t lane, Symbols& symbols) {
    Place place;
    place.book = book;
    place.alphabet = book == CLASS_BOOK || book == REST_BOOK ? SINGLES : state.alphabets[book];
    const uint32_t start = (block - state.first_block[book]) * BLOCK;
    const uint32_t n_symbols = min(state.n_symbols[book] - start, BLOCK);
    const uint32_t first = stream_start(n_symbols, stream) + lane;
    const bool exists = first < stream_start(n_symbols, stream + 1);
    place.first = start + first * 32;
    symbols.n = exists ? min(n_symbols - first * 32, 32u) : 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) symbols.words[i] = 0;
    if (!exists) return place;
    if (book == CLASS_BOOK) {
        load_group(job.class_symbols + chunk.first_group + place.first, 0, symbols.words);
        return place;
    }
    if (book == REST_BOOK) {
        load_group(job.rest + chunk.first_group * GROUP + place.first, 0, symbols.words);
        return place;
    }
    const uint32_t* sorted = job.sorted + chunk.first_group + state.starts[book];
    const uint8_t* bytes = job.bytes + chunk.first_group * GROUP;
    uint32_t words[8];
    switch (place.alphabet) {
        case SINGLES:
            load_group(bytes, sorted[place.first / 32], symbols.words);
            break;
        case PAIRS:
#pragma unroll
            for (uint32_t j = 0; j < 2; ++j) {
                if (16 * j >= symbols.n) break;
                load_group(bytes, sorted[place.first / 16 + j], words);
#pragma unroll
                for (uint32_t i = 0; i < 4; ++i) {
                    symbols.words[4 * j + i] = pairs_of(words[2 * i]) | pairs_of(words[2 * i + 1]) << 16;
                }
            }
            break;
        // From here on loops that would be long are not unrolled, so that words are put in their places by comparison.
        case FOURS:
#pragma unroll 2
            for (uint32_t j = 0; j < 4; ++j) {
                if (8 * j >= symbols.n) break;
                load_group(bytes, sorted[place.first / 8 + j], words);
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
                load_group(bytes, sorted[place.first / 4 + j], words);
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
                    load_group(bytes, sorted[place.first + 4 * j + i], words);
                    word |= one_of(words) << i * 8;
                }
                symbols.put(j, word);
            }
    }
    return place;
}

constexpr uint32_t COUNT_THREADS = 128;
// Copies of the histogram, so that lanes do not meet.
constexpr uint32_t COPIES = 16;

struct CountShared {
    uint32_t counts[MAX_SYMBOLS][COPIES];
    uint32_t rest_counts[MAX_SYMBOLS];
    uint32_t sums[COUNT_THREADS / 32 + 1];
    uint32_t before;
    uint32_t unit;
    // Whether blocks of the unit have bytes apart.
    uint32_t has_rest[COUNT_SLOTS];
};

// Which of a lane's symbols are escapes.
DEVICE uint32_t escapes_of(const Place& place, const Symbols& symbols) {
    if (place.alphabet == SINGLES) return 0;
    const uint32_t escape = escape_of(place.alphabet) * 0x01010101;
    uint32_t escapes = 0;
#pragma unroll
    for (uint32_t i = 0; i < 8; ++i) {
        const uint32_t x = symbols.words[i] ^ escape;
        // Bytes that are 0 now. Products of four bits of a word do not meet.
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
                // Lanes start at different copies, and so in different banks.
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
        const Place place = load_symbols(job, chunk, state, book, block, stream, lane, symbols);
        const uint32_t n_here = __popc(escapes_of(place, symbols)) << width_log2(place.alphabet);
        n_rest += n_here;
        if (n_here > 0) s.has_rest[block - first] = 1;
#pragma unroll
        for (uint32_t i = 0; i < 32; ++i) {
            if (i < symbols.n) atomicAdd(&s.counts[symbols.at(i)][lane % COPIES], 1u);
        }
    }
    flush(book);

    // Bytes apart: their place, then they themselves.
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
        const Place place = load_symbols(job, chunk, state, book, block, stream, lane, symbols);
        const uint32_t width = width_log2(place.alphabet);
        uint32_t here, escapes = escapes_of(place, symbols);
        uint32_t to = at + prefix_of_block<COUNT_THREADS>(__popc(escapes) << width, s.sums, here);
        at += here;
        for (; escapes != 0; escapes &= escapes - 1) {
            uint32_t from = (place.first + __ffs(int(escapes)) - 1) << width;
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

// ---- codebooks ----

struct CodebookShared {
    uint64_t keys[MAX_SYMBOLS];
    uint32_t leaves[MAX_SYMBOLS];
    // Items of two levels.
    uint32_t items[2][2 * MAX_SYMBOLS];
    uint8_t depths[MAX_SYMBOLS];
    uint32_t counts[MAX_SYMBOLS / 32][MAX_BITS + 1];
};

// The first place of rising numbers whose number is at least `x`, or above it.
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

// Lengths and codes for the counts of one codebook: package-merge as in crates/pumice/src/codec/huffman/lengths.rs, whose
// levels are merged by searches. A thread a symbol.
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
    const uint64_t at = uint64_t(blockIdx.x) * MAX_SYMBOLS + t;
    const uint32_t count = job.counts[at];
    s.keys[t] = count == 0 ? ~uint64_t(0) : uint64_t(count) << 8 | t;
    const uint32_t n = __syncthreads_count(count != 0);
    if (n < 2) {
        job.lengths[at] = count == 0 ? NO_CODE : 0;
        job.codes[at] = 0;
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
    // Place of leaf `t` at each level: the deepest first.
    uint32_t places[MAX_BITS];
    places[0] = t;
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
        // Pairs before the leaf are those below it: their number is that of pairs whose sum is less.
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
        places[level] = t + from;
        if (t < n) items[t + from] = leaf;
        n_items = n + n_pairs;
        __syncthreads();
    }
    uint32_t depth = 0, n_bought = 2 * n - 2;
#pragma unroll
    for (uint32_t level = MAX_BITS; level-- > 0;) {
        bool is_bought = t < n && places[level] < n_bought;
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
    job.lengths[at] = length == 0 ? NO_CODE : uint8_t(length);
    job.codes[at] = length == 0 ? 0 : code << 8 | length;
}

// ---- write ----

constexpr uint32_t WRITE_THREADS = 32 * STREAMS;
// Words of the bytes of a block: all codes at their longest, and what pads four streams.
constexpr uint32_t BLOCK_WORDS = BLOCK * MAX_BITS / 32 + STREAMS + 4;

struct ParametersShared {
    LengthsModel model;
    uint32_t reciprocals[MAX_SEEN + 1];
    uint8_t lengths[MAX_SYMBOLS];
    uint8_t before[N_ALPHABETS][MAX_SYMBOLS];
};

struct BlockShared {
    uint32_t codes[MAX_SYMBOLS];
    uint32_t words[BLOCK_WORDS];
};

struct WriteShared {
    union {
        BlockShared block;
        ParametersShared parameters;
    };
    uint32_t stream_bits[STREAMS];
    uint32_t before;
    uint32_t ticket;
};

// By one warp, of which one lane codes.
DEVICE void write_parameters(const Work& job, uint32_t number, ParametersShared& s) {
    const uint32_t lane = threadIdx.x % 32;
    State& state = job.states[number];
    for (uint32_t i = lane; i <= MAX_SEEN; i += 32) s.reciprocals[i] = reciprocal(i);
    reset(s.model, lane);
    BitEncoder coder;
    coder.interval = Interval{0, 0xFFFFFFFF};
    coder.to = job.parameters + uint64_t(number) * RESERVE;
    coder.n_bytes = 0;
    coder.n_room = RESERVE - 8;
    if (lane == 0) {
        code_signed_once(coder, state.origin);
        code_raw(coder, state.order, 5);
        code_number_once(coder, state.n_class_symbols);
    }
    uint32_t has_before = 0;
    for (uint32_t book = 0; book < N_BOOKS; ++book) {
        const bool is_rest = book == REST_BOOK;
        if (is_rest && lane == 0) code_number_once(coder, state.n_rest);
        if (state.n_symbols[book] == 0) continue;
        const uint32_t alphabet = book == CLASS_BOOK || is_rest ? SINGLES : state.alphabets[book];
        __syncwarp();
        const uint8_t* from = job.lengths + (uint64_t(number) * N_BOOKS + book) * MAX_SYMBOLS;
        for (uint32_t i = lane; i < MAX_SYMBOLS; i += 32) s.lengths[i] = from[i];
        __syncwarp();
        if (lane == 0) {
            if (book != CLASS_BOOK && !is_rest) code_raw(coder, alphabet, 3);
            uint32_t n_symbols = book == CLASS_BOOK ? CLASS_ALPHABET : alphabet_size(alphabet);
            const uint8_t* before = has_before >> alphabet & 1 ? s.before[alphabet] : nullptr;
            code_lengths(coder, s.model, s.lengths, n_symbols, before, s.reciprocals);
        }
        __syncwarp();
        if (book == CLASS_BOOK) {
            // That one has models of its own.
            reset(s.model, lane);
        } else {
            for (uint32_t i = lane; i < MAX_SYMBOLS; i += 32) s.before[alphabet][i] = s.lengths[i];
            has_before |= 1u << alphabet;
        }
        __syncwarp();
    }
    if (lane == 0) {
        coder.finish();
        state.n_parameters = coder.n_bytes;
        if (coder.n_bytes > coder.n_room) state.is_odd = 1;
    }
}

// Copies words to bytes that are not aligned to words; by a block.
DEVICE void copy_unaligned(uint8_t* to, const uint32_t* words, uint32_t n_bytes) {
    const uint32_t t = threadIdx.x;
    // Up to the first word of the target, whole words, the rest.
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
    if (t == 0) s.ticket = atomicAdd(&job.tickets[1], 1u);
    __syncthreads();
    const uint32_t ticket = s.ticket;
    if (ticket < job.n_chunks) {
        if (t < 32) write_parameters(job, ticket, s.parameters);
        return;
    }
    const uint32_t slot = ticket - job.n_chunks;
    const uint32_t number = job.unit_chunks[slot / COUNT_SLOTS];
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    const uint32_t block = slot - chunk.first_slot;
    if (block >= state.first_block[N_BOOKS]) return;
    const uint32_t book = book_of_block(state, block, N_BOOKS);
    const uint32_t* codes = job.codes + (uint64_t(number) * N_BOOKS + book) * MAX_SYMBOLS;
    for (uint32_t i = t; i < MAX_SYMBOLS; i += WRITE_THREADS) s.block.codes[i] = codes[i];
    for (uint32_t i = t; i < BLOCK_WORDS; i += WRITE_THREADS) s.block.words[i] = 0;
    Symbols symbols;
    load_symbols(job, chunk, state, book, block, stream, lane, symbols);
    __syncthreads();
    uint32_t n_bits = 0;
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        uint32_t code = s.block.codes[symbols.at(i)];
        if (i < symbols.n) n_bits += code & 0xFF;
    }
    const uint32_t upto = prefix_of_warp(n_bits, lane);
    if (lane == 31) s.stream_bits[stream] = upto;
    __syncthreads();
    // Streams are whole bytes.
    uint32_t first = 0, n_bytes = 0;
#pragma unroll
    for (uint32_t i = 0; i < STREAMS; ++i) {
        if (i < stream) first += (s.stream_bits[i] + 7) / 8;
        n_bytes += (s.stream_bits[i] + 7) / 8;
    }
    uint64_t* states = job.stream_states + chunk.first_slot;
    if (t == 0) publish(states, block, job.launch, n_bytes);
    if (lane == 0) job.sizes[uint64_t(slot) * STREAMS + stream] = uint16_t((s.stream_bits[stream] + 7) / 8);

    // Whole words are stored; the first and the last may be shared with other lanes.
    const uint32_t at = 8 * first + upto - n_bits;
    uint32_t word = at / 32, n_held = at % 32;
    uint64_t held = 0;
    bool is_shared = n_held > 0;
#pragma unroll
    for (uint32_t i = 0; i < 32; ++i) {
        uint32_t code = i < symbols.n ? s.block.codes[symbols.at(i)] : 0;
        held |= uint64_t(code >> 8) << n_held;
        n_held += code & 0xFF;
        if (n_held >= 32) {
            if (is_shared) atomicOr(&s.block.words[word], uint32_t(held));
            else s.block.words[word] = uint32_t(held);
            is_shared = false;
            ++word;
            held >>= 32;
            n_held -= 32;
        }
    }
    if (n_held > 0 && uint32_t(held) != 0) atomicOr(&s.block.words[word], uint32_t(held));

    if (t < 32) {
        uint32_t before = look_back(states, block, job.launch, n_bytes);
        if (t == 0) {
            s.before = before;
            if (block == state.first_block[book]) state.stream_start[book] = before;
            if (block + 1 == state.first_block[N_BOOKS]) state.stream_bytes = before + n_bytes;
        }
    }
    __syncthreads();
    // The sizes of the streams of all codebooks up to this one come before.
    const uint64_t to = RESERVE + 8 * uint64_t(state.first_block[book + 1]) + s.before;
    if (to + n_bytes <= chunk.payload_bytes) copy_unaligned((uint8_t*)chunk.payload + to, s.block.words, n_bytes);
}

// ---- finish ----

struct FinishShared {
    uint32_t sums[TILE_THREADS / 32 + 1];
    uint32_t low[TILE];
    uint32_t wide[TILE];
    alignas(16) uint8_t classes[TILE];
};

// What stands before the body, and the sizes of all streams; by a block.
DEVICE void write_front(const Work& job, const Chunk& chunk, uint32_t number) {
    const uint32_t t = threadIdx.x;
    State& state = job.states[number];
    uint8_t* body = (uint8_t*)chunk.payload + RESERVE;
    const uint32_t n_parameters = state.n_parameters;
    uint32_t n_varint = 1;
    while (n_parameters >> 7 * n_varint != 0) ++n_varint;
    const uint32_t n_front = 1 + n_varint + n_parameters;
    const uint8_t* parameters = job.parameters + uint64_t(number) * RESERVE;
    if (n_front > RESERVE) return;
    for (uint32_t i = t; i < n_parameters; i += blockDim.x) *(body - n_parameters + i) = parameters[i];
    const uint32_t n_blocks = state.first_block[N_BOOKS];
    const uint32_t n_body = 8 * n_blocks + state.stream_bytes + state.low_bytes + 4 * state.n_wide;
    const uint32_t least = max(chunk.n_values / VALUES_PER_BYTE, 3u);
    const uint32_t n_all = max(n_front + n_body, least);
    for (uint32_t i = n_front + n_body + t; i < n_all; i += blockDim.x) *(body - n_front + i) = 0;
    if (t == 0) {
        uint8_t* to = body - n_front;
        to[0] = 0;
        for (uint32_t i = 0; i < n_varint; ++i) {
            to[1 + i] = uint8_t((n_parameters >> 7 * i & 0x7F) | (i + 1 < n_varint ? 0x80 : 0));
        }
        state.payload_start = RESERVE - n_front;
        state.payload_bytes = n_all;
    }
    const uint16_t* sizes = job.sizes + uint64_t(chunk.first_slot) * STREAMS;
    for (uint32_t block = t / 4; block < n_blocks; block += blockDim.x / 4) {
        uint32_t book = book_of_block(state, block, N_BOOKS);
        uint8_t* to = body + 8 * uint64_t(block) + state.stream_start[book] + t % 4 * 2;
        uint32_t size = sizes[block * STREAMS + t % 4];
        to[0] = uint8_t(size);
        to[1] = uint8_t(size >> 8);
    }
}

// The low bits of a group; by one warp.
DEVICE void write_low(const Work& job, uint64_t group, uint32_t k, uint8_t* to, uint32_t lane) {
    const uint8_t* from = job.low + group * GROUP + lane;
    for (; k >= 8; k -= 8) {
        to[lane] = *from;
        to += GROUP;
        from += job.plane_bytes;
    }
    if (k == 0) return;
    // All fields one after the other, in k words.
    const uint32_t field = *from & ((1u << k) - 1);
    const uint32_t word = lane * k / 32, shift = lane * k % 32;
    uint32_t mine = 0;
    for (uint32_t i = 0; i < k; ++i) {
        uint32_t part = word == i ? field << shift : 0;
        if (word + 1 == i && shift + k > 32) part = field >> (32 - shift);
        uint32_t all = __reduce_or_sync(ALL_LANES, part);
        if (lane / 4 == i) mine = all;
    }
    if (lane < 4 * k) to[lane] = uint8_t(mine >> lane % 4 * 8);
}

template <class T>
DEVICE void finish(const EncodeJob<T>& job, FinishShared& s) {
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    const uint32_t number = job.tile_chunks[blockIdx.x];
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    const uint64_t n_body = 8 * uint64_t(state.first_block[N_BOOKS]) + state.stream_bytes + state.low_bytes + 4 * uint64_t(state.n_wide);
    if (RESERVE + n_body > chunk.payload_bytes) {
        // Too long to be worth it.
        if (t == 0) state.is_odd = 1;
        return;
    }
    if (blockIdx.x == chunk.first_tile) write_front(job, chunk, number);
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
            for (uint32_t k = 0; k < 8; ++k) {
                uint32_t x = words[k];
                n_here += __popc(~(((x & 0x7F7F7F7F) + 0x7F7F7F7F) | x) & 0x80808080);
            }
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
    uint8_t* to_low = (uint8_t*)chunk.payload + RESERVE + 8 * uint64_t(state.first_block[N_BOOKS]) + state.stream_bytes;
    uint8_t* to_wide = to_low + state.low_bytes;
    const T* values = (const T*)chunk.values;
    for (uint32_t i = warp; i < n; i += TILE_THREADS / 32) {
        const uint32_t group_class = s.classes[i];
        const uint32_t k = n_low_bits(group_class & (HAS_WIDE - 1));
        const uint64_t group = chunk.first_group + first + i;
        if (k > 0) write_low(job, group, k, to_low + s.low[i], lane);
        if (group_class & HAS_WIDE) {
            const bool is_wide = job.bytes[group * GROUP + lane] == WIDE;
            const uint32_t wide = __ballot_sync(ALL_LANES, is_wide);
            if (is_wide) {
                const uint32_t d = difference_at(state.walk, (first + i) * GROUP + lane, [&](uint32_t place) {
                    return integer_at(job.coding, values[place], state.origin);
                });
                uint8_t* to = to_wide + 4 * uint64_t(s.wide[i] + __popc(wide & ((1u << lane) - 1)));
                for (uint32_t b = 0; b < 4; ++b) to[b] = uint8_t(d >> 8 * b);
            }
        }
    }
}

}  // namespace balanced

using namespace balanced;

#define KERNELS_OF_VALUES(Suffix, T)                                                                  \
    KERNEL(balanced_sample_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) {            \
        SHARED(OrderShared, shared);                                                                  \
        sample(job, shared.costs);                                                                    \
    }                                                                                                 \
    KERNEL(balanced_order_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) {             \
        SHARED(OrderShared, shared);                                                                  \
        choose_order(job, shared);                                                                    \
    }                                                                                                 \
    KERNEL_BOUNDED(256, 4, balanced_split_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) { \
        split(job);                                                                                   \
    }                                                                                                 \
    KERNEL_BOUNDED(128, 4, balanced_split_plain_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) { \
        split_plain(job);                                                                             \
    }                                                                                                 \
    KERNEL(balanced_finish_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) {            \
        SHARED(FinishShared, shared);                                                                 \
        finish(job, shared);                                                                          \
    }                                                                                                 \
    REGISTER_KERNEL(balanced_sample_##Suffix);                                                        \
    REGISTER_KERNEL(balanced_order_##Suffix);                                                         \
    REGISTER_KERNEL(balanced_split_##Suffix);                                                         \
    REGISTER_KERNEL(balanced_split_plain_##Suffix);                                                   \
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
