"""A client of MySQL's protocol that can set servers up: no password, no encryption, text results.

`servers.py` runs with a Python that has no packages, so there is no driver to do it.
"""

from __future__ import annotations

import socket
import struct
from contextlib import closing
from typing import TYPE_CHECKING

from local_servers.children import READY_SECONDS, ServerError
from local_servers.kind import ADDRESS, NAME

if TYPE_CHECKING:
    from collections.abc import Sequence
    from io import BufferedRWPair

Row = tuple[str | None, ...]

# LONG_PASSWORD, PROTOCOL_41, TRANSACTIONS, SECURE_CONNECTION, PLUGIN_AUTH
_CAPABILITIES = 0x1 | 0x200 | 0x2000 | 0x8000 | 0x80000
_MAX_PACKET = 1 << 24
_UTF8MB4 = 45
_QUERY = b"\x03"
_OK, _NULL, _TWO_BYTES, _THREE_BYTES, _EOF, _ERROR = 0x00, 0xFB, 0xFC, 0xFD, 0xFE, 0xFF
_LONGEST_EOF = 8
_AUTHENTICATION = b"caching_sha2_password"


class StatementError(ServerError):
    """The server rejected a statement.

    Attributes:
        code: MySQL's number for the error.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code


def ask(port: int, *statements: str) -> list[Row]:
    """Run statements on one connection and return the rows of the last one.

    Raises:
        StatementError: The server rejected one of them, or the login.
        ServerError: The server can't be reached, or the connection was lost.
    """
    try:
        return _ask(port, statements)
    except OSError as error:
        message = f"no answer at port {port}: {error}"
        raise ServerError(message) from error


def _ask(port: int, statements: Sequence[str]) -> list[Row]:
    with (
        closing(socket.create_connection((ADDRESS, port), timeout=READY_SECONDS)) as connection,
        connection.makefile("rwb") as stream,
    ):
        _log_in(stream)
        rows: list[Row] = []
        for statement in statements:
            _send(stream, 0, _QUERY + statement.encode())
            rows = _result(stream)
        return rows


def _log_in(stream: BufferedRWPair) -> None:
    _receive(stream)  # the greeting, whose salt only a password would need
    settings = struct.pack("<IIB23x", _CAPABILITIES, _MAX_PACKET, _UTF8MB4)
    _send(stream, 1, settings + NAME.encode() + b"\0\0" + _AUTHENTICATION + b"\0")
    while (reply := _receive(stream))[0] != _OK:  # or more data: that no password was right
        _raise_error(reply)


def _result(stream: BufferedRWPair) -> list[Row]:
    head = _receive(stream)
    if head[0] == _OK:
        return []
    _raise_error(head)
    _packets(stream)  # the columns
    return [_row(packet) for packet in _packets(stream)]


def _packets(stream: BufferedRWPair) -> list[bytes]:
    """Return the packets up to the end marker."""
    packets = []
    while not ((packet := _receive(stream))[0] == _EOF and len(packet) <= _LONGEST_EOF):
        _raise_error(packet)
        packets.append(packet)
    return packets


def _row(packet: bytes) -> Row:
    values: list[str | None] = []
    place = 0
    while place < len(packet):
        length, place = packet[place], place + 1
        if length == _NULL:
            values.append(None)
            continue
        if length in (_TWO_BYTES, _THREE_BYTES):
            size = length - _TWO_BYTES + 2
            length, place = int.from_bytes(packet[place : place + size], "little"), place + size
        values.append(packet[place : place + length].decode())
        place += length
    return tuple(values)


def _raise_error(packet: bytes) -> None:
    if packet[0] == _ERROR:
        (code,) = struct.unpack_from("<H", packet, 1)
        raise StatementError(code, packet[3:].decode(errors="replace").lstrip("#"))


def _send(stream: BufferedRWPair, number: int, content: bytes) -> None:
    stream.write(len(content).to_bytes(3, "little") + bytes([number]) + content)
    stream.flush()


def _receive(stream: BufferedRWPair) -> bytes:
    head = _read(stream, 4)
    return _read(stream, int.from_bytes(head[:3], "little"))


def _read(stream: BufferedRWPair, size: int) -> bytes:
    content = stream.read(size)
    if len(content) < size:
        message = "the server closed the connection"
        raise ConnectionError(message)
    return content
