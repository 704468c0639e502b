// Codec `fast`, decoding: payloads in device memory to chunks in device memory, a block a tile, in one launch and
// without a scan over tiles: the directory says where each body is.
//
// Memory phases of a tile:
//   1. one warp finds the body by its anchor and the sizes of at most 31 tiles; all copy it into shared memory. Another warp
//      asks for what the next block will need;
//   2. one warp checks it and lays open widths and places of all groups;
//   3. a thread takes groups of 8 codes from their bit planes to registers, sums along x, and leaves integers in
//      shared memory, over the body;
//   4. a thread takes columns, sums along y and z in registers, and writes values.
// Every byte of a payload is hostile. What is wrong with a chunk is reported by its least code.
#include "fast_tile.cuh"

// What can be wrong, in `errors`: one word for all chunks of a launch, `chunk << 8 | code`, the least wins.
constexpr uint32_t WRONG_ANCHOR = 1;
constexpr uint32_t WRONG_SIZE = 2;
constexpr uint32_t WRONG_TILE = 3;
// Not wrong, but nothing that our encoders write: such tiles are larger than raw ones.
constexpr uint32_t NEEDS_HOST = 4;

template <class T>
struct DecodeJob {
    Coding<T> coding;
    const Chunk* chunks;
    // One for each chunk.
    const Choice* choices;
    uint64_t* errors;
    // The slot of each block; 0 if these are all, in order.
    const uint32_t* slots;
    uint32_t n_chunks;
    // Slots of each chunk if all but the last have as many, else 0.
    uint32_t slots_per_chunk;
    // How many blocks are at work at a time: the one that comes after this many is the next to start.
    uint32_t n_resident;
};

template <class T>
struct DecodeShared : TileMemory<T> {
    // Sum of the last row of each warp's groups, as far as these hold it.
    typename Real<T>::Int tails[N_GROUPS / 32];
    Tile<T> tile;
    const uint32_t* from;
    uint32_t n_words;
    // What phase 2 found: the flags of the body, its base, and where masks and escapes start.
    uint32_t flags;
    uint32_t holes_at;
    uint32_t is_narrow;
    typename Real<T>::Int base;
    uint32_t error;
};

// Phase 1, by one warp: where the body of a slot's tile is. Returns what is wrong, or 0.
template <class T>
DEVICE uint32_t find_body(const DecodeJob<T>& job, uint32_t slot, const uint32_t*& from, uint32_t& n_words) {
    const uint32_t lane = threadIdx.x % 32;
    const uint32_t number = chunk_of(job.chunks, job.n_chunks, job.slots_per_chunk, slot);
    const Chunk& chunk = job.chunks[number];
    const uint32_t index = slot - chunk.first_slot, n_tiles = job.choices[number].n_tiles;
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    const uint32_t* anchors = (const uint32_t*)(payload + PARAMETER_BYTES);
    const uint16_t* sizes = (const uint16_t*)(payload + words_offset(n_tiles));
    const uint32_t in_run = index % TILES_PER_ANCHOR, run = index / TILES_PER_ANCHOR;
    const bool is_last = index + 1 == n_tiles, is_end_of_run = !is_last && in_run == TILES_PER_ANCHOR - 1;
    const uint32_t size = lane <= in_run ? sizes[index - in_run + lane] : 0;
    const uint32_t anchor = anchors[run], next_anchor = is_end_of_run ? anchors[run + 1] : 0;
    const uint64_t end = anchor + uint64_t(__reduce_add_sync(ALL_LANES, size));
    n_words = __shfl_sync(ALL_LANES, size, in_run);
    from = (const uint32_t*)(payload + bodies_offset(n_tiles)) + (end - n_words);
    const uint64_t all_words = (chunk.payload_bytes - bodies_offset(n_tiles)) / 4;
    if (end > all_words || (is_last && end != all_words)) return WRONG_SIZE;
    if (index == 0 && anchor != 0) return WRONG_ANCHOR;
    if (is_end_of_run && next_anchor != end) return WRONG_ANCHOR;
    if (n_words > TILE_VALUES * sizeof(T) / 4 + 1) return NEEDS_HOST;
    return 0;
}

