"""The proxy that makes a server seem farther away loses nothing, and no answer comes too early."""

from __future__ import annotations

import socket
import threading
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from benchmarks.proxy import ROUND_TRIP_SECONDS, _Way, delayed, is_reachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.proxy import Distance


@contextmanager
def served(answer: Callable[[socket.socket], None]) -> Iterator[Distance]:
    """A server that answers each connection, behind a proxy."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                answer(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        with delayed(f"postgresql+psycopg://me@127.0.0.1:{listener.getsockname()[1]}/db") as there:
            yield there
        thread.join()


@contextmanager
def connected(distance: Distance) -> Iterator[socket.socket]:
    """A client of that server."""
    address = urlsplit(distance.url)
    with socket.create_connection(("127.0.0.1", address.port or 0)) as client:
        yield client


def everything(connection: socket.socket) -> bytes:
    """What comes until the other side says that it has ended."""
    return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def test_everything_passes_both_ways_in_its_order_and_so_does_the_end() -> None:
    payload = bytes(range(256)) * 20_000

    def send_back(connection: socket.socket) -> None:
        received = everything(connection)
        connection.sendall(received[::-1])

    with served(send_back) as distance, connected(distance) as client:
        client.sendall(payload)
        client.shutdown(socket.SHUT_WR)
        assert everything(client) == payload[::-1]


def test_a_side_that_sends_while_nobody_reads_loses_nothing() -> None:
    payload = bytes(range(256)) * 40_000
    may_read = threading.Event()
    received = []

    def read_late(connection: socket.socket) -> None:
        connection.sendall(payload)
        may_read.wait()
        received.append(everything(connection))

    with served(read_late) as distance, connected(distance) as client:
        client.sendall(payload[: 1 << 20])
        client.shutdown(socket.SHUT_WR)
        may_read.set()
        assert everything(client) == payload
    assert received == [payload[: 1 << 20]]


def test_a_server_that_is_gone_closes_the_connection() -> None:
    def hang_up(connection: socket.socket) -> None:
        connection.recv(1)

    with served(hang_up) as distance, connected(distance) as client:
        client.sendall(b"x")
        assert client.recv(1) == b""


@pytest.mark.slow
def test_no_answer_comes_before_its_time() -> None:
    def echo(connection: socket.socket) -> None:
        while question := connection.recv(100):
            connection.sendall(question)

    with served(echo) as distance, connected(distance) as client:
        begin = perf_counter()
        client.sendall(b"first")
        assert client.recv(100) == b"first"
        assert perf_counter() - begin >= ROUND_TRIP_SECONDS
        distance.correct(ROUND_TRIP_SECONDS - 0.2)  # as if it were too quick by so much
        while True:  # the proxy hears of that some time
            begin = perf_counter()
            client.sendall(b"again")
            assert client.recv(100) == b"again"
            if perf_counter() - begin >= 0.2:
                break
        client.shutdown(socket.SHUT_WR)
        assert client.recv(100) == b""


def test_an_answer_in_two_pieces_is_as_late_as_in_one() -> None:
    source, sender = socket.socketpair()
    receiver, target = socket.socketpair()
    with source, sender, receiver, target:
        way = _Way(source, target)
        sender.sendall(b"one")
        way.take(1_000)
        first = way.due
        sender.sendall(b"two")
        way.take(1_000)
        assert first is not None
        way.pass_on(first - 1)
        receiver.settimeout(0)
        assert way.due == first
        way.pass_on(first + 999)  # were each to wait for the one before, it would be 1,000
        assert receiver.recv(100) == b"onetwo"
        assert way.due is None


def test_a_url_keeps_all_but_its_host() -> None:
    with delayed("mysql+pymysql://me:pass@db.example:3306/shop?ssl_disabled=true") as distance:
        address = urlsplit(distance.url)
    assert (address.username, address.password) == ("me", "pass")
    assert (address.hostname, address.path) == ("127.0.0.1", "/shop")
    assert address.query == "ssl_disabled=true"


def test_mongodbs_driver_is_kept_from_going_to_the_members_of_a_replica_set() -> None:
    with delayed("mongodb://127.0.0.1:27017/?replicaSet=rs0") as distance:
        assert urlsplit(distance.url).query == "replicaSet=rs0&directConnection=true"


def test_there_is_a_proxy_for_one_host_only() -> None:
    assert is_reachable("postgresql+psycopg://me@there/db")
    assert not is_reachable("sqlite:////tmp/file")
    assert not is_reachable("mongodb://one,two/?replicaSet=rs0")
    assert not is_reachable("mongodb+srv://there/")
