// Definitions for both compilers of the kernels; every kernel file includes it first.
//
// NVRTC compiles the kernels for the GPU and offers no system headers. g++ compiles the same files
// against ../emulator, which runs them on the host, so that tests need no GPU.
#pragma once

#ifdef __CUDACC__

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
// `long long`, not `long`: CUDA declares its 64-bit atomics for `unsigned long long` only.
typedef unsigned long long uint64_t;
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef decltype(sizeof(0)) size_t;
#else
#include <stddef.h>
#include <stdint.h>
#endif

// KERNEL(name)(parameters) { body }, and REGISTER_KERNEL(name) at the end of the file.
#define KERNEL(name) extern "C" __global__ void name
#define KERNEL_BOUNDED(threads, min_blocks, name) \
    extern "C" __global__ void __launch_bounds__(threads, min_blocks) name
#define REGISTER_KERNEL(name)

#define DEVICE __device__ __forceinline__

// Shared memory of a block; not initialised.
#define SHARED(Type, name) __shared__ __align__(16) Type name

// Words through which running blocks communicate. A flag and its value share one word.
DEVICE uint64_t load_acquire(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(word)) : "memory");
    return value;
}
DEVICE uint64_t load_relaxed(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(__cvta_generic_to_global(word)) : "memory");
    return value;
}
DEVICE void store_release(uint64_t* word, uint64_t value) {
    asm volatile("st.release.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(value) : "memory");
}
DEVICE void store_relaxed(uint64_t* word, uint64_t value) {
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(__cvta_generic_to_global(word)), "l"(value) : "memory");
}
// Every loop that waits for another block must call this.
DEVICE void spin_pause() { __nanosleep(20); }
// Prefetches the cache line of this address of device memory; it stays in the cache until it is read.
DEVICE void prefetch(const void* at) { asm volatile("prefetch.global.L2::evict_last [%0];" ::"l"(at)); }

// A cache policy for accesses to bytes that are not read again soon: they are evicted first.
DEVICE uint64_t evict_first() {
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
}

// Starts an asynchronous copy of a word of device memory to shared memory; `await_words` waits for all copies of this
// thread.
DEVICE void copy_word(uint32_t* to, const uint32_t* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}
// The same for words that are not read again: they are evicted from the cache first.
DEVICE void copy_word_once(uint32_t* to, const uint32_t* from) {
    asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4, %2;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from)), "l"(evict_first())
                 : "memory");
}
DEVICE void await_words() { asm volatile("cp.async.wait_all;" ::: "memory"); }
// The same for 16 bytes; both addresses must be aligned to 16 bytes. The copies since the last `end_batch` are a batch;
// `await_batches` waits for all batches but the last N_LEFT.
DEVICE void copy_piece(void* to, const void* from) {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(uint32_t(__cvta_generic_to_shared(to))),
                 "l"(__cvta_generic_to_global(from))
                 : "memory");
}
DEVICE void end_batch() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <uint32_t N_LEFT>
DEVICE void await_batches() {
    asm volatile("cp.async.wait_group %0;" ::"n"(N_LEFT) : "memory");
}

// Tells the compiler that an address is in device memory. For addresses from tables or from shared memory it must
// otherwise assume that a store may change shared memory, and reloads from there after each store.
template <class V>
DEVICE V* in_device_memory(V* at) {
    __builtin_assume(__isGlobal(at));
    return at;
}

// Writes 16 bytes by one store, to be evicted first. The compiler would split the store, since it cannot prove the
// alignment.
DEVICE void store_vector(float* at, const float (&values)[4]) {
    asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(__cvta_generic_to_global(at)),
                 "f"(values[0]), "f"(values[1]), "f"(values[2]), "f"(values[3]), "l"(evict_first()));
}
DEVICE void store_vector(double* at, const double (&values)[2]) {
    asm volatile("st.global.L2::cache_hint.v2.f64 [%0], {%1, %2}, %3;" ::"l"(__cvta_generic_to_global(at)),
                 "d"(values[0]), "d"(values[1]), "l"(evict_first()));
}

// Selects bytes of `a` and `b` by four hexadecimal digits. Unlike `__byte_perm`, a digit of 8 and above replicates the
// sign of its byte to all bits.
template <uint32_t DIGITS>
DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b) {
    uint32_t bytes;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(a), "r"(b), "n"(DIGITS));
    return bytes;
}

// A step of a prefix sum: adds the value of the lane `DISTANCE` below, if that is in the same segment of SEGMENT lanes,
// which the predicate of the shuffle says. By a whole warp.
template <uint32_t DISTANCE, uint32_t SEGMENT>
DEVICE uint32_t add_from_below(uint32_t sum) {
    asm volatile(
        "{\n\t"
        ".reg .pred is_there;\n\t"
        ".reg .u32 below;\n\t"
        "shfl.sync.up.b32 below|is_there, %0, %1, %2, 0xffffffff;\n\t"
        "@is_there add.u32 %0, %0, below;\n\t"
        "}"
        : "+r"(sum)
        : "n"(DISTANCE), "n"((32 - SEGMENT) << 8));
    return sum;
}
template <uint32_t DISTANCE, uint32_t SEGMENT>
DEVICE uint64_t add_from_below(uint64_t sum) {
    asm volatile(
        "{\n\t"
        ".reg .pred is_there;\n\t"
        ".reg .u32 low, high;\n\t"
        ".reg .u64 below;\n\t"
        "mov.b64 {low, high}, %0;\n\t"
        "shfl.sync.up.b32 low|is_there, low, %1, %2, 0xffffffff;\n\t"
        "shfl.sync.up.b32 high, high, %1, %2, 0xffffffff;\n\t"
        "mov.b64 below, {low, high};\n\t"
        "@is_there add.u64 %0, %0, below;\n\t"
        "}"
        : "+l"(sum)
        : "n"(DISTANCE), "n"((32 - SEGMENT) << 8));
    return sum;
}

