"""A pooler before PostgreSQL that may give each transaction another session, as PgBouncer does.

It speaks as much of the protocol as that takes, without passwords. Which session a client's next
transaction gets is for a test to say, and no program has to be installed.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from dataclasses import dataclass
from select import select
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Choice = Callable[[Sequence["Session"], socket.socket], "Session | None"]

_STARTUP = 196_608
_IDLE = b"Z\x00\x00\x00\x05I"
_FAREWELL = b"X"


@dataclass(eq=False)
class Session:
    """One of the server's: how it greeted us, and which client had it last."""

    server: socket.socket
    greeting: bytes
    client: socket.socket


def latest(free: Sequence[Session], _: socket.socket) -> Session | None:
    """Choose the session that was given back last, as PgBouncer does."""
    return free[-1] if free else None


def in_turn(free: Sequence[Session], _: socket.socket) -> Session | None:
    """Choose the session that has been free for longest, as with its server_round_robin."""
    return free[0] if free else None


def own(free: Sequence[Session], client: socket.socket) -> Session | None:
    """Choose the client's own, as PgBouncer does with pool_mode = session."""
    return next((session for session in free if session.client is client), None)


def anothers(free: Sequence[Session], client: socket.socket) -> Session | None:
    """Choose one that another client had."""
    return next((session for session in free if session.client is not client), None)


class Pooler:
    """Listens on `port`; `choice` says which of the free sessions a client gets, None a new one."""

    def __init__(self, server: tuple[str, int], choice: Choice) -> None:
        self.choice = choice
        self._server = server
        self._free: list[Session] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._opened = [self._listener]
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Cut all connections."""
        for peer in self._opened:
            with suppress(OSError):
                peer.shutdown(socket.SHUT_RDWR)
            peer.close()

    def _add(self, peer: socket.socket) -> None:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._opened.append(peer)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._add(client)
                threading.Thread(target=self._serve, args=[client], daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with suppress(OSError), client:
            hello = _message(client, tag=0)
            while int.from_bytes(hello[4:8], "big") != _STARTUP:
                client.sendall(b"N")  # neither TLS nor GSSAPI
                hello = _message(client, tag=0)
            session = self._session(client, hello)
            client.sendall(session.greeting)
            while True:
                self._free.append(session)
                request = _message(client)
                if request.startswith(_FAREWELL):
                    return
                session = self._session(client, hello)
                _transaction(client, session.server, request)

    def _session(self, client: socket.socket, hello: bytes) -> Session:
        session = self.choice(self._free, client)
        if session is None:
            session = Session(socket.create_connection(self._server), b"", client)
            self._add(session.server)
            session.server.sendall(hello)
            while not session.greeting.endswith(_IDLE):
                session.greeting += _message(session.server)
        else:
            self._free.remove(session)
        session.client = client
        return session


def _transaction(client: socket.socket, server: socket.socket, request: bytes) -> None:
    """Pass on what both say, from a request on, until the server is in no transaction."""
    server.sendall(request)
    message = request
    while message != _IDLE:
        for peer in select([client, server], [], [])[0]:
            message = _message(peer)
            (server if peer is client else client).sendall(message)


def _message(peer: socket.socket, tag: int = 1) -> bytes:
    head = _exactly(peer, tag + 4)
    return head + _exactly(peer, int.from_bytes(head[tag:], "big") - 4)


def _exactly(peer: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = peer.recv(size - len(received))
        if not part:
            raise ConnectionError
        received += part
    return received
