// Codec `fast`, encoding: chunks in device memory to payloads in device memory.
//
// `fast_encode_*`: one launch for all chunks. A block takes tiles of 4096 values by ticket, so that the predecessors of
// a tile are always in progress, and encodes each in these memory phases:
//   1. values are read once, 16 bytes per thread at a time, quantised, checked against the decoder's result, and stored as
//      integers in shared memory;
//   2. each thread codes groups of 8 integers in registers, using their neighbours above, behind and before, and stores
//      the widths of the groups;
//   3. one warp computes the layout of the body from the widths and publishes its size;
//   4. each thread writes the bit planes of its groups to shared memory;
//   5. while the layout of the next tile is computed, another warp finds the offset of the body by look-back; then all
//      threads copy it. By then the sizes before it have been published, so there is hardly any wait.
//
// The look-back reads the sizes of the tiles since the last anchor, and before that the sums of 32 tiles each. A tile
// with values that cannot be quantised is coded again with holes. A body that is too large to be kept during the next
// tile is copied at once. Tiles are independent except for their offsets.
#include "fast_careful.cuh"

// Takes a ticket and finds its tile; the chunk is NO_TILE if there are no more.
template <class T>
DEVICE void take_tile(const EncodeJob<T>& job, Tile<T>& tile) {
    const uint32_t ticket = atomicAdd(job.tickets, 1);
    tile.chunk = NO_TILE;
    if (ticket < job.n_slots) locate(job.chunks, job.n_chunks, job.slots_per_chunk, job.choices, ticket, tile);
}

// The largest distance, in bits, of 64-bit integers from the base of a tile for coding their low 32 bits only: a
// difference of at most eight of them then fits into 32 bits.
constexpr uint32_t NARROW_BITS = 28;

// Phase 1, for a tile of a common shape without special values; aligned rows are read in pieces of 16 bytes. Stores the
// low 32 bits of the rounded sums, that is, of the integers plus MAGIC_BITS, which differences cancel. Sets the base.
// Returns whether all values could be quantised and 32 bits are enough; if not, the output is invalid.
template <class T, bool ALIGNED>
DEVICE bool quantize_shape(const Coding<T>& coding, const Tile<T>& tile, typename Real<T>::Int& base, EncodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    constexpr uint32_t n = ALIGNED ? 16 / sizeof(T) : 1;
    constexpr uint32_t N_LOADS = TILE_VALUES / n / THREADS;
    struct alignas(n * sizeof(T)) Values {
        T of[n];
    };
    const uint32_t t = threadIdx.x;
    // All threads together read whole planes, half of one, some rows of one, or part of a row.
    const uint32_t line = t * n >> tile.x_log2, n_lines = THREADS * n >> tile.x_log2;
    const T* from = tile.from() + tile.row_offset(line) + (t * n - (line << tile.x_log2));
    uint64_t stride = THREADS * n;
    if (tile.shape != LINE) stride = n_lines * tile.stride_y;
    uint64_t twice = 2 * stride;
    if (tile.shape == VOLUME) {
        if (ALIGNED) stride = n_lines / Shape<VOLUME>::EY * tile.stride_z;
        twice = ALIGNED ? 2 * stride : tile.stride_z;
    }
    // All loads are issued before the first result is used.
    const T first = tile.from()[0];
    Values values[N_LOADS];
#pragma unroll
    for (uint32_t i = 0; i < N_LOADS; ++i) values[i] = *(const Values*)(from + i / 2 * twice + i % 2 * stride);
    bool fine = coding.quantize(first, base);
    if (!fine || tile.axes == 0) base = 0;
    // A load gives the integers of one piece, or of half a piece.
    struct alignas(4 * n) Integers {
        uint32_t of[n];
    };
    Integers* to = (Integers*)((uint32_t*)s.integers + swizzled_index<uint32_t>(t * n));
    Int distances = 0;
    const Int lowest = Real<T>::MAGIC_BITS + base - (Int(1) << NARROW_BITS);
#pragma unroll
    for (uint32_t i = 0; i < N_LOADS; ++i) {
        Int bits[n];
        bool within = true;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) {
            T value = values[i].of[k];
            T sum = add_rn(mul_rn(value, coding.inv_step), Real<T>::MAGIC);
            within = within && magnitude(sub_rn(value, coding.restored(sum))) <= coding.tolerance;
            bits[k] = Int(bits_of(sum));
        }
        if (!within) {
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) {
                Int q;
                fine = coding.quantize_likely(values[i].of[k], q) && fine;
                bits[k] = q + Real<T>::MAGIC_BITS;
            }
        }
        Integers integers;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) {
            if (sizeof(T) == 8) distances |= bits[k] - lowest;
            integers.of[k] = uint32_t(bits[k]);
        }
        // Swizzling repeats with a period that divides the number of threads.
        to[i * THREADS] = integers;
    }
    if (sizeof(T) == 8) fine = fine && distances >> (NARROW_BITS + 1) == 0;
    if (coding.n_fills > 0) {
#pragma unroll
        for (uint32_t i = 0; i < N_LOADS; ++i) {
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) fine = fine && !coding.is_mistakable_fill(values[i].of[k]);
        }
    }
    return fine;
}