// Asks for what the block of a later slot will read, by one warp: for the tile's share of the bodies of its run of tiles, whose
// ends are known without a sum. What is asked for in vain, because a payload is wrong, does no harm.
template <class T>
DEVICE void prefetch_bodies(const DecodeJob<T>& job, uint32_t slot) {
    if (slot >= gridDim.x) return;
    const uint32_t number = chunk_of(job.chunks, job.n_chunks, job.slots_per_chunk, slot);
    const Chunk& chunk = job.chunks[number];
    const uint32_t index = slot - chunk.first_slot, n_tiles = job.choices[number].n_tiles;
    if (index >= n_tiles) return;
    const uint8_t* payload = in_device_memory((const uint8_t*)chunk.payload);
    const uint32_t* anchors = (const uint32_t*)(payload + PARAMETER_BYTES);
    const uint32_t run = index / TILES_PER_ANCHOR, in_run = index % TILES_PER_ANCHOR;
    const uint64_t n_bytes = chunk.payload_bytes - bodies_offset(n_tiles);
    const uint64_t first = 4 * uint64_t(anchors[run]);
    const uint64_t end = (run + 1) * TILES_PER_ANCHOR < n_tiles ? 4 * uint64_t(anchors[run + 1]) : n_bytes;
    if (first > end || end > n_bytes) return;
    const uint8_t* bodies = payload + bodies_offset(n_tiles) + first;
    const uint64_t share = (end - first) / TILES_PER_ANCHOR + 1;
    const uint64_t upto = min((in_run + 1) * share, end - first);
    for (uint64_t at = in_run * share + threadIdx.x % 32 * 128; at < upto; at += 32 * 128) prefetch(bodies + at);
}

// Bits of residuals up to which sums over a tile have 32: 4096 of them make 12 more. Where sums along x are summed again, that
// is so twice.
constexpr uint32_t NARROW_BITS = 19;
constexpr uint32_t NARROW_BITS_TWICE = 7;
// And how far the base may be from 0, so that with such a sum it is less than 2^51.
constexpr uint64_t NARROW_BASE = (uint64_t(1) << 51) - (uint64_t(1) << 31);

// Bits per supergroup, as masks have them.
DEVICE uint64_t read_bits(const uint8_t* from, uint32_t n_bytes) {
    uint64_t bits = 0;
    for (uint32_t k = 0; k < n_bytes; ++k) bits |= uint64_t(from[k]) << 8 * k;
    return bits;
}

// Checks masks and escapes, by one lane; moves `at` behind them. Returns whether they are as they should be.
template <class T>
DEVICE_CALL bool check_holes(const DecodeShared<T>& s, const Tile<T>& tile, uint32_t n_fills, uint32_t flags,
                             uint32_t& at) {
    const uint32_t n_bytes = 4 * s.n_words, n_super = tile.n_super(), mask_bytes = (n_super + 7) / 8;
    if ((flags & KIND) != QUANTISED) return false;
    const uint64_t beyond = n_super == 64 ? 0 : ~uint64_t(0) << n_super;
    for (uint32_t fill = 0; fill < MAX_FILLS; ++fill) {
        if (!(flags & MASK_0 << fill)) continue;
        if (fill >= n_fills || at + 2 * mask_bytes > n_bytes) return false;
        uint64_t any = read_bits(s.body + at, mask_bytes), mixed = read_bits(s.body + at + mask_bytes, mask_bytes);
        if ((mixed & ~any) != 0 || (any & beyond) != 0) return false;
        at += 2 * mask_bytes + 8 * __popcll((long long)mixed);
        if (at > n_bytes) return false;
    }
    if (flags & ESCAPES) {
        if (at + 2 > n_bytes) return false;
        uint32_t n = s.body[at] | s.body[at + 1] << 8;
        if (n == 0 || at + 2 + n * (2 + sizeof(T)) > n_bytes) return false;
        uint32_t next = 0;
        for (uint32_t i = 0; i < n; ++i) {
            uint32_t index = s.body[at + 2 + 2 * i] | s.body[at + 3 + 2 * i] << 8;
            if (index < next || index >= tile.n_codes || index % tile.row >= tile.ex) return false;
            next = index + 1;
        }
        at += 2 + n * (2 + sizeof(T));
    }
    return true;
}

