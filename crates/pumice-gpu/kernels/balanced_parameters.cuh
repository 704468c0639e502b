// The arithmetic-coded parameters of a payload of `balanced` (docs/format.md, 7.3 and 8.2). The CPU's side is
// crates/pumice/src/codec/{binary.rs,huffman/lengths.rs}: what is coded is written once, over an encoder or a decoder.
// All of it is one thread's work, bit after bit.
#pragma once

#include "balanced.cuh"

namespace balanced {

// Numbers beyond 2 to this minus 1 do not occur in lengths of codes.
constexpr uint32_t MAX_NUMBER_BITS = 10;

// An adaptive bit: the probability of 1 above the number of bits seen.
constexpr uint32_t NEW_BIT = 1u << 15 << 8;

struct NumberModel {
    uint32_t length[MAX_NUMBER_BITS + 1];
    uint32_t mantissa[MAX_NUMBER_BITS + 1][3];
    uint32_t sign;
};

// What is learnt from the lengths of one codebook to those of the next.
struct LengthsModel {
    NumberModel n_behind;
    uint32_t has_code[12];
    NumberModel rises[6];
};

constexpr uint32_t LENGTHS_MODEL_WORDS = sizeof(LengthsModel) / 4;

// 2^32 / (2 n + 3), rounded up: so that the step of an adaptive bit needs no division.
DEVICE uint32_t reciprocal(uint32_t n_seen) { return 0xFFFFFFFFu / (2 * n_seen + 3) + 1; }

constexpr uint32_t MAX_SEEN = 60;

// The state after one more bit.
DEVICE uint32_t learn(uint32_t model, bool bit, const uint32_t* reciprocals) {
    uint32_t p = model >> 8, n_seen = model & 0xFF;
    uint32_t distance = bit ? 0xFFFF - p : p;
    uint32_t step = __umulhi(2 * distance, reciprocals[n_seen]);
    p = bit ? p + step : p - step;
    return p << 8 | min(n_seen + 1, MAX_SEEN);
}

struct Interval {
    uint32_t low, high;

    DEVICE uint32_t split(uint32_t p_one) const {
        return low + uint32_t((uint64_t(high - low) * p_one) >> 16);
    }
    DEVICE bool is_settled() const { return (low ^ high) >> 24 == 0; }
    DEVICE void shift() {
        low <<= 8;
        high = high << 8 | 0xFF;
    }
};

struct BitEncoder {
    static constexpr bool DECODES = false;
    Interval interval;
    uint8_t* to;
    // More bytes than there is room for are not written.
    uint32_t n_bytes, n_room;

    DEVICE void put(uint32_t byte) {
        if (n_bytes < n_room) to[n_bytes] = uint8_t(byte);
        ++n_bytes;
    }
    DEVICE bool code(bool bit, uint32_t p_one) {
        uint32_t split = interval.split(p_one);
        if (bit) interval.high = split;
        else interval.low = split + 1;
        while (interval.is_settled()) {
            put(interval.high >> 24);
            interval.shift();
        }
        return bit;
    }
    DEVICE bool is_past_end() const { return false; }
    DEVICE void finish() {
        uint32_t low = interval.low, high = interval.high;
        if (low == 0) return;
        for (uint32_t n = 1; n <= 4; ++n) {
            uint32_t n_cut = 32 - 8 * n;
            uint64_t cut = (uint64_t(low) + (uint64_t(1) << n_cut) - 1) >> n_cut << n_cut;
            if (n < 4 && cut > high) continue;
            for (uint32_t i = 0; i < n; ++i) put(uint32_t(cut) >> (24 - 8 * i) & 0xFF);
            return;
        }
    }
};

struct BitDecoder {
    static constexpr bool DECODES = true;
    Interval interval;
    uint32_t window;
    const uint8_t* from;
    uint32_t n_bytes, n_read;

