// Small kernels that test the emulator; the tests compare them with plain loops.
#include "../kernels/platform.cuh"

// Sums `n` values into `*total`.
KERNEL(self_test_reduce)(const uint32_t* __restrict__ values, uint32_t n, uint64_t* total) {
    struct Storage {
        uint64_t warp_sums[32];
    };
    SHARED(Storage, storage);
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    uint64_t sum = 0;
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) sum += values[i];
    for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xffffffffu, sum, delta);
    if (lane == 0) storage.warp_sums[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        sum = lane < blockDim.x / 32 ? storage.warp_sums[lane] : 0;
        for (int flipped = 16; flipped > 0; flipped /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, flipped);
        if (lane == 0) atomicAdd(total, sum);
    }
}

// Inclusive prefix sum of `n` values in one pass, with look-back: each block adds the sums that earlier blocks have published.
// `published` holds a zeroed word for each block and `ticket` starts at zero. Blocks have 128 threads.
const uint64_t PUBLISHED_SUM = 1ull << 62, PUBLISHED_PREFIX = 2ull << 62, PUBLISHED_VALUE = PUBLISHED_SUM - 1;

DEVICE uint64_t sum_of_blocks_before(const uint64_t* published, uint32_t tile) {
    uint64_t sum = 0;
    for (uint32_t i = tile; i-- > 0;) {
        uint64_t word;
        while ((word = load_acquire(&published[i])) == 0) spin_pause();
        sum += word & PUBLISHED_VALUE;
        if (word & PUBLISHED_PREFIX) break;
    }
    return sum;
}

KERNEL_BOUNDED(128, 2, self_test_scan)
(const uint32_t* __restrict__ values, uint64_t* sums, uint32_t n, uint64_t* published, uint32_t* ticket) {
    struct Storage {
        uint32_t tile;
        uint64_t warp_sums[4];
        uint64_t before;
    };
    SHARED(Storage, storage);
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    if (threadIdx.x == 0) storage.tile = atomicAdd(ticket, 1u);
    __syncthreads();
    const uint32_t tile = storage.tile, i = tile * 128 + threadIdx.x;
    uint64_t sum = i < n ? values[i] : 0;
    for (uint32_t delta = 1; delta < 32; delta *= 2) {
        const uint64_t below = __shfl_up_sync(0xffffffffu, sum, delta);
        if (lane >= delta) sum += below;
    }
    if (lane == 31) storage.warp_sums[warp] = sum;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++) sum += storage.warp_sums[w];
    if (threadIdx.x == 127) {
        store_release(&published[tile], PUBLISHED_SUM | sum);
        storage.before = sum_of_blocks_before(published, tile);
        store_release(&published[tile], PUBLISHED_PREFIX | (storage.before + sum));
    }
    __syncthreads();
    if (i < n) sums[i] = storage.before + sum;
}

struct SelfTestShape {
    uint32_t n_rows, n_columns;
};

// Transposes tiles of 32 by 32, one for each block of 256 threads.
KERNEL(self_test_transpose)(SelfTestShape shape, const double* __restrict__ from, double* to) {
    struct Storage {
        double tile[32][33];
    };
    SHARED(Storage, storage);
    const uint32_t tiles_across = (shape.n_columns + 31) / 32;
    const uint32_t row0 = blockIdx.x / tiles_across * 32, column0 = blockIdx.x % tiles_across * 32;
    const uint32_t lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    for (uint32_t r = warp; r < 32; r += 8) {
        if (row0 + r < shape.n_rows && column0 + lane < shape.n_columns) {
            storage.tile[r][lane] = from[(row0 + r) * shape.n_columns + column0 + lane];
        }
    }
    __syncthreads();
    for (uint32_t c = warp; c < 32; c += 8) {
        if (column0 + c < shape.n_columns && row0 + lane < shape.n_rows) {
            to[(column0 + c) * shape.n_rows + row0 + lane] = storage.tile[lane][c];
        }
    }
}

// For each thread: the set of its warp's odd values, and the sum of the values of lanes of its own parity.
KERNEL(self_test_ballot)(const uint32_t* __restrict__ values, uint32_t* odd, uint32_t* parity_sums) {
    const uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    odd[i] = __ballot_sync(0xffffffffu, values[i] & 1);
    // Both halves of the warp diverge.
    if (threadIdx.x & 1) {
        parity_sums[i] = __reduce_add_sync(0xaaaaaaaau, values[i]);
    } else {
        parity_sums[i] = __reduce_add_sync(0x55555555u, values[i]);
    }
}