// Eight bytes of shared memory from any address on.
DEVICE void read_eight(const uint32_t* words, uint32_t at, uint32_t& low, uint32_t& high) {
    const uint32_t* from = words + at / 4;
    // Shifts are modulo 32.
    const uint32_t second = from[1];
    low = __funnelshift_r(from[0], second, 8 * at);
    high = __funnelshift_r(second, from[2], 8 * at);
}

// The lowest `n` bits of each byte; n is 8 at most.
DEVICE uint32_t low_bits(uint32_t n) { return ((1u << n) - 1) * 0x01010101; }

// Phase 2, by one warp: flags and base, then widths of all groups and where the planes of each supergroup are. Returns
// what is wrong, or 0.
template <class T>
DEVICE uint32_t lay_open(const Coding<T>& coding, DecodeShared<T>& s, const Tile<T>& tile) {
    using R = Real<T>;
    const uint32_t lane = threadIdx.x;
    const uint32_t n_bytes = 4 * s.n_words, n_super = tile.n_super();
    const uint32_t head = s.words[0], flags = head & 0xFF, kind = flags & KIND;
    typename R::Int base = typename R::Int(typename R::Signed(int32_t(head) >> 8));
    if (kind == RAW) {
        uint32_t raw_words = 1 + tile.n_values() * (sizeof(T) / 4);
        if (head != RAW || s.n_words != raw_words) return WRONG_TILE;
        if (lane == 0) s.flags = flags;
        return 0;
    }
    if (kind != EXACT && (kind != QUANTISED || coding.is_lossless)) return WRONG_TILE;
    uint32_t at = 4;
    if (flags & WIDE_BASE) {
        if (base != 0 || s.n_words < 1 + sizeof(T) / 4) return WRONG_TILE;
        base = s.words[1];
        if (sizeof(T) == 8) base |= typename R::Int(s.words[2]) << (sizeof(T) * 4);
        at += sizeof(T);
    }
    if (lane == 0) {
        s.flags = flags;
        s.base = base;
        s.holes_at = at;
    }
    if (flags & (MASK_0 | MASK_0 << 1 | ESCAPES)) {
        bool fine = true;
        // A variable of its own: what a call is given the address of stays in memory.
        uint32_t behind = at;
        if (lane == 0) fine = check_holes(s, tile, coding.n_fills, flags, behind);
        at = __shfl_sync(ALL_LANES, behind, 0);
        if (!__all_sync(ALL_LANES, fine)) return WRONG_TILE;
    }
    uint32_t end = at;
    if (flags & NO_PLANES) {
        if (flags & SPARSE) return WRONG_TILE;
    } else {
        const uint64_t all = n_super == 64 ? ~uint64_t(0) : (uint64_t(1) << n_super) - 1;
        uint64_t mask = all;
        if (flags & SPARSE) {
            const uint32_t mask_bytes = (n_super + 7) / 8;
            if (at + mask_bytes > n_bytes) return WRONG_TILE;
            uint32_t low, high;
            read_eight(s.words, at, low, high);
            mask = uint64_t(high) << 32 | low;
            // What is behind a shorter one is not part of it.
            if (mask_bytes < 8) mask &= (uint64_t(1) << 8 * mask_bytes) - 1;
            if (mask & ~all) return WRONG_TILE;
            at += mask_bytes;
        }
        const uint32_t n_present = __popcll((long long)mask);
        const uint32_t deltas_at = at + n_present;
        if (deltas_at > n_bytes) return WRONG_TILE;
        uint32_t headers[2], n_deltas = 0;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t super = 2 * lane + i;
            headers[i] = 0;
            if (mask >> super & 1) {
                const bool is_dense = mask == ~uint64_t(0);
                const uint32_t before = is_dense ? super : __popcll((long long)(mask & ((uint64_t(1) << super) - 1)));
                headers[i] = s.body[at + before];
            }
            n_deltas += headers[i] >> LEAST_BITS;
        }
        const uint32_t deltas_upto = prefix_of_warp(n_deltas, lane);
        const uint32_t planes_at = deltas_at + __shfl_sync(ALL_LANES, deltas_upto, 31);
        if (planes_at > n_bytes) return WRONG_TILE;
        uint32_t from = deltas_at + deltas_upto - n_deltas;
        uint32_t n_planes[2];
        bool fine = true, is_wide = false;
        const uint32_t narrow = tile.axes & XX ? NARROW_BITS_TWICE : NARROW_BITS;
#pragma unroll
        for (uint32_t i = 0; i < 2; ++i) {
            const uint32_t super = 2 * lane + i;
            uint32_t low = 0, high = 0;
            if (mask >> super & 1) {
                const uint32_t n_delta = headers[i] >> LEAST_BITS, least = headers[i] & MAX_LEAST;
                uint32_t even, odd;
                read_eight(s.words, from, low, high);
                from += n_delta;
                bytes_of_planes(low, high, even, odd);
                low = __byte_perm(even, odd, 0x5140) & low_bits(n_delta);
                high = __byte_perm(even, odd, 0x7362) & low_bits(n_delta);
                uint32_t least_low = least * 0x01010101, least_high = least_low;
                if (!tile.full) {
                    // Groups that do not exist have no planes.
                    const uint32_t n_exist = min(tile.n_codes / GROUP - super * 8, 8u);
                    const uint64_t exist = n_exist == 8 ? ~uint64_t(0) : (uint64_t(1) << 8 * n_exist) - 1;
                    fine = fine && (low & ~uint32_t(exist)) == 0 && (high & ~uint32_t(exist >> 32)) == 0;
                    least_low &= uint32_t(exist);
                    least_high &= uint32_t(exist >> 32);
                }
                low += least_low;
                high += least_high;
                fine = fine && !any_byte_above(low, R::BITS) && !any_byte_above(high, R::BITS);
                is_wide = is_wide || any_byte_above(low, narrow) || any_byte_above(high, narrow);
            }
            ((uint32_t*)s.widths)[2 * super] = low;
            ((uint32_t*)s.widths)[2 * super + 1] = high;
            n_planes[i] = sum_of_bytes(low) + sum_of_bytes(high);
        }
        const uint32_t upto = prefix_of_warp(n_planes[0] + n_planes[1], lane);
        end = planes_at + __shfl_sync(ALL_LANES, upto, 31);
        const uint32_t before = planes_at + upto - n_planes[0] - n_planes[1];
        s.planes_at[2 * lane] = uint16_t(before);
        s.planes_at[2 * lane + 1] = uint16_t(before + n_planes[0]);
        if (!__all_sync(ALL_LANES, fine)) return WRONG_TILE;
        if (sizeof(T) == 8) {
            const bool any_wide = __any_sync(ALL_LANES, is_wide);
            const bool is_near = base + NARROW_BASE < 2 * NARROW_BASE;
            if (lane == 0) s.is_narrow = !any_wide && is_near;
        }
    }
    if (end > n_bytes || n_bytes - end > 3) return WRONG_TILE;
    // The padding is 0.
    const bool is_clean = end == n_bytes || s.words[s.n_words - 1] >> end % 4 * 8 == 0;
    return is_clean ? 0 : WRONG_TILE;
}