    DEVICE void next_byte() {
        window = window << 8 | (n_read < n_bytes ? from[n_read] : 0);
        ++n_read;
    }
    DEVICE void start() {
        interval = Interval{0, 0xFFFFFFFF};
        window = 0;
        n_read = 0;
        for (uint32_t i = 0; i < 4; ++i) next_byte();
    }
    DEVICE bool code(bool, uint32_t p_one) {
        uint32_t split = interval.split(p_one);
        bool bit = window <= split;
        if (bit) interval.high = split;
        else interval.low = split + 1;
        while (interval.is_settled()) {
            interval.shift();
            next_byte();
        }
        return bit;
    }
    DEVICE bool is_past_end() const { return n_read > n_bytes + 4; }
    DEVICE bool is_at_end() const { return n_read >= n_bytes && !is_past_end(); }
};

static_assert(sizeof(BitDecoder) == 32, "as in src/balanced.rs");

template <class Coder>
DEVICE bool code_bit(Coder& coder, uint32_t& model, bool bit, const uint32_t* reciprocals) {
    uint32_t state = model, p = state >> 8;
    bit = coder.code(bit, min(max(p, 32u), 65536u - 32));
    model = learn(state, bit, reciprocals);
    return bit;
}

template <class Coder>
DEVICE uint32_t code_raw(Coder& coder, uint32_t value, uint32_t n) {
    uint32_t all = 0;
    while (n-- > 0) all = all << 1 | uint32_t(coder.code(value >> n & 1, 1 << 15));
    return all;
}

// A number by a model that is used once: all its bits are equally likely.
template <class Coder>
DEVICE uint64_t code_number_once(Coder& coder, uint64_t value) {
    uint64_t plus_one = value + 1;
    uint32_t n_bits = bit_length(plus_one) - 1, n = 0;
    while (n < 62 && coder.code(n < n_bits, 1 << 15)) ++n;
    uint64_t all = 1;
    for (uint32_t i = n; i-- > 0;) all = all << 1 | uint64_t(coder.code(plus_one >> i & 1, 1 << 15));
    return all - 1;
}

template <class Coder>
DEVICE int64_t code_signed_once(Coder& coder, int64_t value) {
    int64_t size = int64_t(code_number_once(coder, uint64_t(value < 0 ? -value : value)));
    return size != 0 && coder.code(value < 0, 1 << 15) ? -size : size;
}

// A small number; sets `is_damaged` if it is too large to be right.
template <class Coder>
DEVICE uint32_t code_number(Coder& coder, NumberModel& model, uint32_t value, const uint32_t* reciprocals,
                            bool& is_damaged) {
    uint32_t plus_one = value + 1, n_bits = bit_length(plus_one) - 1, n = 0;
    while (code_bit(coder, model.length[n], n < n_bits, reciprocals)) {
        if (++n > MAX_NUMBER_BITS) {
            is_damaged = true;
            return 0;
        }
    }
    uint32_t all = 1, node = 0;
    for (uint32_t i = n; i-- > 0;) {
        bool bit = plus_one >> i & 1;
        if (n - i <= 2) {
            bit = code_bit(coder, model.mantissa[n][node], bit, reciprocals);
            node = bit ? 2 : 1;
        } else {
            bit = coder.code(bit, 1 << 15);
        }
        all = all << 1 | uint32_t(bit);
    }
    return all - 1;
}

// Codes the lengths of `n_symbols`, which a decoder sets; `before` are those of the codebook before, or null. Returns
// false if they are damaged.
template <class Coder>
DEVICE bool code_lengths(Coder& coder, LengthsModel& model, uint8_t* lengths, uint32_t n_symbols,
                         const uint8_t* before, const uint32_t* reciprocals) {
    bool is_damaged = false;
    uint32_t n_behind = 0;
    if (!Coder::DECODES) {
        while (n_behind < n_symbols && lengths[n_symbols - 1 - n_behind] == NO_CODE) ++n_behind;
    }
    n_behind = code_number(coder, model.n_behind, n_behind, reciprocals, is_damaged);
    if (is_damaged || n_behind > n_symbols) return false;
    const uint32_t n_coded = n_symbols - n_behind;
    uint32_t history = 3, n_used = 0;
    for (uint32_t symbol = 0; symbol < n_coded; ++symbol) {
        uint32_t known = before == nullptr ? 0 : before[symbol] != NO_CODE ? 2 : 1;
        bool has_code = symbol + 1 == n_coded ||
                        code_bit(coder, model.has_code[4 * known + history], lengths[symbol] != NO_CODE, reciprocals);
        history = (history << 1 & 3) | uint32_t(has_code);
        n_used += has_code;
        if (Coder::DECODES) lengths[symbol] = has_code ? 0 : NO_CODE;
    }
    if (Coder::DECODES) {
        for (uint32_t symbol = n_coded; symbol < n_symbols; ++symbol) lengths[symbol] = NO_CODE;
        if (coder.is_past_end()) return false;
    }
    if (n_used < 2) return true;
    int32_t last = int32_t(bit_length(n_symbols) - 1) / 2 + 1, last_before = -1;
    uint32_t off = 0;
    for (uint32_t symbol = 0; symbol < n_coded; ++symbol) {
        if (lengths[symbol] == NO_CODE) continue;
        int32_t above = before != nullptr && before[symbol] != NO_CODE ? before[symbol] : -1;
        int32_t predicted = last;
        if (above >= 0) {
            int32_t plane = last + above - last_before;
            predicted = last_before < 0 ? above : min(max(plane, min(last, above)), max(last, above));
        }
        NumberModel& rises = model.rises[(above >= 0 ? 3 : 0) + off];
        int32_t rise = int32_t(lengths[symbol]) - predicted;
        uint32_t size = code_number(coder, rises, uint32_t(rise < 0 ? -rise : rise), reciprocals, is_damaged);
        if (is_damaged) return false;
        bool is_negative = size != 0 && code_bit(coder, rises.sign, rise < 0, reciprocals);
        if (Coder::DECODES) {
            int32_t n_bits = predicted + (is_negative ? -int32_t(size) : int32_t(size));
            // Longer codes than an encoder's are left to the host.
            if (n_bits < 1 || n_bits > int32_t(MAX_BITS)) return false;
            lengths[symbol] = uint8_t(n_bits);
        }
        off = min(size, 2u);
        last = lengths[symbol];
        last_before = above;
    }
    return true;
}

// Models start here; by one warp.
DEVICE void reset(LengthsModel& model, uint32_t lane) {
    for (uint32_t i = lane; i < LENGTHS_MODEL_WORDS; i += 32) ((uint32_t*)&model)[i] = NEW_BIT;
}

}  // namespace balanced
