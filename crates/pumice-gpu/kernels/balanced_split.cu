// Codec `balanced`, encoding: from values to groups of differences, the first launches of those listed in
// balanced_encode.cu.
#include "balanced_encode.cuh"

namespace balanced {

// ---- sample, order ----

// Estimated cost of a run of differences, one per lane: about the logarithm of their mean magnitude.
DEVICE uint32_t cost_of_run(uint32_t difference) {
    const uint32_t size = magnitude_of(difference);
    const uint64_t low = __reduce_add_sync(ALL_LANES, size & 0xFFFF), high = __reduce_add_sync(ALL_LANES, size >> 16);
    const uint64_t scaled = (high << 16) + low + 8;
    const uint32_t exponent = bit_length(scaled) - 1;
    // The logarithm is linear between powers of two, and near 0.
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
        const T* values = in_device_memory((const T*)chunk.values);
        const uint32_t at = uint32_t(uint64_t(run) * (chunk.n_values - GROUP) / n_runs) + lane;
        typename Real<T>::Int first = 0;
        job.coding.quantize(values[0], first);
        const int64_t origin = typename Real<T>::Signed(first);
        auto integer = [&](uint32_t index) { return integer_at(job.coding, values[index], origin); };
        // Away from all edges, the neighbours along an axis are the same in all orders.
        const uint32_t nx = chunk.dims[3], ny = chunk.dims[2], nz = chunk.dims[1];
        const uint32_t x = at % nx, y = at / nx % ny, z = at / nx / ny % nz, b = at / nx / ny / nz;
        const bool is_inside = x >= 2 && (y > 0 || ny == 1) && (z > 0 || nz == 1) && (b > 0 || chunk.dims[0] == 1);
        uint32_t own = 0;
        if (__all_sync(ALL_LANES, is_inside)) {
            const uint32_t strides[4] = {nx * ny * nz, nx * ny, nx, 1};
            // Integers at the corners of a box, indexed by the set of axes along which they are one step back; then
            // differences.
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
        bool is_fine = job.coding.quantize(*in_device_memory((const T*)chunk.values), first);
        state.origin = typename Real<T>::Signed(first);
        state.needs_host = !is_fine || job.coding.is_lossless;
        state.is_plain = plain_kind(chunk, state.order, job.differences != 0);
    }
}

// ---- split ----

// Writes class, bytes and low bits of a group, whose differences a warp holds.
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

// Divides indices in a chunk, which are below 2^27, by multiplication.
struct Divisor {
    uint32_t by, multiplier, shift;

    DEVICE explicit Divisor(uint32_t by) : by(by) {
        // 2^shift is at least 2^27 `by`, so that the rounded-up multiplier increases a quotient by less than 1 / `by`.
        shift = 27 + (by > 1 ? bit_length(by - 1) : 0);
        multiplier = uint32_t((uint64_t(1) << shift) / by) + 1;
    }

    DEVICE uint32_t divide(uint32_t number) const { return uint32_t(uint64_t(number) * multiplier >> shift); }
};
static_assert(MAX_GROUPS * GROUP == 1u << 27, "indices are below that");

// As `distance_back`, for many indices.
struct DistanceBack {
    Divisor stride, extent;
    uint32_t n_repeats;

    DEVICE explicit DistanceBack(const Axis& axis) : stride(axis.stride), extent(axis.extent), n_repeats(axis.n_repeats) {}

