"""Damaged copies of a file's bytes, the same for the same seed.

``for what, data in damaged(whole): ...`` gives ``RUNS`` of them; ``what`` says how each was made,
with its seed, so that a failing one can be made again. ``make fuzz`` sets both numbers.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator

RUNS = int(os.environ.get("MSNB_FUZZ_RUNS", "50"))
SEED = int(os.environ.get("MSNB_FUZZ_SEED", "0"))

_EDGE = 256  # headers, indices and checksums are at the ends, where a long file is rarely hit


def damaged(
    whole: bytes, runs: int | None = None, seed: int | None = None
) -> Iterator[tuple[str, bytes]]:
    """``runs`` times (what was done, the damaged bytes); never the bytes as they were."""
    runs, seed = RUNS if runs is None else runs, SEED if seed is None else seed
    for number in range(runs):
        rng = random.Random(f"{seed}-{number}")
        what, data = _CUTS[number % len(_CUTS)](whole, rng)
        if data == whole:  # random bytes may hit on what was there
            what, data = _flip_bit(whole, rng)
        yield f"seed {seed}, number {number}: {what}", data


def _place(size: int, rng: random.Random) -> int:
    near = rng.choice(("start", "end", "anywhere"))
    if near == "start":
        return rng.randrange(min(size, _EDGE))
    return rng.randrange(max(0, size - _EDGE) if near == "end" else 0, size)


def _flip_bit(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    data, place, bit = bytearray(whole), _place(len(whole), rng), rng.randrange(8)
    data[place] ^= 1 << bit
    return f"bit {bit} of byte {place} flipped", bytes(data)


def _change_bytes(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    data = bytearray(whole)
    places = [_place(len(whole), rng) for _ in range(rng.randint(1, 8))]
    for place in places:
        data[place] = rng.randrange(256)
    return f"bytes {places} made random", bytes(data)


def _cut_end(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    end = _place(len(whole), rng)
    return f"cut to {end} of {len(whole)} bytes", whole[:end]


def _lose_block(whole: bytes, rng: random.Random) -> tuple[str, bytes]:
    start = _place(len(whole), rng)
    end = min(len(whole), start + rng.randint(1, 512))
    if rng.random() < 0.5:
        return f"bytes {start} to {end} zeroed", whole[:start] + bytes(end - start) + whole[end:]
    return f"bytes {start} to {end} missing", whole[:start] + whole[end:]


_CUTS = (_flip_bit, _change_bytes, _cut_end, _lose_block)
