"""The servers of a MySQL cluster, one by one: their files, their processes, what they are asked.

What a cluster acknowledges survives SIGKILL: logs are written at each commit, though not to a disk.
"""

from __future__ import annotations

import shutil
import signal
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from local_servers import cluster, mysql_client
from local_servers.children import (
    READY_SECONDS,
    ServerError,
    make_folder,
    unprivileged_account,
)
from local_servers.cluster import ClusterKind, Member
from local_servers.kind import ADDRESS, NAME, free_port, is_durable
from local_servers.mariadb import FIRST_STATEMENTS, greets
from local_servers.mysql import MYSQL, SUITE, at_port, begin, find, install

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from local_servers.children import Child, Children
    from local_servers.mysql_client import Row

_HASTE = (
    "--innodb-flush-log-at-trx-commit=2",
    "--innodb-flush-method=nosync",
    "--sync-binlog=0",
)
_UUID = "auto.cnf"
_CLIENTS = (
    "SELECT id FROM performance_schema.processlist "
    "WHERE user = SUBSTRING_INDEX(USER(), '@', 1) AND id <> CONNECTION_ID()"
)


@dataclass(eq=False)
class Server:
    """A server with files of its own that can be ended and started again.

    Attributes:
        member: its name and its address.
        number: its `server_id`.
        data: its files.
        port: for clients.
        words: the words that start it.
        children: what starts it.
        child: its process, the latest one.
        is_frozen: whether its process stands still.
    """

    member: Member
    number: int
    data: Path
    port: int
    words: list[str]
    children: Children
    child: Child | None = None
    is_frozen: bool = False
    _log: Path = field(init=False)

    def __post_init__(self) -> None:
        self._log = self.data.parent / f"{self.member.name}.log"

    @property
    def is_up(self) -> bool:
        """Whether it can answer: a frozen one can't."""
        return self.child is not None and self.child.is_running() and not self.is_frozen

    def begin(self, *words: str) -> None:
        """Start its process."""
        self.child = self.children.start(
            [*self.words, *words],
            log=self._log,
            account=unprivileged_account("mysql"),
            # In good order it takes ten seconds while a replica reads its log, and nobody needs
            # its files any more.
            stop_signal=signal.SIGKILL,
        )

    def wait_for_greeting(self) -> None:
        """Wait until it lets clients in."""
        self._process.wait_until(lambda: greets(self.port))

    def begin_again(self) -> None:
        """Start its process, read-only: nothing is written before it has its role again."""
        self.begin("--super-read-only=ON")
        self.wait_for_greeting()

    def kill(self) -> None:
        """End it with SIGKILL, a frozen one too."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """End it in good order."""
        self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> None:
        self._process.send(number)
        self.wait_for_end()

    def wait_for_end(self) -> None:
        """Wait until its process has ended."""
        self._process.process.wait(READY_SECONDS)
        self.is_frozen = False

    def freeze(self) -> None:
        """Stop its process where it is."""
        cluster.freeze(self._process)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let its process go on."""
        cluster.thaw(self._process)
        self.is_frozen = False

    def refuse_writes(self) -> None:
        """Let it take no writes any more, once those that have begun are done."""
        cluster.poll(self._refuses_writes, f"{self.member.name} still takes writes")

    def _refuses_writes(self) -> bool:
        # With a limit: it waits for statements that wait for a row, whose holder waits behind it.
        self.ask("SET lock_wait_timeout = 2", "SET GLOBAL super_read_only = ON")
        return True

    def end_sessions(self) -> None:
        """End the sessions of clients, as whoever drains a server does."""
        for (number,) in self.ask(_CLIENTS):
            with suppress(ServerError):  # it has just ended
                self.ask(f"KILL {number}")

    def ask(self, *statements: str) -> list[Row]:
        """Run statements on one connection, and return the rows of the last one.

        Raises:
            StatementError: it rejected one.
            ServerError: it can't be reached.
        """
        return mysql_client.ask(self.port, *statements)

    def value(self, expression: str) -> str | None:
        """Evaluate an SQL expression."""
        return self.ask(f"SELECT {expression}")[0][0]

    @property
    def _process(self) -> Child:
        if self.child is None:
            message = f"{self.member.name} was never started"
            raise ServerError(message)
        return self.child


def kind_of(
    name: str, title: str, opened: Callable[[dict[str, str], Path, Children], cluster.Cluster]
) -> ClusterKind:
    """Return a kind of cluster of this MySQL.

    Args:
        name: what `--only` calls it.
        title: what people call it.
        opened: starts it in an empty folder.
    """
    return ClusterKind(
        name=name,
        title=title,
        variable=MYSQL.variable,
        packages=lambda: (),
        remedy=MYSQL.remedy,
        find=find,
        start=cluster.opened_by(opened),
        suite=SUITE,
        open=opened,
    )


def make_servers(
    programs: dict[str, str],
    folder: Path,
    children: Children,
    settings: Callable[[int, int], Sequence[str]],
    names: Sequence[str],
) -> list[Server]:
    """Start servers that have the user and the database ttl_odm, and no GTID yet.

    Args:
        programs: what `mysql.find` returned.
        folder: for their files.
        children: what starts them.
        settings: returns the further words of a server by its number, which begins at 1, and port.
        names: of the members.
    """
    account = unprivileged_account("mysql")
    haste = () if is_durable() else _HASTE
    folders = [make_folder(folder / name, account) for name in names]
    install([*begin(programs, folders[0]), *haste], folder, children)
    statements = folder / "first.sql"
    # Each server runs them itself: with GTIDs of its own for them, none could follow another.
    statements.write_text(f"SET sql_log_bin = 0;\n{FIRST_STATEMENTS}")
    servers = []
    for number, (name, data) in enumerate(zip(names, folders, strict=True), start=1):
        if number > 1:
            _copy(folders[0], data)
        port = free_port()
        words = [*begin(programs, data), *haste, *at_port(port), f"--server-id={number}"]
        words += [
            *("--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--log-bin=log"),
            *(f"--report-host={ADDRESS}", f"--report-port={port}", *settings(number, port)),
        ]
        member = Member(name, f"mysql://{NAME}@{ADDRESS}:{port}/{NAME}")
        servers.append(Server(member, number, data, port, words, children))
    for server in servers:
        server.begin(f"--init-file={statements}")
    for server in servers:
        server.wait_for_greeting()
    return servers


def _copy(source: Path, target: Path) -> None:
    """Copy the files of a server that never ran, except for what identifies it."""
    shutil.copytree(source, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(_UUID))
    account = unprivileged_account("mysql")
    if account is not None:
        for path in (target, *target.rglob("*")):
            shutil.chown(path, account.uid, account.gid)
