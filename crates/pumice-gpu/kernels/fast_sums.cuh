// Codec `fast`, decoding, phases 3 and 4: from bit planes to residuals, sums along all axes, and values.
#pragma once

#include "fast_open.cuh"

// Reads the codes of a group of up to 32 planes.
DEVICE void read_codes(const uint32_t* words, uint32_t at, uint32_t width, uint32_t (&codes)[GROUP]) {
    uint32_t even[4], odd[4];
#pragma unroll
    for (uint32_t byte = 0; byte < 4; ++byte) {
        even[byte] = odd[byte] = 0;
        if (byte > 0 && width <= 8 * byte) continue;
        uint32_t low, high;
        read_eight(words, at + 8 * byte, low, high);
        bytes_of_planes(low, high, even[byte], odd[byte]);
        const uint32_t mask = low_bits(min(width - 8 * byte, 8u));
        even[byte] &= mask;
        odd[byte] &= mask;
    }
#pragma unroll
    for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t pair = k | (4 + k) << 4;
        codes[2 * k] = __byte_perm(__byte_perm(even[0], even[1], pair), __byte_perm(even[2], even[3], pair), 0x5410);
        codes[2 * k + 1] = __byte_perm(__byte_perm(odd[0], odd[1], pair), __byte_perm(odd[2], odd[3], pair), 0x5410);
    }
}

// The sign bit of each of four codes, in all bits of its byte.
DEVICE uint32_t signs_of(uint32_t codes) { return (codes & 0x01010101) * 0xFF; }

// `word`, extended with its sign.
template <class Int>
DEVICE Int extended(uint32_t word) {
    if constexpr (sizeof(Int) == 8) return Int(int64_t(int32_t(word)));
    else return Int(word);
}

// Extracts residuals from packed bytes. `FIRST` selects the bytes of the first one; those of the others follow.
template <uint32_t FIRST, class Int>
DEVICE void spread_residuals(uint32_t even, uint32_t even_above, uint32_t odd, uint32_t odd_above, Int (&v)[GROUP]) {
    v[0] = extended<Int>(pick_bytes<FIRST>(even, even_above));
    v[1] = extended<Int>(pick_bytes<FIRST>(odd, odd_above));
    v[2] = extended<Int>(pick_bytes<FIRST + 0x1111>(even, even_above));
    v[3] = extended<Int>(pick_bytes<FIRST + 0x1111>(odd, odd_above));
    v[4] = extended<Int>(pick_bytes<FIRST + 0x2222>(even, even_above));
    v[5] = extended<Int>(pick_bytes<FIRST + 0x2222>(odd, odd_above));
    v[6] = extended<Int>(pick_bytes<FIRST + 0x3333>(even, even_above));
    v[7] = extended<Int>(pick_bytes<FIRST + 0x3333>(odd, odd_above));
}