    DEVICE uint32_t from(uint32_t at) const {
        const uint32_t line = stride.divide(at), round = extent.divide(line);
        if (line > round * extent.by) return stride.by;
        return n_repeats > 1 && round % n_repeats > 0 ? stride.by * extent.by : 0;
    }
};

// The sum of the integers at the corners of a box, with a negative sign for an odd number of steps back. All loads are
// issued before the first result is used. `is_fine` becomes whether the value at `at` can be quantised.
template <class T>
DEVICE uint32_t sum_corners(const Coding<T>& coding, const T* values, uint32_t at, const uint32_t (&distances)[3], int64_t origin,
                            bool& is_fine) {
    T corners[8];
    bool exists[8];
#pragma unroll
    for (uint32_t set = 0; set < 8; ++set) {
        uint32_t back = 0;
        exists[set] = true;
#pragma unroll
        for (uint32_t a = 0; a < 3; ++a) {
            if (set >> a & 1) {
                exists[set] = exists[set] && distances[a] > 0;
                back += distances[a];
            }
        }
        corners[set] = exists[set] ? values[at - back] : T(0);
    }
    uint32_t sum;
    is_fine = integer_of(coding, corners[0], origin, sum) && coding.fill_of(corners[0]) == 2;
#pragma unroll
    for (uint32_t set = 1; set < 8; ++set) {
        uint32_t q;
        integer_of(coding, corners[set], origin, q);
        const bool is_negative = (set ^ set >> 1 ^ set >> 2) & 1;
        if (exists[set]) sum = is_negative ? sum - q : sum + q;
    }
    return sum;
}

template <class T>
DEVICE void split(const EncodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    const uint32_t number = blockIdx.x / SPLIT_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    const State& state = job.states[number];
    if (state.is_plain) return;
    const T* values = in_device_memory((const T*)chunk.values);
    const Walk walk = state.walk;
    const uint32_t n_along = walk.n_along, n_across = walk.n_across;
    const DistanceBack along(walk.row);
    // Missing axes have extent 1, and so no neighbours.
    const Axis none{1, 1, 1};
    const DistanceBack across[3] = {DistanceBack(n_across > 0 ? walk.across[0] : none), DistanceBack(n_across > 1 ? walk.across[1] : none),
                               DistanceBack(n_across > 2 ? walk.across[2] : none)};
    const int64_t origin = state.origin;
    bool needs_host = false;
    const uint32_t first = blockIdx.x % SPLIT_BLOCKS * n_warps + threadIdx.x / 32;
    for (uint32_t group = first; group < chunk.n_groups; group += SPLIT_BLOCKS * n_warps) {
        const uint32_t at = group * GROUP + lane;
        uint32_t difference = 0;
        if (at < chunk.n_values) {
            uint32_t distances[3] = {n_along > 0 ? along.from(at) : 0, across[0].from(at), across[1].from(at)};
            const uint32_t distance = across[2].from(at);
            bool is_fine, is_other_fine;
            if (n_along == 2 && at - along.extent.divide(at) * along.extent.by >= 2) {
                // Second differences: takes differences twice along this axis.
                distances[1] = distances[0];
            }
            difference = sum_corners(job.coding, values, at, distances, origin, is_fine);
            if (distance > 0) difference -= sum_corners(job.coding, values, at - distance, distances, origin, is_other_fine);
            needs_host = !is_fine || needs_host;
        }
        take_apart(job, chunk.first_group + group, difference, lane);
    }
    if (needs_host) job.states[number].needs_host = 1;
}

// Rows that a warp processes at the same time.
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

// The integers of a lane's four values minus the origin; returns false if one of them cannot be quantised.
template <class T>
DEVICE bool quantize_four(const Coding<T>& coding, const T (&x)[4], int64_t origin, uint32_t (&q)[4]) {
    using R = Real<T>;
    using Int = typename R::Int;
    bool is_fine = true;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        T t = mul_rn(x[k], coding.inv_step);
        T s = add_rn(t, R::MAGIC);
        // Without branches; values that fail are handled afterwards.
        is_fine = is_fine & (magnitude(sub_rn(x[k], coding.restored(s))) <= coding.tolerance);
        is_fine = is_fine & (magnitude(t) < R::MAX_QUANTUM);
        Int from_origin = Int(bits_of(s)) - (R::MAGIC_BITS + Int(origin));
        q[k] = uint32_t(from_origin);
        if (sizeof(T) == 8) is_fine = is_fine & (uint64_t(from_origin) + (MAX_INTEGER - 1) < 2 * MAX_INTEGER - 1);
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

// Addresses to write the groups of a chunk to. Copied from the job, since the compiler would reload them after each
// store.
struct Target {
    uint8_t* bytes;
    uint8_t* classes;
    uint8_t* low;
    uint64_t plane_bytes;
    uint32_t* differences;

    DEVICE Target(const Work& work, const Chunk& chunk)
        : bytes(work.bytes + chunk.first_group * GROUP),
          classes(work.classes + chunk.first_group),
          low(work.low + chunk.first_group * GROUP),
          plane_bytes(work.plane_bytes),
          differences(work.differences + chunk.first_group * GROUP) {}
};

// Writes class, bytes and low bits of a lane's four differences; eight lanes have a group. `at` is their index in the
// chunk.
template <class T>
DEVICE void take_four_apart(const Target& target, uint32_t at, const uint32_t (&d)[4], bool exists, uint32_t lane) {
    uint32_t sum = 0;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        // A difference of eight integers of f32, of 23 bits each, does not exceed MAX_MAGNITUDE.
        sum += sizeof(T) == 4 ? magnitude_of(d[k]) : min(magnitude_of(d[k]), MAX_MAGNITUDE);
    }
#pragma unroll
    for (uint32_t distance = 1; distance < 8; distance *= 2) sum += __shfl_xor_sync(ALL_LANES, sum, distance);
    // 1 + 2 e + the bit below the highest one, whose position is e.
    const uint32_t zeros = __clz(int(sum)), exponent = 31 - zeros;
    uint32_t group_class = sum == 0 ? 0 : 2 * exponent - 1 + ((sum << (zeros & 31)) >> 30);
    const uint32_t k_low = sum < 256 ? 0 : exponent - 7;
    uint32_t bytes[4], largest = 0;
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        bytes[k] = uint32_t(int32_t(d[k]) >> k_low) + ZERO;
        largest = max(largest, bytes[k] - 1);
    }
    const bool is_wide = largest >= 255;
    const uint32_t wide = __ballot_sync(ALL_LANES, is_wide);
    if (!exists) return;
    if (wide != 0) {
        if (wide >> lane / 8 * 8 & 0xFF) group_class |= HAS_WIDE;
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) bytes[k] = bytes[k] - 1 >= 255 ? WIDE : bytes[k];
    }
    *(uint32_t*)(target.bytes + at) = pack_bytes(bytes[0], bytes[1], bytes[2], bytes[3]);
    if (lane % 8 == 0) target.classes[at / GROUP] = uint8_t(group_class);
