"""Interpolation (docs/format.md, section 7.4)."""

import numpy as np

from ..binary_coder import AdaptiveBit, NumberModel
from ..integers import quotient
from .bands import X, Layout, Parts, axes_of, shifted

KERNELS = ((1024, 0, 0), (1152, -128, 0), (1178, -154, 0))
STEP_SCALES = ((1.0, 1.0), (1.25, 2.0), (1.5, 3.0), (1.75, 4.0))


class Interpolation:
    def __init__(self, coder, dims, t, of_integers):
        active = coder.raw(4)
        self.of_integers, self.magic = of_integers, t.float_type.type(t.m_t)
        self.scale, self.step = 0, t.float_type.type(1)
        if not of_integers:
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
            parts.put(band, self.value(prediction, code, band.level))
        values = parts.get(-1, 0)
        return values * header.step[0] if self.of_integers else values

    def value(self, prediction, code, level):
        """The values, or integers, of a band, or of one anchor."""
        if not self.of_integers:
            return prediction + code.astype(prediction.dtype) * self.step_of(level)
        nearest = (prediction + self.magic) - self.magic
        return nearest + np.where(prediction < nearest, -code, code).astype(prediction.dtype)

    def restore_anchors(self, codes):
        flat, n, level = codes.reshape(-1), codes.shape[X], len(self.layout.levels)
        out = np.zeros(flat.size, self.step.dtype)
        for i in range(out.size):
            prediction = self.step.dtype.type(0) if i == 0 else out[i - n] if i % n == 0 else out[i - 1]
            out[i] = self.value(prediction, flat[i], level)
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
    """The values at positions first to first + n - 1 along an axis, extrapolated beyond the ends."""
    rows = np.moveaxis(part, axis, 0)
    size, real = len(rows), part.dtype.type

    def beyond(p):
        if p == -1 and size >= 3:
            return real(3) * (rows[0] - rows[1]) + rows[2]
        nearest, next_, distance = (0, min(1, size - 1), -p) if p < 0 else (size - 1, max(size - 2, 0), p - size + 1)
        return rows[nearest] + real(distance) * (rows[nearest] - rows[next_])

    outside = [np.stack([beyond(p) for p in positions]) if positions else rows[:0]
               for positions in (range(first, min(0, first + n)), range(max(size, first), first + n))]
    inside = rows[max(first, 0):max(first + n, 0)]
    return np.moveaxis(np.concatenate([outside[0], inside, outside[1]]), 0, axis)