// Phase 3: residuals of a group from its planes. Those of one or two bytes, as most are, are computed four at a time.
template <class T, class Int>
DEVICE void read_group(const DecodeShared<T, Int>& s, const Neighbours& neighbours, uint32_t super, Int (&v)[GROUP]) {
    const uint32_t low = ((const uint32_t*)s.widths)[2 * super], high = ((const uint32_t*)s.widths)[2 * super + 1];
    const uint32_t width = neighbours.own(low, high);
    const uint32_t at = neighbours.add_before(low, high, s.planes_at[super]);
    if (width > 16) {
        uint32_t codes[GROUP];
        read_codes(s.words, at, min(width, 32u), codes);
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] = codes[k];
        if constexpr (sizeof(Int) == 8) {
            if (width > 32) {
                read_codes(s.words, at + 32, width - 32, codes);
#pragma unroll
                for (uint32_t k = 0; k < GROUP; ++k) v[k] |= Int(codes[k]) << 32;
            }
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] = unzigzag(v[k]);
        return;
    }
    uint32_t first, second, even, odd;
    read_eight(s.words, at, first, second);
    bytes_of_planes(first, second, even, odd);
    if (width <= 8) {
        // A code without planes has no sign bit either.
        const uint32_t present = low_bits(width), bits = present >> 1 & 0x7F7F7F7F;
        even = (even >> 1 & bits) ^ signs_of(even & present);
        odd = (odd >> 1 & bits) ^ signs_of(odd & present);
        spread_residuals<0x8880>(even, 0, odd, 0, v);
        return;
    }
    uint32_t even_above, odd_above;
    read_eight(s.words, at + 8, first, second);
    bytes_of_planes(first, second, even_above, odd_above);
    const uint32_t present = low_bits(width - 8), bits = present >> 1 & 0x7F7F7F7F;
    const uint32_t even_signs = signs_of(even), odd_signs = signs_of(odd);
    even = ((even >> 1 & 0x7F7F7F7F) | (even_above << 7 & 0x80808080)) ^ even_signs;
    odd = ((odd >> 1 & 0x7F7F7F7F) | (odd_above << 7 & 0x80808080)) ^ odd_signs;
    even_above = (even_above >> 1 & bits) ^ even_signs;
    odd_above = (odd_above >> 1 & bits) ^ odd_signs;
    spread_residuals<0xCC40>(even, even_above, odd, odd_above, v);
}

// Prefix sums along x of rows whose groups are in LANES neighbouring lanes.
template <uint32_t LANES, class Int, uint32_t N>
DEVICE void sum_short_rows(Int (&v)[N][GROUP]) {
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
#pragma unroll
        for (uint32_t k = 1; k < GROUP; ++k) v[i][k] += v[i][k - 1];
        // The sum of the earlier groups of the row.
        const Int before = prefix_of_warp<LANES>(v[i][GROUP - 1]) - v[i][GROUP - 1];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[i][k] += before;
    }
}

// Prefix sums along x of a single row of all groups.
template <class T, class Int, uint32_t N>
DEVICE void sum_line(DecodeShared<T, Int>& s, Int (&v)[N][GROUP]) {
    constexpr uint32_t WARPS = DECODE_THREADS<Int> / 32;
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    Int sums[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
#pragma unroll
        for (uint32_t k = 1; k < GROUP; ++k) v[i][k] += v[i][k - 1];
        const Int upto = prefix_of_warp(v[i][GROUP - 1]);
        sums[i] = upto - v[i][GROUP - 1];
        if (lane == 31) s.tails[i * WARPS + warp] = upto;
    }
    __syncthreads();
    // One sum per 32 groups, in the order of groups.
    const Int tails = prefix_of_warp(lane < N_GROUPS / 32 ? s.tails[lane] : Int(0));
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint32_t number = i * WARPS + warp;
        const Int before = __shfl_sync(ALL_LANES, tails, (number + 31) % 32);
        sums[i] += number > 0 ? before : 0;
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[i][k] += sums[i];
    }
    __syncthreads();
}

// Prefix sums along x of all groups, in registers.
template <class T, class Int, uint32_t N>
DEVICE void sum_rows(const Tile<T>& tile, DecodeShared<T, Int>& s, Int (&v)[N][GROUP]) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    const uint32_t t = threadIdx.x, lane = t % 32;
    const uint32_t groups_per_row = tile.row / GROUP;
    // Whether rows continue from warp to warp.
    const bool is_cut = 32 % groups_per_row != 0;
    Int sums[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
#pragma unroll
        for (uint32_t k = 1; k < GROUP; ++k) v[i][k] += v[i][k - 1];
        const uint32_t group = t + i * THREADS;
        const uint32_t in_row = group - tile.line_of(group * GROUP) * groups_per_row;
        const uint32_t reach = min(lane, in_row);
        Int sum = v[i][GROUP - 1];
        for (uint32_t distance = 1; distance < min(groups_per_row, 32u); distance *= 2) {
            Int other = __shfl_up_sync(ALL_LANES, sum, distance);
            if (distance <= reach) sum += other;
        }
        sums[i] = sum - v[i][GROUP - 1];
        if (is_cut && lane == 31) s.tails[group / 32] = sum;
    }
    if (is_cut) __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        if (is_cut) {
            const uint32_t group = t + i * THREADS;
            const uint32_t in_row = group - tile.line_of(group * GROUP) * groups_per_row;
            uint32_t from = group / 32;
            for (uint32_t n = lane; n < in_row; n += 32) sums[i] += s.tails[--from];
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[i][k] += sums[i];
    }
    if (is_cut) __syncthreads();
}

