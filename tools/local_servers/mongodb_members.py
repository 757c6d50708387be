"""A private replica set of MongoDB: three mongods on the loopback address, which elect a primary.

Any of them may be killed, frozen and started again. The others notice within seconds: the set is
told to wait for a silent primary no longer than that.
"""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from socket import create_connection
from typing import TYPE_CHECKING, TypeAlias

from local_servers import cluster, mongodb
from local_servers.children import ServerError, make_folder
from local_servers.cluster import ClusterKind, Member
from local_servers.kind import ADDRESS, free_port

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_servers.children import Child, Children
    from local_servers.cluster import Fault

    _Optime: TypeAlias = "list[int]"
    """The election's term, then seconds and a number within the second."""

_STATES = Path(__file__).with_name("mongodb_states.py")
_NAMES = ("one", "two", "three")
_SETTINGS = {"electionTimeoutMillis": 2_000, "heartbeatIntervalMillis": 500}


@dataclass(frozen=True)
class _State:
    """What a server says of itself."""

    is_primary: bool
    is_secondary: bool
    optime: _Optime


@dataclass(frozen=True)
class _Place:
    """Where a member keeps its files, and where it listens."""

    folder: Path
    port: int


@dataclass
class ReplicaSet:
    """A `cluster.Cluster` of MongoDB's."""

    programs: dict[str, str]
    children: Children
    places: dict[Member, _Place]
    states_port: int
    _servers: dict[Member, Child] = field(default_factory=dict)
    _frozen: set[Member] = field(default_factory=set)

    @property
    def members(self) -> Sequence[Member]:
        """As in `Cluster`."""
        return list(self.places)

    @property
    def url(self) -> str:
        """As in `Cluster`: all hosts, of which drivers find out the primary."""
        hosts = ",".join(f"{ADDRESS}:{place.port}" for place in self.places.values())
        return f"mongodb://{hosts}/?replicaSet={mongodb.SET}"

    def primary(self) -> Member:
        """As in `Cluster`; waits while there is none."""
        return self._wait_for_primary(self.members)

    def replicas(self) -> Sequence[Member]:
        """As in `Cluster`."""
        states = self._states()
        return [member for member in states if states[member].is_secondary]

    def kill(self, member: Member) -> None:
        """As in `Cluster`."""
        self._end(member, signal.SIGKILL)

    def stop(self, member: Member) -> None:
        """As in `Cluster`."""
        self._end(member, signal.SIGTERM)

    def start(self, member: Member) -> None:
        """As in `Cluster`."""
        self.launch(member)
        self._wait_until_following(member)

    def freeze(self, member: Member) -> None:
        """As in `Cluster`."""
        self._frozen.add(member)
        cluster.freeze(self._servers[member])

    def thaw(self, member: Member) -> None:
        """As in `Cluster`."""
        self._go_on(member)
        self._wait_until_following(member)

    def fail_over(self, fault: Fault = "kill") -> Member:
        """As in `Cluster`: the others elect."""
        before = self.primary()
        cluster.take_away(self, before, fault)
        return self._wait_for_primary([member for member in self.members if member != before])

    def launch(self, member: Member) -> None:
        """Start a member's process, without waiting for anything."""
        place = self.places[member]
        self._servers[member] = self.children.start(
            mongodb.begin(self.programs, place.folder / "data", place.port),
            log=place.folder / "server.log",
        )

    def initiate(self) -> None:
        """Make the set, and wait until two members follow the third."""
        first = self._servers[self.members[0]]
        ports = [place.port for place in self.places.values()]
        mongodb.initiate(self.programs, first, ports, **_SETTINGS)
        first.wait_until(lambda: len(self.replicas()) == len(ports) - 1)
        self.primary()

    def _end(self, member: Member, number: signal.Signals) -> None:
        server = self._servers[member]
        server.send(number)
        if number is not signal.SIGKILL:
            self._go_on(member)
        self._frozen.discard(member)
        server.process.wait()

    def _go_on(self, member: Member) -> None:
        cluster.thaw(self._servers[member])
        self._frozen.discard(member)

    def _wait_until_following(self, member: Member) -> None:
        """Wait until a member has what the primary had.

        One that was the primary takes back what no majority has: until it has done so, its last
        write is of an earlier term than the new primary's.
        """
        target: _Optime = []

        def is_following() -> bool:
            nonlocal target
            states = self._states()
            primaries = [state.optime for state in states.values() if state.is_primary]
            target = target or max(primaries, default=[])
            own = states.get(member)
            in_place = own is not None and (own.is_primary or own.is_secondary)
            return bool(target) and own is not None and in_place and own.optime >= target

        self._servers[member].wait_until(is_following)

    def _wait_for_primary(self, members: Sequence[Member]) -> Member:
        found: list[Member] = []

        def has_primary() -> bool:
            states = self._states()
            # One that is cut off takes itself for the primary for a while, in an earlier term.
            primaries = [
                member for member in members if member in states and states[member].is_primary
            ]
            found[:] = sorted(primaries, key=lambda member: states[member].optime)
            return bool(found)

        running = [self._servers[member] for member in members if self._is_up(member)]
        if not running:
            message = "no member is up that could be the primary"
            raise ServerError(message)
        running[0].wait_until(has_primary)
        return found[-1]

    def _is_up(self, member: Member) -> bool:
        return self._servers[member].is_running() and member not in self._frozen

    def _states(self) -> dict[Member, _State]:
        """Ask all that are up; who doesn't answer is left out."""
        by_url = {member.url: member for member in self.members if self._is_up(member)}
        with create_connection((ADDRESS, self.states_port)) as connection:
            connection.sendall(json.dumps([*by_url]).encode() + b"\n")
            answer = connection.makefile().read()
        return {by_url[url]: _State(**state) for url, state in json.loads(answer).items()}


def open_members(programs: dict[str, str], folder: Path, children: Children) -> ReplicaSet:
    """Start three servers and make them one replica set."""
    mongodb.allow_open_files()
    places = {}
    for name in _NAMES:
        port = free_port()
        place = _Place(make_folder(folder / name, account=None), port)
        make_folder(place.folder / "data", account=None)
        places[Member(name, f"mongodb://{ADDRESS}:{port}/?directConnection=true")] = place
    states_port = _launch_states(programs["python"], folder, children)
    members = ReplicaSet(programs, children, places, states_port)
    for member in members.members:
        members.launch(member)
    members.initiate()
    return members


def _launch_states(python: str, folder: Path, children: Children) -> int:
    """Start what asks members for their states, and return its port."""
    port = free_port()
    words = [python, str(_STATES), ADDRESS, str(port)]
    server = children.start(words, log=folder / "states.log")

    def listens() -> bool:
        with suppress(ConnectionRefusedError), create_connection((ADDRESS, port)):
            return True
        return False

    server.wait_until(listens)
    return port


def start(programs: dict[str, str], folder: Path, children: Children) -> str:
    """Start the set and return its URL, by which drivers follow the primary."""
    return open_members(programs, folder, children).url


MONGODB_MEMBERS = ClusterKind(
    name="mongodb-members",
    title="MongoDB (three members)",
    variable=mongodb.MONGODB.variable,
    packages=mongodb.packages,
    remedy=mongodb.MONGODB.remedy,
    find=mongodb.find,
    start=start,
    suite=mongodb.LIBRARIES,
    wheel_on=mongodb.MONGODB.wheel_on,
    open=open_members,
)
