# SPDX-License-Identifier: Apache-2.0
"""The wire format of protobuf, as far as NRI's messages need it.

A message is decoded one level at a time: what no one asks for is skipped, not parsed. Text is
UTF-8; bytes that are not are kept as surrogates, and encoding such a text raises
UnicodeEncodeError: the peer would drop the connection. Source: protobuf's "Encoding".
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}
_MASK64 = (1 << 64) - 1
_MAX_VARINT = 10  # bytes
# In one message: reading more would take longer than a runtime waits. Few programs would start with
# as many variables.
MOST_FIELDS = 1 << 16
_SMALL = [bytes((value,)) for value in range(0x80)]


class WireError(ValueError):
    """A message that is not protobuf."""


def fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Yield (number, value) of each field; raises WireError at the first malformed one.

    A value is an unsigned integer, or the bytes of a text or message. Fixed-width fields, which
    no message of NRI has, are skipped.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        number, kind = key >> 3, key & 7
        if not number:
            raise WireError("field number 0")
        if kind == VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        size = _WIDTHS.get(kind, 0)
        if kind == BYTES:
            size, at = _varint(data, at)
        elif not size:
            raise WireError(f"wire type {kind}")
        if size > end - at:
            raise WireError("it is cut off")
        if kind == BYTES:
            yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    """Return (the integer at a position, the position after it)."""
    value = shift = 0
    for index in range(at, min(at + _MAX_VARINT, len(data))):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & _MASK64, index + 1
        shift += 7
    raise WireError("a number is cut off or too long")


class Message:
    """The fields of one message by number, values in the order of the bytes.

    A field of an unexpected kind is treated as absent, as in protobuf's own decoders.
    """

    __slots__ = ("_found",)

    def __init__(self, data: memoryview | bytes = b"") -> None:
        """Read one level; raises WireError, also for more than MOST_FIELDS."""
        self._found: dict[int, list[int | memoryview]] = {}
        for count, (number, value) in enumerate(fields(memoryview(data))):
            if count == MOST_FIELDS:
                raise WireError(f"it has more than {MOST_FIELDS} fields")
            self._found.setdefault(number, []).append(value)

    def raw(self, number: int) -> memoryview:
        """Return the bytes of a field; of several the last, as protobuf defines."""
        return next(reversed(self._bytes(number)), memoryview(b""))

    def text(self, number: int) -> str:
        return as_text(self.raw(number))

    def texts(self, number: int) -> list[str]:
        return [as_text(one) for one in self._bytes(number)]

    def integer(self, number: int) -> int:
        """Return a signed integer, 0 if absent: negative ones are 64 bits of two's complement."""
        value = self.optional_integer(number)
        return 0 if value is None else value

    def optional_integer(self, number: int) -> int | None:
        found = [one for one in self._found.get(number, ()) if isinstance(one, int)]
        if not found:
            return None
        return found[-1] - (1 << 64) if found[-1] >> 63 else found[-1]

    def wrapped_integer(self, number: int) -> int | None:
        """Return the integer of an `Optional*` message, None if the message is absent."""
        return self.message(number).integer(1) if self.has(number) else None

    def has(self, number: int) -> bool:
        return number in self._found

    def message(self, number: int) -> Message:
        """Return a message, one without fields if absent. Several are one: their bytes joined."""
        parts = self._bytes(number)
        return Message(parts[0] if len(parts) == 1 else b"".join(parts))

    def messages(self, number: int) -> Iterator[Message]:
        return map(Message, self._bytes(number))

    def mapping(self, number: int) -> dict[str, str]:
        """Return a map of texts: its entries are messages {1 key, 2 value}."""
        return {entry.text(1): entry.text(2) for entry in self.messages(number)}

    def _bytes(self, number: int) -> list[memoryview]:
        return [one for one in self._found.get(number, ()) if not isinstance(one, int)]


def as_text(data: memoryview) -> str:
    return str(data, "utf-8", "surrogateescape")


def encode_varint(value: int) -> bytes:
    """Return an integer of up to 64 bits; a negative one as ten bytes."""
    if 0 <= value < len(_SMALL):
        return _SMALL[value]
    value &= _MASK64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_integer(number: int, value: int) -> bytes:
    """Return an integer field; b"" for 0, the default."""
    return encode_varint(number << 3 | VARINT) + encode_varint(value) if value else b""


def encode_bytes(number: int, value: bytes) -> bytes:
    """Return a field of bytes or of an encoded message, also if it is empty."""
    return encode_varint(number << 3 | BYTES) + encode_varint(len(value)) + value


def encode_text(number: int, value: str) -> bytes:
    """Return a text field; b"" for "". Raises UnicodeEncodeError for text that is not Unicode."""
    return encode_bytes(number, value.encode()) if value else b""


def encode_texts(number: int, values: Iterable[str]) -> bytes:
    """Return a field for each text, also for an empty one."""
    return b"".join(encode_bytes(number, one.encode()) for one in values)


def encode_wrapped(number: int, value: int | None) -> bytes:
    """Return an `Optional*` message; b"" for None."""
    return b"" if value is None else encode_bytes(number, encode_integer(1, value))
