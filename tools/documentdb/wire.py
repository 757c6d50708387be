"""MongoDB's protocol: messages, as bytes and as what they say.

OP_MSG, and the OP_QUERY by which drivers say hello before they know whom they talk to. Documents
stay the bytes that they are, for the engine is to see what a driver has sent.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import bson
from bson.codec_options import CodecOptions, DatetimeConversion

if TYPE_CHECKING:
    import asyncio

Document: TypeAlias = dict[str, Any]

OPTIONS: Final[CodecOptions[Document]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)
"""How documents are read: no date is too far away."""

_HEADER: Final = struct.Struct("<iiii")
_REPLY: Final = struct.Struct("<iqii")
_INT: Final = struct.Struct("<i")
_OP_REPLY, _OP_QUERY, _OP_MSG = 1, 2004, 2013
_CHECKSUM_PRESENT: Final = 1
_MORE_TO_COME: Final = 2


@dataclass(frozen=True, slots=True)
class Request:
    """A command: its document, and what an OP_MSG carries beside it.

    Attributes:
        body: The document, as it came.
        parts: The documents of its other sections, by the argument that they stand for.
        wants_reply: Whether the driver waits for an answer.
    """

    number: int
    operation: int
    body: bytes
    parts: dict[str, bytes]
    wants_reply: bool


async def read(stream: asyncio.StreamReader) -> Request:
    """Read the next message.

    Raises:
        IncompleteReadError: The client has gone.
        ValueError: It is neither OP_MSG nor OP_QUERY.
    """
    length, number, _, operation = _HEADER.unpack(await stream.readexactly(_HEADER.size))
    message = await stream.readexactly(length - _HEADER.size)
    if operation == _OP_QUERY:
        start = message.index(0, 4) + 1 + 8  # flags, a name, and two numbers
        return Request(number, operation, _document_at(message, start), {}, wants_reply=True)
    if operation != _OP_MSG:
        raise ValueError(f"message {operation} is not understood")
    (flags,) = _INT.unpack_from(message)
    end = len(message) - (4 if flags & _CHECKSUM_PRESENT else 0)
    parts: dict[str, bytes] = {}
    body, at = b"", 4
    while at < end:
        kind, at = message[at], at + 1
        (size,) = _INT.unpack_from(message, at)
        if kind == 0:
            body = message[at : at + size]
        else:
            name_end = message.index(0, at + 4)
            name = message[at + 4 : name_end].decode()
            parts[name] = parts.get(name, b"") + message[name_end + 1 : at + size]
        at += size
    return Request(number, operation, body, parts, wants_reply=not flags & _MORE_TO_COME)


def answer(request: Request, reply: bytes) -> bytes:
    """Return the message that answers a request with a document."""
    if request.operation == _OP_QUERY:
        content, operation = _REPLY.pack(8, 0, 0, 1) + reply, _OP_REPLY
    else:
        content, operation = _INT.pack(0) + b"\0" + reply, _OP_MSG
    return _HEADER.pack(_HEADER.size + len(content), 0, request.number, operation) + content


def decoded(document: bytes) -> Document:
    """Return what a document says."""
    return bson.decode(document, OPTIONS)


def sequence(documents: bytes) -> list[Document]:
    """Return what documents say that stand one after the other."""
    return bson.decode_all(documents, OPTIONS)


def _document_at(message: bytes, start: int) -> bytes:
    (size,) = _INT.unpack_from(message, start)
    return message[start : start + size]
