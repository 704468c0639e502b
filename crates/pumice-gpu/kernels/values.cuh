// The two element types, integers of the same size, and the quantiser. The arithmetic is that of
// crates/pumice/src/quantize.rs, operation by operation: nothing may be fused or reordered.
#pragma once

#include "platform.cuh"

constexpr uint32_t ALL_LANES = 0xFFFFFFFF;

// Inclusive prefix sum over the lanes of a warp, or of each SEGMENT neighbouring ones.
template <uint32_t SEGMENT = 32, class N>
DEVICE N prefix_of_warp(N sum) {
    if (SEGMENT > 1) sum = add_from_below<1, SEGMENT>(sum);
    if (SEGMENT > 2) sum = add_from_below<2, SEGMENT>(sum);
    if (SEGMENT > 4) sum = add_from_below<4, SEGMENT>(sum);
    if (SEGMENT > 8) sum = add_from_below<8, SEGMENT>(sum);
    if (SEGMENT > 16) sum = add_from_below<16, SEGMENT>(sum);
    return sum;
}

template <class T>
struct Real;

template <>
struct Real<float> {
    // Integers are unsigned so that they wrap; `Signed` is for shifts that keep the sign.
    using Int = uint32_t;
    using Signed = int32_t;
    static constexpr uint32_t BITS = 32;
    static constexpr uint32_t MANTISSA_BITS = 24;
    static constexpr float MAGIC = 12582912.0f;
    static constexpr Int MAGIC_BITS = 0x4B400000;
    static constexpr float MAX_QUANTUM = 4194304.0f;
    // Threads that encode a tile. With more threads, each needs fewer registers, but they wait longer for each other.
    static constexpr uint32_t ENCODE_THREADS = 256;
};

template <>
struct Real<double> {
    using Int = uint64_t;
    using Signed = int64_t;
    static constexpr uint32_t BITS = 64;
    static constexpr uint32_t MANTISSA_BITS = 53;
    static constexpr double MAGIC = 6755399441055744.0;
    static constexpr Int MAGIC_BITS = 0x4338000000000000;
    static constexpr double MAX_QUANTUM = 2251799813685248.0;
    static constexpr uint32_t ENCODE_THREADS = 256;
};

// For functions that are rarely called: inlining them would only cost registers.
#ifdef __CUDACC__
#define DEVICE_CALL static __device__ __noinline__
#else
#define DEVICE_CALL static
#endif

// 16 bytes.
template <class V>
struct alignas(16) Piece {
    V of[16 / sizeof(V)];
};

DEVICE float magnitude(float x) { return fabsf(x); }
DEVICE double magnitude(double x) { return fabs(x); }

DEVICE uint32_t bit_length(uint32_t x) { return 32 - __clz(int(x)); }
DEVICE uint32_t bit_length(uint64_t x) { return 64 - __clzll((long long)x); }

// `sum`, and the products of the bytes of `a` and `b`.
DEVICE uint32_t dot_of_bytes(uint32_t a, uint32_t b, uint32_t sum) {
#ifdef __CUDACC__
    return __dp4a(a, b, sum);
#else
    for (uint32_t k = 0; k < 32; k += 8) sum += (a >> k & 0xFF) * (b >> k & 0xFF);
    return sum;
#endif
}

DEVICE uint32_t sum_of_bytes(uint32_t bytes) { return dot_of_bytes(bytes, 0x01010101, 0); }

template <class T>
DEVICE T of_bits(typename Real<T>::Int bits) {
    return value_of(typename Real<T>::Signed(bits));
}

// The quantiser of a launch. Only encoders use `inv_step` and `tolerance`.
template <class T>
struct Coding {
    T step, inv_step, tolerance;
    // Whether every value is stored exactly; the step is then not used.
    uint32_t is_lossless;
    uint32_t n_fills;
    typename Real<T>::Int fills[2];

    // Sets the integer for `x`; returns whether it restores `x` within the bound.
    DEVICE bool quantize(T x, typename Real<T>::Int& q) const {
        using R = Real<T>;
        T t = mul_rn(x, inv_step);
        if (!(magnitude(t) < R::MAX_QUANTUM)) return false;
        T s = add_rn(t, R::MAGIC);
        T residue = sub_rn(x, restored(s));
        if (!(magnitude(residue) <= tolerance)) {
            s = add_rn(s, residue > T(0) ? T(1) : T(-1));
            if (!(magnitude(sub_rn(x, restored(s))) <= tolerance)) return false;
        }
        q = typename R::Int(bits_of(s)) - R::MAGIC_BITS;
        return true;
    }

    // As `quantize`, but does not check the range of the integer, which the widths of codes reveal later; always sets
    // `q`.
    DEVICE bool quantize_likely(T x, typename Real<T>::Int& q) const {
        using R = Real<T>;
        T s = add_rn(mul_rn(x, inv_step), R::MAGIC);
        T residue = sub_rn(x, restored(s));
        bool within = magnitude(residue) <= tolerance;
        if (!within) {
            s = add_rn(s, residue > T(0) ? T(1) : T(-1));
            within = magnitude(sub_rn(x, restored(s))) <= tolerance;
        }
        q = typename R::Int(bits_of(s)) - R::MAGIC_BITS;
        return within;
    }

    DEVICE T restored(T s) const { return mul_rn(sub_rn(s, Real<T>::MAGIC), step); }

    // The decoder's value for `q`.
    DEVICE T restore(typename Real<T>::Int q) const { return restored(of_bits<T>(q + Real<T>::MAGIC_BITS)); }

    // The index of the fill value that equals `x` bit for bit; MAX_FILLS if there is none.
    DEVICE uint32_t fill_of(T x) const {
        typename Real<T>::Int bits = typename Real<T>::Int(bits_of(x));
        if (n_fills > 0 && bits == fills[0]) return 0;
        if (n_fills > 1 && bits == fills[1]) return 1;
        return 2;
    }

    // Whether `x` is a fill value other than NaN, which could be quantised like an ordinary value.
    DEVICE bool is_mistakable_fill(T x) const { return x == x && fill_of(x) < 2; }
};

// Maps bits so that the order of (signed) integers is the order of values; `of_ordered` is the inverse.
template <class T>
DEVICE typename Real<T>::Int to_ordered(T x) {
    using R = Real<T>;
    typename R::Signed bits = bits_of(x);
    return typename R::Int(bits) ^ (typename R::Int(bits >> (R::BITS - 1)) >> 1);
}

template <class T>
DEVICE T of_ordered(typename Real<T>::Int q) {
    using R = Real<T>;
    return of_bits<T>(q ^ (typename R::Int(typename R::Signed(q) >> (R::BITS - 1)) >> 1));
}

// Zigzag: residual to code, and the inverse.
template <class Int>
DEVICE Int zigzag(Int r) {
    return (r << 1) ^ (Int(0) - (r >> (8 * sizeof(Int) - 1)));
}

template <class Int>
DEVICE Int unzigzag(Int code) {
    return (code >> 1) ^ (Int(0) - (code & 1));
}