// Computes values from sums of residuals.
template <class T, class Int>
struct Restorer {
    using Bits = typename Real<T>::Int;
    // Added to the first residual, or to all sums.
    Int first;
    // Subtracted from a sum as a floating-point number. A sum of 32 bits becomes one with the bits of 2^52 above it,
    // which is 2^52 + 2^31 + sum.
    T origin;
    T step;

    DEVICE Restorer(const Coding<T>& coding, const DecodeShared<T, Int>& s) : step(coding.step) {
        const Bits zero = s.base + Real<T>::MAGIC_BITS;
        if constexpr (sizeof(Int) == sizeof(T)) {
            first = zero;
            origin = Real<T>::MAGIC;
        } else {
            first = 0x80000000;
            origin = sub_rn(4503599627370496.0 + 2147483648.0, sub_rn(of_bits<T>(zero), Real<T>::MAGIC));
        }
    }

    // The value of a sum that includes `first`. All operations but the product are exact.
    DEVICE T value(Int sum) const {
        if constexpr (sizeof(Int) == sizeof(T)) return mul_rn(sub_rn(of_bits<T>(sum), origin), step);
        else return mul_rn(sub_rn(of_bits<T>(Bits(0x43300000) << 32 | sum), origin), step);
    }
};

// The integers of 16 bytes of values: a piece, or half of one.
template <class T, class Int>
struct alignas(16 / sizeof(T) * sizeof(Int)) Integers {
    Int of[16 / sizeof(T)];
};

// Phase 4 for volumes of quantised values: sums along y by columns, in place, then along z by whole pieces of rows.
template <class T, class Int>
DEVICE void sum_volume(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    constexpr uint32_t EX = 32, EY = Shape<VOLUME>::EY, PLANE_VALUES = EX * EY, EZ = TILE_VALUES / PLANE_VALUES;
    constexpr uint32_t n = 16 / sizeof(T);
    Int* integers = s.integers;
#pragma unroll
    for (uint32_t i = 0; i < EX * EZ / THREADS; ++i) {
        const uint32_t column = threadIdx.x + i * THREADS, x = column % EX;
        // Swizzling differs between even and odd rows.
        Int* even = integers + column / EX * PLANE_VALUES + swizzled_index<Int>(x);
        Int* odd = integers + column / EX * PLANE_VALUES + swizzled_index<Int>(EX + x) - EX;
        Int v[EY];
#pragma unroll
        for (uint32_t y = 0; y < EY; ++y) v[y] = (y % 2 == 0 ? even : odd)[y * EX];
#pragma unroll
        for (uint32_t y = 1; y < EY; ++y) {
            v[y] += v[y - 1];
            (y % 2 == 0 ? even : odd)[y * EX] = v[y];
        }
    }
    __syncthreads();
    const Restorer<T, Int> restorer(coding, s);
    const uint64_t stride = tile.stride_z;
    if (!tile.aligned) {
        // A warp writes a whole row: one value per lane.
        const uint32_t x = threadIdx.x % EX;
#pragma unroll 1
        for (uint32_t y = threadIdx.x / EX; y < EY; y += THREADS / EX) {
            const Int* from = integers + swizzled_index<Int>(y * EX + x);
            T* to = tile.to() + y * tile.stride_y + x;
            Int sum = restorer.first;
#pragma unroll
            for (uint32_t z = 0; z < EZ; ++z) {
                sum += from[z * PLANE_VALUES];
                *to = restorer.value(sum);
                to += stride;
            }
        }
        return;
    }
    // All threads together take a whole plane at a time, or half a plane of f64.
#pragma unroll 1
    for (uint32_t at = threadIdx.x * n; at < PLANE_VALUES; at += THREADS * n) {
        const Integers<T, Int>* from = (const Integers<T, Int>*)(integers + swizzled_index<Int>(at));
        T* to = tile.to() + at / EX * tile.stride_y + at % EX;
        Int sums[n];
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) sums[k] = restorer.first;
        // Not unrolled further, here and below: many stores at a time delay the loads of other blocks.
#pragma unroll 2
        for (uint32_t z = 0; z < EZ; ++z) {
            const Integers<T, Int> residuals = from[z * (PLANE_VALUES / n)];
            Piece<T> values;
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) {
                sums[k] += residuals.of[k];
                values.of[k] = restorer.value(sums[k]);
            }
            store_vector(to, values.of);
            to += stride;
        }
    }
}

