"""Kafka's primitive types, read in place and written into a growing buffer.

Both directions have two forms (KIP-482): the classic one with fixed-width lengths, and the flexible
("compact") one with unsigned varints and tagged fields. The hand-written codecs use this module;
all other APIs go through `kio_codec`.
"""

from __future__ import annotations

import struct

from kvorum.runtime.errors import WireError

INT16 = struct.Struct(">h")
INT32 = struct.Struct(">i")
INT64 = struct.Struct(">q")

#: Limit of the items in all arrays of one message, so that a damaged count cannot keep the parser
#: busy for seconds.
ARRAY_ITEMS_MAX = 1_000_000

#: The default limit (kvorum.request.items.max) for a client's request, with tagged fields. Parsing,
#: lookup and response of an item take some 3 us and delay other requests, while the item may take
#: only one byte in the request.
REQUEST_ITEMS_MAX = 100_000

UVARINT_BYTES_MAX = 5


class Reader:
    """A cursor over one request body inside a larger buffer.

    Every read moves `position`. Reading past `end` raises WireError. So do more than `items_max`
    array items and tagged fields, nested ones included. Only strings and uuids are copied.
    """

    __slots__ = ("buffer", "end", "items_left", "items_max", "position")

    def __init__(
        self,
        buffer: bytes | bytearray | memoryview,
        position: int,
        end: int,
        *,
        items_max: int = ARRAY_ITEMS_MAX,
    ) -> None:
        self.buffer = buffer
        self.position = position
        self.end = end
        self.items_max = self.items_left = items_max

    def skip(self, length: int) -> int:
        """Skip `length` bytes and return their start."""
        position = self.position
        if length < 0 or position + length > self.end:
            raise WireError(f"a field of {length} bytes at {position} passes the end {self.end}")
        self.position = position + length
        return position

    def int16(self) -> int:
        value: int = INT16.unpack_from(self.buffer, self.skip(2))[0]
        return value

    def int32(self) -> int:
        value: int = INT32.unpack_from(self.buffer, self.skip(4))[0]
        return value

    def int64(self) -> int:
        value: int = INT64.unpack_from(self.buffer, self.skip(8))[0]
        return value

    def uuid(self) -> bytes:
        position = self.skip(16)
        return bytes(self.buffer[position : position + 16])

    def uvarint(self) -> int:
        value = shift = 0
        for _ in range(UVARINT_BYTES_MAX):
            byte = self.buffer[self.skip(1)]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
        raise WireError("an unsigned varint is longer than five bytes")

    def array_count(self, is_flexible: bool) -> int:
        """Number of items of the array that follows; -1 for a null array."""
        count = self.uvarint() - 1 if is_flexible else self.int32()
        if count < -1:
            raise WireError(f"an array announces {count} items")
        return self._counted(count) if count > 0 else count

    def byte_length(self, is_flexible: bool) -> int:
        """Length of the bytes field that follows; -1 for null."""
        return self.uvarint() - 1 if is_flexible else self.int32()

    def string(self, is_flexible: bool) -> str:
        text = self.nullable_string(is_flexible)
        if text is None:
            raise WireError("a string that may not be null is null")
        return text

    def nullable_string(self, is_flexible: bool) -> str | None:
        length = self.uvarint() - 1 if is_flexible else self.int16()
        if length < 0:
            return None
        position = self.skip(length)
        try:
            return str(self.buffer[position : position + length], "utf-8")
        except UnicodeDecodeError as error:
            raise WireError(f"a string is not UTF-8: {error}") from error

    def skip_tags(self) -> None:
        """Skip a tagged-field section."""
        if self.buffer[self.skip(1)] == 0:
            return
        self.position -= 1
        for _ in range(self._counted(self.uvarint())):
            self.uvarint()
            self.skip(self.uvarint())

    def tags(self) -> list[tuple[int, int, int]]:
        """The tagged fields that follow, as (tag, start, length)."""
        found = []
        for _ in range(self._counted(self.uvarint())):
            tag, length = self.uvarint(), self.uvarint()
            found.append((tag, self.skip(length), length))
        return found

    def _counted(self, count: int) -> int:
        self.items_left -= count
        if self.items_left < 0:
            raise WireError(f"{count} items more make it over the bound of {self.items_max}")
        return count


def uvarint_bytes(value: int) -> bytes:
    """`value` as an unsigned varint."""
    if value < 0x80:
        return _ONE_BYTE[value]
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string_bytes(text: str | None, is_flexible: bool) -> bytes:
    """`text` as a nullable string in either form. In the classic form it is cut off at the maximum
    length, which only an error message can exceed."""
    if text is None:
        return b"\x00" if is_flexible else b"\xff\xff"
    encoded = text.encode()
    if is_flexible:
        return uvarint_bytes(len(encoded) + 1) + encoded
    if len(encoded) > _INT16_MAX:
        encoded = encoded[:_INT16_MAX].decode(errors="ignore").encode()
    return INT16.pack(len(encoded)) + encoded


def count_bytes(count: int, is_flexible: bool) -> bytes:
    """An array's count, or the length of a bytes field, in either form; -1 is null."""
    return uvarint_bytes(count + 1) if is_flexible else INT32.pack(count)


_INT16_MAX = (1 << 15) - 1
_ONE_BYTE = [bytes([value]) for value in range(0x80)]
