"""Writers, readers and sweepers that go on while members of a cluster fail, and their history.

Keys are few, so that clients meet, and are reused; rows live for a second or two, a part of them
for longer, so that some are live before a failover and after it. Each failover has keys of its own:
a write whose outcome is unknown could otherwise happen at any time, and the checker could object to
nothing about its key ever again.

Nothing here is timed: a run is as long as it takes to do so many operations and failovers.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from random import Random
from time import monotonic
from typing import TYPE_CHECKING

from tests.clusters import sqlalchemy_clients
from tests.clusters.clients import DEFAULT_TTL, Client, SweepJournal
from tests.clusters.history import History, Outcome
from tests.clusters.places import Places, WatchedCluster
from tests.guard import GUARD

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from concurrent.futures import Future

    from local_servers.cluster import Cluster, Fault
    from tests.clusters.clients import Access, Application, Opening
    from tests.clusters.history import Operation

    Faults = Callable[[Cluster, Random], object]

_POLL = 0.02
_AGAIN = 0.05
"""Seconds until a client that found no server tries again."""


@dataclass(frozen=True, kw_only=True)
class Load:
    """What clients do.

    Attributes:
        seed: Decides all that is random, except for how the threads take turns.
        writers: How many clients write.
        readers: How many read from the primary; as many read from replicas, if there are any.
        sweepers: How many sweepers share a lease; every other one is notified of what it deletes.
        keys: How many keys there are at a time.
        ttls: What rows get as their own ttl; None inherits the default.
        least: The fewest operations between two failovers.
        most: The most operations until the next failover begins.
        rest: Seconds that a client rests between two operations, on average.
    """

    seed: int
    writers: int = 3
    readers: int = 1
    sweepers: int = 2
    keys: int = 6
    ttls: Sequence[int | None] = (None, 1, 1, 2, 600)
    least: int = 50
    most: int = 250
    rest: float = 0.02


def one_of(kinds: Sequence[Fault]) -> Faults:
    """Return what takes the primary away in one of some ways, and brings it back afterwards."""

    def fail_over(cluster: Cluster, random: Random) -> None:
        old, fault = cluster.primary(), random.choice(kinds)
        cluster.fail_over(fault)
        bring_back = cluster.thaw if fault == "partition" else cluster.start
        bring_back(old)

    return fail_over


_kill = one_of(["kill"])


def run(  # noqa: PLR0913 (four of them by name)
    cluster: Cluster,
    load: Load,
    *,
    opened: Opening = sqlalchemy_clients.opened,
    faults: Faults = _kill,
    number: int = 0,
    loses: float = 0.0,
) -> History:
    """Run clients against a cluster, and break something at random moments.

    Args:
        cluster: It is up and has none of the tables.
        load: What the clients do.
        opened: Opens what they use it with.
        faults: Breaks something, and brings it in order again.
        number: How often.
        loses: For how many seconds before the end of a primary that is killed the cluster's engine
            may lose what it has acknowledged.
    """
    history = History(DEFAULT_TTL)
    places = Places(cluster)
    with opened(places) as application:
        crowd = _Crowd(load, history, places, application)
        random = Random(load.seed)  # noqa: S311
        watched = WatchedCluster(cluster, history, places, loses)
        with crowd.at_work():
            for _ in range(number):
                crowd.take_new_keys()
                crowd.wait_for(random.randint(load.least, load.most))
                faults(watched, random)
                application.reconnect()
                crowd.wait_for_writes(load.least)
            crowd.wait_for(load.least if number else load.most)
        auditor = Client("auditor", application.primary, history, is_fresh=places.is_primary)
        auditor.read(*crowd.keys)
    return history


class _Crowd:
    """The threads of a run."""

    def __init__(
        self,
        load: Load,
        history: History,
        places: Places,
        application: Application,
    ) -> None:
        self._load = load
        self._history = history
        self._application = application
        self._is_fresh = places.is_primary
        self._enough = threading.Event()
        self._works: list[Callable[[], None]] = []
        self._futures: list[Future[None]] = []
        self._sets = 0
        self.take_new_keys()
        primary, replica = application.primary, application.replica
        has_replicas = bool(places.cluster.replicas())
        for number in range(load.writers):
            self._add(f"writer {number}", primary, self._write, self._is_fresh)
        for number in range(load.readers):
            self._add(f"reader {number}", primary, self._read, self._is_fresh)
            if has_replicas:
                self._add(f"replica reader {number}", replica, self._read, lambda _: False)
        self._works += [partial(self._sweep, number) for number in range(load.sweepers)]

    def take_new_keys(self) -> None:
        """Let clients use other keys from now on."""
        self._sets += 1
        self.keys = [f"{self._sets}-{number}" for number in range(self._load.keys)]

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """Let everybody work; raise what one of them has raised."""
        with ThreadPoolExecutor(len(self._works)) as pool:
            self._futures = [pool.submit(work) for work in self._works]
            try:
                yield
            finally:
                self._enough.set()
        for future in self._futures:
            future.result()

    def wait_for(self, operations: int) -> None:
        """Wait until so many more operations have ended."""
        seen = len(self._history.operations)
        self._wait_until(lambda: len(self._history.operations) - seen >= operations)

    def wait_for_writes(self, number: int) -> None:
        """Wait until so many more operations were acknowledged."""
        seen = len(self._history.operations)

        def are_acknowledged() -> bool:
            later = self._history.operations[seen:]
            return sum(one.outcome is Outcome.ACKNOWLEDGED for one in later) >= number

        self._wait_until(are_acknowledged)

    def _wait_until(self, condition: Callable[[], bool]) -> None:
        end = monotonic() + GUARD
        while not condition():
            for future in self._futures:
                if future.done():
                    future.result()
            assert monotonic() < end, "the clients got nowhere"
            self._enough.wait(_POLL)

    def _add(
        self,
        name: str,
        access: Access,
        work: Callable[[Client, Random], Operation],
        is_fresh: Callable[[str], bool],
    ) -> None:
        client = Client(name, access, self._history, is_fresh=is_fresh)
        random = Random(f"{self._load.seed} {name}")  # noqa: S311

        def go_on() -> None:
            while not self._enough.is_set():
                outcome = work(client, random).outcome
                is_away = outcome in {Outcome.FAILED, Outcome.UNKNOWN}
                rest = random.uniform(0, 2 * self._load.rest)
                self._enough.wait(_AGAIN if is_away else rest)

        self._works.append(go_on)

    def _write(self, client: Client, random: Random) -> Operation:
        key, ttl = random.choice(self.keys), random.choice(self._load.ttls)
        ways = (
            lambda: client.insert(key, ttl),
            lambda: client.renew(key, ttl),
            lambda: client.touch(key),
            lambda: client.update(key, ttl),
            lambda: client.delete(key),
        )
        (way,) = random.choices(ways, weights=(8, 4, 2, 2, 2))
        return way()

    def _read(self, client: Client, random: Random) -> Operation:
        keys = self.keys
        return client.read(*(keys if random.random() < 0.5 else [random.choice(keys)]))

    def _sweep(self, number: int) -> None:
        """Sweep again and again; as a process that a supervisor starts again if it breaks."""
        name, watched = f"sweeper {number}", number % 2 == 1
        while not self._enough.is_set():
            journal = SweepJournal(name, self._history, is_fresh=self._is_fresh)
            with self._application.sweeping(journal, watched=watched) as sweeping:
                try:
                    while not self._enough.is_set():
                        sweeping.run_once()
                        self._enough.wait(_AGAIN)
                except Exception as error:  # noqa: BLE001 (the checker reports each)
                    journal.break_off(error)