// Not inlined: arrays with aligned rows never need it, and it would cost registers.
template <class T>
DEVICE_CALL bool quantize_unaligned(const Coding<T>& of_job, const Tile<T>& tile, typename Real<T>::Int& base, EncodeShared<T>& s) {
    const Coding<T> coding = of_job;
    return quantize_shape<T, false>(coding, tile, base, s);
}

// The same for a tile of any shape. Stores integers minus the base.
template <class T>
DEVICE_CALL bool quantize_tile(const Coding<T>& of_job, const Tile<T>& tile, typename Real<T>::Int& base, EncodeShared<T>& s) {
    const Coding<T> coding = of_job;
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    const uint32_t t = threadIdx.x;
    bool fine = coding.quantize(tile.from()[0], base);
    if (!fine || tile.axes == 0) base = 0;
    if (tile.aligned) {
        constexpr uint32_t n = 16 / sizeof(T);
        constexpr uint32_t n_loads = TILE_VALUES / n / THREADS;
        Piece<T> values[n_loads];
#pragma unroll
        for (uint32_t i = 0; i < n_loads; ++i) {
            uint32_t at = (t + i * THREADS) * n;
            uint32_t line = at >> tile.x_log2;
            const T* row = tile.from() + tile.row_offset(line);
            values[i] = *(const Piece<T>*)(row + (at - (line << tile.x_log2)));
        }
#pragma unroll
        for (uint32_t i = 0; i < n_loads; ++i) {
            Piece<Int> integers;
            bool within = true;
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) {
                T x = values[i].of[k];
                T sum = add_rn(mul_rn(x, coding.inv_step), Real<T>::MAGIC);
                within = within && magnitude(sub_rn(x, coding.restored(sum))) <= coding.tolerance;
                integers.of[k] = Int(bits_of(sum)) - (Real<T>::MAGIC_BITS + base);
            }
            if (!within) {
#pragma unroll
                for (uint32_t k = 0; k < n; ++k) {
                    Int q;
                    fine = coding.quantize_likely(values[i].of[k], q) && fine;
                    integers.of[k] = q - base;
                }
            }
            if (coding.n_fills > 0) {
#pragma unroll
                for (uint32_t k = 0; k < n; ++k) fine = fine && !coding.is_mistakable_fill(values[i].of[k]);
            }
            ((Piece<Int>*)s.integers)[swizzled_piece<Int>(t + i * THREADS)] = integers;
        }
        return fine;
    }
    constexpr uint32_t N_AT_ONCE = 8;
#pragma unroll 1
    for (uint32_t first = t; first < tile.n_codes; first += N_AT_ONCE * THREADS) {
        const SomeValues<T, N_AT_ONCE> some(tile, first);
#pragma unroll
        for (uint32_t i = 0; i < N_AT_ONCE; ++i) {
            const uint32_t at = first + i * THREADS;
            // Values outside of the rows are 0.
            Int q = 0;
            if (some.exists(i)) {
                fine = coding.quantize_likely(some.values[i], q) && !coding.is_mistakable_fill(some.values[i]) && fine;
                q -= base;
            }
            if (at < tile.n_codes) s.integers[swizzled_index<Int>(at)] = q;
        }
    }
    return fine;
}

// The difference at linear index `at`, along y if `above`, and along z if `behind`.
template <class Int>
DEVICE Int difference_at(const Int* integers, uint32_t at, uint32_t row, uint32_t plane, bool above, bool behind) {
    Int value = integers[swizzled_index<Int>(at)];
    if (above) value -= integers[swizzled_index<Int>(at - row)];
    if (behind) value -= integers[swizzled_index<Int>(at - plane)];
    if (above && behind) value += integers[swizzled_index<Int>(at - plane - row)];
    return value;
}

