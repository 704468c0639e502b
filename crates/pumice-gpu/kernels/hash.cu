// Checksums of payloads (docs/format.md, section 3): XXH3-64, with seed 0 and the default secret, of blocks of 4096
// bytes.
//
// `hash_blocks`: as many thread blocks as are resident, in groups of eight lanes; each lane has one accumulator. A
// group hashes a block of 4096 bytes at a time, or copies the bytes after the last whole block of a span for the host.
// Memory phases of a block: four rounds of 1024 bytes; a lane loads all its words of a round before it uses them. Spans
// start at any byte.
#include "values.cuh"

constexpr uint32_t HASH_THREADS = 256;
constexpr uint32_t LANES = 8;
constexpr uint32_t BLOCK_BYTES = 4096;
constexpr uint32_t STRIPE_BYTES = 8 * LANES;
// Stripes after which accumulators are scrambled.
constexpr uint32_t STRIPES = 16;
constexpr uint32_t ROUND_BYTES = STRIPES * STRIPE_BYTES;
constexpr uint32_t SECRET_WORDS = 24;

constexpr uint64_t PRIME32_1 = 0x9E3779B1, PRIME32_2 = 0x85EBCA77, PRIME32_3 = 0xC2B2AE3D;
constexpr uint64_t PRIME64_1 = 0x9E3779B185EBCA87, PRIME64_2 = 0xC2B2AE3D27D4EB4F, PRIME64_3 = 0x165667B19E3779F9,
                   PRIME64_4 = 0x85EBCA77C2B2AE63, PRIME64_5 = 0x27D4EB2F165667C5;

constexpr uint64_t START[LANES] = {PRIME32_3, PRIME64_1, PRIME64_2, PRIME64_3, PRIME64_4, PRIME32_2, PRIME64_5, PRIME32_1};

constexpr uint64_t SECRET[SECRET_WORDS] = {
    0xBE4BA423396CFEB8, 0x1CAD21F72C81017C, 0xDB979083E96DD4DE, 0x1F67B3B7A4A44072, 0x78E5C0CC4EE679CB, 0x2172FFCC7DD05A82,
    0x8E2443F7744608B8, 0x4C263A81E69035E0, 0xCB00C391BB52283C, 0xA32E531B8B65D088, 0x4EF90DA297486471, 0xD8ACDEA946EF1938,
    0x3F349CE33F76FAA8, 0x1D4F0BC7C7BBDCF9, 0x3159B4CD4BE0518A, 0x647378D9C97E9FC8, 0xC3EBD33483ACC5EA, 0xEB6313FAFFA081C5,
    0x49DAF0B751DD0D17, 0x9E68D429265516D3, 0xFCA1477D58BE162B, 0xCE31D07AD1B8F88F, 0x280416958F3ACB45, 0x7E404BBBCAFBD7AF};

// A contiguous range of memory.
struct Span {
    uint64_t from;
    uint64_t n_bytes;
    // Blocks are units, numbered across all spans; the last unit of a span may be a rest, shorter than a block.
    uint64_t first_unit;
    // Offset of its rest in `rests`, a multiple of 8.
    uint64_t rest_at;
};

struct HashJob {
    const Span* spans;
    // The hash of each unit; not set for rests.
    uint64_t* hashes;
    uint8_t* rests;
    uint64_t n_spans;
    uint64_t n_units;
};

struct HashShared {
    uint64_t secret[SECRET_WORDS];
};

// Loads up to eight bytes from any address, and reads nothing after them.
DEVICE uint64_t load_bytes(const uint8_t* at, uint32_t n) {
    uint64_t word = 0;
    for (uint32_t i = 0; i < n; ++i) word |= uint64_t(at[i]) << 8 * i;
    return word;
}

// Loads eight bytes from any address by whole words: seven more bytes must follow.
DEVICE uint64_t load_word(const uint8_t* at) {
    const uint64_t* word = in_device_memory((const uint64_t*)(uint64_t(at) & ~uint64_t(7)));
    const uint32_t shift = 8 * uint32_t(uint64_t(at) & 7);
    return shift == 0 ? word[0] : word[0] >> shift | word[1] << (64 - shift);
}

