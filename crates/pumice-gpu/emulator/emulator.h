// CUDA's device language for g++, as far as Pumice's kernels use it. Kernels include it through
// ../kernels/platform.cuh and are started by `pumice_emulator_launch`.
//
// Every lane (CUDA thread) is a coroutine; all lanes of a launch run on the calling OS thread, in an
// order drawn from a seed. A lane runs until it reaches a collective, a barrier or a word that other blocks may write. Misuse that
// hangs or is undefined on a GPU ends the launch with a message. So do races in shared memory and accesses outside of buffers of
// device memory, if the kernels are compiled with -fsanitize=thread.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

// A buffer of device memory. Kernels must not access the GUARD_BYTES on either side of it.
struct PumiceEmulatorBuffer {
    uint64_t start, end;
};
const uint64_t PUMICE_EMULATOR_GUARD_BYTES = 256;

// Runs `kernel` on a grid of `grid` blocks of `block` threads, at most `resident` blocks at a time.
// `arguments` points to the value of each parameter, as for cuLaunchKernel; `buffers` are in the order of their addresses.
// Returns null, or a message which stays valid until the next launch on the same OS thread. May be called from several OS threads.
extern "C" const char* pumice_emulator_launch(const char* kernel, uint32_t grid, uint32_t block, uint64_t seed,
                                              uint32_t resident, void** arguments, const PumiceEmulatorBuffer* buffers,
                                              size_t n_buffers);

#define __device__
#define __host__
#define __grid_constant__
#define __global__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)
// A barrier is an ordinary call here. The compiler could assume that the target of a restricted pointer
// does not change across it, although other lanes write it.
#define __restrict__

#define PUMICE_EMULATOR_VECTORS(name, Scalar, align2, align4)                                             \
    struct alignas(align2) name##2 { Scalar x, y; };                                                      \
    struct name##3 { Scalar x, y, z; };                                                                   \
    struct alignas(align4) name##4 { Scalar x, y, z, w; };                                                \
    inline name##2 make_##name##2(Scalar x, Scalar y) { return {x, y}; }                                  \
    inline name##3 make_##name##3(Scalar x, Scalar y, Scalar z) { return {x, y, z}; }                     \
    inline name##4 make_##name##4(Scalar x, Scalar y, Scalar z, Scalar w) { return {x, y, z, w}; }
PUMICE_EMULATOR_VECTORS(char, signed char, 2, 4)
PUMICE_EMULATOR_VECTORS(uchar, unsigned char, 2, 4)
PUMICE_EMULATOR_VECTORS(short, short, 4, 8)
PUMICE_EMULATOR_VECTORS(ushort, unsigned short, 4, 8)
PUMICE_EMULATOR_VECTORS(int, int, 8, 16)
PUMICE_EMULATOR_VECTORS(uint, unsigned int, 8, 16)
PUMICE_EMULATOR_VECTORS(longlong, long long, 16, 16)
PUMICE_EMULATOR_VECTORS(ulonglong, unsigned long long, 16, 16)
PUMICE_EMULATOR_VECTORS(float, float, 8, 16)
PUMICE_EMULATOR_VECTORS(double, double, 16, 16)
#undef PUMICE_EMULATOR_VECTORS

struct dim3 {
    unsigned int x = 1, y = 1, z = 1;
};