// Phase 2 for a common shape: codes of all groups of this thread, from the bits that `quantize_shape` stores. `zero`
// are the bits of the base, which is the integer of all neighbours outside of the tile.
template <class T, class S, uint32_t N>
DEVICE void code_shape(const Tile<T>& tile, const uint32_t* integers, uint32_t zero, uint32_t (&codes)[N][GROUP]) {
    using Int = uint32_t;
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    constexpr uint32_t n = 16 / sizeof(Int);
    constexpr uint32_t PIECES = GROUP / n;
    const uint32_t t = threadIdx.x, lane = t % 32, row_log2 = S::row_log2(tile);
    const uint32_t row_pieces = (1u << row_log2) / n;
    const uint32_t line = t * GROUP >> row_log2;
    const bool along_x = tile.axes & X;
    // Pieces of this thread's first group, and of the group above it (which need not exist). Swizzling keeps the
    // distances to those of its other groups.
    uint32_t own[PIECES], up[PIECES];
#pragma unroll
    for (uint32_t k = 0; k < PIECES; ++k) {
        own[k] = swizzled_piece<Int>(t * PIECES + k);
        up[k] = swizzled_piece<Int>(t * PIECES + k - row_pieces);
    }
    const Piece<Int>* pieces = (const Piece<Int>*)integers;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        constexpr uint32_t STEP = THREADS * PIECES;
        Int (&v)[GROUP] = codes[i];
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] = pieces[own[k / n] + i * STEP].of[k % n];
        // In volumes all groups of a thread have the same y; in planes, all but the first are in later rows.
        bool above = S::ALONG_Y && (line > 0 || i > 0), behind = false;
        uint32_t plane_pieces = 0;
        if constexpr (S::ALONG_Z) {
            above = line % S::EY > 0;
            plane_pieces = S::EY * row_pieces;
            behind = i > 0 || t >= plane_pieces / PIECES;
        }
        if (above) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= pieces[up[k / n] + i * STEP].of[k % n];
        }
        if (behind) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= pieces[own[k / n] + i * STEP - plane_pieces].of[k % n];
            if (above) {
#pragma unroll
                for (uint32_t k = 0; k < GROUP; ++k) v[k] += pieces[up[k / n] + i * STEP - plane_pieces].of[k % n];
            }
        }
        // Differences across rows cancel the base, except in the first row of the tile.
        if (S::ALONG_Y && !above && !behind) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= zero;
        }
        if (along_x) {
            Int before = __shfl_up_sync(ALL_LANES, v[GROUP - 1], 1), before_first = 0;
            if (S::ALONG_Y) {
                if ((t & ((1u << row_log2) / GROUP - 1)) == 0) before = 0;
            } else {
                const uint32_t at = (t + i * THREADS) * GROUP;
                const bool is_first = at == 0;
                if (lane == 0) before = is_first ? zero : integers[swizzled_index<Int>(at - 1)];
                if (tile.axes & XX) {
                    Int second = __shfl_up_sync(ALL_LANES, v[GROUP - 2], 1);
                    if (lane == 0) second = is_first ? zero : integers[swizzled_index<Int>(at - 2)];
                    before_first = before - second;
                }
            }
#pragma unroll
            for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
            v[0] -= before;
            if (!S::ALONG_Y && (tile.axes & XX)) {
#pragma unroll
                for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
                v[0] -= before_first;
            }
        } else if (!S::ALONG_Y) {
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] -= zero;
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] = zigzag(v[k]);
    }
}

// Phase 2 for any tile: codes of the group whose linear indices start at `at`, from integers minus the base.
template <class T>
DEVICE void code_group(const Tile<T>& tile, const typename Real<T>::Int* integers, uint32_t at,
                       typename Real<T>::Int (&v)[GROUP]) {
    using Int = typename Real<T>::Int;
    const uint32_t lane = threadIdx.x % 32;
    const bool exists = at < tile.n_codes;
    const uint32_t line = tile.line_of(at), x = at - line * tile.row;
    const uint32_t plane = tile.ey * tile.row;
    const bool above = exists && (tile.axes & Y) && tile.y_of(line) > 0;
    const bool behind = exists && (tile.axes & Z) && at >= plane;
#pragma unroll
    for (uint32_t k = 0; k < GROUP; ++k) v[k] = 0;
    if (exists) load_group(integers, at, v);
    Int other[GROUP];
    if (above) {
        load_group(integers, at - tile.row, other);
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] -= other[k];
    }
    if (behind) {
        load_group(integers, at - plane, other);
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[k] -= other[k];
        if (above) {
            load_group(integers, at - plane - tile.row, other);
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) v[k] += other[k];
        }
    }
    if (tile.lag > 1) {
        // Differences along x only.
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) {
            if (exists && x + k >= tile.lag) v[k] -= integers[swizzled_index<Int>(at + k - tile.lag)];
        }
    } else if (tile.axes & X) {
        // The previous group belongs to the previous lane, or to another warp.
        Int before = __shfl_up_sync(ALL_LANES, v[GROUP - 1], 1);
        if (lane == 0 && x > 0 && exists) before = difference_at(integers, at - 1, tile.row, plane, above, behind);
        if (x == 0) before = 0;
        Int before_first = 0;
        if (tile.axes & XX) {
            Int second = __shfl_up_sync(ALL_LANES, v[GROUP - 2], 1);
            if (lane == 0 && x > 0 && exists) second = difference_at(integers, at - 2, tile.row, plane, above, behind);
            before_first = x == 0 ? 0 : before - second;
        }
#pragma unroll
        for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
        v[0] -= before;
        if (tile.axes & XX) {
#pragma unroll
            for (uint32_t k = GROUP - 1; k > 0; --k) v[k] -= v[k - 1];
            v[0] -= before_first;
        }
    }
