"""Codec `fast` (docs/format.md, section 6). Tiles are visited one by one, and only the work inside a tile is
vectorised.
"""

import itertools
import math

import numpy as np

from .cursor import Cursor, require

QUANTISED, EXACT, RAW = 0, 1, 2


def decode_fast(payload, extents, header, what):
    """The bit patterns of a chunk, flat in C order."""
    c = Cursor(payload, what)
    predictor, x_axes, y_axes, z_axes, *tile_log2, reserved = c.take(8, "parameter block")
    require(not predictor & 8 or predictor & 1, f"{what}: predictor: second difference without difference along x")
    require(predictor >> 4 == 0 or predictor & 9 == 1, f"{what}: predictor: lag needs bit 0 and excludes bit 3")
    require(x_axes + y_axes + z_axes <= len(extents), f"{what}: x_axes, y_axes and z_axes exceed the rank")
    for name, value, low, high in zip("xyz", tile_log2, (3, 0, 0), (12, 9, 9)):
        require(low <= value <= high, f"{what}: tile_{name}_log2 {value} is not within {low} to {high}")
    require(sum(tile_log2) <= 12, f"{what}: tiles of more than 4096 values")
    require(reserved == 0, f"{what}: reserved byte is not 0")

    cuts = np.cumsum([0, x_axes, y_axes, z_axes, len(extents) - x_axes - y_axes - z_axes]).tolist()
    nx, ny, nz, nb = (math.prod(extents[::-1][i:j]) for i, j in zip(cuts, cuts[1:]))
    tx, ty, tz = (1 << log2 for log2 in tile_log2)
    grid = (nb, -(-nz // tz), -(-ny // ty), -(-nx // tx))
    n_tiles = math.prod(grid)
    anchors = c.array("<u4", -(-n_tiles // 32), "anchors")
    tile_words = c.array("<u2", n_tiles, "tile_words")
    require(not any(c.take(2 * (n_tiles % 2), "padding")), f"{what}: padding after tile_words is not zero")
    ends = np.cumsum(tile_words, dtype=np.int64)
    starts = ends - tile_words
    require(np.array_equal(anchors, starts[::32]), f"{what}: anchors differ from the sums of tile_words")
    bodies = c.take(4 * int(tile_words.sum(dtype=np.int64)), "bodies")
    require(c.at == c.end, f"{what}: the bodies do not end where the payload ends")

    out = np.zeros(nb * nz * ny * nx, header.dtype.uint_type)
    boxes = out.reshape(nb, nz, ny, nx)
    for tile, (b, z, y, x) in enumerate(itertools.product(*map(range, grid))):
        box = boxes[b, z * tz:(z + 1) * tz, y * ty:(y + 1) * ty, x * tx:(x + 1) * tx]
        if tile_words[tile] == 0:
            continue
        body = bodies[4 * int(starts[tile]):4 * int(ends[tile])]
        box[:] = decode_tile(body, box.shape, predictor, header, f"{what}, tile {tile}")
    return out


def unpack(data):
    return np.unpackbits(np.frombuffer(data, np.uint8), bitorder="little").astype(bool)


def read_super_bits(c, n_super, field):
    bits = unpack(c.take(-(-n_super // 8), field))
    require(not bits[n_super:].any(), f"{c.what}: {field}: spare bits are not 0")
    return bits[:n_super]


def read_mask(c, n_super):
    """Section 6.2, Mask: a bool for each index of n_super supergroups."""
    any_, mixed = read_super_bits(c, n_super, "mask: any"), read_super_bits(c, n_super, "mask: mixed")
    require(not (mixed & ~any_).any(), f"{c.what}: mask: mixed is not a subset of any")
    mask = np.repeat(any_, 64).reshape(n_super, 64)
    mask[mixed] = unpack(c.take(8 * int(mixed.sum()), "mask")).reshape(-1, 64)
    return mask.reshape(-1)


def read_residuals(c, t, n_groups, n_super, sparse):
    """Section 6.2, Widths and Planes: the residuals, as unsigned integers, of n_groups groups."""
    has_planes = read_super_bits(c, n_super, "super_mask") if sparse else np.ones(n_super, bool)
    n_coded = int(has_planes.sum())
    super_header = c.array("u1", n_coded, "super_header")
    n_delta = super_header >> 5
    # delta_planes as [supergroup][j][group], absent planes being zero
    delta_planes = np.zeros((n_coded, 7), np.uint8)
    delta_planes[np.arange(7) < n_delta[:, None]] = c.array("u1", int(n_delta.sum()), "delta_planes")
    delta_bits = np.unpackbits(delta_planes[:, :, None], axis=2, bitorder="little").astype(np.int64)
    deltas = np.zeros((n_super, 8), np.int64)
    deltas[has_planes] = (delta_bits << np.arange(7)[:, None]).sum(axis=1)
    require(not deltas.reshape(-1)[n_groups:].any(), f"{c.what}: delta bits of a group beyond the last")
    least = np.zeros((n_super, 1), np.int64)
    least[has_planes, 0] = super_header & 31
    width = (least + deltas).reshape(-1)[:n_groups]
    require((width <= t.bits).all(), f"{c.what}: width is above {t.bits}")
    # planes as [group][k], absent planes being zero; then the bit matrix of each group is transposed
    planes = np.zeros((n_groups, t.bits), np.uint8)
    planes[np.arange(t.bits) < width[:, None]] = c.array("u1", int(width.sum()), "planes")
    bits = np.unpackbits(planes[:, :, None], axis=2, bitorder="little")
    code = np.packbits(bits.transpose(0, 2, 1), bitorder="little").view(t.uint_type)
    one = t.uint_type.type(1)
    return (code >> one) ^ np.negative(code & one)


def decode_tile(body, extents, predictor, header, what):
    """The bit patterns of a tile that has a body, as [ez][ey][ex]."""
    t = header.dtype
    ez, ey, ex = extents
    row = 8 * -(-ex // 8)
    n_groups = ez * ey * row // 8
    n_super = -(-n_groups // 8)
    c = Cursor(body, what)
    tile_flags = c.uint(1, "tile_flags")
    base = base24 = int.from_bytes(c.take(3, "base24"), "little", signed=True)
    kind = tile_flags & 3
    wide_base, sparse, no_planes, *masks, escapes = (bool(tile_flags >> bit & 1) for bit in range(2, 8))
    require(kind <= RAW, f"{what}: kind 3 is invalid")
    if kind == RAW:
        require(tile_flags == RAW and base24 == 0, f"{what}: kind raw with other flags or a base")
        values = c.array(t.uint_type, ez * ey * ex, "raw values")
        require(c.at == c.end, f"{what}: bytes after the raw values")
        return values.reshape(extents)
    require(kind != QUANTISED or header.step is not None, f"{what}: kind quantised without a step")
    require(kind != EXACT or not (any(masks) or escapes), f"{what}: kind exact with masks or escapes")
    require(not (no_planes and sparse), f"{what}: no_planes excludes sparse")
    if wide_base:
        require(base24 == 0, f"{what}: base24 is not 0 beside wide_base")
        base = c.uint(t.size, "base")

    replacements = []  # pairs of linear indices and bit patterns, in the order in which they apply
    for fill, present in enumerate(masks):
        if present:
            require(fill < len(header.fills), f"{what}: mask of fill {fill}, which the header does not have")
            replacements.append((read_mask(c, n_super)[:8 * n_groups], header.fills[fill]))
    if escapes:
        n_escapes = c.uint(2, "n_escapes")
        require(1 <= n_escapes <= 4096, f"{what}: n_escapes {n_escapes} is not within 1 to 4096")
        indices = c.array("<u2", n_escapes, "indices of escapes").astype(np.int64)
        require((np.diff(indices) > 0).all(), f"{what}: indices of escapes are not ascending")
        require(indices[-1] < 8 * n_groups and (indices % row < ex).all(), f"{what}: an escape is padding")
        replacements.append((indices, c.array(t.uint_type, n_escapes, "escapes")))

    a = np.zeros(8 * n_groups, t.uint_type) if no_planes else read_residuals(c, t, n_groups, n_super, sparse)
    a = a.reshape(ez, ey, row)
    require(c.end - c.at <= 3, f"{what}: {c.end - c.at} bytes after the planes")
    require(not any(c.take(c.end - c.at, "padding")), f"{what}: padding is not zero")

    # Section 6.3. Padding is summed too, but no sum of it reaches another index. Unsigned and signed sums have the same
    # bits, and numpy wraps both.
    along_x, along_y, along_z, second = (predictor >> bit & 1 for bit in range(4))
    lag = (predictor >> 4) + 1
    for axis, times, stride in (2, second + along_x, lag), (1, along_y, 1), (0, along_z, 1):
        for first in range(stride):
            lane = np.moveaxis(a, axis, 0)[first::stride]
            for _ in range(times):
                np.cumsum(lane, axis=0, dtype=t.uint_type, out=lane)
    q = a + t.uint_type.type(base % 2**t.bits)
    if kind == QUANTISED:
        bits = t.restore(q, header.step).view(t.uint_type)
    else:
        sign = q.view(t.int_type) >> t.int_type.type(t.bits - 1)
        bits = q ^ (sign & t.int_type.type(2**(t.bits - 1) - 1)).view(t.uint_type)
    for where, values in replacements:
        bits.reshape(-1)[where] = values
    return bits[:, :, :ex]