// Eight bytes of the secret, starting at byte `first` of word `at`.
DEVICE uint64_t secret_from(const HashShared& s, uint32_t at, uint32_t first) {
    return s.secret[at] >> 8 * first | s.secret[at + 1] << (64 - 8 * first);
}

// XXH3 of a block, by eight lanes.
DEVICE uint64_t hash_block(const HashShared& s, const uint8_t* from, uint32_t lane, uint32_t lanes) {
    uint64_t sum = START[lane];
#pragma unroll 1
    for (uint32_t at = 0; at < BLOCK_BYTES; at += ROUND_BYTES) {
        const bool is_last = at + ROUND_BYTES == BLOCK_BYTES;
        const uint8_t* own = from + at + 8 * lane;
        uint64_t words[STRIPES];
#pragma unroll
        for (uint32_t i = 0; i < STRIPES; ++i) {
            const uint8_t* word = own + i * STRIPE_BYTES;
            words[i] = i + 1 == STRIPES && is_last ? load_bytes(word, 8) : load_word(word);
        }
        // XXH3 adds each word to the neighbour's accumulator. A round only adds, so these words are added up and
        // exchanged once.
        uint64_t plain = 0;
#pragma unroll
        for (uint32_t i = 0; i < STRIPES; ++i) {
            const bool is_end = i + 1 == STRIPES && is_last;
            const uint64_t keyed = words[i] ^ (is_end ? secret_from(s, 15 + lane, 1) : s.secret[i + lane]);
            plain += words[i];
            sum += (keyed & 0xFFFFFFFF) * (keyed >> 32);
        }
        sum += __shfl_xor_sync(lanes, plain, 1);
        if (!is_last) sum = (sum ^ sum >> 47 ^ s.secret[STRIPES + lane]) * PRIME32_1;
    }
    sum ^= secret_from(s, 1 + lane, 3);
    const uint64_t other = __shfl_xor_sync(lanes, sum, 1);
    uint64_t hash = sum * other ^ __umul64hi(sum, other);
    hash += __shfl_xor_sync(lanes, hash, 2);
    hash += __shfl_xor_sync(lanes, hash, 4);
    hash += BLOCK_BYTES * PRIME64_1;
    hash = (hash ^ hash >> 37) * 0x165667919E3779F9;
    return hash ^ hash >> 32;
}

// The span that a unit belongs to.
DEVICE const Span& span_of(const HashJob& job, uint64_t unit) {
    uint64_t low = 0, high = job.n_spans;
    while (high - low > 1) {
        const uint64_t middle = (low + high) / 2;
        if (job.spans[middle].first_unit <= unit) low = middle;
        else high = middle;
    }
    return job.spans[low];
}

KERNEL(hash_blocks)(const __grid_constant__ HashJob job) {
    SHARED(HashShared, s);
    if (threadIdx.x < SECRET_WORDS) s.secret[threadIdx.x] = SECRET[threadIdx.x];
    __syncthreads();
    const uint32_t lane = threadIdx.x % LANES, lanes = 0xFFu << (threadIdx.x % 32 / LANES * LANES);
    const uint64_t first = (uint64_t(blockIdx.x) * HASH_THREADS + threadIdx.x) / LANES;
    const uint64_t n_groups = uint64_t(gridDim.x) * (HASH_THREADS / LANES);
    for (uint64_t unit = first; unit < job.n_units; unit += n_groups) {
        const Span& span = span_of(job, unit);
        const uint64_t at = (unit - span.first_unit) * BLOCK_BYTES;
        const uint8_t* from = in_device_memory((const uint8_t*)span.from) + at;
        if (span.n_bytes - at >= BLOCK_BYTES) {
            const uint64_t hash = hash_block(s, from, lane, lanes);
            if (lane == 0) job.hashes[unit] = hash;
            continue;
        }
        const uint32_t n = uint32_t(span.n_bytes - at);
        uint64_t* to = (uint64_t*)(job.rests + span.rest_at);
        for (uint32_t i = 8 * lane; i < n; i += STRIPE_BYTES) {
            to[i / 8] = i + 16 <= n ? load_word(from + i) : load_bytes(from + i, min(n - i, 8u));
        }
    }
}

REGISTER_KERNEL(hash_blocks);