namespace pumice_emulator {

// Position of the running lane.
struct Position {
    uint3 thread_index;
    uint3 block_index;
    dim3 block_dim;
    dim3 grid_dim;
};
// `__thread`, since `thread_local` would insert a call of an initialiser before every use.
extern __thread const Position* here;

using KernelCall = void (*)(void** arguments);

struct Registration {
    Registration(const char* name, KernelCall call);
};

template <typename... Parameters, size_t... I>
void call_unpacked(void (*kernel)(Parameters...), void** arguments, std::index_sequence<I...>) {
    kernel(*static_cast<std::remove_cv_t<std::remove_reference_t<Parameters>>*>(arguments[I])...);
}
template <typename... Parameters>
void call_unpacked(void (*kernel)(Parameters...), void** arguments) {
    call_unpacked(kernel, arguments, std::index_sequence_for<Parameters...>{});
}
template <auto kernel>
void call_kernel(void** arguments) {
    call_unpacked(kernel, arguments);
}

// Shared memory of a block. The first call of a block allocates it and fills it with 0xA5; later calls return the same.
void* shared_storage(const void* key, size_t bytes, size_t alignment);

enum class Operation : uint8_t {
    SyncWarp,
    Shuffle,
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    Ballot,
    Any,
    All,
    ReduceAdd,
    ReduceMinUnsigned,
    ReduceMaxUnsigned,
    ReduceMinSigned,
    ReduceMaxSigned,
    ReduceOr,
    ReduceAnd,
    ReduceXor,
    MatchAny,
    SyncThreads,
    SyncThreadsOr,
    SyncThreadsAnd,
    SyncThreadsCount,
};

// Waits for the lanes in `mask`; `source` is the lane that a shuffle reads.
uint64_t collective(Operation operation, uint32_t mask, uint64_t value, uint32_t source = 0);
// Waits for the whole block.
int barrier(Operation operation, int predicate);

// Ends the launch unless the address is a multiple of `bytes`, the size of an access of the running lane.
void check_alignment(const void* at, size_t bytes);

// An asynchronous copy to shared memory. It completes as late as possible: when the lane waits for all batches but the last few,
// or for all copies.
void copy_later(void* to, const void* from, size_t bytes);
void end_batch();
void await_batches(uint32_t n_left);
void await_copies();

void spin_pause();
// Lets other lanes run, at random, before a word that blocks share is read or written.
void before_shared_word();
// Tells the check for endless spinning that a word has changed.
void progressed();

inline uint64_t load_word(const uint64_t* word) {
    before_shared_word();
    return *word;
}
inline void store_word(uint64_t* word, uint64_t value) {
    before_shared_word();
    *word = value;
    progressed();
}

// Ends the launch if these bytes are near a buffer of device memory, but not within it.
void check_device_memory(const void* at, size_t n_bytes);

// Atomics are ordered, so the race detector ignores them.
template <typename T, typename Update>
[[gnu::noinline, gnu::no_sanitize_thread]] T atomic_update(T* word, Update update) {
    before_shared_word();
    check_device_memory(word, sizeof(T));
    const T old = *word;
    const T changed = update(old);
    if (std::memcmp(&changed, &old, sizeof(T)) != 0) {
        *word = changed;
        progressed();
    }
    return old;
}

template <typename To, typename From>
To bit_copy(From from) {
    static_assert(sizeof(To) == sizeof(From));
    To to;
    std::memcpy(&to, &from, sizeof(To));
    return to;
}

template <typename T>
T shuffle(Operation operation, uint32_t mask, T value, uint32_t source) {
    uint64_t word = 0;
    std::memcpy(&word, &value, sizeof(T));
    word = collective(operation, mask, word, source);
    std::memcpy(&value, &word, sizeof(T));
    return value;
}

// Lanes past either end of a segment of `width` lanes read their own value, as on the GPU.
inline uint32_t lane_index() { return here->thread_index.x & 31; }
inline uint32_t shuffle_source(int source, int width) {
    return (lane_index() & ~(width - 1u)) | (uint32_t(source) & (width - 1u));
}
inline uint32_t shuffle_up_source(uint32_t delta, int width) {
    const uint32_t in_segment = lane_index() & (width - 1u);
    return delta <= in_segment ? lane_index() - delta : lane_index();
}
inline uint32_t shuffle_down_source(uint32_t delta, int width) {
    const uint32_t in_segment = lane_index() & (width - 1u);
    return delta < uint32_t(width) - in_segment ? lane_index() + delta : lane_index();
}
inline uint32_t shuffle_xor_source(uint32_t flipped, int width) {
    const uint32_t source = lane_index() ^ flipped;
    return source <= (lane_index() | (width - 1u)) ? source : lane_index();
}

}  // namespace pumice_emulator

#define threadIdx (::pumice_emulator::here->thread_index)
#define blockIdx (::pumice_emulator::here->block_index)
#define blockDim (::pumice_emulator::here->block_dim)
#define gridDim (::pumice_emulator::here->grid_dim)

// Barriers and fences.

inline void __syncthreads() { pumice_emulator::barrier(pumice_emulator::Operation::SyncThreads, 0); }
inline int __syncthreads_or(int predicate) {
    return pumice_emulator::barrier(pumice_emulator::Operation::SyncThreadsOr, predicate);
}
inline int __syncthreads_and(int predicate) {
    return pumice_emulator::barrier(pumice_emulator::Operation::SyncThreadsAnd, predicate);
}
inline int __syncthreads_count(int predicate) {
    return pumice_emulator::barrier(pumice_emulator::Operation::SyncThreadsCount, predicate);
}
inline void __syncwarp(uint32_t mask = 0xffffffffu) {
    pumice_emulator::collective(pumice_emulator::Operation::SyncWarp, mask, 0);
}
inline void __threadfence() {}
inline void __threadfence_block() {}

// Warp collectives, with CUDA's own overloads, so that conversions are the same.