// Codes of a group of up to 32 planes.
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

// Residuals whose bytes are where `FIRST` says, of the first; those of the others are next to these.
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

// Phase 3: residuals of a group from its planes. Those of one or two bytes, as most are, four at a time.
template <class T, class Int>
DEVICE void read_group(const DecodeShared<T>& s, const Neighbours& neighbours, uint32_t super, Int (&v)[GROUP]) {
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
        // A code of no planes has no sign, either.
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

// Partial sums along x of rows whose groups are with so many neighbouring lanes.
template <uint32_t LANES, class Int, uint32_t N>
DEVICE void sum_short_rows(Int (&v)[N][GROUP]) {
    const uint32_t in_row = threadIdx.x % LANES;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
#pragma unroll
        for (uint32_t k = 1; k < GROUP; ++k) v[i][k] += v[i][k - 1];
        // What the groups before in the row add up to.
        Int before = 0;
#pragma unroll
        for (uint32_t distance = 1; distance < LANES; distance *= 2) {
            const Int other = __shfl_up_sync(ALL_LANES, before + v[i][GROUP - 1], distance);
            before += in_row >= distance ? other : 0;
        }
#pragma unroll
        for (uint32_t k = 0; k < GROUP; ++k) v[i][k] += before;
    }
}

// Partial sums along x of a single row of all groups.
template <class T, class Int, uint32_t N>
DEVICE void sum_line(DecodeShared<T>& s, Int (&v)[N][GROUP]) {
    constexpr uint32_t WARPS = Real<T>::DECODE_THREADS / 32;
    const uint32_t t = threadIdx.x, lane = t % 32, warp = t / 32;
    Int sums[N];
    Int* tails_of_all = (Int*)s.tails;
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
#pragma unroll
        for (uint32_t k = 1; k < GROUP; ++k) v[i][k] += v[i][k - 1];
        const Int upto = prefix_of_warp(v[i][GROUP - 1], lane);
        sums[i] = upto - v[i][GROUP - 1];
        if (lane == 31) tails_of_all[i * WARPS + warp] = upto;
    }
    __syncthreads();
    // 16 tails, in the order of groups.
    const Int tails = prefix_of_warp(lane < N_GROUPS / 32 ? tails_of_all[lane] : Int(0), lane);
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