#pragma unroll
    for (uint32_t k = 0; k < GROUP; ++k) v[k] = zigzag(v[k]);
    if (!tile.full) {
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) {
            if (x + k >= tile.ex) v[k] = 0;
        }
    }
}

// Whether the offset of the tile is needed: for its body, for an anchor, or for the size of the payload.
template <class T>
DEVICE bool needs_place(const Tile<T>& tile, uint32_t n_words) {
    return n_words > 0 || tile.index % TILES_PER_ANCHOR == 0 || tile.index + 1 == tile.n_tiles;
}

// Phase 3, by one warp: writes everything of the body except holes and planes, computes the offsets of the planes, and
// publishes the size.
template <class T>
DEVICE void lay_out(const EncodeJob<T>& job, EncodeShared<T>& s, const Tile<T>& tile, uint32_t kind,
                    typename Real<T>::Int base, bool careful, uint32_t side) {
    using R = Real<T>;
    const uint32_t lane = threadIdx.x;
    const uint32_t n_super = tile.n_super();
    uint32_t low[2], high[2], least[2];
    // Counts packed into a word: planes (16 bits), bytes of delta planes (9 bits), supergroups with planes.
    uint32_t amounts[2];
    // A difference of eight integers adds 3 bits, zigzag one.
    constexpr uint32_t MAX_WIDTH = R::MANTISSA_BITS - 1 + 3 + 1;
    bool is_wider = false;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        const uint32_t super = 2 * lane + i;
        low[i] = ((const uint32_t*)s.widths)[2 * super];
        high[i] = ((const uint32_t*)s.widths)[2 * super + 1];
        amounts[i] = sum_of_bytes(low[i]) + sum_of_bytes(high[i]);
        is_wider = is_wider || any_byte_above(low[i], MAX_WIDTH) || any_byte_above(high[i], MAX_WIDTH);
        least[i] = 0;
        if (amounts[i] > 0) {
            // Groups beyond the end of the tile do not count for the minimum, and have no delta.
            const uint32_t n_exist = min(tile.n_codes / GROUP - super * 8, 8u);
            const uint64_t exist = n_exist == 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * n_exist) - 1;
            const uint32_t smallest = min(MAX_LEAST, least_of_bytes(low[i] | (~uint32_t(exist) & 0x7F7F7F7F),
                                                                    high[i] | (~uint32_t(exist >> 32) & 0x7F7F7F7F)));
            least[i] = smallest;
            low[i] -= smallest * 0x01010101 & uint32_t(exist);
            high[i] -= smallest * 0x01010101 & uint32_t(exist >> 32);
            const uint32_t even = __byte_perm(low[i], high[i], 0x6420), odd = __byte_perm(low[i], high[i], 0x7531);
            planes_of_bytes(even, odd, low[i], high[i]);
            uint32_t n_delta = high[i] != 0 ? (bit_length(high[i]) + 7) / 8 + 4 : (bit_length(low[i]) + 7) / 8;
            least[i] |= n_delta << LEAST_BITS;
            amounts[i] |= n_delta << 16 | 1u << 25;
        }
    }
    // As `prefix_of_warp`, but with an order of instructions that makes f64 3 % faster: all threads wait for this warp.
    uint32_t upto = amounts[0] + amounts[1];
