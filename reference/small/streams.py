"""Streams (docs/format.md, section 7.7)."""

import numpy as np

from ..binary_coder import AdaptiveBit, NumberModel
from ..integers import clamp
from .bands import Parts
from .contexts import MASKED_CONTEXT, MAX_MAGNITUDE, N_CONTEXTS, Surroundings, context_of, steps_of, streams_of

N_TOKENS = 129
N_RAW = [0] * 17 + [(token - 17) // 4 + 2 for token in range(17, N_TOKENS)]
LEAST = [token + 1 >> 1 for token in range(17)] + [4 + (token - 17) % 4 << N_RAW[token] - 1
                                                   for token in range(17, N_TOKENS)]
LEADING = [min(magnitude, 7 * 2**16) for magnitude in LEAST]
OCTAVE = (65536, 68438, 71468, 74632, 77936, 81386, 84990, 88752,
          92682, 96785, 101070, 105545, 110218, 115098, 120194, 125515)
MAX_LEVEL = 193
WIDTH = [0] * 17 + [16] + [16 * N_RAW[token] for token in range(18, N_TOKENS)]


def second_of_pair(token):
    return 2 <= token <= 16 and token % 2 == 0


def near_density(densities, token):
    if token == 0:
        return 160
    if token == 1 or second_of_pair(token) or token >= 18:
        return densities[token - 1]
    return densities[token - 1] + densities[token - 2] >> 1


def next_density(densities, token, level):
    if level:
        return level - WIDTH[token]
    return near_density(densities, token) - (0 if second_of_pair(token) else 10)


class Distribution:
    def __init__(self, levels, step_log):
        self.levels, self.step_log = levels, step_log
        self.last = max(token for token in range(N_TOKENS) if levels[token])
        self.densities = []
        for token, level in enumerate(levels):
            self.densities.append(next_density(self.densities, token, level))
        # Token, frequency and start for each of the 4096 slots.
        excess = [(OCTAVE[(level - 1) % 16] << (level - 1) // 16 >> 8) - 256 if level else 0 for level in levels]
        rest, total, so_far, given = 4096 - sum(map(bool, levels)), sum(excess), 0, 0
        self.slots = []
        for token, level in enumerate(levels):
            if level:
                so_far += excess[token]
                share = so_far * rest // total if total else rest
                start, frequency = len(self.slots), 1 + share - given
                self.slots += [(token, frequency, start)] * frequency
                given = share


def certain(token):
    return Distribution([int(t == token) for t in range(N_TOKENS)], 4)


class DistributionReader:
    def __init__(self):
        self.last, self.step_log = NumberModel(), NumberModel()
        self.occurs = [AdaptiveBit() for _ in range(8)]
        self.steps = [NumberModel() for _ in range(6)]

    def read(self, coder, before):
        require = coder.c.require
        last = (before.last if before else 20) + self.last.signed(coder)
        require(0 <= last < N_TOKENS, "distribution: last token does not exist")
        occurs = [0] * last + [1] + [0] * (N_TOKENS - last - 1) + [1]
        for token in range(last - 1, -1, -1):
            occurred = before is None or before.levels[token] > 0
            context = 4 * occurs[token + 1] + 2 * occurs[token + 2] + occurred
            occurs[token] = self.occurs[context].decode(coder)
        if sum(occurs[:N_TOKENS]) == 1:
            return certain(last)
        step_log = (before.step_log if before else 4) + self.step_log.signed(coder)
        require(0 <= step_log <= 4, "distribution: step_log is not within 0 to 4")
        reference = before.densities if before else []
        if not before:
            for token in range(N_TOKENS):
                reference.append(next_density(reference, token, 0))
        levels, densities, off = [0] * N_TOKENS, [], 0
        for token in range(N_TOKENS):
            if occurs[token]:
                slope = reference[token] - near_density(reference, token)
                predicted = clamp(near_density(densities, token) + (3 * slope >> 2) + WIDTH[token], 1, MAX_LEVEL)
                k = self.steps[3 * second_of_pair(token) + off].signed(coder)
                require(abs(k) <= MAX_LEVEL, "distribution: level is out of range")
                off = min(abs(k), 2)
                levels[token] = clamp(predicted + (k << step_log), 1, MAX_LEVEL)
            densities.append(next_density(densities, token, levels[token]))
        return Distribution(levels, step_log)


def read_model(coder, n_contexts):
    """The slots of each context."""
    n = NumberModel().number(coder) + 1
    coder.c.require(n <= 48, f"{n} distributions")
    reader, all_ = DistributionReader(), []
    for _ in range(n):
        all_.append(reader.read(coder, all_[-1] if all_ else None))
    first_rises, rises, numbers = NumberModel(), NumberModel(), []
    for i in range(n_contexts):
        if i == 0:
            expected = 0
        elif i < N_CONTEXTS:
            expected = numbers[-1]
        elif i % N_CONTEXTS == 0:
            expected = numbers[-N_CONTEXTS]
        else:
            expected = numbers[-1] + numbers[-N_CONTEXTS] - numbers[-N_CONTEXTS - 1]
        number = clamp(expected, 0, n - 1) + (first_rises if i < N_CONTEXTS else rises).signed(coder)
        coder.c.require(0 <= number < n, "context has a distribution that does not exist")
        numbers.append(number)
    masked = certain(0).slots
    return [masked if i % N_CONTEXTS >= MASKED_CONTEXT else all_[number].slots for i, number in enumerate(numbers)]


class StreamReader:
    """States, words and raw bits of one stream."""

    def __init__(self, c, n_states, n_words, n_raw):
        self.c = c
        self.states = c.array("<u4", n_states, "states").tolist()
        self.words = c.array("<u2", n_words, "words").tolist()
        self.raw = bytes(c.take(n_raw, "raw bits"))
        self.n_words_read = self.n_bits_read = 0

    def token(self, lane, slots):
        x = self.states[lane]
        token, frequency, start = slots[x & 4095]
        x = frequency * (x >> 12) + (x & 4095) - start
        if x < 2**16:
            word = self.words[self.n_words_read] if self.n_words_read < len(self.words) else 0
            self.n_words_read += 1
            x = x << 16 | word
        self.states[lane] = x
        return token

    def code(self, token):
        """The code of a token, with its raw bits."""
        if token <= 16:
            return -LEAST[token] if token & 1 else LEAST[token]
        n = N_RAW[token]
        at = self.n_bits_read
        raw = int.from_bytes(self.raw[at // 8:at // 8 + 5], "little") >> at % 8 & (1 << n) - 1
        self.n_bits_read += n
        magnitude = LEAST[token] + (raw >> 1)
        return -magnitude if raw & 1 else magnitude

    def finish(self):
        self.c.require(self.states == [2**16] * len(self.states), "states do not end at 2^16")
        self.c.require(self.n_words_read == len(self.words), "words are left over or missing")
        n_bytes, n_spare = -(-self.n_bits_read // 8), -self.n_bits_read % 8
        self.c.require(n_bytes == len(self.raw) and (not n_spare or self.raw[-1] >> 8 - n_spare == 0),
                       "raw bits are left over or missing")


def read_streams(coder, c, predictor, masked, is_wide):
    """The codes of each band."""
    bands = predictor.bands
    n_groups = 1 + max(band.group for band in bands)
    weights = [[coder.raw(8) for _ in range(8)] for _ in range(n_groups)]
    slots = read_model(coder, n_groups * N_CONTEXTS)
    streams = streams_of(bands)
    sizes = [(c.varint("n_words"), c.varint("n_raw")) for _ in streams]
    readers = [StreamReader(c, 16 if is_wide else 4, *size) for size in sizes]
    c.require(c.at == c.end, "bytes after the last stream")

    codes = [np.zeros(band.dims, np.int32) for band in bands]
    parts = Parts(predictor.layout)
    around = {}
    for reader, pieces in zip(readers, streams):
        for b, *ranges in pieces:
            band = bands[b]
            if b not in around:
                around[b] = Surroundings(band, parts, weights[band.group], masked[b])
                parts.put(band, around[b].own.reshape(band.dims))
            out = codes[b].reshape(around[b].own.shape)
            of_group = slots[N_CONTEXTS * band.group:N_CONTEXTS * (band.group + 1)]
            for runs in steps_of(*ranges, is_wide):
                read_step(reader, runs, around[b], of_group, out)
        reader.finish()
    return codes


def read_step(reader, runs, around, slots, out):
    w0, w1 = around.weights[:2]
    sums = [around.sums(run) if run else [] for run in runs]
    tokens = [[] for _ in runs]
    last = [[0, 0] for _ in runs]  # leading magnitudes of the code before, and of that before it
    for x in range(max(map(len, sums))):
        for lane in range(len(runs)):
            if x < len(sums[lane]):
                one, two = last[lane]
                token = reader.token(lane, slots[context_of(sums[lane][x] + w0 * one + w1 * two)])
                tokens[lane].append(token)
                last[lane] = [LEADING[token], one]
    for run, of_run in zip(runs, tokens):
        if of_run:
            here = run.plane, run.row, slice(run.columns.start, run.columns.stop)
            out[here] = [reader.code(token) for token in of_run]
            around.own[here] = np.minimum(np.abs(out[here].astype(np.int64)), MAX_MAGNITUDE)
