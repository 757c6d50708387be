"""A server that seems farther away: a TCP proxy on the loopback that delays what passes it.

`delayed` starts one for a database's URL, as a process of its own: ``python -m benchmarks.proxy
HOST PORT``. Everything runs in one thread, which sleeps in `select` until something comes or is
due, so no two threads pass anything from one to the other, which would take longer than what is to
be imitated. A chunk has its own deadline from the moment that it came, so an answer in many pieces
is as late as one in a single piece.

A proxy costs a little itself; `Distance.correct` takes that off, so that a round trip costs what it
should. This module knows no protocol.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import socket
import subprocess
import sys
from collections import deque
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUND_TRIP_SECONDS: Final = 0.0005
"""What a round trip costs more: the way to a database in the next building, or zone of a cloud."""

_PORTS: Final = {"postgresql": 5432, "mysql": 3306, "mongodb": 27017}
_CHUNK: Final = 1 << 16
_LINUX_SET_TIMER_SLACK: Final = 29


class Distance:
    """A proxy that runs, as those see it who measure through it.

    Attributes:
        url: The database's, by way of the proxy.
    """

    def __init__(self, url: str, process: subprocess.Popen[str]) -> None:
        self.url = url
        self._process = process
        self._seconds = ROUND_TRIP_SECONDS
        self._tell()

    def correct(self, seen: float) -> None:
        """Delay so much less, or more, that a round trip costs what it should.

        Args:
            seen: What it costs more now, in seconds.
        """
        self._seconds = max(0.0, self._seconds + ROUND_TRIP_SECONDS - seen)
        self._tell()

    def _tell(self) -> None:
        self._process.stdin.write(f"{self._seconds / 2!r}\n")  # type: ignore[union-attr]
        self._process.stdin.flush()  # type: ignore[union-attr]


@contextmanager
def delayed(url: str) -> Iterator[Distance]:
    """Put a proxy in front of a database; it ends with the block.

    Args:
        url: The database's, with a host that `is_reachable`.
    """
    address = urlsplit(url)
    scheme = address.scheme.partition("+")[0]
    command = [sys.executable, "-m", __name__, address.hostname or "localhost"]
    with subprocess.Popen(  # noqa: S603 - our own module
        [*command, str(address.port or _PORTS[scheme])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        port = process.stdout.readline().strip()  # type: ignore[union-attr]
        user, at, _ = address.netloc.rpartition("@")
        query = address.query
        if (
            scheme == "mongodb"
        ):  # else the driver asks the replica set for its members, and goes there
            query = f"{query}&directConnection=true".lstrip("&")
        path = address.path or "/"
        near = address._replace(netloc=f"{user}{at}127.0.0.1:{port}", path=path, query=query)
        yield Distance(near.geturl(), process)


def is_reachable(url: str) -> bool:
    """Whether a URL names one host, in front of which a proxy can be."""
    address = urlsplit(url)
    is_known = address.scheme.partition("+")[0] in _PORTS and address.scheme != "mongodb+srv"
    return is_known and "," not in address.netloc


class _Way:
    """One direction of a connection: what has come, and when it is due."""

    def __init__(self, source: socket.socket, target: socket.socket) -> None:
        self.source = source
        self.target = target
        self.is_open = True
        self._waiting: deque[tuple[float, bytes]] = deque()

    @property
    def due(self) -> float | None:
        """When something has to go on; None if nothing waits."""
        return self._waiting[0][0] if self._waiting else None

    def take(self, delay: float) -> None:
        """Receive what is there; nothing (b"") is the end."""
        try:
            chunk = self.source.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:  # the one side is gone: let the other know, as for any end
            chunk = b""
        self.is_open = bool(chunk)
        self._waiting.append((perf_counter() + delay, chunk))

    def pass_on(self, now: float) -> None:
        """Send what is due, as far as the target takes it."""
        while self._waiting and self._waiting[0][0] <= now:
            due, chunk = self._waiting.popleft()
            try:
                if not chunk:
                    self.target.shutdown(socket.SHUT_WR)
                    return
                sent = self.target.send(chunk)
            except BlockingIOError:
                sent = 0
            except OSError:  # it wants no more
                self._waiting.clear()
                self.is_open = False
                return
            if sent < len(chunk):
                self._waiting.appendleft((due, chunk[sent:]))
                return


class _Proxy:
    """The loop.

    Args:
        target: Host and port of the server.
    """

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self._delay = 0.0
        self._ways: list[_Way] = []

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def run(self) -> None:
        """Work until standard input ends, each line of which is the seconds of delay each way."""
        while True:
            now = perf_counter()
            waiting = [(way.due, way.target) for way in self._ways if way.due is not None]
            blocked = [target for due, target in waiting if due <= now]
            timeout = min((due - now for due, _ in waiting if due > now), default=None)
            sources = [way.source for way in self._ways if way.is_open]
            there, _, _ = select.select([sys.stdin, self._listener, *sources], blocked, [], timeout)
            if sys.stdin in there:
                lines = os.read(
                    sys.stdin.fileno(), _CHUNK
                )  # no buffer, of which select knows nothing
                if not lines:
                    return
                self._delay = float(lines.split()[-1])
            if self._listener in there:
                self._connect()
            for way in self._ways:
                if way.source in there:
                    way.take(self._delay)
            now = perf_counter()
            for way in self._ways:
                way.pass_on(now)
            self._close()

    def _connect(self) -> None:
        near, _ = self._listener.accept()
        try:
            far = socket.create_connection(self._target)
        except OSError:
            near.close()
            return
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.settimeout(0)
        self._ways += [_Way(near, far), _Way(far, near)]

    def _close(self) -> None:
        """Close the connections of which both directions have ended and nothing waits."""
        pairs = list(zip(self._ways[::2], self._ways[1::2], strict=True))
        over = [
            way
            for pair in pairs
            if not any(way.is_open or way.due is not None for way in pair)
            for way in pair
        ]
        for way in over:
            way.source.close()
            self._ways.remove(way)


def _main() -> None:
    host, port = sys.argv[1:]
    if sys.platform == "linux":
        # It wakes sleepers up to 50 microseconds late, so as to wake several at once.
        ctypes.CDLL(None).prctl(_LINUX_SET_TIMER_SLACK, 1)
    proxy = _Proxy((host, int(port)))
    sys.stdout.write(f"{proxy.port}\n")
    sys.stdout.flush()
    gc.disable()
    with suppress(KeyboardInterrupt):
        proxy.run()


if __name__ == "__main__":
    _main()