#pragma unroll 1
    for (uint32_t shift = 0; shift < k_low; shift += 8) {
        *(uint32_t*)(target.low + shift / 8 * target.plane_bytes + at) =
            pack_bytes(d[0] >> shift, d[1] >> shift, d[2] >> shift, d[3] >> shift);
    }
}

// The differences of one strip of SPLIT_ROWS rows from `y0` on, in all planes; by one warp. They are split at once
// unless groups cross the ends of rows.
template <class T, bool HAS_WHOLE_ROWS>
DEVICE bool split_patch(const Coding<T>& coding, const T* values, const Target& target, const Plain& plain, int64_t origin,
                        uint32_t y0, uint32_t x0) {
    const uint32_t lane = threadIdx.x % 32, nx = plain.nx, ny = plain.ny;
    const bool has_y = plain.has_y, has_z = plain.has_z;
    const uint32_t x = x0 + 4 * lane;
    // Whether a row has values at the lane's position.
    auto exists = [&](uint32_t y) { return plain.n_at(y, x) > 0; };
    // From the previous plane, with differences along z: differences along y of the lane's values, and in lane r that
    // of the value left of row r. Without differences along z: the integers of the first row, to which the next plane's
    // first row refers.
    uint32_t before[SPLIT_ROWS][4], first_before[4] = {0, 0, 0, 0};
    uint32_t left_before = 0;
    bool is_fine = true;
#pragma unroll
    for (uint32_t r = 0; r < SPLIT_ROWS; ++r) {
#pragma unroll
        for (uint32_t k = 0; k < 4; ++k) before[r][k] = 0;
    }
    for (uint32_t z = 0; z < plain.nz; ++z) {
        const T* plane = values + z * ny * nx;
        // The row above and the rows of the warp: index r is row y0 - 1 + r.
        T x_of[SPLIT_ROWS + 1][4];
#pragma unroll
        for (uint32_t r = 0; r <= SPLIT_ROWS; ++r) {
            const uint32_t y = y0 + r - 1;
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) x_of[r][k] = T(0);
            if (exists(y) && (r > 0 || has_y)) {
                const T* from = plane + (y * nx + x);
                if constexpr (HAS_WHOLE_ROWS) {
                    load_four(from, x_of[r]);
                } else {
                    // Missing values are copies of the last one.
                    const uint32_t last = plain.n_at(y, x) - 1;
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) x_of[r][k] = from[min(k, last)];
                }
            }
        }
        // The predecessors of the first value of each row.
        uint32_t left_difference = 0;
        if (plain.has_x && (x0 > 0 || plain.is_line)) {
            uint32_t left = 0;
            const uint32_t at = (y0 + lane - 1) * nx + x0 - 1;
            if (lane <= SPLIT_ROWS && at < plain.n_plane) left = integer_at(coding, plane[at], origin);
            uint32_t left_above = __shfl_up_sync(ALL_LANES, left, 1);
            if (!has_z && y0 == 0 && lane == 1) left_above = left_before;
            const uint32_t left_along = has_y ? left - left_above : left;
            left_difference = has_z ? left_along - left_before : left_along;
            left_before = has_z ? left_along : left;
        } else if (plain.has_x && !has_y) {
            // The first value of a row is predicted from that of the previous row.
            if (lane <= SPLIT_ROWS && lane > 0 && y0 + lane - 1 < ny && y0 + lane > 1) {
                const T* start = plane + (y0 + lane - 2) * nx;
                left_difference = integer_at(coding, *start, origin);
                if (has_z && z > 0) left_difference -= integer_at(coding, *(start - ny * nx), origin);
            }
        }
        uint32_t above[4] = {0, 0, 0, 0};