#define PUMICE_EMULATOR_SHUFFLES(T)                                                                       \
    inline T __shfl_sync(uint32_t mask, T value, int source, int width = 32) {                            \
        return pumice_emulator::shuffle(pumice_emulator::Operation::Shuffle, mask, value,                 \
                                        pumice_emulator::shuffle_source(source, width));                  \
    }                                                                                                     \
    inline T __shfl_up_sync(uint32_t mask, T value, uint32_t delta, int width = 32) {                     \
        return pumice_emulator::shuffle(pumice_emulator::Operation::ShuffleUp, mask, value,               \
                                        pumice_emulator::shuffle_up_source(delta, width));                \
    }                                                                                                     \
    inline T __shfl_down_sync(uint32_t mask, T value, uint32_t delta, int width = 32) {                   \
        return pumice_emulator::shuffle(pumice_emulator::Operation::ShuffleDown, mask, value,             \
                                        pumice_emulator::shuffle_down_source(delta, width));              \
    }                                                                                                     \
    inline T __shfl_xor_sync(uint32_t mask, T value, int flipped, int width = 32) {                       \
        return pumice_emulator::shuffle(pumice_emulator::Operation::ShuffleXor, mask, value,              \
                                        pumice_emulator::shuffle_xor_source(uint32_t(flipped), width));   \
    }
PUMICE_EMULATOR_SHUFFLES(int)
PUMICE_EMULATOR_SHUFFLES(unsigned int)
PUMICE_EMULATOR_SHUFFLES(long)
PUMICE_EMULATOR_SHUFFLES(unsigned long)
PUMICE_EMULATOR_SHUFFLES(long long)
PUMICE_EMULATOR_SHUFFLES(unsigned long long)
PUMICE_EMULATOR_SHUFFLES(float)
PUMICE_EMULATOR_SHUFFLES(double)
#undef PUMICE_EMULATOR_SHUFFLES

inline uint32_t __ballot_sync(uint32_t mask, int predicate) {
    return uint32_t(pumice_emulator::collective(pumice_emulator::Operation::Ballot, mask, predicate != 0));
}
inline int __any_sync(uint32_t mask, int predicate) {
    return int(pumice_emulator::collective(pumice_emulator::Operation::Any, mask, predicate != 0));
}
inline int __all_sync(uint32_t mask, int predicate) {
    return int(pumice_emulator::collective(pumice_emulator::Operation::All, mask, predicate != 0));
}
inline uint32_t __match_any_sync(uint32_t mask, uint32_t value) {
    return uint32_t(pumice_emulator::collective(pumice_emulator::Operation::MatchAny, mask, value));
}

#define PUMICE_EMULATOR_REDUCE(name, T, operation)                                                        \
    inline T name(uint32_t mask, T value) {                                                               \
        return T(pumice_emulator::collective(pumice_emulator::Operation::operation, mask, uint32_t(value))); \
    }
PUMICE_EMULATOR_REDUCE(__reduce_add_sync, uint32_t, ReduceAdd)
PUMICE_EMULATOR_REDUCE(__reduce_add_sync, int32_t, ReduceAdd)
PUMICE_EMULATOR_REDUCE(__reduce_min_sync, uint32_t, ReduceMinUnsigned)
PUMICE_EMULATOR_REDUCE(__reduce_min_sync, int32_t, ReduceMinSigned)
PUMICE_EMULATOR_REDUCE(__reduce_max_sync, uint32_t, ReduceMaxUnsigned)
PUMICE_EMULATOR_REDUCE(__reduce_max_sync, int32_t, ReduceMaxSigned)
PUMICE_EMULATOR_REDUCE(__reduce_or_sync, uint32_t, ReduceOr)
PUMICE_EMULATOR_REDUCE(__reduce_and_sync, uint32_t, ReduceAnd)
PUMICE_EMULATOR_REDUCE(__reduce_xor_sync, uint32_t, ReduceXor)
#undef PUMICE_EMULATOR_REDUCE

// Atomics. CUDA has no overloads for `unsigned long`, but it is uint64_t on the host.

#define PUMICE_EMULATOR_ATOMIC(name, T, result)                                                           \
    inline T name(T* word, T value) {                                                                     \
        return pumice_emulator::atomic_update(word, [=]([[maybe_unused]] T old) -> T { return result; }); \
    }
#define PUMICE_EMULATOR_ATOMICS(T)                                                                        \
    PUMICE_EMULATOR_ATOMIC(atomicAdd, T, old + value)                                                     \
    PUMICE_EMULATOR_ATOMIC(atomicMin, T, value < old ? value : old)                                       \
    PUMICE_EMULATOR_ATOMIC(atomicMax, T, old < value ? value : old)                                       \
    PUMICE_EMULATOR_ATOMIC(atomicOr, T, old | value)                                                      \
    PUMICE_EMULATOR_ATOMIC(atomicAnd, T, old & value)                                                     \
    PUMICE_EMULATOR_ATOMIC(atomicXor, T, old ^ value)                                                     \
    PUMICE_EMULATOR_ATOMIC(atomicExch, T, value)                                                          \
    inline T atomicCAS(T* word, T expected, T value) {                                                    \
        return pumice_emulator::atomic_update(word, [=](T old) { return old == expected ? value : old; }); \
    }
