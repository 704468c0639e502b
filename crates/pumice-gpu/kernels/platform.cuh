// What every kernel file includes first: one vocabulary for two compilers.
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

// Storage of one block, shared by its threads; what it holds at first is undefined.
#define SHARED(Type, name) __shared__ __align__(16) Type name

// Words through which blocks talk to each other while both run. A flag and its value share one word.
DEVICE uint64_t load_acquire(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.acquire.gpu.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
DEVICE uint64_t load_relaxed(const uint64_t* word) {
    uint64_t value;
    asm volatile("ld.relaxed.gpu.u64 %0, [%1];" : "=l"(value) : "l"(word) : "memory");
    return value;
}
DEVICE void store_release(uint64_t* word, uint64_t value) {
    asm volatile("st.release.gpu.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
DEVICE void store_relaxed(uint64_t* word, uint64_t value) {
    asm volatile("st.relaxed.gpu.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
}
// To be called in every loop that waits for another block.
DEVICE void spin_pause() { __nanosleep(20); }
// Asks for the line of device memory that this address is in, which will be read soon.
DEVICE void prefetch(const void* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }

// Operations the compiler may not fuse: decoders on all machines must round alike.
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

// The address of `name_key` tells the declarations of a kernel apart.
#define SHARED(Type, name)                                    \
    static char name##_key;                                   \
    Type& name = *static_cast<Type*>(                         \
        ::pumice_emulator::shared_storage(&name##_key, sizeof(Type), alignof(Type)))

// The emulator runs on one thread, so any order of memory is sequential; what is random is who runs next.
DEVICE uint64_t load_acquire(const uint64_t* word) { return ::pumice_emulator::load_word(word); }
DEVICE uint64_t load_relaxed(const uint64_t* word) { return ::pumice_emulator::load_word(word); }
DEVICE void store_release(uint64_t* word, uint64_t value) { ::pumice_emulator::store_word(word, value); }
DEVICE void store_relaxed(uint64_t* word, uint64_t value) { ::pumice_emulator::store_word(word, value); }
DEVICE void spin_pause() { ::pumice_emulator::spin_pause(); }
DEVICE void prefetch(const void*) {}

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