// Phase 4 for planes of quantised values: a thread sums some rows of N neighbouring columns in place, and then adds the
// sums of all rows above.
template <class T, class Int, uint32_t ROW, uint32_t N, bool IS_ALIGNED>
DEVICE void sum_columns(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    constexpr uint32_t ACROSS = ROW / N, N_ROWS = TILE_VALUES / THREADS / N;
    static_assert(ACROSS <= THREADS && N_ROWS % 2 == 0, "a row has no more threads than there are, and threads pairs of rows");
    struct alignas(N * sizeof(Int)) Some {
        Int of[N];
    };
    const uint32_t column = threadIdx.x % ACROSS * N, part = threadIdx.x / ACROSS;
    // Swizzling is the same in all rows, or in every second row.
    Int* even = s.integers + swizzled_index<Int>(column);
    Int* odd = s.integers + (ROW == 32 ? swizzled_index<Int>(ROW + column) - ROW : swizzled_index<Int>(column));
    const auto at = [&](uint32_t row) { return (Some*)((row % 2 == 0 ? even : odd) + row * ROW); };
    Some sums = *at(part * N_ROWS);
#pragma unroll
    for (uint32_t i = 1; i < N_ROWS; ++i) {
        const Some residuals = *at(part * N_ROWS + i);
#pragma unroll
        for (uint32_t k = 0; k < N; ++k) sums.of[k] += residuals.of[k];
        *at(part * N_ROWS + i) = sums;
    }
    if constexpr (ACROSS < THREADS) __syncthreads();
    const Restorer<T, Int> restorer(coding, s);
    Some before;
#pragma unroll
    for (uint32_t k = 0; k < N; ++k) before.of[k] = restorer.first;
#pragma unroll 4
    for (uint32_t p = 0; p < part; ++p) {
        const Some more = *at(p * N_ROWS + N_ROWS - 1);
#pragma unroll
        for (uint32_t k = 0; k < N; ++k) before.of[k] += more.of[k];
    }
    const uint64_t stride = tile.stride_y;
    T* to = tile.to() + column + part * N_ROWS * stride;
#pragma unroll 2
    for (uint32_t i = 0; i < N_ROWS; ++i) {
        const Some upto = *at(part * N_ROWS + i);
        T values[N];
#pragma unroll
        for (uint32_t k = 0; k < N; ++k) values[k] = restorer.value(upto.of[k] + before.of[k]);
        if constexpr (IS_ALIGNED) {
            store_vector(to, values);
        } else {
#pragma unroll
            for (uint32_t k = 0; k < N; ++k) to[k] = values[k];
        }
        to += stride;
    }
}

// With aligned rows, a thread takes pieces of 16 bytes; otherwise as few columns as possible, so that a warp writes
// contiguous values.
template <class T, class Int, uint32_t ROW>
DEVICE void sum_plane(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    if (tile.aligned) sum_columns<T, Int, ROW, 16 / sizeof(T), true>(coding, tile, s);
    else sum_columns<T, Int, ROW, (ROW > THREADS ? ROW / THREADS : 1), false>(coding, tile, s);
}