#pragma unroll
        for (uint32_t r = 0; r <= SPLIT_ROWS; ++r) {
            const uint32_t y = y0 + r - 1;
            uint32_t q[4] = {0, 0, 0, 0};
            if (r == 0 && !has_y) continue;
            if (exists(y)) {
                is_fine = quantize_four(coding, x_of[r], origin, q) && is_fine;
                if (coding.n_fills > 0) {
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) is_fine = is_fine && coding.fill_of(x_of[r][k]) == 2;
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
                const uint32_t to = (z * ny + y) * nx + x;
                if constexpr (HAS_WHOLE_ROWS) {
                    take_four_apart<T>(target, to, d, exists(y), lane);
                } else {
                    const uint32_t n = plain.n_at(y, x);
#pragma unroll
                    for (uint32_t k = 0; k < 4; ++k) {
                        if (k < n) target.differences[to + k] = d[k];
                    }
                }
            }
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) above[k] = q[k];
        }
    }
    return is_fine;
}

template <class T, uint32_t KIND>
DEVICE void split_plain(const EncodeJob<T>& job) {
    const uint32_t number = blockIdx.x / job.split_blocks, n_warps = blockDim.x / 32;
    const Chunk& chunk = job.chunks[number];
    State& state = job.states[number];
    if (state.is_plain != KIND) return;
    const Plain plain(chunk, state.order);
    const T* values = in_device_memory((const T*)chunk.values);
    const int64_t origin = state.origin;
    const Target target(job, chunk);
    const uint32_t n_units = (plain.ny + SPLIT_ROWS - 1) / SPLIT_ROWS * plain.n_strips;
    bool is_fine = true;
    for (uint32_t unit = blockIdx.x % job.split_blocks * n_warps + threadIdx.x / 32; unit < n_units;
         unit += job.split_blocks * n_warps) {
        const uint32_t y0 = unit / plain.n_strips * SPLIT_ROWS, x0 = unit % plain.n_strips * STRIP;
        is_fine = split_patch<T, KIND == WHOLE_ROWS>(job.coding, values, target, plain, origin, y0, x0) && is_fine;
    }
    if (!is_fine) state.needs_host = 1;
}