#pragma unroll
    for (uint32_t distance = 1; distance < 32; distance *= 2) {
        const uint32_t other = __shfl_up_sync(ALL_LANES, upto, distance);
        if (lane >= distance) upto += other;
    }
    const uint32_t all = __shfl_sync(ALL_LANES, upto, 31);
    const uint32_t n_planes = all & 0xFFFF, n_deltas = all >> 16 & 0x1FF, n_present = all >> 25;
    const bool is_too_wide = !careful && __any_sync(ALL_LANES, is_wider);

    const typename R::Signed signed_base = typename R::Signed(base);
    const bool is_wide = signed_base < -(1 << 23) || signed_base >= 1 << 23;
    const bool is_sparse = n_present < n_super;
    uint32_t flags = kind | (is_wide ? WIDE_BASE : 0);
    uint32_t at = 4 + (is_wide ? sizeof(T) : 0);
    if (careful && kind == QUANTISED) {
        for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
            const uint32_t n = s.mask_bytes[fill];
            flags |= n > 0 ? MASK_0 << fill : 0;
            at += n;
        }
        if (s.n_escapes > 0) {
            flags |= ESCAPES;
            at += 2 + s.n_escapes * (2 + sizeof(T));
        }
    }
    if (n_planes == 0) flags |= NO_PLANES;
    else if (is_sparse) flags |= SPARSE;
    const uint32_t mask_at = at;
    const uint32_t headers_at = mask_at + (flags & SPARSE ? (n_super + 7) / 8 : 0);
    const uint32_t deltas_at = headers_at + n_present;
    const uint32_t planes_at = deltas_at + n_deltas;
    const uint32_t end = n_planes == 0 ? at : planes_at + n_planes;
    const bool is_empty = end == 4 && base == 0 && (flags & ~EXACT) == NO_PLANES;
    uint32_t n_words = is_empty ? 0 : (end + 3) / 4;
    const uint32_t raw_words = 1 + tile.n_values() * (sizeof(T) / 4);
    const bool is_raw = n_words > raw_words;
    if (is_raw) n_words = raw_words;

    if (!is_too_wide && lane == 0) {
        const Chunk& chunk = job.chunks[tile.chunk];
        store_relaxed(job.sizes + (chunk.first_slot + tile.index), uint64_t(n_words) << 32 | job.launch);
        atomicAdd((unsigned long long*)(job.sums + (chunk.first_run + tile.index / TILES_PER_ANCHOR)),
                  (unsigned long long)(uint64_t(1) << 32 | n_words));
        ((uint16_t*)(tile.bytes() + words_offset(tile.n_tiles)))[tile.index] = uint16_t(n_words);
    }
    if (lane == 0) {
        s.is_too_wide = is_too_wide;
        s.is_raw = is_raw;
        s.n_words = n_words;
        s.n_kept[side] = n_words <= KEPT_WORDS && !is_raw && needs_place(tile, n_words) ? n_words : NO_TILE;
    }
    if (is_too_wide || is_raw || is_empty) return;

    uint32_t* words = n_words <= KEPT_WORDS ? s.kept[side] : s.words;
    uint8_t* body = (uint8_t*)words;
    __syncwarp();
    if (lane == 0) {
        // Clears the padding.
        words[n_words - 1] = 0;
        words[0] = is_wide ? flags : uint32_t(base) << 8 | flags;
        if (is_wide) put_bytes(body + 4, base);
    }
    __syncwarp();
    if (n_planes == 0) return;
    uint32_t before = upto - amounts[0] - amounts[1];
    uint32_t present = 0;
#pragma unroll
    for (uint32_t i = 0; i < 2; ++i) {
        s.planes_at[2 * lane + i] = uint16_t(planes_at + (before & 0xFFFF));
        if (amounts[i] > 0) {
            present |= 1u << i;
            body[headers_at + (before >> 25)] = uint8_t(least[i]);
            uint32_t to = deltas_at + (before >> 16 & 0x1FF);
            uint32_t n_delta = least[i] >> LEAST_BITS;
#pragma unroll
            for (uint32_t k = 0; k < 7; ++k) {
                if (k < n_delta) body[to + k] = uint8_t(k < 4 ? low[i] >> 8 * k : high[i] >> 8 * (k - 4));
            }
        }
        before += amounts[i];
    }
    if (flags & SPARSE) {
        // Each lane has two bits, so four lanes have a byte.
        present <<= lane % 4 * 2;
        present |= __shfl_xor_sync(ALL_LANES, present, 1);
        present |= __shfl_xor_sync(ALL_LANES, present, 2);
        if (lane % 4 == 0 && lane / 4 < (n_super + 7) / 8) body[mask_at + lane / 4] = uint8_t(present);
    }
}

