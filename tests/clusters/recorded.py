"""What tests share that judge a client and sweepers of a plain server, whatever its adapter."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.clusters.checker import Rule, check
from tests.clusters.clients import DEFAULT_TTL, Client
from tests.clusters.history import SECOND, History, Outcome

if TYPE_CHECKING:
    from tests.clusters.clients import Access


class Recorded:
    """A client of a database, and a history of all that is done there."""

    def __init__(self, access: Access) -> None:
        self.history = History(DEFAULT_TTL)
        self.client = Client("client", access, self.history)

    def insert_expired(self, *keys: str) -> None:
        """Insert rows, and wait until the server's clock says that they have expired."""
        last = 0
        for key in keys:
            inserted = self.client.insert(key, 1)
            assert inserted.outcome is Outcome.ACKNOWLEDGED
            last = inserted.rows[0].changed
        while self.client.access.now() < last + SECOND:
            pass

    def broken(self) -> set[Rule]:
        verdict = check(self.history)
        assert verdict.by_engine == []
        return set(verdict.counts())
