"""Sums of floating-point numbers that do not depend on the order of their terms.

A double is an integer times 2**-1126 (SCALE covers the smallest subnormal), so a sum of doubles is one too,
and integer addition is exact: in any order, in any batches, and taken back exactly by a retraction. Rows are added up
as 32-bit limbs in NumPy, groups as Python integers. Only `to_floats` rounds, once, to the nearest double.

    stored sum := zero bytes left out at the low end (u16) little-endian two's complement; empty for 0
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["add", "decode", "encode", "square_terms", "sum_by_group", "to_floats"]

SCALE = 1126  # 2**-1126 is one unit: 1074 for the smallest subnormal and the 52 bits that frexp moves it by
ROWS_MAX = 1 << 29  # rows whose limbs (below 2**33) an int64 holds the sum of
_SHIFT = struct.Struct("<H")
_MASK = np.int64(0xFFFFFFFF)
_UNIT = 1 << SCALE

Integers = npt.NDArray[np.object_]


def sum_by_group(
    values: npt.NDArray[np.float64],
    groups: npt.NDArray[np.int64],
    count: int,
    weights: npt.NDArray[np.int64] | None = None,
) -> Integers:
    """For each group the exact sum of its values (times their weights), in units of 2**-SCALE. Values are finite."""
    if len(values) > ROWS_MAX:
        raise ValueError(f"{len(values)} rows in one step: at most {ROWS_MAX}")
    sums: Integers = np.zeros(count, dtype=object)
    if not len(values):
        return sums
    fraction, exponent = np.frexp(values)
    whole = (fraction * (1 << 53)).astype(np.int64)
    sign = np.where(whole < 0, np.int64(-1), np.int64(1))
    sign = sign if weights is None else sign * weights
    whole = np.abs(whole)
    position = np.where(whole == 0, 0, exponent.astype(np.int64) - 53 + SCALE)
    limb, offset = np.divmod(position, 32)
    first = int(limb.min())
    limbs = np.zeros((int(limb.max()) - first + 3, count), dtype=np.int64)
    for at, part in enumerate(_limbs(whole, offset)):
        np.add.at(limbs, (limb - first + at, groups), sign * part)
    for row in range(len(limbs) - 1, -1, -1):
        sums = (sums << 32) + limbs[row].astype(object)
    return np.asarray(sums << (32 * first), dtype=object)


def _limbs(whole: npt.NDArray[np.int64], offset: npt.NDArray[np.int64]) -> Sequence[npt.NDArray[np.int64]]:
    """whole << offset (offset below 32) as three limbs, the middle one of up to 33 bits."""
    low = (whole & _MASK).astype(np.uint64) << offset.astype(np.uint64)
    high = (whole >> 32) << offset  # below 2**53
    low_limb = (low & np.uint64(_MASK)).astype(np.int64)
    middle = (low >> np.uint64(32)).astype(np.int64) + (high & _MASK)
    return low_limb, middle, high >> 32


def square_terms(values: npt.NDArray[np.float64]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Two doubles for each value whose exact sum is its square (short of overflow and underflow)."""
    product = values * values
    split = values * 134217729.0  # 2**27 + 1: Veltkamp's splitting in two halves of 26 bits
    high = split - (split - values)
    low = values - high
    return product, ((high * high - product) + 2.0 * high * low) + low * low


def add(left: Integers, right: Integers) -> Integers:
    return np.asarray(left + right, dtype=object)


def encode(sums: Integers) -> list[bytes]:
    return [_encode(one) for one in sums.tolist()]


def decode(stored: Sequence[bytes]) -> Integers:
    sums: Integers = np.empty(len(stored), dtype=object)
    sums[:] = [_decode(one) for one in stored]
    return sums


def to_floats(sums: Integers, divisors: Sequence[int] | None = None) -> npt.NDArray[np.float64]:
    """The sums (divided by whole numbers) as the nearest doubles; infinite where they are beyond them."""
    tops = sums.tolist()
    bottoms = [_UNIT] * len(tops) if divisors is None else [_UNIT * int(divisor) for divisor in divisors]
    return np.array([ratio(a, b) for a, b in zip(tops, bottoms, strict=True)], dtype=np.float64)


def ratio(top: int, bottom: int) -> float:
    try:
        return top / bottom
    except OverflowError:
        return float("inf") if top > 0 else float("-inf")
    except ZeroDivisionError:
        return float("nan")


def _encode(one: int) -> bytes:
    if not one:
        return b""
    zeros = ((one & -one).bit_length() - 1) // 8
    kept = one >> (8 * zeros)
    return _SHIFT.pack(zeros) + kept.to_bytes(kept.bit_length() // 8 + 1, "little", signed=True)


def _decode(stored: bytes) -> int:
    if not stored:
        return 0
    (zeros,) = _SHIFT.unpack_from(stored)
    return int.from_bytes(stored[_SHIFT.size :], "little", signed=True) << (8 * int(zeros))
