// Codec `fast`, decoding: payloads in device memory to chunks in device memory, in one launch with one block per tile.
// It needs no scan over tiles, since the directory gives the offset of each body.
//
// Memory phases of a tile:
//   1. one warp finds the body by its anchor and the sizes of at most 31 tiles, and copies it to shared memory. Another
//      prefetches bodies for later blocks;
//   2. one warp checks the body and computes widths and offsets of all groups;
//   3. each thread decodes groups of 8 codes from bit planes to registers, sums along x, and stores integers in shared
//      memory, over the body;
//   4. sums along y and z; values are written, 16 bytes of a row at a time if rows are aligned.
// Phases 1 and 2 are in fast_open.cuh, the others in fast_sums.cuh.
//
// No byte of a payload is trusted. The smallest error code of a chunk is reported.
#include "fast_sums.cuh"

// Writes one value to all positions of a tile.
template <class Int, class T>
DEVICE void fill_tile(const Tile<T>& tile, T value) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    T* to = tile.to();
    if (tile.aligned) {
        constexpr uint32_t n = 16 / sizeof(T);
        Piece<T> values;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) values.of[k] = value;
#pragma unroll 1
        for (uint32_t i = 0; i < TILE_VALUES / n / THREADS; ++i) {
            const uint32_t at = (threadIdx.x + i * THREADS) * n, line = at >> tile.x_log2;
            store_vector(to + tile.row_offset(line) + (at - (line << tile.x_log2)), values.of);
        }
        return;
    }
    for (uint32_t at = threadIdx.x; at < tile.n_codes; at += THREADS) {
        const uint32_t line = tile.line_of(at), x = at - line * tile.row;
        if (x < tile.ex) to[tile.row_offset(line) + x] = value;
    }
}

// Overwrites holes with fill values and escapes, from the body in device memory, which was checked.
template <class T, class Int>
DEVICE_CALL void apply_holes(const Coding<T>& coding, const Tile<T>& tile, const DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    const uint8_t* from = in_device_memory((const uint8_t*)s.from) + s.holes_at;
    T* to = tile.to();
    const uint32_t mask_bytes = (tile.n_super() + 7) / 8;
    __syncthreads();
    for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
        if (!(s.flags & MASK_0 << fill)) continue;
        const uint64_t any = read_bits(from, mask_bytes), mixed = read_bits(from + mask_bytes, mask_bytes);
        const uint8_t* words = from + 2 * mask_bytes;
        for (uint32_t at = threadIdx.x; at < tile.n_codes; at += THREADS) {
            const uint32_t super = at / SUPER, x = at % tile.row;
            if (!(any >> super & 1) || x >= tile.ex) continue;
            if (mixed >> super & 1) {
                uint32_t rank = __popcll((long long)(mixed & ((uint64_t(1) << super) - 1)));
                if (!(words[8 * rank + at % SUPER / 8] >> at % 8 & 1)) continue;
            }
            to[tile.offset(at)] = of_bits<T>(coding.fills[fill]);
        }
        from = words + 8 * __popcll((long long)mixed);
        __syncthreads();
    }
    if (!(s.flags & ESCAPES)) return;
    const uint32_t n = from[0] | from[1] << 8;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const uint32_t index = from[2 + 2 * i] | from[3 + 2 * i] << 8;
        const uint8_t* value = from + 2 + 2 * n + sizeof(T) * i;
        typename Real<T>::Int bits = 0;
        for (uint32_t k = 0; k < sizeof(T); ++k) bits |= typename Real<T>::Int(value[k]) << 8 * k;
        to[tile.offset(index)] = of_bits<T>(bits);
    }
}

// Phases 3 and 4: from planes in shared memory to values.
template <class T, class Int>
DEVICE void restore_tile(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    constexpr uint32_t PER_THREAD = N_GROUPS / THREADS;
    const uint32_t t = threadIdx.x;
    const uint32_t shape = (s.flags & KIND) == QUANTISED ? tile.shape : ANY_SHAPE;
    const Neighbours neighbours(t % 8);
    Int v[PER_THREAD][GROUP];
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; ++i) read_group(s, neighbours, t / 8 + i * (THREADS / 8), v[i]);
    if (shape == LINE) {
        const Int first = Restorer<T, Int>(coding, s).first;
        if (tile.axes & X) {
            if (tile.axes & XX) sum_line(s, v);
            if (t == 0) v[0][0] += first;
            sum_line(s, v);
        } else {
#pragma unroll
            for (uint32_t i = 0; i < PER_THREAD; ++i) {
#pragma unroll
                for (uint32_t k = 0; k < GROUP; ++k) v[i][k] += first;
            }
        }
    } else if ((tile.axes & X) && tile.lag == 1) {
        if (shape != ANY_SHAPE) {
            if (tile.x_log2 == 5) sum_short_rows<4>(v);
            else if (tile.x_log2 == 6) sum_short_rows<8>(v);
            else if (tile.x_log2 == 7) sum_short_rows<16>(v);
            else sum_short_rows<32>(v);
        } else {
            if (tile.axes & XX) sum_rows(tile, s, v);
            sum_rows(tile, s, v);
        }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; ++i) store_group(s.integers, (t + i * THREADS) * GROUP, v[i]);
    __syncthreads();
    if (shape == VOLUME) sum_volume<T, Int>(coding, tile, s);
    else if (shape == PLANE && tile.x_log2 == 5) sum_plane<T, Int, 32>(coding, tile, s);
    else if (shape == PLANE && tile.x_log2 == 6) sum_plane<T, Int, 64>(coding, tile, s);
    else if (shape == PLANE && tile.x_log2 == 7) sum_plane<T, Int, 128>(coding, tile, s);
    else if (shape == PLANE) sum_plane<T, Int, 256>(coding, tile, s);
    else if (shape == LINE) write_line<T, Int>(coding, tile, s);
    else sum_any(coding, tile, s);
}