// Operations that the compiler must not fuse: decoders on all machines must round in the same way.
DEVICE float mul_rn(float a, float b) { return __fmul_rn(a, b); }
DEVICE float add_rn(float a, float b) { return __fadd_rn(a, b); }
DEVICE float sub_rn(float a, float b) { return __fsub_rn(a, b); }
DEVICE double mul_rn(double a, double b) { return __dmul_rn(a, b); }
DEVICE double add_rn(double a, double b) { return __dadd_rn(a, b); }
DEVICE double sub_rn(double a, double b) { return __dsub_rn(a, b); }

#else

#include "../emulator/emulator.h"

#define KERNEL(name) static void name
#define KERNEL_BOUNDED(threads, min_blocks, name) static void name
#define REGISTER_KERNEL(name)                                            \
    static const ::pumice_emulator::Registration registration_of_##name( \
        #name, &::pumice_emulator::call_kernel<&name>)

#define DEVICE inline

// The address of `name_key` identifies a declaration within a kernel.
#define SHARED(Type, name)                                    \
    static char name##_key;                                   \
    Type& name = *static_cast<Type*>(                         \
        ::pumice_emulator::shared_storage(&name##_key, sizeof(Type), alignof(Type)))

// The emulator runs on one thread, so memory is sequentially consistent; only the order of lanes is random.
DEVICE uint64_t load_acquire(const uint64_t* word) { return ::pumice_emulator::load_word(word); }
DEVICE uint64_t load_relaxed(const uint64_t* word) { return ::pumice_emulator::load_word(word); }
DEVICE void store_release(uint64_t* word, uint64_t value) { ::pumice_emulator::store_word(word, value); }
DEVICE void store_relaxed(uint64_t* word, uint64_t value) { ::pumice_emulator::store_word(word, value); }
DEVICE void spin_pause() { ::pumice_emulator::spin_pause(); }
DEVICE void prefetch(const void*) {}
DEVICE void copy_word(uint32_t* to, const uint32_t* from) { ::pumice_emulator::copy_later(to, from, 4); }
DEVICE void copy_word_once(uint32_t* to, const uint32_t* from) { copy_word(to, from); }
DEVICE void await_words() { ::pumice_emulator::await_copies(); }
DEVICE void copy_piece(void* to, const void* from) { ::pumice_emulator::copy_later(to, from, 16); }
DEVICE void end_batch() { ::pumice_emulator::end_batch(); }
template <uint32_t N_LEFT>
DEVICE void await_batches() {
    ::pumice_emulator::await_batches(N_LEFT);
}
template <class V>
DEVICE V* in_device_memory(V* at) {
    return at;
}
template <class V, size_t N>
DEVICE void store_vector(V* at, const V (&values)[N]) {
    ::pumice_emulator::check_alignment(at, sizeof(values));
    for (size_t k = 0; k < N; ++k) at[k] = values[k];
}
template <uint32_t DIGITS>
DEVICE uint32_t pick_bytes(uint32_t a, uint32_t b) {
    const uint64_t both = uint64_t(b) << 32 | a;
    uint32_t bytes = 0;
    for (uint32_t k = 0; k < 4; ++k) {
        const uint32_t digit = DIGITS >> 4 * k & 15, byte = uint32_t(both >> digit % 8 * 8) & 0xFF;
        bytes |= (digit < 8 ? byte : byte >> 7 ? 0xFFu : 0u) << 8 * k;
    }
    return bytes;
}
template <uint32_t DISTANCE, uint32_t SEGMENT, class N>
DEVICE N add_from_below(N sum) {
    const N below = __shfl_up_sync(0xFFFFFFFF, sum, DISTANCE);
    return threadIdx.x % SEGMENT >= DISTANCE ? sum + below : sum;
}

// These rely on -ffp-contract=off.
DEVICE float mul_rn(float a, float b) { return a * b; }
DEVICE float add_rn(float a, float b) { return a + b; }
DEVICE float sub_rn(float a, float b) { return a - b; }
DEVICE double mul_rn(double a, double b) { return a * b; }
DEVICE double add_rn(double a, double b) { return a + b; }
DEVICE double sub_rn(double a, double b) { return a - b; }

#endif

DEVICE int32_t bits_of(float value) { return __float_as_int(value); }
DEVICE int64_t bits_of(double value) { return __double_as_longlong(value); }
DEVICE float value_of(int32_t bits) { return __int_as_float(bits); }
DEVICE double value_of(int64_t bits) { return __longlong_as_double(bits); }
