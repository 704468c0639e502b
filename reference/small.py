"""Codec `small`: docs/format.md, section 7.

As there, the section numbers in the comments are those of the page, and the aim is to be checkable, not fast. What is
entropy-coded is decoded value by value on Python integers; whole bands are predicted at once by numpy, one IEEE
operation after the other in the order that the page gives.

    decode_small(c, extents, header)    the bit patterns of a chunk, flat in C order

`c` is a cursor over the payload (container.Cursor), whose `require` raises FormatError.
"""

import math
from dataclasses import dataclass
from itertools import product
from operator import mul

import numpy as np

X = 3  # the fastest of the four working axes
INTERPOLATED, MIXED, FILLS, EXACT_VALUES, WIDE = 1, 2, 4, 8, 16


def clamp(value, low, high):
    return low if value < low else high if value > high else value


def quotient(a, b):
    """a / b, rounded towards zero."""
    return a // b if a >= 0 else -(-a // b)


def low_32(value):
    """The low 32 bits as a signed integer."""
    return (value + 2**31) % 2**32 - 2**31


def least_payload(n_values):
    """Section 3: the fewest bytes that a payload of this codec has."""
    return max(3, n_values // 2**14)


# ---- 7.1 View ----

@dataclass
class View:
    merged: list  # extents of the chunk after axes of one point are dropped and leading ones merged
    order: list  # of these axes, as working axes
    dims: tuple  # working extents

    def to_chunk(self, working):
        """A working array in the order of the chunk, flat."""
        working = working.reshape([self.merged[a] for a in self.order])
        return np.ascontiguousarray(working.transpose(np.argsort(self.order))).reshape(-1)


def view_of(extents):
    merged = [extent for extent in extents if extent > 1]
    if len(merged) > 4:
        merged = [math.prod(merged[:-3]), *merged[-3:]]
    order = list(range(len(merged)))
    if merged and merged[-1] < 16:
        longest = max(order, key=lambda a: (merged[a], a))  # of equal ones the fastest
        order.append(order.pop(longest))
    return View(merged, order, (1,) * (4 - len(merged)) + tuple(merged[a] for a in order))


# ---- 7.2 Bands ----

@dataclass
class Band:
    dims: tuple
    level: int | None  # None: anchors and slabs
    odd: int  # set of axes: bit a stands for axis a
    group: int

    @property
    def n_values(self):
        return math.prod(self.dims)


def axes_of(axis_set):
    return [a for a in range(4) if axis_set >> a & 1]


def class_dims(grid, active, odd):
    """Extents of the points whose indices are odd along `odd` and even along the other active axes."""
    return tuple(n if not active >> a & 1 else n // 2 if odd >> a & 1 else -(-n // 2) for a, n in enumerate(grid))


def slabs_of(dims):
    """The bands of the lattice, and the axis along which it is cut."""
    axis = next((a for a in range(3) if dims[a] > 1), X)
    n_slabs = clamp(math.prod(dims) // 2**20, 1, dims[axis])
    cuts = [dims[axis] * i // n_slabs for i in range(n_slabs + 1)]
    bands = [Band(dims[:axis] + (b - a,) + dims[axis + 1:], None, 0, 0) for a, b in zip(cuts, cuts[1:])]
    return bands, axis


class Layout:
    """Levels and bands of the interpolation."""

    def __init__(self, dims, active):
        self.levels = []  # (grid, active), finest first
        grid = dims
        while True:
            halved = sum(1 << a for a in axes_of(active) if grid[a] >= 4)
            if not halved or math.prod(grid) <= 64:
                break
            self.levels.append((grid, halved))
            grid = class_dims(grid, halved, 0)
        self.bands = [Band(grid, None, 0, 2)]
        for level, (grid, active) in reversed(list(enumerate(self.levels))):
            for odd in self.classes(level):
                self.bands.append(Band(class_dims(grid, active, odd), level, odd, min(level, 2)))

    def classes(self, level):
        """Sets of odd axes in the order of their bands."""
        subsets = [odd for odd in range(1, 16) if not odd & ~self.levels[level][1]]
        return sorted(subsets, key=lambda odd: (odd.bit_count(), odd))

    def places(self, level, odd):
        """Where the points of a class are on the level's grid."""
        active = self.levels[level][1]
        return tuple(slice(odd >> a & 1, None, 2) if active >> a & 1 else slice(None) for a in range(4))

    def split(self, array):
        """The values of each band of an array over all points."""
        parts = {}
        for level in range(len(self.levels)):
            for odd in self.classes(level):
                parts[level, odd] = array[self.places(level, odd)]
            array = array[self.places(level, 0)]
        parts[None, 0] = array
        return [np.ascontiguousarray(parts[band.level, band.odd]) for band in self.bands]


class Parts:
    """Arrays of the bands so far, and the grids that they merge into."""

    def __init__(self, layout):
        self.layout = layout
        self.arrays = {}

    def put(self, band, array):
        self.arrays[band.level, band.odd] = array

    def get(self, level, odd):
        """The array of a class; with no odd axis the coarse grid of the level (of level -1: all points)."""
        if (level, odd) not in self.arrays:
            assert odd == 0, "parents come before their children"
            self.arrays[level, odd] = self.merged(level + 1)
        return self.arrays[level, odd]

    def merged(self, level):
        """The whole grid of a level."""
        if level == len(self.layout.levels):
            return self.arrays[None, 0]
        coarse = self.get(level, 0)
        grid = np.empty(self.layout.levels[level][0] + coarse.shape[4:], coarse.dtype)
        for odd in [0, *self.layout.classes(level)]:
            grid[self.layout.places(level, odd)] = self.get(level, odd)
        return grid


def shifted(array, axis, by, n):
    """array[by], array[by + 1], ... along an axis, n of them; beyond the ends, the first or last."""
    return array.take(np.clip(np.arange(by, by + n), 0, array.shape[axis] - 1), axis)


# ---- 7.3 Binary coder, masks, exact places, payload ----

class BinaryDecoder:
    def __init__(self, c):
        self.c, self.low, self.high, self.n_missing = c, 0, 2**32 - 1, 0
        self.data, self.at = bytes(c.take(c.end - c.at, "arithmetic-coded part")), 0
        self.window = 0
        for _ in range(4):
            self.next_byte()

    def next_byte(self):
        byte = 0
        if self.at < len(self.data):
            byte = self.data[self.at]
            self.at += 1
        else:
            self.n_missing += 1
        self.window = (self.window << 8 | byte) & 0xFFFFFFFF

    def decode(self, p_one):
        """A bit that is 1 with probability p_one / 2^16."""
        split = self.low + ((self.high - self.low) * p_one >> 16)
        bit = self.window <= split
        if bit:
            self.high = split
        else:
            self.low = split + 1
        while (self.low ^ self.high) >> 24 == 0:
            self.low = self.low << 8 & 0xFFFFFFFF
            self.high = self.high << 8 & 0xFFFFFFFF | 0xFF
            self.next_byte()
        return int(bit)

    def raw(self, n):
        value = 0
        for _ in range(n):
            value = value << 1 | self.decode(2**15)
        return value

    def check(self):
        self.c.require(self.n_missing <= 4, "arithmetic-coded part ends too early")

    def finish(self):
        self.check()
        self.c.require(self.at == len(self.data), "arithmetic-coded part has bytes left over")


class AdaptiveBit:
    def __init__(self):
        self.p, self.n = 2**15, 0

    def decode(self, coder):
        bit = coder.decode(clamp(self.p, 32, 2**16 - 32))
        self.p += quotient(2 * ((2**16 - 1 if bit else 0) - self.p), 2 * self.n + 3)
        self.n = min(self.n + 1, 60)
        return bit


class NumberModel:
    def __init__(self):
        self.length = [AdaptiveBit() for _ in range(62)]
        self.leading = {}  # the first and the second bit below the leading one, by length
        self.sign = AdaptiveBit()

    def number(self, coder):
        n = 0
        while n < 62 and self.length[n].decode(coder):
            n += 1
        value, node = 1, 0
        for i in range(n):
            if i < 2:
                bit = self.leading.setdefault((n, node), AdaptiveBit()).decode(coder)
                node = 1 + bit
            else:
                bit = coder.decode(2**15)
            value = value << 1 | bit
        return value - 1

    def signed(self, coder):
        magnitude = self.number(coder)
        return -magnitude if magnitude and self.sign.decode(coder) else magnitude


def read_kinds(coder, dims, n_fills):
    """For each value 0, or the number of its fill from 1 on."""
    n_planes, n_rows, n = dims[0] * dims[1], dims[2], dims[X]
    is_fill = [AdaptiveBit() for _ in range(64)]
    is_second = [AdaptiveBit() for _ in range(3)]
    nothing = [0] * (n + 3)
    planes = []  # rows with two more places before and one behind
    for p in range(n_planes):
        plane = []
        for r in range(n_rows):
            above = plane[r - 1] if r else nothing
            before = planes[p - 1][r] if p % dims[1] else nothing
            row = [0] * (n + 3)
            for x in range(2, n + 2):
                near = (row[x - 1], above[x], before[x], above[x - 1], above[x + 1], row[x - 2])
                context = 0
                for kind in near:
                    context = context << 1 | (kind != 0)
                kind = is_fill[context].decode(coder)
                if kind and n_fills > 1:
                    kind += is_second[next((k for k in near if k), 0)].decode(coder)
                row[x] = kind
            plane.append(row)
            coder.check()
        planes.append(plane)
    return np.array(planes, np.uint8)[:, :, 2:-1].reshape(dims)


def read_places(coder, n_values, n_most):
    """Ascending places of values that are stored exactly."""
    count, gap = NumberModel(), NumberModel()
    n = count.number(coder)
    coder.c.require(n <= n_most, f"{n} exact values, and room for {n_most}")
    places, following = [], 0
    for _ in range(n):
        place = following + gap.number(coder)
        coder.c.require(place < n_values, "exact value outside of the chunk")
        places.append(place)
        following = place + 1
    return places


def decode_small(c, extents, header):
    t, n_values, n_fills = header.dtype, math.prod(extents), len(header.fills)
    c.require(n_values > 0, "codec small without elements")
    c.require(c.end >= least_payload(n_values), f"{c.end} bytes are too few for {n_values} values")
    c.require(header.step is not None, "codec small without a step")
    view = view_of(extents)
    flags = c.uint(1, "flags")
    c.require(flags < 32 and (flags & MIXED == 0 or flags & WIDE == 0), f"unknown flags {flags:#04x}")
    coder = BinaryDecoder(c.part(c.varint("parameter_bytes"), "parameters"))

    kinds = None
    if flags & FILLS:
        kinds = read_kinds(coder, view.dims, n_fills)
        c.require(kinds.max() <= n_fills, "fill values, and the header has none")
    places = read_places(coder, n_values, (c.end - c.at) // t.size) if flags & EXACT_VALUES else []
    if flags & INTERPOLATED:
        predictor = Interpolation(coder, view.dims, t)
    else:
        predictor = Lattice(coder, view.dims)
    exact = c.array(t.uint_type, len(places), "exact values")
    body = c.part(c.varint("body_bytes"), "body")
    rest = c.take(c.end - c.at, "padding")
    c.require(not any(rest) and (len(rest) == 0 or c.end == least_payload(n_values)), "bytes after the end")

    masked = [None] * len(predictor.bands) if kinds is None else predictor.split(kinds != 0)
    if flags & MIXED:
        codes = read_mixed(body, predictor, masked)
    else:
        codes = read_streams(coder, body, predictor, masked, flags & WIDE != 0)
    coder.finish()

    with np.errstate(all="ignore"):
        working = predictor.restore(codes, header)
    bits = np.ascontiguousarray(working).view(t.uint_type).reshape(-1)
    if kinds is not None:
        for i, fill in enumerate(header.fills):
            bits[kinds.reshape(-1) == i + 1] = fill
    bits[places] = exact
    return view.to_chunk(bits)


# ---- 7.4 Interpolation ----

KERNELS = ((1024, 0, 0), (1152, -128, 0), (1178, -154, 0))
STEP_SCALES = ((1.0, 1.0), (1.25, 2.0), (1.5, 3.0), (1.75, 4.0))


class Interpolation:
    def __init__(self, coder, dims, t):
        active = coder.raw(4)
        self.scale = coder.raw(2)
        self.step = np.array([coder.raw(t.bits)], t.uint_type).view(t.float_type)[0]
        coder.c.require(np.isfinite(self.step), "step is not finite")
        self.layout = Layout(dims, active)
        self.bands = self.layout.bands
        is_fitted, numbers = AdaptiveBit(), NumberModel()
        self.coefficients = [None]  # of each band, in units of 1 / 1024; anchors have none
        for band in self.bands[1:]:
            self.coefficients.append(self.read_coefficients(coder, band.odd.bit_count(), is_fitted, numbers))

    @staticmethod
    def read_coefficients(coder, n_odd, is_fitted, numbers):
        n_terms = 3 * n_odd + n_odd * (n_odd - 1) // 2
        all_ = [0] * n_terms
        if is_fitted.decode(coder):
            for j in range(1, n_terms):
                all_[j] = numbers.signed(coder)
                coder.c.require(abs(all_[j]) <= 8192, "coefficient is out of range")
        else:
            kernel = coder.raw(2)
            along = coder.raw(3) if n_odd > 1 else 0
            coder.c.require(kernel < 3 and along <= n_odd, "unknown kernel")
            for i in range(n_odd):
                if along in (0, i + 1):
                    all_[3 * i:3 * i + 3] = (quotient(k, 1 if along else n_odd) for k in KERNELS[kernel])
        all_[0] = 1024 - sum(all_[1:])
        return all_

    def split(self, array):
        return self.layout.split(array)

    def step_of(self, level):
        ratio, most = STEP_SCALES[self.scale]
        divisor = 1.0
        for _ in range(level):
            divisor = min(divisor * ratio, most)
        return self.step.dtype.type(float(self.step) / divisor)

    def restore(self, codes, header):
        parts = Parts(self.layout)
        parts.put(self.bands[0], self.restore_anchors(codes[0]))
        for band, coefficients, code in zip(self.bands[1:], self.coefficients[1:], codes[1:]):
            prediction = self.predict(band, coefficients, parts)
            parts.put(band, prediction + code.astype(prediction.dtype) * self.step_of(band.level))
        return parts.get(-1, 0)

    def restore_anchors(self, codes):
        step = self.step_of(len(self.layout.levels))
        scaled = (codes.astype(step.dtype) * step).reshape(-1)
        n = codes.shape[X]
        out = np.zeros_like(scaled)
        for i in range(out.size):
            prediction = step.dtype.type(0) if i == 0 else out[i - n] if i % n == 0 else out[i - 1]
            out[i] = prediction + scaled[i]
        return out.reshape(codes.shape)

    def predict(self, band, coefficients, parts):
        real = self.step.dtype.type
        odd, dims = axes_of(band.odd), band.dims
        pairs = []  # (coefficient, array, array)
        terms = iter(coefficients)
        for a in odd:
            part = parts.get(band.level, band.odd & ~(1 << a))
            for tap in range(3):
                k = next(terms)
                if k:
                    pairs.append((real(k / 1024) * real(0.5), extended(part, a, -tap, dims[a]),
                                  extended(part, a, 1 + tap, dims[a])))
        for i, a in enumerate(odd):
            for b in odd[i + 1:]:
                k = next(terms)
                if not k:
                    continue
                part = parts.get(band.level, band.odd & ~(1 << a) & ~(1 << b))
                for by in 0, 1:
                    corners = shifted(part, a, by, dims[a])
                    pairs.append((real(k / 1024) * real(0.25), shifted(corners, b, 0, dims[b]),
                                  shifted(corners, b, 1, dims[b])))
        prediction = np.zeros(dims, real)
        for k, p, q in pairs:
            prediction = prediction + k * (p + q)
        assert prediction.dtype == real
        return prediction


def extended(part, axis, first, n):
    """The values at places first to first + n - 1 along an axis, extrapolated beyond the ends."""
    rows = np.moveaxis(part, axis, 0)
    size, real = len(rows), part.dtype.type

    def beyond(p):
        if p == -1 and size >= 3:
            return real(3) * (rows[0] - rows[1]) + rows[2]
        nearest, next_, distance = (0, min(1, size - 1), -p) if p < 0 else (size - 1, max(size - 2, 0), p - size + 1)
        return rows[nearest] + real(distance) * (rows[nearest] - rows[next_])

    outside = [np.stack([beyond(p) for p in places]) if places else rows[:0]
               for places in (range(first, min(0, first + n)), range(max(size, first), first + n))]
    inside = rows[max(first, 0):max(first + n, 0)]
    return np.moveaxis(np.concatenate([outside[0], inside, outside[1]]), 0, axis)


# ---- 7.5 Lattice ----

OFFSETS = ((0, 0, 0, 1), (0, 0, 0, 2), (0, 0, 0, 3), (0, 0, 1, 0), (0, 0, 1, 1), (0, 0, 1, -1), (0, 0, 2, 0),
           (0, 1, 0, 0), (0, 1, 0, 1), (0, 1, 0, -1), (0, 1, 1, 0), (0, 1, -1, 0), (0, 1, 1, 1), (0, 2, 0, 0),
           (1, 0, 0, 0), (1, 0, 0, 1), (1, 0, 1, 0), (1, 1, 0, 0))
BASES = ((0, 0, 0, 1), (0, 0, 1, 0), (0, 1, 0, 0), (1, 0, 0, 0))


class Lattice:
    layout = None

    def __init__(self, coder, dims):
        self.dims = dims
        self.bands, self.axis = slabs_of(dims)
        self.origin = NumberModel().signed(coder)
        self.coefficients = [0] * len(OFFSETS)
        is_used, numbers = AdaptiveBit(), NumberModel()
        for i in range(1, len(OFFSETS)):
            if is_used.decode(coder):
                is_whole = coder.decode(2**15)
                self.coefficients[i] = numbers.signed(coder) * (1024 if is_whole else 1)
                coder.c.require(abs(self.coefficients[i]) <= 8192, "coefficient is out of range")

    def split(self, array):
        cuts = np.cumsum([band.dims[self.axis] for band in self.bands])[:-1]
        return [np.ascontiguousarray(part) for part in np.split(array, cuts, self.axis)]

    def restore(self, codes, header):
        integers = np.concatenate([self.integers(code) for code in codes], self.axis)
        q = integers.astype(np.int64).view(np.uint64) + np.uint64(self.origin % 2**64)
        return header.dtype.restore(q.astype(header.dtype.uint_type), header.step)

    def integers(self, codes):
        """The integers of a slab."""
        dims = codes.shape
        n = dims[X]
        out = np.zeros(dims, np.int64)
        across = [(k, offset) for k, offset in zip(self.coefficients, OFFSETS) if k and any(offset[:X])]
        k2, k3 = self.coefficients[1:3]
        for place in np.ndindex(dims[:X]):
            # Sums of coefficients and of their products with integers of other rows, where those exist.
            weight, total = np.zeros(n, np.int64), np.zeros(n, np.int64)
            for k, offset in across:
                row = tuple(i - o for i, o in zip(place, offset))
                if all(0 <= i < extent for i, extent in zip(row, dims)):
                    dx = offset[X]
                    here = slice(max(dx, 0), n + min(dx, 0))
                    weight[here] += k
                    total[here] += k * out[row][max(-dx, 0):n - max(dx, 0)]
            row = []
            for x, (code, k, s) in enumerate(zip(codes[place].tolist(), weight.tolist(), total.tolist())):
                base = row[x - 1] if x else self.first_base(out, place)
                if x >= 2:
                    k, s = k + k2, s + k2 * row[x - 2]
                if x >= 3:
                    k, s = k + k3, s + k3 * row[x - 3]
                prediction = 0 if base is None else base + ((s - k * base + 512) >> 10)
                row.append(low_32(code + prediction))
            out[place] = row
        return out

    @staticmethod
    def first_base(out, place):
        for base in BASES[1:]:
            row = tuple(i - o for i, o in zip(place, base))
            if min(row) >= 0:
                return int(out[row][0])
        return None


# ---- 7.6 Contexts ----

MAX_MAGNITUDE = 2**19 - 1
MASKED_SUM = 2**31
MASKED_CONTEXT = 58
N_CONTEXTS = 60


def context_of(total):
    v = total + 4
    e = v.bit_length() - 1
    return 2 * e + (v >> e - 1) - 6


def streams_of(bands):
    """Lists of pieces, a piece being a band's number and its ranges of planes, rows and columns."""
    streams, was_large = [], True
    for b, band in enumerate(bands):
        extents = (band.dims[0] * band.dims[1], band.dims[2], band.dims[X])
        is_large = band.n_values >= 2**16
        if not is_large:
            if was_large:
                streams.append([])
            streams[-1].append((b, *map(range, extents)))
        n_pieces = max(band.n_values // 2**18, 1) if is_large else 0
        cut = next((a for a in range(2) if extents[a] >= 2 * n_pieces), 2)
        for i in range(n_pieces):
            ranges = [range(extent) for extent in extents]
            ranges[cut] = range(extents[cut] * i // n_pieces, extents[cut] * (i + 1) // n_pieces)
            streams.append([(b, *ranges)])
        was_large = is_large
    return streams


@dataclass
class Run:
    """A run of codes of one lane in one step, and the first plane, row and column that it may look at."""
    plane: int
    row: int
    columns: range
    first_plane: int
    first_row: int
    first_column: int
    end_column: int


def deal_of(extents, is_wide):
    """The number of parts of planes, rows and columns."""
    n_lanes = 16 if is_wide and math.prod(extents) >= 2**12 else 4

    def cost(deal):
        edges = [2**16 * (parts - 1) // max(extent, 1) for parts, extent in zip(deal, extents)]
        idle = [2**16 * (-extent % parts) // max(extent, 1) for parts, extent in zip(deal, extents)]
        return 3 * edges[0] + 4 * edges[1] + 28 * edges[2] + sum(idle) // 4

    powers = [2**i for i in range(n_lanes.bit_length())]
    return min(((p, r, n_lanes // (p * r)) for p in powers for r in powers if p * r <= n_lanes), key=cost)


def parts_of(whole, n):
    return [whole[len(whole) * i // n:len(whole) * (i + 1) // n] for i in range(n)]


def steps_of(planes, rows, columns, is_wide):
    """For each step the runs of all lanes; None for a lane that has nothing left."""
    deal = deal_of(tuple(map(len, (planes, rows, columns))), is_wide)
    lanes = list(product(*(parts_of(whole, n) for whole, n in zip((planes, rows, columns), deal))))
    for i in range(-(-len(planes) // deal[0])):
        for j in range(-(-len(rows) // deal[1])):
            yield [Run(p[i], r[j], c, p.start, r.start, columns.start, columns.stop)
                   if i < len(p) and j < len(r) else None for p, r, c in lanes]


class Surroundings:
    """Magnitudes around the codes of a band."""

    def __init__(self, band, parts, weights, masked):
        self.weights, self.per_volume = weights, band.dims[1]
        extents = (-1, *band.dims[2:])
        self.own = np.zeros(band.dims, np.int64).reshape(extents)
        self.masked = None if masked is None else masked.reshape(extents)
        self.parents = None
        if band.odd:
            sums = np.zeros(band.dims, np.int64)
            for a in reversed(axes_of(band.odd)):
                parent = parts.get(band.level, band.odd & ~(1 << a))
                first = shifted(parent, a, 0, band.dims[a])
                sums += first + shifted(parent, a, 1, band.dims[a])
            self.parents, self.first_parent = sums.reshape(extents), first.reshape(extents)

    def sums(self, run):
        """Weighted sums for a run, without the codes of the run itself."""
        w, own, p, r = self.weights, self.own, run.plane, run.row
        here = slice(run.columns.start, run.columns.stop)
        sums = np.full(len(run.columns), w[7], np.int64)
        has_row, has_plane = r > run.first_row, p > run.first_plane and p % self.per_volume != 0
        has_volume = p >= run.first_plane + self.per_volume
        # Weights, those of what does not exist added to the first that does.
        row, plane, volume, parent = w[2], w[4], w[5], 0
        left = (0 if has_row else w[2] + 2 * w[3]) + (0 if has_plane else w[4]) + (0 if has_volume else w[5])
        if self.parents is None and r <= run.first_row + 1:
            left += w[6]
        if has_row:
            row += left
        elif has_plane:
            plane += left
        elif has_volume:
            volume += left
        else:
            parent = left
        if has_row:
            # A row with one more place at both ends, 0 where it does not exist.
            above = np.zeros(len(run.columns) + 2, np.int64)
            first, end = max(here.start - 1, run.first_column), min(here.stop + 1, run.end_column)
            above[first - here.start + 1:end - here.start + 1] = own[p, r - 1, first:end]
            sums += row * above[1:-1] + w[3] * (above[:-2] + above[2:])
        if has_plane:
            sums += plane * own[p - 1, r, here]
        if has_volume:
            sums += volume * own[p - self.per_volume, r, here]
        if self.parents is not None:
            sums += w[6] * self.parents[p, r, here] + parent * self.first_parent[p, r, here]
        elif r > run.first_row + 1:
            sums += w[6] * own[p, r - 2, here]
        if self.masked is not None:
            sums[self.masked[p, r, here]] = MASKED_SUM
        return sums.tolist()


# ---- 7.7 Streams ----

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


# ---- 7.8 Mixing ----

W, WW, N, NW, NE, NN, B, BX, BY, T, P0, P1, P2, S, RECENT, CONSTANT = range(16)
FIRST_SIZE_WEIGHTS = [1750, 0, 1750, 0, 0, 0, 750, 0, 0, 0, 625, 625, 625, 200, 1250, 0]
PRIOR = (
    (3, 4, 83, 112, 154, 153, 153, 157, 154, 128, 128, 126, 124, 113, 68, 78),
    (3, 2, 68, 179, 188, 189, 153, 157, 154, 128, 128, 126, 124, 113, 60, 105),
    (4, 2, 90, 150, 188, 177, 153, 157, 154, 128, 128, 126, 124, 113, 68, 91),
    (9, 2, 77, 110, 173, 176, 153, 157, 154, 128, 128, 126, 124, 113, 65, 83),
    (19, 3, 46, 122, 174, 117, 153, 157, 154, 128, 128, 126, 124, 113, 46, 86),
    (38, 4, 20, 76, 156, 129, 153, 157, 154, 128, 128, 126, 124, 113, 32, 72),
    (81, 16, 11, 37, 103, 115, 153, 157, 154, 128, 128, 126, 124, 113, 28, 51),
    (140, 67, 29, 22, 49, 70, 153, 157, 154, 128, 128, 126, 124, 113, 54, 41),
    (196, 153, 81, 37, 30, 42, 153, 157, 154, 128, 128, 126, 124, 113, 88, 57),
    (171, 149, 75, 34, 32, 49, 153, 157, 154, 128, 128, 126, 124, 113, 83, 57),
    (205, 187, 126, 59, 36, 38, 156, 157, 154, 128, 128, 126, 124, 121, 108, 73),
    (182, 170, 99, 46, 34, 49, 133, 157, 154, 128, 128, 126, 124, 121, 98, 66),
    (206, 199, 140, 69, 37, 40, 136, 159, 154, 128, 128, 126, 126, 124, 113, 76),
    (182, 170, 101, 46, 30, 29, 124, 136, 154, 128, 128, 126, 125, 121, 100, 62),
    (204, 197, 139, 69, 33, 28, 127, 136, 153, 128, 128, 126, 127, 125, 112, 74),
)
RATE = [2**15 // (2 * n + 3) for n in range(256)]


def squash_table():
    """By log-odds -2047 to 2047; negative ones index from the end."""
    table, power = [0] * 4095, 2**32
    for o in range(2048):
        table[o] = power * 2**16 // (power + 2**32)
        if o:
            table[-o] = 2**16 - table[o]
        power = power * 1005876575 // 10**9
    return table


def stretch_table():
    table, o = [], -2047
    for i in range(4096):
        while o < 2047 and SQUASH[o] < 16 * i + 8:
            o += 1
        table.append(o)
    return table


SQUASH = squash_table()
STRETCH = stretch_table()


def log_size(magnitude):
    """L: log2(1 + magnitude) in sixteenths."""
    v = magnitude + 1
    n = v.bit_length() - 1
    return 16 * n + (v << 4 >> n & 15)


def sign(value):
    return (value > 0) - (value < 0)


def sat16(value):
    return clamp(value, -32768, 32767)


def learn(counter, bit):
    p, n = counter >> 10, counter & 1023
    p += ((2**22 - 1 if bit else 0) - p >> 6) * RATE[n] >> 8
    return p << 10 | min(n + 1, 255)


def grade(size, length):
    if length == 0:
        return min(log_size(size) >> 2, 35)
    return 36 + 16 * min(length - 1, 2) + clamp(size - 256 * length + 128 >> 5, 0, 15)


def prior_row(g):
    return PRIOR[g // 4 if g < 36 else 9 + 2 * ((g - 36) // 16) + ((g - 36) % 16 >= 12)]


class Mixer:
    """Decisions under eight contexts."""

    def __init__(self, coder):
        self.coder = coder
        self.counters = [{} for _ in range(8)]
        self.second = {}
        self.by_node = [[2048] * 8 for _ in range(16)]
        self.by_grade = {}
        self.contexts, self.grade = (0,) * 8, 0

    def bit(self, node):
        prior = prior_row(self.grade)[node] << 24 | 2
        keys = [16 * context + node for context in self.contexts]
        counters = [table.get(key, prior) for table, key in zip(self.counters, keys)]
        odds = [STRETCH[counter >> 20] for counter in counters]
        mixtures = []
        for weights in self.by_node[node], self.by_grade.setdefault((self.grade, node >= 11), [2048] * 8):
            mixtures.append((weights, clamp(sum(map(mul, weights, odds)) >> 14, -2047, 2047)))
        p_one = clamp(SQUASH[mixtures[0][1] + mixtures[1][1] >> 1], 16, 2**16 - 16)
        bit = self.coder.decode(p_one)
        for weights, mixed in mixtures:
            error = (2**16 - 1 if bit else 0) - SQUASH[mixed] >> 1
            weights[:] = [sat16(w + (o * error + 2**15 >> 16)) for w, o in zip(weights, odds)]
        for table, key, counter in zip(self.counters, keys, counters):
            table[key] = learn(counter, bit)
        return bit

    def signed(self, length):
        """A number whose magnitude is expected to have so many bits."""
        n = length
        if self.bit(0):
            n += 1
            while n < 32 and self.bit(min(n - length, 5)):
                n += 1
        else:
            while n > 0 and not self.bit(5 + min(length + 1 - n, 3)):
                n -= 1
        if n == 0:
            return 0
        negative = self.bit(9 + (n > length + 1))
        kind = clamp(n + 1 - length, 0, 4)
        value = 1
        if n > 1:
            first = self.bit(11 + kind)
            value = 2 + first
        if n > 2:
            key = self.grade, 2 * kind + first
            counter = self.second.get(key, 2**31)
            bit = self.coder.decode(clamp(counter >> 16, 32, 2**16 - 32))
            self.second[key] = learn(counter, bit)
            value = 2 * value + bit
        if n > 3:
            value = value << n - 3 | self.coder.raw(n - 3)
        return -value if negative else value


class Expectation:
    """The two linear predictors of one set of odd axes."""

    def __init__(self):
        self.mean_weights, self.size_weights, self.saving = [0] * 16, list(FIRST_SIZE_WEIGHTS), 0

    def expect(self, codes, sizes):
        self.mean = sum(map(mul, self.mean_weights, codes)) >> 5
        self.size = clamp(sum(map(mul, self.size_weights, sizes)) >> 9, 0, 7680)
        self.whole = self.mean + 128 >> 8 if self.saving > 4096 else 0
        self.length = max(self.size - 128, 0) >> 8

    def learn(self, codes, sizes, code, size):
        rounded = self.mean + 128 >> 8
        if rounded:
            saved = log_size(abs(code)) - log_size(abs(low_32(code - rounded)))
            self.saving += (saved << 10) - self.saving >> 7
        gain = quotient(16 * size - self.size << 11, sum(map(mul, sizes, sizes)) // 2 + 300)
        self.follow(self.size_weights, sizes, gain, 9)
        error = clamp(256 * code - self.mean, -2**20, 2**20)
        gain = quotient(error << 10, sum(map(mul, codes, codes)) // 2 + 32)
        self.follow(self.mean_weights, codes, gain, 10)

    @staticmethod
    def follow(weights, inputs, gain, shift):
        gain, half = clamp(gain, -32767, 32767), 1 << shift - 1
        weights[:] = [sat16(w + clamp(v * gain + half >> shift, -32767, 32767)) for w, v in zip(weights, inputs)]


def contexts_of(odd, codes, sizes, e, g):
    length, scale = e.length, min(e.length, 3)
    half = (1 << length) >> 1
    q = [clamp(code + half >> length, -2, 2) + 2 for code in codes]
    left = e.mean - 256 * e.whole >> length

    def mean(n, shift):
        return clamp(left + (n << shift) // 2 >> shift, 0, n - 1)

    def s(place):
        return sign(codes[place]) + 1

    around = 2 * (2 * sizes[W] + 2 * sizes[N] + sizes[NW] + sizes[NE] + sizes[WW] + sizes[NN])
    return (odd,
            ((q[W] * 5 + q[N]) * 5 + q[B]) * 4 + scale,
            ((q[P0] * 5 + q[P1]) * 5 + q[P2]) * 4 + scale,
            mean(64, 3) * 14 + g // 6,
            ((mean(7, 6) * 5 + q[W]) * 5 + q[N]) * 4 + scale,
            (mean(16, 4) * 3 + sign(e.mean) + 1) * 21 + g // 4,
            grade(around, length) * 5 + mean(5, 5),
            (((s(W) * 3 + s(N)) * 3 + s(B)) * 3 + s(P0)) * 11 + g // 8)


def neighbours(band, own, place, parts, earlier):
    """Inputs of the values of a row but for those in the row itself: [n][16][code, size].

    Arrays hold a code and a size for each point: their last axis is no axis of the grid.
    """
    n, (t, z, y) = band.dims[X], place
    near = np.zeros((n, 16, 2), np.int64)

    def add(where, array, row, dx=0):
        row = tuple(clamp(i, 0, extent - 1) for i, extent in zip(row, array.shape))
        near[:, where] += shifted(array[row], 0, dx, n)

    if y > 0:
        for where, dx in (N, 0), (NW, -1), (NE, 1):
            add(where, own, (t, z, y - 1), dx)
    if y > 1:
        add(NN, own, (t, z, y - 2))
    if z > 0:
        add(B, own, (t, z - 1, y))
        for d in -1, 1:
            add(BX, own, (t, z - 1, y), d)
            add(BY, own, (t, z - 1, y + d))
    if t > 0:
        add(T, own, (t - 1, z, y))
    for k, a in enumerate(axes_of(band.odd)):
        parent = parts.get(band.level, band.odd & ~(1 << a))
        for d in 0, 1:
            add(P0 + min(k, 2), parent, *moved(place, {a: d}))
    siblings = [odd for odd in earlier if (odd ^ band.odd).bit_count() == 2]
    if siblings:
        a, b = axes_of(siblings[-1] ^ band.odd)
        # Between i and i + 1 along an axis where this band is odd, otherwise between i - 1 and i.
        for da, db in product(*((0, 1) if band.odd >> axis & 1 else (-1, 0) for axis in (a, b))):
            add(S, parts.get(band.level, siblings[-1]), *moved(place, {a: da, b: db}))
    return near


def moved(place, steps):
    """A row moved by steps along axes, and the step along X."""
    return [i + steps.get(a, 0) for a, i in enumerate(place)], steps.get(X, 0)


def read_mixed(c, predictor, masked):
    """The codes of each band."""
    coder = BinaryDecoder(c)
    mixer, expectations, recent = Mixer(coder), [Expectation() for _ in range(16)], 0
    parts, earlier, level = Parts(predictor.layout), [], None
    all_codes = []
    for band, mask in zip(predictor.bands, masked):
        if band.level != level:
            earlier, level = [], band.level
        out = np.zeros(band.dims, np.int32)
        own = np.zeros((*band.dims, 2), np.int64)
        e = expectations[band.odd]
        for place in np.ndindex(band.dims[:X]):
            rows = neighbours(band, own, place, parts, earlier).transpose(0, 2, 1).tolist()
            in_row = (W, WW) if band.odd else (W, WW, P0, P1)
            before = [(0, 0)] * 4  # of this row, the last first
            for x, (codes, sizes) in enumerate(rows):
                code = 0
                if mask is None or not mask[place][x]:
                    for where, (c_before, s_before) in zip(in_row, before):
                        codes[where], sizes[where] = c_before, s_before
                    sizes[RECENT], sizes[CONSTANT] = recent >> 4, 16
                    e.expect(codes, sizes)
                    mixer.grade = grade(e.size, e.length)
                    mixer.contexts = contexts_of(band.odd, codes, sizes, e, mixer.grade)
                    rest = mixer.signed(e.length)
                    code = low_32(rest + e.whole)
                    size = log_size(abs(rest))
                    recent += (size << 4) - recent >> 3
                    e.learn(codes, sizes, code, size)
                out[place][x] = code
                before = [(clamp(code, -2047, 2047), log_size(abs(code))), *before[:3]]
                own[place][x] = before[0]
            coder.check()
        parts.put(band, own)
        earlier.append(band.odd)
        all_codes.append(out)
    coder.finish()
    return all_codes
