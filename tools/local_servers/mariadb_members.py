"""The servers of a MariaDB cluster, one by one: their files, their processes, and SQL for them.

A commit that was acknowledged survives SIGKILL: it is written at once, though not flushed to disk.
"""

from __future__ import annotations

import shutil
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_servers import cluster
from local_servers.children import (
    READY_SECONDS,
    ServerError,
    unprivileged_account,
)
from local_servers.cluster import Member
from local_servers.kind import ADDRESS, NAME, is_durable
from local_servers.mariadb import SBIN, begin, greets

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from local_servers.children import Child, Children

_WRITTEN_AT_COMMIT = "--innodb-flush-log-at-trx-commit=2"


@dataclass(eq=False)
class Server:
    """A server with its own files, which can be ended and started again.

    Attributes:
        name: A word for people, such as `one`.
        programs: What `mariadb.find` returned.
        children: What starts it.
        data: Its files.
        port: For clients.
        child: Its latest process.
        is_frozen: Whether that process is stopped without having ended.
    """

    name: str
    programs: dict[str, str]
    children: Children
    data: Path
    port: int
    child: Child | None = None
    is_frozen: bool = False

    @property
    def member(self) -> Member:
        """The server as users of the cluster see it."""
        return Member(self.name, f"mysql://{NAME}@{ADDRESS}:{self.port}/{NAME}")

    @property
    def is_up(self) -> bool:
        """Whether it can answer."""
        return self.child is not None and self.child.is_running() and not self.is_frozen

    @property
    def process(self) -> Child:
        """Its latest process.

        Raises:
            ServerError: It was never started.
        """
        if self.child is None:
            message = f"{self.name} was never started"
            raise ServerError(message)
        return self.child

    def start(self, *words: str) -> None:
        """Start its process and wait until it greets clients.

        Raises:
            ServerError: It is running already, or didn't start.
        """
        if self.child is not None and self.child.is_running():
            message = f"{self.name} is running already"
            raise ServerError(message)
        folder = self.data.parent
        haste = () if is_durable() else (_WRITTEN_AT_COMMIT,)
        self.child = self.children.start(
            [
                # Galera looks for its scripts on PATH.
                *("/usr/bin/env", f"PATH={folder}:{SBIN}"),
                *(*begin(self.programs, self.data, self.port), *haste, *words),
            ],
            log=folder / f"{self.name}.log",
            account=unprivileged_account("mysql"),
        )
        self.process.wait_until(lambda: greets(self.port))

    def kill(self) -> None:
        """End it with SIGKILL, even if it is frozen."""
        self.process.send(signal.SIGKILL)
        self.process.process.wait()
        self.is_frozen = False

    def stop(self) -> None:
        """End it in good order.

        Raises:
            ServerError: It is still running after `READY_SECONDS`.
        """
        self.process.send(signal.SIGTERM)
        try:
            self.process.process.wait(READY_SECONDS)
        except subprocess.TimeoutExpired as error:
            message = f"{self.name} didn't stop"
            raise ServerError(message) from error

    def freeze(self) -> None:
        """Stop its process without ending it."""
        cluster.freeze(self.process)
        self.is_frozen = True

    def thaw(self) -> None:
        """Let its process go on."""
        cluster.thaw(self.process)
        self.is_frozen = False

    def empty(self) -> None:
        """Remove its files; it must be down."""
        for path in self.data.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def ask(self, *statements: str, user: str = NAME) -> list[list[str]]:
        """Run statements on one connection and return all their rows, as text.

        Raises:
            ServerError: A statement failed, or the server can't be reached.
        """
        return self._run("; ".join(statements), user, "--skip-column-names")

    def record(self, statement: str, *, user: str = NAME) -> dict[str, str]:
        """Run a statement and return its first row by the names of the columns; empty without one.

        Raises:
            ServerError: The statement failed, or the server can't be reached.
        """
        names, *rows = self._run(statement, user) or [[]]
        return dict(zip(names, rows[0], strict=True)) if rows else {}

    def _run(self, script: str, user: str, *words: str) -> list[list[str]]:
        command = [
            *(self.programs["mariadb"], "--no-defaults", "--batch", *words),
            *("--protocol=tcp", "--skip-ssl", f"--host={ADDRESS}", f"--port={self.port}"),
            *(f"--user={user}", f"--execute={script}"),
        ]
        try:
            finished = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                check=False,
                env={"PATH": SBIN, "LC_ALL": "C"},
                timeout=READY_SECONDS,
            )
        except subprocess.TimeoutExpired as error:
            message = f"{self.name} didn't answer"
            raise ServerError(message) from error
        if finished.returncode != 0:
            message = f"{self.name}: {finished.stderr.strip()}"
            raise ServerError(message)
        return [line.split("\t") for line in finished.stdout.splitlines()]


def server_of(servers: Sequence[Server], member: Member) -> Server:
    """Return the server of a member."""
    return next(server for server in servers if server.member == member)