// Look-back: returns the offset of a tile's body in words, the sum over all previous tiles of the chunk. By one warp.
template <class T>
DEVICE uint32_t look_back(const EncodeJob<T>& job, const Tile<T>& tile) {
    const uint32_t lane = threadIdx.x % 32;
    const Chunk& chunk = job.chunks[tile.chunk];
    const uint64_t* sums = job.sums + chunk.first_run;
    uint64_t* offsets = job.run_offsets + chunk.first_run;
    const uint32_t run = tile.index / TILES_PER_ANCHOR, in_run = tile.index % TILES_PER_ANCHOR;
    const uint64_t* sizes = job.sizes + (chunk.first_slot + tile.index - in_run);
    uint32_t before = 0;
    // The run after the one that lane 0 reads.
    uint32_t end = run;
    bool is_own_known = in_run == 0, is_done = end == 0;
    while (!is_own_known || !is_done) {
        uint64_t size = !is_own_known && lane < in_run ? load_relaxed(sizes + lane) : job.launch;
        const bool exists = !is_done && end > lane;
        uint64_t sum = exists ? load_relaxed(sums + (end - 1 - lane)) : 0;
        uint64_t offset = exists && end - 1 - lane > 0 ? load_relaxed(offsets + (end - 1 - lane)) : job.launch;
        if (!is_own_known && __all_sync(ALL_LANES, uint32_t(size) == job.launch)) {
            before += __reduce_add_sync(ALL_LANES, uint32_t(size >> 32));
            is_own_known = true;
        }
        if (!is_done) {
            const uint32_t known = __ballot_sync(ALL_LANES, !exists || sum >> 32 == TILES_PER_ANCHOR);
            const uint32_t found = __ballot_sync(ALL_LANES, uint32_t(offset) == job.launch);
            // Lanes up to the first with a run whose offset is known.
            const uint32_t needed = found != 0 ? (found & (0 - found)) * 2 - 1 : ALL_LANES;
            if ((known & needed) == needed) {
                uint32_t words = needed >> lane & 1 ? uint32_t(sum) : 0;
                // The last of these lanes adds that offset.
                if ((needed >> lane) == 1) words += uint32_t(offset >> 32);
                before += __reduce_add_sync(ALL_LANES, words);
                is_done = found != 0;
                end -= 32;
            }
        }
        if (!is_own_known || !is_done) spin_pause();
    }
    if (lane == 0 && in_run == 0) store_relaxed(offsets + run, uint64_t(before) << 32 | job.launch);
    return before;
}

// Writes the directory entries of a tile, whose body is at offset `before`; by one thread.
template <class T>
DEVICE_CALL void put_entries(const EncodeJob<T>& job, const Tile<T>& tile, uint32_t before, uint32_t n_words) {
    uint8_t* payload = tile.bytes();
    Chunk& chunk = job.chunks[tile.chunk];
    if (tile.index % TILES_PER_ANCHOR == 0) {
        ((uint32_t*)(payload + PARAMETER_BYTES))[tile.index / TILES_PER_ANCHOR] = before;
    }
    if (tile.index == 0) {
        const Choice& view = job.choices[chunk.choice];
        const uint8_t parameters[PARAMETER_BYTES] = {uint8_t(view.axes | (view.lag - 1) << 4), view.x_axes, view.y_axes,
                                                     view.z_axes, view.x_log2, view.y_log2, view.z_log2, 0};
        for (uint32_t k = 0; k < PARAMETER_BYTES; ++k) payload[k] = parameters[k];
    }
    if (tile.index + 1 == tile.n_tiles) {
        chunk.payload_bytes = bodies_offset(tile.n_tiles) + 4 * uint64_t(before + n_words);
        if (tile.n_tiles % 2 == 1) ((uint16_t*)(payload + words_offset(tile.n_tiles)))[tile.n_tiles] = 0;
    }
}

// Copies a body from shared memory to its offset.
template <class T>
DEVICE void copy_body(const Tile<T>& tile, uint32_t before, const uint32_t* words, uint32_t n_words) {
    uint32_t* to = (uint32_t*)(tile.bytes() + bodies_offset(tile.n_tiles)) + before;
    for (uint32_t i = threadIdx.x; i < n_words; i += Real<T>::ENCODE_THREADS) to[i] = words[i];
}

// Finds the offset of a body that was not kept, and copies it: a large body, or raw values.
template <class T>
DEVICE_CALL void copy_now(const EncodeJob<T>& job, EncodeShared<T>& s, const Tile<T>& tile) {
    constexpr uint32_t THREADS = Real<T>::ENCODE_THREADS;
    constexpr uint32_t PER_VALUE = sizeof(T) / 4;
    const uint32_t t = threadIdx.x, n_words = s.n_words;
    __syncthreads();
    if (t < 32) {
        uint32_t before = look_back(job, tile);
        if (t == 0) {
            s.words_before = before;
            put_entries(job, tile, before, n_words);
        }
    }
    __syncthreads();
    const uint32_t before = s.words_before;
    if (!s.is_raw) {
        copy_body(tile, before, s.words, n_words);
    } else {
        uint32_t* to = (uint32_t*)(tile.bytes() + bodies_offset(tile.n_tiles)) + before;
        if (t == 0) to[0] = RAW;
        for (uint32_t i = t; i + 1 < n_words; i += THREADS) {
            uint32_t line = i / PER_VALUE / tile.ex, x = i / PER_VALUE % tile.ex;
            const T* value = tile.from() + tile.row_offset(line) + x;
            to[1 + i] = ((const uint32_t*)value)[i % PER_VALUE];
        }
    }
    __syncthreads();
}