// Kinds of misuse that must end in an error, except for the last; for one block of 64 threads. A GPU would hang.
KERNEL(self_test_misuse)(uint32_t kind, uint64_t* zero) {
    struct Storage {
        uint32_t words[64];
        uint32_t sum;
    };
    SHARED(Storage, storage);
    const uint32_t lane = threadIdx.x & 31;
    switch (kind) {
        case 0:  // a lane exits
            if (threadIdx.x == 35) return;
            __syncwarp();
            break;
        case 1:  // a lane proceeds to the barrier
            if (threadIdx.x != 7) __ballot_sync(0xffffffffu, 1);
            __syncthreads();
            break;
        case 2:  // lanes call different operations
            if (lane < 16) {
                __shfl_sync(0xffffffffu, lane, 0);
            } else {
                __any_sync(0xffffffffu, 1);
            }
            break;
        case 3:  // lanes use different masks
            __syncwarp(lane < 16 ? 0xffffffffu : 0xffff0000u);
            break;
        case 4:  // no lane writes the word
            while (load_acquire(zero) == 0) spin_pause();
            break;
        case 5:  // no barrier between warps
            storage.words[threadIdx.x] = threadIdx.x;
            __syncwarp();
            if (storage.words[63 - threadIdx.x] == 64) *zero = 1;
            break;
        case 6:  // no collective between lanes of a warp
            storage.words[threadIdx.x] = threadIdx.x;
            if (storage.words[threadIdx.x ^ 1] == 64) *zero = 1;
            break;
        case 7:  // two lanes write different values to a word
            storage.sum = threadIdx.x;
            break;
        case 8:  // a word is written while others read it after a barrier
            storage.words[threadIdx.x] = threadIdx.x;
            __syncthreads();
            if (storage.words[63 - threadIdx.x] == 64) *zero = 1;
            if (threadIdx.x == 0) storage.words[0] = 1;
            break;
        case 9: {  // beyond the end of shared memory
            typedef uint64_t Any __attribute__((may_alias));
            if (*(const Any*)&storage.sum == 0) *zero = 1;
            break;
        }
        case 10:  // no wait for a copy
            copy_word(storage.words + threadIdx.x, (const uint32_t*)zero);
            break;
        case 11:  // no wait for a copy of the last batch, so that the old word is read
            storage.words[threadIdx.x] = 1;
            copy_word(storage.words + threadIdx.x, (const uint32_t*)zero);
            end_batch();
            await_batches<1>();
            if (storage.words[threadIdx.x] == 1) return;
            await_batches<0>();
            break;
        case 12:  // after the end of a buffer of 16 bytes
            if (threadIdx.x == 5 && zero[2] == 5) *zero = 1;
            break;
        case 13:  // partly before its start
            if (threadIdx.x == 40) *(uint32_t*)((uint8_t*)zero - 2) = 1;
            break;
        case 14:  // a copy from after its end
            copy_word(storage.words + threadIdx.x, (const uint32_t*)(zero + 2));
            await_words();
            break;
        case 15:  // valid: equal values, sums, words of the warp, words of the block, a copy with a wait
            storage.sum = 0;
            storage.words[threadIdx.x] = threadIdx.x;
            __syncwarp();
            if (storage.words[threadIdx.x ^ 1] == 64) *zero = 1;
            __syncthreads();
            if (storage.words[63 - threadIdx.x] == 64) *zero = 1;
            atomicAdd(&storage.sum, threadIdx.x);
            __syncthreads();
            copy_word(storage.words + threadIdx.x, (const uint32_t*)zero);
            end_batch();
            await_batches<0>();
            if (storage.words[threadIdx.x] != 0) *zero = 1;
            break;
    }
}

REGISTER_KERNEL(self_test_reduce);
REGISTER_KERNEL(self_test_scan);
REGISTER_KERNEL(self_test_transpose);
REGISTER_KERNEL(self_test_ballot);
REGISTER_KERNEL(self_test_misuse);