// Partial sums along x of all groups, which are in registers.
template <class T, uint32_t N>
DEVICE void sum_rows(const Tile<T>& tile, DecodeShared<T>& s, typename Real<T>::Int (&v)[N][GROUP]) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    const uint32_t t = threadIdx.x, lane = t % 32;
    const uint32_t groups_per_row = tile.row / GROUP;
    // Whether rows go on from warp to warp.
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

template <class T>
DEVICE T value_for(const Coding<T>& coding, uint32_t kind, typename Real<T>::Int q) {
    return kind == EXACT ? of_ordered<T>(q) : coding.restore(q);
}

// From sums of residuals to values.
template <class T, class Int>
struct Restorer {
    using Bits = typename Real<T>::Int;
    // To be added to the first residual, or to all sums.
    Int first;
    // What sums of fewer bits than values stand for is their distance from this: with the bits of 2^52 above them, they are that plus
    // 2^31 plus the sum.
    T origin;
    T step;

    DEVICE Restorer(const Coding<T>& coding, const DecodeShared<T>& s) : step(coding.step) {
        const Bits zero = s.base + Real<T>::MAGIC_BITS;
        if constexpr (sizeof(Int) == sizeof(T)) {
            first = zero;
            origin = Real<T>::MAGIC;
        } else {
            first = 0x80000000;
            origin = sub_rn(4503599627370496.0 + 2147483648.0, sub_rn(of_bits<T>(zero), Real<T>::MAGIC));
        }
    }

    // The value of a sum with `first`. All but the product is exact.
    DEVICE T value(Int sum) const {
        if constexpr (sizeof(Int) == sizeof(T)) return mul_rn(sub_rn(of_bits<T>(sum), origin), step);
        else return mul_rn(sub_rn(of_bits<T>(Bits(0x43300000) << 32 | sum), origin), step);
    }
};

// Integers of which a thread makes 16 bytes of values at a time: a piece of them, or half of one.
template <class T, class Int>
struct alignas(16 / sizeof(T) * sizeof(Int)) Integers {
    Int of[16 / sizeof(T)];
};