// Phase 4: the bit planes of this thread's groups.
template <class T, class Code, uint32_t N>
DEVICE void put_planes(EncodeShared<T>& s, uint8_t* body, const Code (&codes)[N][GROUP], const uint32_t (&widths)[N]) {
    const Neighbours neighbours(threadIdx.x % 8);
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        const uint32_t width = widths[i];
        if (width == 0) continue;
        const uint32_t group = threadIdx.x + i * Real<T>::ENCODE_THREADS;
        const uint32_t low = ((const uint32_t*)s.widths)[group / 8 * 2];
        const uint32_t high = ((const uint32_t*)s.widths)[group / 8 * 2 + 1];
        uint8_t* to = body + neighbours.add_before(low, high, s.planes_at[group / 8]);
        // Eight planes at a time. Most groups need one iteration, so unrolling would only cost instruction cache.
#pragma unroll 1
        for (uint32_t done = 0; done < width; done += 8, to += 8) {
            uint32_t first, second;
            planes_of_bytes(gather_bytes(&codes[i][0], done / 8), gather_bytes(&codes[i][1], done / 8), first, second);
            const uint32_t left = width - done;
            to[0] = uint8_t(first);
            if (left > 1) to[1] = uint8_t(first >> 8);
            if (left > 2) to[2] = uint8_t(first >> 16);
            if (left > 3) to[3] = uint8_t(first >> 24);
            if (left > 4) to[4] = uint8_t(second);
            if (left > 5) to[5] = uint8_t(second >> 8);
            if (left > 6) to[6] = uint8_t(second >> 16);
            if (left > 7) to[7] = uint8_t(second >> 24);
        }
    }
}

// The last warp finds the offset of the tile of the previous iteration.
template <class T>
DEVICE void find_previous_offset(const EncodeJob<T>& job, EncodeShared<T>& s, uint32_t iteration) {
    constexpr uint32_t FIRST = Real<T>::ENCODE_THREADS - 32;
    if (threadIdx.x >= FIRST && s.n_kept[iteration % 2 ^ 1] != NO_TILE) {
        uint32_t before = look_back(job, s.tiles[(iteration - 1) % 4]);
        if (threadIdx.x == FIRST) s.words_before = before;
    }
}

// All threads copy the body of the previous iteration.
template <class T>
DEVICE void copy_previous(const EncodeJob<T>& job, EncodeShared<T>& s, uint32_t iteration) {
    const uint32_t n_words = s.n_kept[iteration % 2 ^ 1];
    if (n_words == NO_TILE) return;
    const Tile<T>& previous = s.tiles[(iteration - 1) % 4];
    copy_body(previous, s.words_before, s.kept[iteration % 2 ^ 1], n_words);
    if (threadIdx.x == Real<T>::ENCODE_THREADS - 32) put_entries(job, previous, s.words_before, n_words);
}

// Phases 2 to 4: from integers to a body, both in shared memory. Codes have 32 bits, as `quantize_shape` stores them,
// or for tiles of any shape the type of integers.
template <class T, class Code>
DEVICE void code_tile(const EncodeJob<T>& job, EncodeShared<T>& s, uint32_t iteration, bool careful, typename Real<T>::Int base) {
    using R = Real<T>;
    constexpr uint32_t THREADS = R::ENCODE_THREADS;
    constexpr uint32_t PER_THREAD = N_GROUPS / THREADS;
    constexpr bool HAS_SHAPES = sizeof(Code) == 4, HAS_OTHERS = sizeof(Code) == sizeof(T);
    const uint32_t t = threadIdx.x, side = iteration % 2;
    const Tile<T>& tile = s.tiles[iteration % 4];
    Code codes[PER_THREAD][GROUP];
    uint32_t widths[PER_THREAD];
    uint32_t kind = QUANTISED;
    for (bool is_first = true;; is_first = false) {
        if constexpr (HAS_OTHERS) {
            if (careful) kind = take_care(job.coding, s, tile, base);
        }
        const uint32_t shape = careful || !HAS_SHAPES ? ANY_SHAPE : tile.shape;
        if constexpr (HAS_SHAPES) {
            const uint32_t* integers = (const uint32_t*)s.integers;
            const uint32_t zero = uint32_t(R::MAGIC_BITS + base);
            if (shape == VOLUME) code_shape<T, Shape<VOLUME>>(tile, integers, zero, codes);
            else if (shape == PLANE) code_shape<T, Shape<PLANE>>(tile, integers, zero, codes);
            else if (shape == LINE || !HAS_OTHERS) code_shape<T, Shape<LINE>>(tile, integers, zero, codes);
        }
        if constexpr (HAS_OTHERS) {
            if (shape == ANY_SHAPE) {
#pragma unroll
                for (uint32_t i = 0; i < PER_THREAD; ++i) {
                    code_group(tile, s.integers, (t + i * THREADS) * GROUP, codes[i]);
                }
            }
        }
#pragma unroll
        for (uint32_t i = 0; i < PER_THREAD; ++i) {
            const uint32_t group = t + i * THREADS;
            Code all = 0;
#pragma unroll
            for (uint32_t k = 0; k < GROUP; ++k) all |= codes[i][k];
            widths[i] = bit_length(all);
            s.widths[group] = uint8_t(widths[i]);
        }
        __syncthreads();
        if (t < 32) lay_out(job, s, tile, kind, base, careful, side);
        // Meanwhile other warps find the offset of the previous body and take the next ticket. Not earlier, since all
        // later tiles wait for a tile that is taken but not begun.
        if (is_first) {
            find_previous_offset(job, s, iteration);
            if (t == 32) take_tile(job, s.tiles[(iteration + 1) % 4]);
        }
        __syncthreads();
        if (!HAS_OTHERS || !s.is_too_wide) break;
        // Some integer is outside of the range of quantised ones, so its value cannot be quantised.
        careful = true;
    }
    if (s.n_words > 0 && !s.is_raw) {
        uint8_t* body = s.n_words <= KEPT_WORDS ? (uint8_t*)s.kept[side] : s.body;
        put_planes(s, body, codes, widths);
        if (careful && kind == QUANTISED && t < 32) put_holes(s, tile, body, t);
    }
}

