"""SQLAlchemy as a `Subject` whose rows are read through the views that migrations make.

What is written goes through the gate, as an application beside the views does it. What is read is
what any other program reads: plain SQL on the view of a table's live rows.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

import ttl_odm.alembic  # noqa: F401 (it brings the operations)
from tests.contract.on_sqlalchemy import SyncSQLAlchemy
from ttl_odm import TTL
from ttl_odm.sqlalchemy.policy.bindings import binding_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from datetime import datetime

    from tests.backends import Backend


class ThroughViews(SyncSQLAlchemy):
    """Synchronous, and read from outside."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self._held: dict[str, Any] = {}
        self._stands = False

    def set_policy(self, container: str, declared: Any) -> None:
        super().set_policy(container, declared)
        binding = binding_of(self.declared.models[container].__table__)
        policy = binding.default.policy
        policy = policy.settled if isinstance(policy, TTL) else policy
        if self._held.get(container) == policy:
            return
        with self.raw.engine.connect() as connection:
            operations: Any = Operations(MigrationContext.configure(connection))
            operations.alter_ttl(container, policy, enforce="view")
            connection.commit()
        self._held[container] = policy

    @contextmanager
    def stopped(self, instant: datetime) -> Iterator[None]:
        """The clock that stands is that of one connection, and not the one that a view asks."""
        with super().stopped(instant):
            self._stands = True
            try:
                yield
            finally:
                self._stands = False

    def readings(self, container: str) -> Mapping[str, set[int] | int]:
        if self._stands:
            return super().readings(container)
        with self.raw.engine.connect() as connection:
            keys = connection.scalars(text(f"SELECT id FROM {container}_live")).all()  # noqa: S608
            number = connection.scalar(text(f"SELECT COUNT(*) FROM {container}_live"))  # noqa: S608
        return {"entities": set(keys), "count": number}