// Phase 4 for volumes of quantised values: sums along y in place, by columns, then along z, by whole pieces of rows.
template <class T, class Int>
DEVICE void sum_volume(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T>& s) {
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    constexpr uint32_t EX = 32, EY = Shape<VOLUME>::EY, PLANE_VALUES = EX * EY, EZ = TILE_VALUES / PLANE_VALUES;
    constexpr uint32_t n = 16 / sizeof(T);
    Int* integers = (Int*)s.integers;
#pragma unroll
    for (uint32_t i = 0; i < EX * EZ / THREADS; ++i) {
        const uint32_t column = threadIdx.x + i * THREADS, x = column % EX;
        // Pieces are in another order in every second row.
        Int* even = integers + column / EX * PLANE_VALUES + place_of<Int>(x);
        Int* odd = integers + column / EX * PLANE_VALUES + place_of<Int>(EX + x) - EX;
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
    static_assert(THREADS * n == PLANE_VALUES, "all threads take a plane");
    const Restorer<T, Int> restorer(coding, s);
    const uint64_t stride = tile.stride_z;
    if (!tile.aligned) {
        // A lane takes columns, so that rows are written as a whole all the same.
        const uint32_t x = threadIdx.x % EX;
#pragma unroll 1
        for (uint32_t y = threadIdx.x / EX; y < EY; y += THREADS / EX) {
            const Int* from = integers + place_of<Int>(y * EX + x);
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
    const uint32_t y = threadIdx.x * n / EX, x = threadIdx.x * n % EX;
    const Integers<T, Int>* from = (const Integers<T, Int>*)(integers + place_of<Int>(threadIdx.x * n));
    T* to = tile.to() + y * tile.stride_y + x;
    Int sums[n];
#pragma unroll
    for (uint32_t k = 0; k < n; ++k) sums[k] = restorer.first;
    // Unrolled no further, here and below: many stores at a time make the loads of other blocks wait.
#pragma unroll 2
    for (uint32_t z = 0; z < EZ; ++z) {
        const Integers<T, Int> residuals = from[z * THREADS];
        Piece<T> values;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) {
            sums[k] += residuals.of[k];
            values.of[k] = restorer.value(sums[k]);
        }
        store_together(to, values.of);
        to += stride;
    }
}

// Phase 4 for planes of quantised values: neighbouring threads take neighbouring columns, all of their rows or part of them.
template <class T, class Int, uint32_t ROW>
DEVICE void sum_plane(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T>& s) {
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    constexpr uint32_t N = TILE_VALUES / THREADS;
    // Columns that are short come in pairs.
    constexpr uint32_t N_ROWS = TILE_VALUES / ROW < N ? TILE_VALUES / ROW : N;
    const uint32_t column = threadIdx.x % ROW, part = threadIdx.x / ROW;
    Int* integers = (Int*)s.integers;
    // The order of pieces is the same in all rows, or every second, and in columns that are that far apart.
    const Int* even = integers + place_of<Int>(column) + part * N * ROW;
    const Int* odd = even;
    if constexpr (ROW == 32) odd = integers + place_of<Int>(ROW + column) - ROW + part * N * ROW;
    Int v[N];
#pragma unroll
    for (uint32_t i = 0; i < N; ++i) {
        v[i] = (i % 2 == 0 ? even : odd)[i % N_ROWS * ROW + i / N_ROWS * THREADS];
        if (i % N_ROWS > 0) v[i] += v[i - 1];
    }
    const Restorer<T, Int> restorer(coding, s);
    Int before = restorer.first;
    if constexpr (ROW < THREADS) {
        __syncthreads();
        integers[threadIdx.x] = v[N - 1];
        __syncthreads();
        for (uint32_t k = 0; k < part; ++k) before += integers[k * ROW + column];
    }
    const uint64_t stride = tile.stride_y;
    T* to = tile.to() + column + part * N * stride;
#pragma unroll
    for (uint32_t i = 0; i < N_ROWS; ++i) {
#pragma unroll
        for (uint32_t k = 0; k < N / N_ROWS; ++k) to[k * THREADS] = restorer.value(v[k * N_ROWS + i] + before);
        to += stride;
    }
}

// Phase 4 for a line of quantised values, to the first of which was added what `Restorer` says.
template <class T, class Int>
DEVICE void write_line(const Coding<T>& coding, const Tile<T>& tile, const DecodeShared<T>& s) {
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    constexpr uint32_t n = 16 / sizeof(T);
    const Restorer<T, Int> restorer(coding, s);
    const Integers<T, Int>* from = (const Integers<T, Int>*)((const Int*)s.integers + place_of<Int>(threadIdx.x * n));
    if (!tile.aligned) {
#pragma unroll 2
        for (uint32_t at = threadIdx.x; at < TILE_VALUES; at += THREADS) {
            tile.to()[at] = restorer.value(((const Int*)s.integers)[place_of<Int>(at)]);
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
        store_together(to + i * THREADS * n, values.of);
    }
}

// Phase 4 for any other tile.
template <class T>
DEVICE_CALL void sum_any(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    const uint32_t t = threadIdx.x;
    const uint32_t plane = tile.ey * tile.row;
    if (tile.lag > 1) {
        for (uint32_t i = t; i < tile.ez * tile.ey * tile.lag; i += THREADS) {
            uint32_t first = i / tile.lag * tile.row;
            Int sum = 0;
            for (uint32_t x = i % tile.lag; x < tile.row; x += tile.lag) {
                sum += s.integers[place_of<Int>(first + x)];
                s.integers[place_of<Int>(first + x)] = sum;
            }
        }
        __syncthreads();
    }
    if (tile.axes & Y) {
        for (uint32_t i = t; i < tile.ez * tile.row; i += THREADS) {
            uint32_t at = i / tile.row * plane + i % tile.row;
            Int sum = 0;
            for (uint32_t y = 0; y < tile.ey; ++y, at += tile.row) {
                sum += s.integers[place_of<Int>(at)];
                s.integers[place_of<Int>(at)] = sum;
            }
        }
        __syncthreads();
    }
    if (tile.axes & Z) {
        for (uint32_t i = t; i < plane; i += THREADS) {
            Int sum = 0;
            for (uint32_t at = i; at < tile.n_codes; at += plane) {
                sum += s.integers[place_of<Int>(at)];
                s.integers[place_of<Int>(at)] = sum;
            }
        }
        __syncthreads();
    }
    const Int base = s.base;
    const uint32_t kind = s.flags & KIND;
    T* to = tile.to();
    if (tile.aligned) {
        constexpr uint32_t n = 16 / sizeof(T);
        for (uint32_t i = t; i < TILE_VALUES / n; i += THREADS) {
            const uint32_t at = i * n, line = at >> tile.x_log2;
            Piece<Int> integers = ((const Piece<Int>*)s.integers)[piece_of<Int>(i)];
            Piece<T> values;
#pragma unroll
            for (uint32_t k = 0; k < n; ++k) values.of[k] = value_for(coding, kind, integers.of[k] + base);
            store_together(to + tile.row_offset(line) + (at - (line << tile.x_log2)), values.of);
        }
        return;
    }
    for (uint32_t at = t; at < tile.n_codes; at += THREADS) {
        const uint32_t line = tile.line_of(at), x = at - line * tile.row;
        if (x < tile.ex) {
            to[tile.row_offset(line) + x] = value_for(coding, kind, s.integers[place_of<Int>(at)] + base);
        }
    }
}

// Puts one value everywhere.
template <class T>
DEVICE void fill_tile(const Tile<T>& tile, T value) {
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    T* to = tile.to();
    if (tile.aligned) {
        constexpr uint32_t n = 16 / sizeof(T);
        Piece<T> values;
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) values.of[k] = value;
#pragma unroll 1
        for (uint32_t i = 0; i < TILE_VALUES / n / THREADS; ++i) {
            const uint32_t at = (threadIdx.x + i * THREADS) * n, line = at >> tile.x_log2;
            store_together(to + tile.row_offset(line) + (at - (line << tile.x_log2)), values.of);
        }
        return;
    }
    for (uint32_t at = threadIdx.x; at < tile.n_codes; at += THREADS) {
        const uint32_t line = tile.line_of(at), x = at - line * tile.row;
        if (x < tile.ex) to[tile.row_offset(line) + x] = value;
    }
}

// Masks and escapes over the values, from the body in global memory, which was checked.
template <class T>
DEVICE_CALL void apply_holes(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T>& s) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
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
        Int bits = 0;
        for (uint32_t k = 0; k < sizeof(T); ++k) bits |= Int(value[k]) << 8 * k;
        to[tile.offset(index)] = of_bits<T>(bits);
    }
}