// Codes tiles that need 64-bit integers. Not inlined, so that the code for other tiles needs fewer registers.
template <class T>
DEVICE_CALL void code_wide_tile(const EncodeJob<T>& job, EncodeShared<T>& s, uint32_t iteration, bool careful,
                                typename Real<T>::Int base) {
    code_tile<T, typename Real<T>::Int>(job, s, iteration, careful, base);
}

template <class T>
DEVICE void encode_tiles(const EncodeJob<T>& job, EncodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    const uint32_t t = threadIdx.x;
    const Coding<T>& coding = job.coding;
    if (t == 0) {
        take_tile(job, s.tiles[0]);
        s.n_kept[1] = NO_TILE;
    }
    __syncthreads();
    // There is no barrier between iterations: warps that are ahead write integers, which warps that still write planes
    // or copy do not use.
    for (uint32_t iteration = 0;; ++iteration) {
        const Tile<T>& tile = s.tiles[iteration % 4];
        const bool is_end = tile.chunk == NO_TILE;
        if (is_end || tile.index == NO_TILE) {
            __syncthreads();
            find_previous_offset(job, s, iteration);
            __syncthreads();
            copy_previous(job, s, iteration);
            if (is_end) return;
            if (t == 0) {
                s.n_kept[iteration % 2] = NO_TILE;
                take_tile(job, s.tiles[(iteration + 1) % 4]);
            }
            __syncthreads();
            continue;
        }
        bool careful = true, is_shape = false;
        Int base = 0;
        if (!coding.is_lossless && tile.lag == 1) {
            is_shape = tile.shape != ANY_SHAPE;
            if (is_shape && tile.aligned) {
                careful = !quantize_shape<T, true>(coding, tile, base, s);
            } else {
                // A separate variable, since the compiler keeps one whose address is passed to a call in memory.
                Int of_any;
                careful = !(is_shape ? quantize_unaligned(coding, tile, of_any, s) : quantize_tile(coding, tile, of_any, s));
                base = of_any;
            }
        }
        careful = __syncthreads_or(careful);
        if (sizeof(T) == 4) {
            code_tile<T, uint32_t>(job, s, iteration, careful, base);
        } else if (is_shape && !careful) {
            code_tile<T, uint32_t>(job, s, iteration, false, base);
        } else {
            // Values whose integers are far apart may still be quantised, with 64 bits.
            Int of_any = base;
            if (is_shape) careful = __syncthreads_or(!quantize_tile(coding, tile, of_any, s));
            code_wide_tile(job, s, iteration, careful, of_any);
        }
        copy_previous(job, s, iteration);
        if (s.is_raw || s.n_words > KEPT_WORDS) copy_now(job, s, tile);
    }
}

KERNEL_BOUNDED(256, 4, fast_encode_f32)(const __grid_constant__ EncodeJob<float> job) {
    SHARED(EncodeShared<float>, shared);
    encode_tiles(job, shared);
}

KERNEL_BOUNDED(256, 4, fast_encode_f64)(const __grid_constant__ EncodeJob<double> job) {
    SHARED(EncodeShared<double>, shared);
    encode_tiles(job, shared);
}

REGISTER_KERNEL(fast_encode_f32);
REGISTER_KERNEL(fast_encode_f64);