template <class T, class Int>
DEVICE void decode_tile(const DecodeJob<T>& job, DecodeShared<T, Int>& s) {
    constexpr uint32_t THREADS = DECODE_THREADS<Int>;
    const uint32_t t = threadIdx.x;
    const Coding<T>& coding = job.coding;
    const uint32_t slot = job.slots != 0 ? job.slots[blockIdx.x] : blockIdx.x;
    // Three warps in parallel: one finds the body and copies it, one computes the tile's position, one prefetches.
    // Loads from device memory have a long latency while stores are queued; only two of them precede the copy of the
    // body.
    if (t < 32) {
        const TilePosition position(job, slot);
        const uint32_t* from;
        uint32_t n_words;
        const uint32_t error = find_body<T, Int>(position, from, n_words);
        if (t == 0) {
            s.from = from;
            s.n_words = n_words;
            s.body_error = error;
        }
        if (error == 0) {
            for (uint32_t i = t; i < n_words; i += 32) copy_word_once(s.words + i, from + i);
            await_words();
        }
    } else if (t == 32) {
        const uint32_t number = chunk_of(job.chunks, job.n_chunks, job.slots_per_chunk, slot);
        const Chunk& chunk = job.chunks[number];
        place_tile(chunk, job.choices[number], number, slot - chunk.first_slot, s.tile);
    } else if (t >= THREADS - 32 && job.slots == 0) {
        prefetch_bodies(job, slot);
    }
    __syncthreads();
    const Tile<T>& tile = s.tile;
    uint32_t error = s.body_error;
    if (error == 0) {
        if (s.n_words == 0) {
            fill_tile<Int>(tile, T(0));
            return;
        }
        if (t < 32) {
            const uint32_t wrong = parse_body(coding, s, tile);
            if (t == 0) s.content_error = wrong;
        }
        __syncthreads();
        error = s.content_error;
    }
    if (error != 0) {
        if (t == 0) atomicMin((unsigned long long*)job.errors, (unsigned long long)(uint64_t(tile.chunk) << 8 | error));
        return;
    }
    const uint32_t flags = s.flags;
    if ((flags & KIND) == RAW) {
        constexpr uint32_t per_value = sizeof(T) / 4;
        for (uint32_t i = t; i + 1 < s.n_words; i += THREADS) {
            const uint32_t line = i / per_value / tile.ex, x = i / per_value % tile.ex;
            ((uint32_t*)(tile.to() + tile.row_offset(line) + x))[i % per_value] = s.words[1 + i];
        }
        return;
    }
    if (flags & NO_PLANES) {
        fill_tile<Int>(tile, (flags & KIND) == EXACT ? of_ordered<T>(s.base) : coding.restore(s.base));
    } else {
        restore_tile(coding, tile, s);
    }
    if (flags & (MASK_0 | MASK_0 << 1 | ESCAPES)) apply_holes(coding, tile, s);
}

KERNEL_BOUNDED(128, 9, fast_decode_f32)(const __grid_constant__ DecodeJob<float> job) {
    using Shared = DecodeShared<float, uint32_t>;
    SHARED(Shared, shared);
    decode_tile(job, shared);
}

// Uses half the shared memory and half the threads, for tiles whose sums fit into 32 bits, as most do.
KERNEL_BOUNDED(128, 9, fast_decode_f64)(const __grid_constant__ DecodeJob<double> job) {
    using Shared = DecodeShared<double, uint32_t>;
    SHARED(Shared, shared);
    decode_tile(job, shared);
}

KERNEL_BOUNDED(256, 4, fast_decode_wide_f64)(const __grid_constant__ DecodeJob<double> job) {
    using Shared = DecodeShared<double, uint64_t>;
    SHARED(Shared, shared);
    decode_tile(job, shared);
}

REGISTER_KERNEL(fast_decode_f32);
REGISTER_KERNEL(fast_decode_f64);
REGISTER_KERNEL(fast_decode_wide_f64);