// Splits the differences that `split_plain` stored, of chunks whose groups cross rows.
template <class T>
DEVICE void take_groups_apart(const EncodeJob<T>& job) {
    const uint32_t lane = threadIdx.x % 32, n_warps = blockDim.x / 32;
    const uint32_t number = blockIdx.x / SPLIT_BLOCKS;
    const Chunk& chunk = job.chunks[number];
    if (job.states[number].is_plain != CUT_ROWS) return;
    const Target target(job, chunk);
    const uint32_t first = (blockIdx.x % SPLIT_BLOCKS * n_warps + threadIdx.x / 32) * STRIP;
    for (uint32_t start = first; start < chunk.n_values; start += SPLIT_BLOCKS * n_warps * STRIP) {
        const uint32_t at = start + 4 * lane;
        uint32_t d[4] = {0, 0, 0, 0};
        if (at < chunk.n_values) {
            const Piece<uint32_t> four = *(const Piece<uint32_t>*)(target.differences + at);
#pragma unroll
            for (uint32_t k = 0; k < 4; ++k) d[k] = at + k < chunk.n_values ? four.of[k] : 0;
        }
        take_four_apart<T>(target, at, d, at / GROUP < chunk.n_groups, lane);
    }
}

}  // namespace balanced

using namespace balanced;

#define KERNELS_OF_VALUES(Suffix, T)                                                                      \
    KERNEL(balanced_sample_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) {                \
        SHARED(OrderShared, shared);                                                                      \
        sample(job, shared.costs);                                                                        \
    }                                                                                                     \
    KERNEL(balanced_order_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) {                 \
        SHARED(OrderShared, shared);                                                                      \
        choose_order(job, shared);                                                                        \
    }                                                                                                     \
    KERNEL_BOUNDED(256, 4, balanced_split_##Suffix)(const __grid_constant__ balanced::EncodeJob<T> job) { \
        split(job);                                                                                       \
    }                                                                                                     \
    KERNEL_BOUNDED(128, 4, balanced_split_plain_##Suffix)                                                 \
    (const __grid_constant__ balanced::EncodeJob<T> job) {                                                \
        split_plain<T, WHOLE_ROWS>(job);                                                                  \
    }                                                                                                     \
    KERNEL_BOUNDED(128, 4, balanced_split_cut_##Suffix)                                                   \
    (const __grid_constant__ balanced::EncodeJob<T> job) {                                                \
        split_plain<T, CUT_ROWS>(job);                                                                    \
    }                                                                                                     \
    KERNEL_BOUNDED(256, 4, balanced_groups_##Suffix)                                                      \
    (const __grid_constant__ balanced::EncodeJob<T> job) {                                                \
        take_groups_apart(job);                                                                           \
    }                                                                                                     \
    REGISTER_KERNEL(balanced_sample_##Suffix);                                                            \
    REGISTER_KERNEL(balanced_order_##Suffix);                                                             \
    REGISTER_KERNEL(balanced_split_##Suffix);                                                             \
    REGISTER_KERNEL(balanced_split_plain_##Suffix);                                                       \
    REGISTER_KERNEL(balanced_split_cut_##Suffix);                                                         \
    REGISTER_KERNEL(balanced_groups_##Suffix)

KERNELS_OF_VALUES(f32, float);
KERNELS_OF_VALUES(f64, double);