// Phases 3 and 4: from planes in shared memory to values. Sums have the type of integers, or 32 bits if those of a tile of
// a common shape do.
template <class T, class Int>
DEVICE void restore_tile(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T>& s, bool is_common) {
    constexpr bool HAS_OTHERS = sizeof(Int) == sizeof(T);
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    constexpr uint32_t PER_THREAD = N_GROUPS / THREADS;
    const uint32_t t = threadIdx.x;
    const uint32_t shape = is_common ? tile.shape : ANY_SHAPE;
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
        } else if constexpr (HAS_OTHERS) {
            if (tile.axes & XX) sum_rows(tile, s, v);
            sum_rows(tile, s, v);
        }
    }
    __syncthreads();
#pragma unroll
    for (uint32_t i = 0; i < PER_THREAD; ++i) store_group((Int*)s.integers, (t + i * THREADS) * GROUP, v[i]);
    __syncthreads();
    if (shape == VOLUME) sum_volume<T, Int>(coding, tile, s);
    else if (shape == PLANE && tile.x_log2 == 5) sum_plane<T, Int, 32>(coding, tile, s);
    else if (shape == PLANE && tile.x_log2 == 6) sum_plane<T, Int, 64>(coding, tile, s);
    else if (shape == PLANE && tile.x_log2 == 7) sum_plane<T, Int, 128>(coding, tile, s);
    else if (shape == PLANE) sum_plane<T, Int, 256>(coding, tile, s);
    else if (shape == LINE) write_line<T, Int>(coding, tile, s);
    else if constexpr (HAS_OTHERS) sum_any(coding, tile, s);
}