PUMICE_EMULATOR_ATOMICS(unsigned int)
PUMICE_EMULATOR_ATOMICS(int)
PUMICE_EMULATOR_ATOMICS(unsigned long)
PUMICE_EMULATOR_ATOMICS(unsigned long long)
PUMICE_EMULATOR_ATOMIC(atomicSub, unsigned int, old - value)
PUMICE_EMULATOR_ATOMIC(atomicSub, int, old - value)
PUMICE_EMULATOR_ATOMIC(atomicMin, long long, value < old ? value : old)
PUMICE_EMULATOR_ATOMIC(atomicMax, long long, old < value ? value : old)
PUMICE_EMULATOR_ATOMIC(atomicAdd, float, old + value)
PUMICE_EMULATOR_ATOMIC(atomicAdd, double, old + value)
#undef PUMICE_EMULATOR_ATOMICS
#undef PUMICE_EMULATOR_ATOMIC

// Bits and integers.

inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(unsigned(x)); }
inline int __clzll(long long x) { return x == 0 ? 64 : __builtin_clzll((unsigned long long)x); }
inline int __popc(unsigned int x) { return __builtin_popcount(x); }
inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __ffsll(long long x) { return __builtin_ffsll(x); }
inline unsigned int __brev(unsigned int x) {
    x = (x >> 1 & 0x55555555u) | (x & 0x55555555u) << 1;
    x = (x >> 2 & 0x33333333u) | (x & 0x33333333u) << 2;
    x = (x >> 4 & 0x0f0f0f0fu) | (x & 0x0f0f0f0fu) << 4;
    return __builtin_bswap32(x);
}
inline unsigned long long __brevll(unsigned long long x) {
    return (unsigned long long)__brev(unsigned(x)) << 32 | __brev(unsigned(x >> 32));
}
inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selectors) {
    const uint64_t bytes = uint64_t(y) << 32 | x;
    unsigned int result = 0;
    for (int i = 0; i < 4; i++) {
        // CUDA ignores the selector's top bit.
        const unsigned int selector = selectors >> (4 * i) & 7;
        result |= unsigned(bytes >> (8 * selector) & 0xff) << (8 * i);
    }
    return result;
}
inline unsigned int __dp4a(unsigned int x, unsigned int y, unsigned int sum) {
    for (int i = 0; i < 4; i++) sum += (x >> 8 * i & 0xff) * (y >> 8 * i & 0xff);
    return sum;
}
inline unsigned int __funnelshift_l(unsigned int low, unsigned int high, unsigned int shift) {
    return (uint64_t(high) << 32 | low) << (shift & 31) >> 32;
}
inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int shift) {
    return unsigned((uint64_t(high) << 32 | low) >> (shift & 31));
}
inline unsigned int __umulhi(unsigned int a, unsigned int b) { return uint64_t(a) * b >> 32; }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
    __extension__ using Wide = unsigned __int128;
    return (unsigned long long)(Wide(a) * b >> 64);
}

// Bit patterns of values.

inline int __float_as_int(float x) { return pumice_emulator::bit_copy<int>(x); }
inline unsigned int __float_as_uint(float x) { return pumice_emulator::bit_copy<unsigned int>(x); }
inline float __int_as_float(int x) { return pumice_emulator::bit_copy<float>(x); }
inline float __uint_as_float(unsigned int x) { return pumice_emulator::bit_copy<float>(x); }
inline long long __double_as_longlong(double x) { return pumice_emulator::bit_copy<long long>(x); }
inline double __longlong_as_double(long long x) { return pumice_emulator::bit_copy<double>(x); }

template <typename T>
T __ldg(const T* address) {
    return *address;
}

// CUDA's min and max are in the global namespace; those of floats ignore a NaN on either side.

#define PUMICE_EMULATOR_MIN_MAX(T)                           \
    inline T min(T a, T b) { return b < a ? b : a; }         \
    inline T max(T a, T b) { return a < b ? b : a; }
PUMICE_EMULATOR_MIN_MAX(int)
PUMICE_EMULATOR_MIN_MAX(unsigned int)
PUMICE_EMULATOR_MIN_MAX(long)
PUMICE_EMULATOR_MIN_MAX(unsigned long)
PUMICE_EMULATOR_MIN_MAX(long long)
PUMICE_EMULATOR_MIN_MAX(unsigned long long)
#undef PUMICE_EMULATOR_MIN_MAX
inline float min(float a, float b) { return std::fmin(a, b); }
inline float max(float a, float b) { return std::fmax(a, b); }
inline double min(double a, double b) { return std::fmin(a, b); }
inline double max(double a, double b) { return std::fmax(a, b); }
