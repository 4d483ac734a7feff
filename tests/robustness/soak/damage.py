"""Random damage to a file, as disks, transfers and editors do it."""

from __future__ import annotations

import random
from collections.abc import Callable

Damage = Callable[[bytearray, random.Random], None]


def _range(data: bytearray, rng: random.Random, most: int = 512) -> slice:
    start = rng.randrange(len(data))
    return slice(start, min(len(data), start + rng.randint(1, most)))


def flipped_bits(data: bytearray, rng: random.Random) -> None:
    """One to eight bits anywhere."""
    for _ in range(rng.choice([1, 1, 1, 8])):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def other_bytes(data: bytearray, rng: random.Random) -> None:
    """A few bytes of noise."""
    place = _range(data, rng, 16)
    data[place] = rng.randbytes(len(data[place]))


def truncated(data: bytearray, rng: random.Random) -> None:
    """Cut off anywhere, or just before the end."""
    del data[max(0, len(data) - rng.randint(1, 64)) if rng.random() < 0.3 else rng.randrange(len(data)) :]


def zeroed(data: bytearray, rng: random.Random) -> None:
    """A range of zeros, as after a lost write."""
    place = _range(data, rng)
    data[place] = bytes(len(data[place]))


def swapped(data: bytearray, rng: random.Random) -> None:
    """Two ranges of one length change places."""
    size = rng.randint(1, max(1, min(512, len(data) // 2)))
    one, other = sorted(rng.randrange(len(data) - size + 1) for _ in range(2))
    if other - one >= size:
        data[one : one + size], data[other : other + size] = data[other : other + size], data[one : one + size]


def removed(data: bytearray, rng: random.Random) -> None:
    """A range is missing: all behind it moves."""
    del data[_range(data, rng, 64)]


def repeated(data: bytearray, rng: random.Random) -> None:
    """A range comes twice."""
    place = _range(data, rng, 64)
    data[place.stop : place.stop] = data[place]


def appended(data: bytearray, rng: random.Random) -> None:
    """Noise at the end."""
    data += rng.randbytes(rng.randint(1, 600))


def other_digit(data: bytearray, rng: random.Random) -> None:
    """A digit of a number becomes another one, or a minus sign."""
    digits = [i for i, byte in enumerate(data) if byte in b"0123456789"]
    if digits:
        data[rng.choice(digits)] = rng.choice(b"0123456789-")


DAMAGES: tuple[Damage, ...] = (
    flipped_bits,
    other_bytes,
    truncated,
    zeroed,
    swapped,
    removed,
    repeated,
    appended,
    other_digit,
)


def damaged(data: bytes, rng: random.Random) -> tuple[str, bytes]:
    """Other bytes than `data`, and the name of what was done to them."""
    while True:
        damage, found = rng.choice(DAMAGES), bytearray(data)
        damage(found, rng)
        if bytes(found) != data:
            return damage.__name__, bytes(found)
