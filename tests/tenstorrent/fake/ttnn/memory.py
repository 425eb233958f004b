"""Addresses and roundings of the stand-in for ttnn."""

import bisect

import numpy as np

ALIGNMENT = 64
BLOCK = 16  # values that share an exponent


class Allocator:
    """Lowest address first, so that what was freed is taken again at once."""

    def __init__(self):
        self.taken = []  # (address, size), sorted

    def take(self, size):
        size = -(-size // ALIGNMENT) * ALIGNMENT
        at = 0
        for begin, n in self.taken:
            if begin >= at + size:
                break
            at = begin + n
        bisect.insort(self.taken, (at, size))
        return at

    def give(self, address):
        i = bisect.bisect_left(self.taken, (address, 0))
        return self.taken.pop(i)[1]


def round_bf16(a):
    """To nearest even."""
    bits = a.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return np.where(np.isfinite(a), rounded.view(np.float32), a)


def block_float(a, dtype):
    """Blocks of 16 along the last dimension with the exponent of the largest; a sign and 7 bits
    (bfloat8_b) or 3 bits (bfloat4_b) of mantissa each."""
    bits = 7 if dtype == "bfloat8_b" else 3
    width = a.shape[-1]
    padded = np.pad(a, [(0, 0)] * (a.ndim - 1) + [(0, -width % BLOCK)])
    blocks = padded.reshape(*padded.shape[:-1], -1, BLOCK)
    largest = np.abs(blocks).max(-1, keepdims=True)
    _, exponent = np.frexp(largest)
    step = np.ldexp(np.float32(1), exponent - bits)
    limit = 2**bits - 1
    rounded = np.clip(np.rint(blocks / step), -limit, limit) * step
    return np.ascontiguousarray(rounded.reshape(padded.shape)[..., :width], dtype=np.float32)
