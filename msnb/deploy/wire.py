"""Protocol buffers, read without a schema and without executing anything.

Enough to look into a MINDIR file or a checkpoint, whatever is in it: a file that is damaged or
hostile raises ``Damaged``, and never takes the process with it, as MindSpore's own reader may.
Wire format: https://protobuf.dev/programming-guides/encoding/
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["Damaged", "fields", "message", "packed", "signed", "text"]

_NAMES = 4096  # bytes: the longest text that is taken for a name


class Damaged(ValueError):
    """Bytes that are no protocol buffer, or not the one that was expected."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Each field's number and value: a whole number, or the bytes of a text or a message.

    Numbers of fixed width come as their bits.

    >>> list(fields(memoryview(b"\\x08\\x96\\x01\\x12\\x02ok")))[0]
    (1, 150)
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise Damaged(f"a field without a number at byte {at}")
        if kind == 0:
            value, at = _varint(data, at)
            yield number, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise Damaged(f"a field of an unknown kind ({kind}) at byte {at}")
        if at + size > end:
            raise Damaged(f"a field of {size} bytes at byte {at}, where {end - at} are left")
        chunk = data[at : at + size]
        at += size
        yield number, chunk if kind == 2 else int.from_bytes(chunk, "little")


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise Damaged("it ends in the middle of a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
        shift += 7
        if shift > 63:
            raise Damaged(f"a number that is too long at byte {at}")


def signed(value: int | memoryview) -> int:
    """A number that may be negative, as int64."""
    if not isinstance(value, int):
        raise Damaged("bytes where a number belongs")
    return value - (1 << 64) if value >= 1 << 63 else value


def packed(value: int | memoryview) -> list[int]:
    """A repeated number: one of them, or several in a row."""
    if isinstance(value, int):
        return [signed(value)]
    found, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        found.append(signed(number))
    return found


def text(value: int | memoryview) -> str:
    """A name; ``Damaged`` where it is none."""
    if isinstance(value, int) or len(value) > _NAMES:
        raise Damaged("something else where a name belongs")
    try:
        return bytes(value).decode()
    except UnicodeDecodeError:
        raise Damaged("a name that is no UTF-8") from None


def message(value: int | memoryview) -> memoryview:
    """A message inside a message."""
    if isinstance(value, int):
        raise Damaged("a number where a message belongs")
    return value