// Phase 4 for a line of quantised values; `Restorer::first` was added to the first residual.
template <class T, class Int>
DEVICE void write_line(const Coding<T>& coding, const Tile<T>& tile, const DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    constexpr uint32_t n = 16 / sizeof(T);
    const Restorer<T, Int> restorer(coding, s);
    const Integers<T, Int>* from = (const Integers<T, Int>*)(s.integers + swizzled_index<Int>(threadIdx.x * n));
    if (!tile.aligned) {
#pragma unroll 2
        for (uint32_t at = threadIdx.x; at < TILE_VALUES; at += THREADS) {
            tile.to()[at] = restorer.value(s.integers[swizzled_index<Int>(at)]);
        }
        return;
    }
    T* to = tile.to() + threadIdx.x * n;
#pragma unroll 2
    for (uint32_t i = 0; i < TILE_VALUES / n / THREADS; ++i) {
        const Integers<T, Int> sums = from[i * THREADS];
        Piece<T> values;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) values.of[k] = restorer.value(sums.of[k]);
        store_vector(to + i * THREADS * n, values.of);
    }
}

// Phase 4 for any other tile.
template <class T, class Int>
DEVICE_CALL void sum_any(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    const uint32_t t = threadIdx.x;
    const uint32_t plane = tile.ey * tile.row;
    if (tile.lag > 1) {
        for (uint32_t i = t; i < tile.ez * tile.ey * tile.lag; i += THREADS) {
            uint32_t first = i / tile.lag * tile.row;
            Int sum = 0;
            for (uint32_t x = i % tile.lag; x < tile.row; x += tile.lag) {
                sum += s.integers[swizzled_index<Int>(first + x)];
                s.integers[swizzled_index<Int>(first + x)] = sum;
            }
        }
        __syncthreads();
    }
    if (tile.axes & Y) {
        for (uint32_t i = t; i < tile.ez * tile.row; i += THREADS) {
            uint32_t at = i / tile.row * plane + i % tile.row;
            Int sum = 0;
            for (uint32_t y = 0; y < tile.ey; ++y, at += tile.row) {
                sum += s.integers[swizzled_index<Int>(at)];
                s.integers[swizzled_index<Int>(at)] = sum;
            }
        }
        __syncthreads();
    }
    if (tile.axes & Z) {
        for (uint32_t i = t; i < plane; i += THREADS) {
            Int sum = 0;
            for (uint32_t at = i; at < tile.n_codes; at += plane) {
                sum += s.integers[swizzled_index<Int>(at)];
                s.integers[swizzled_index<Int>(at)] = sum;
            }
        }
        __syncthreads();
    }
    const Restorer<T, Int> restorer(coding, s);
    const bool is_exact = (s.flags & KIND) == EXACT;
    const auto value = [&](Int sum) {
        if constexpr (sizeof(Int) == sizeof(T)) {
            if (is_exact) return of_ordered<T>(sum + s.base);
        }
        return restorer.value(sum + restorer.first);
    };
    T* to = tile.to();
    if (tile.aligned) {
        constexpr uint32_t n = 16 / sizeof(T);
        for (uint32_t i = t; i < TILE_VALUES / n; i += THREADS) {
            const uint32_t at = i * n, line = at >> tile.x_log2;
            const Integers<T, Int> sums = *(const Integers<T, Int>*)(s.integers + swizzled_index<Int>(at));
            Piece<T> values;
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) values.of[k] = value(sums.of[k]);
            store_vector(to + tile.row_offset(line) + (at - (line << tile.x_log2)), values.of);
        }
        return;
    }
    for (uint32_t at = t; at < tile.n_codes; at += THREADS) {
        const uint32_t line = tile.line_of(at), x = at - line * tile.row;
        if (x < tile.ex) {
            to[tile.row_offset(line) + x] = value(s.integers[swizzled_index<Int>(at)]);
        }
    }
}
