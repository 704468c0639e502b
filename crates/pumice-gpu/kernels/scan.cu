// Statistics of an array in device memory for the plan, and copies of boxes between arrays.
//
// `scan_*`: reads all values once, 16 bytes per thread at a time; a block reduces in registers and by shuffles, and
// adds its result by a few atomics. `sample_*`: gathers values at multiples of a stride. `copy_box`: one thread per
// element, for chunks that are not contiguous.
#include "values.cuh"

constexpr uint32_t SCAN_THREADS = 256;
// Most values that a scan skips.
constexpr uint32_t MAX_NAMED = 8;

struct ScanResult {
    // Minimum and maximum of the finite values that are not skipped, as ordered bits, shifted to be unsigned. The host
    // initialises `least` with all ones and `greatest` with 0.
    unsigned long long least, greatest;
    // Index of the first NaN; initialised with all ones.
    unsigned long long first_nan;
    unsigned long long n_skipped[MAX_NAMED];
};

template <class T>
struct ScanJob {
    const T* values;
    uint64_t n_values;
    ScanResult* result;
    uint32_t n_skip;
    typename Real<T>::Int skip[MAX_NAMED];
};

// Maps a value to an unsigned integer in the order of values.
template <class T>
DEVICE typename Real<T>::Int rank_of(T x) {
    using Int = typename Real<T>::Int;
    return to_ordered(x) ^ (Int(1) << (Real<T>::BITS - 1));
}

template <class N>
DEVICE N least_of_warp(N value) {
#pragma unroll
    for (uint32_t distance = 16; distance > 0; distance /= 2) {
        value = min(value, __shfl_xor_sync(ALL_LANES, value, distance));
    }
    return value;
}

template <class T>
DEVICE void scan(const ScanJob<T>& job) {
    using Int = typename Real<T>::Int;
    constexpr uint32_t n = 16 / sizeof(T);
    Int least = ~Int(0), greatest = 0;
    unsigned long long first_nan = ~0ull;
    uint32_t counts[MAX_NAMED] = {};
    auto take = [&](T x, uint64_t index) {
        Int bits = Int(bits_of(x));
        bool is_skipped = false;
        // Unrolled, so that the counts stay in registers; all threads stop at the same one.
#pragma unroll
        for (uint32_t i = 0; i < MAX_NAMED; ++i) {
            if (i >= job.n_skip) break;
            bool equal = bits == job.skip[i];
            counts[i] += equal;
            is_skipped = is_skipped || equal;
        }
        // The difference is 0 for finite values, otherwise NaN.
        bool is_finite = sub_rn(x, x) == T(0);
        if (is_finite && !is_skipped) {
            Int rank = rank_of(x);
            least = min(least, rank);
            greatest = max(greatest, rank);
        } else if (!(x == x)) {
            first_nan = min(first_nan, (unsigned long long)index);
        }
    };
    const uint64_t thread = uint64_t(blockIdx.x) * SCAN_THREADS + threadIdx.x;
    const uint64_t n_threads = uint64_t(gridDim.x) * SCAN_THREADS;
    const bool aligned = uint64_t(job.values) % 16 == 0;
    const uint64_t n_pieces = aligned ? job.n_values / n : 0;
    for (uint64_t i = thread; i < n_pieces; i += n_threads) {
        Piece<T> piece = ((const Piece<T>*)job.values)[i];
#pragma unroll
        for (uint32_t k = 0; k < n; ++k) take(piece.of[k], i * n + k);
    }
    for (uint64_t i = n_pieces * n + thread; i < job.n_values; i += n_threads) take(job.values[i], i);

    least = least_of_warp(least);
    greatest = ~least_of_warp(Int(~greatest));
    first_nan = least_of_warp(first_nan);
#pragma unroll
    for (uint32_t i = 0; i < MAX_NAMED; ++i) {
        if (i >= job.n_skip) break;
        counts[i] = __reduce_add_sync(ALL_LANES, counts[i]);
    }
    if (threadIdx.x % 32 == 0) {
        if (least <= greatest) {
            atomicMin(&job.result->least, (unsigned long long)least);
            atomicMax(&job.result->greatest, (unsigned long long)greatest);
        }
        if (first_nan != ~0ull) atomicMin(&job.result->first_nan, first_nan);
#pragma unroll
        for (uint32_t i = 0; i < MAX_NAMED; ++i) {
            if (i < job.n_skip && counts[i] > 0) atomicAdd(&job.result->n_skipped[i], (unsigned long long)counts[i]);
        }
    }
}

KERNEL(scan_f32)(const __grid_constant__ ScanJob<float> job) { scan(job); }
KERNEL(scan_f64)(const __grid_constant__ ScanJob<double> job) { scan(job); }

template <class T>
DEVICE void sample(const T* values, uint64_t n_values, uint64_t stride, T* samples) {
    uint64_t i = uint64_t(blockIdx.x) * SCAN_THREADS + threadIdx.x;
    if (i * stride < n_values) samples[i] = values[i * stride];
}

KERNEL(sample_f32)(const float* values, uint64_t n_values, uint64_t stride, float* samples) {
    sample(values, n_values, stride, samples);
}
KERNEL(sample_f64)(const double* values, uint64_t n_values, uint64_t stride, double* samples) {
    sample(values, n_values, stride, samples);
}

constexpr uint32_t MAX_RANK = 8;

struct BoxJob {
    // Addresses of the box in source and target.
    uint64_t from;
    uint64_t to;
    uint64_t n_values;
    // Extents of the box, and strides in source and target, in elements; slowest axis first.
    uint64_t extents[MAX_RANK];
    uint64_t from_strides[MAX_RANK];
    uint64_t to_strides[MAX_RANK];
    uint32_t rank;
    uint32_t value_bytes;
};

KERNEL(copy_box)(const __grid_constant__ BoxJob job) {
    const uint64_t n_threads = uint64_t(gridDim.x) * SCAN_THREADS;
    for (uint64_t i = uint64_t(blockIdx.x) * SCAN_THREADS + threadIdx.x; i < job.n_values; i += n_threads) {
        uint64_t rest = i, from = 0, to = 0;
        for (uint32_t axis = job.rank; axis-- > 0;) {
            const uint64_t at = rest % job.extents[axis];
            from += at * job.from_strides[axis];
            to += at * job.to_strides[axis];
            rest /= job.extents[axis];
        }
        if (job.value_bytes == 4) ((uint32_t*)job.to)[to] = ((const uint32_t*)job.from)[from];
        else ((uint64_t*)job.to)[to] = ((const uint64_t*)job.from)[from];
    }
}

REGISTER_KERNEL(scan_f32);
REGISTER_KERNEL(scan_f64);
REGISTER_KERNEL(sample_f32);
REGISTER_KERNEL(sample_f64);
REGISTER_KERNEL(copy_box);