// Sums of 64 bits that need them are taken apart, so that the others have few registers.
template <class T>
DEVICE_CALL void restore_wide_tile(const Coding<T>& coding, const Tile<T>& tile, DecodeShared<T>& s, bool is_common) {
    restore_tile<T, typename Real<T>::Int>(coding, tile, s, is_common);
}

template <class T>
DEVICE void decode_tile(const DecodeJob<T>& job, DecodeShared<T>& s) {
    constexpr uint32_t THREADS = Real<T>::DECODE_THREADS;
    const uint32_t t = threadIdx.x;
    const Coding<T>& coding = job.coding;
    const uint32_t slot = job.slots != 0 ? job.slots[blockIdx.x] : blockIdx.x;
    // Three warps at once: where the body is, where its values go, and what comes next.
    if (t < 32) {
        uint32_t n_words;
        const uint32_t* from;
        const uint32_t error = find_body(job, slot, from, n_words);
        if (t == 0) {
            s.from = from;
            s.n_words = n_words;
            s.error = error;
        }
    } else if (t == 32) {
        const uint32_t number = chunk_of(job.chunks, job.n_chunks, job.slots_per_chunk, slot);
        const Chunk& chunk = job.chunks[number];
        place_tile(chunk, job.choices[number], number, slot - chunk.first_slot, s.tile);
    } else if (t >= THREADS - 32 && job.slots == 0) {
        prefetch_bodies(job, slot + job.n_resident);
    }
    __syncthreads();
    const Tile<T>& tile = s.tile;
    if (s.error == 0 && s.n_words == 0) {
        fill_tile(tile, T(0));
        return;
    }
    if (s.error == 0) {
        const uint32_t* from = in_device_memory(s.from);
        for (uint32_t i = t; i < s.n_words; i += THREADS) s.words[i] = from[i];
        __syncthreads();
        if (t < 32) {
            uint32_t error = lay_open(coding, s, tile);
            if (t == 0) s.error = error;
        }
        __syncthreads();
    }
    if (s.error != 0) {
        if (t == 0) atomicMin((unsigned long long*)job.errors, (unsigned long long)(uint64_t(tile.chunk) << 8 | s.error));
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
        fill_tile(tile, value_for(coding, flags & KIND, s.base));
    } else {
        const bool is_common = (flags & KIND) == QUANTISED && tile.shape != ANY_SHAPE;
        if constexpr (sizeof(T) == 4) restore_tile<T, uint32_t>(coding, tile, s, is_common);
        else if (is_common && s.is_narrow) restore_tile<T, uint32_t>(coding, tile, s, true);
        else restore_wide_tile(coding, tile, s, is_common);
    }
    if (flags & (MASK_0 | MASK_0 << 1 | ESCAPES)) apply_holes(coding, tile, s);
}

KERNEL_BOUNDED(128, 9, fast_decode_f32)(const __grid_constant__ DecodeJob<float> job) {
    SHARED(DecodeShared<float>, shared);
    decode_tile(job, shared);
}

KERNEL_BOUNDED(256, 6, fast_decode_f64)(const __grid_constant__ DecodeJob<double> job) {
    SHARED(DecodeShared<double>, shared);
    decode_tile(job, shared);
}

REGISTER_KERNEL(fast_decode_f32);
REGISTER_KERNEL(fast_decode_f64);
