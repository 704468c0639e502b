"""XXH3, 64 bits, seed 0, default secret."""

import numpy as np

SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e")
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MX1, MX2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
M64 = 2**64 - 1


def u64_at(data, at):
    return int.from_bytes(data[at:at + 8], "little")


def u32_at(data, at):
    return int.from_bytes(data[at:at + 4], "little")


def fold(a, b):
    product = a * b
    return (product & M64) ^ (product >> 64)


def avalanche(h):
    h ^= h >> 37
    h = h * MX1 & M64
    return h ^ (h >> 32)


def xxh64_avalanche(h):
    h = (h ^ (h >> 33)) * P64_2 & M64
    h = (h ^ (h >> 29)) * P64_3 & M64
    return h ^ (h >> 32)


def mix16(data, at, secret_at):
    return fold(u64_at(data, at) ^ u64_at(SECRET, secret_at), u64_at(data, at + 8) ^ u64_at(SECRET, secret_at + 8))


def xxh3(data):
    """XXH3 of a bytes-like object, as an int."""
    n = len(data)
    if n > 240:
        return xxh3_long(np.frombuffer(data, np.uint8).reshape(1, n))[0]
    if n > 128:
        acc = n * P64_1 + sum(mix16(data, 16 * i, 16 * i) for i in range(8))
        end = sum(mix16(data, 16 * i, 16 * (i - 8) + 3) for i in range(8, n // 16)) + mix16(data, n - 16, 136 - 17)
        return avalanche((avalanche(acc & M64) + end) & M64)
    if n > 16:
        acc = n * P64_1
        for i in range((n - 1) // 32 + 1):
            acc += mix16(data, 16 * i, 32 * i) + mix16(data, n - 16 * (i + 1), 32 * i + 16)
        return avalanche(acc & M64)
    if n > 8:
        low = u64_at(data, 0) ^ u64_at(SECRET, 24) ^ u64_at(SECRET, 32)
        high = u64_at(data, n - 8) ^ u64_at(SECRET, 40) ^ u64_at(SECRET, 48)
        return avalanche((n + int.from_bytes(low.to_bytes(8, "little"), "big") + high + fold(low, high)) & M64)
    if n > 3:
        h = (u32_at(data, n - 4) + (u32_at(data, 0) << 32)) ^ u64_at(SECRET, 8) ^ u64_at(SECRET, 16)
        h ^= ((h << 49 | h >> 15) ^ (h << 24 | h >> 40)) & M64
        h = h * MX2 & M64
        h = (h ^ ((h >> 35) + n)) * MX2 & M64
        return h ^ (h >> 28)
    if n > 0:
        combined = data[0] << 16 | data[n >> 1] << 24 | data[n - 1] | n << 8
        return xxh64_avalanche(combined ^ u32_at(SECRET, 0) ^ u32_at(SECRET, 4))
    return xxh64_avalanche(u64_at(SECRET, 56) ^ u64_at(SECRET, 64))


def secret_lanes(at):
    return np.frombuffer(SECRET, "<u8", 8, at)


STRIPE_SECRETS = np.stack([secret_lanes(8 * i) for i in range(16)])


def xxh3_long(rows):
    """XXH3 of each row of a C-contiguous uint8 array [n][length], length > 240, as a list of ints."""
    n, length = rows.shape
    acc = np.tile(np.array([P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1], np.uint64), (n, 1))

    def accumulate(begin, end, secrets):
        lanes = rows[:, begin:end].view("<u8").reshape(n, -1, 8)
        keyed = lanes ^ secrets
        terms = (keyed & np.uint64(0xFFFFFFFF)) * (keyed >> np.uint64(32))
        terms += lanes[:, :, [1, 0, 3, 2, 5, 4, 7, 6]]
        acc[:] += terms.sum(axis=1, dtype=np.uint64)

    blocks = (length - 1) // 1024
    for block in range(blocks):
        accumulate(1024 * block, 1024 * (block + 1), STRIPE_SECRETS)
        acc ^= acc >> np.uint64(47)
        acc ^= secret_lanes(128)
        acc *= np.uint64(P32_1)
    stripes = (length - 1 - 1024 * blocks) // 64
    accumulate(1024 * blocks, 1024 * blocks + 64 * stripes, STRIPE_SECRETS[:stripes])
    accumulate(length - 64, length, secret_lanes(121))
    keyed = (acc ^ secret_lanes(11)).tolist()
    return [avalanche((length * P64_1 + sum(fold(k[i], k[i + 1]) for i in (0, 2, 4, 6))) & M64) for k in keyed]
