"""Leases in the table of `Lease`: which sweeper may sweep a database, by the database's clock.

A lease is acquired by a single conditional UPDATE, which succeeds for exactly one of any number of
callers. This app's migration creates the table.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from django.apps import apps
from django.db import IntegrityError, OperationalError, ProgrammingError, transaction
from django.db.models import F, Q

from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.sweep.transactions import impatient
from ttl_odm.django.time.fields import Ahead, DatabaseNow
from ttl_odm.sweeper import Lease, LeaseState, StoreError
from ttl_odm.sweeper.leases import ROW_WAIT

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.options import AnyQuerySet


class DjangoLeases:
    """`ttl_odm.sweeper.Leases` over an alias of ``DATABASES``."""

    def __init__(self, using: str) -> None:
        """Take the alias."""
        self._using = using

    @property
    def _rows(self) -> AnyQuerySet:
        rows: AnyQuerySet = apps.get_model("ttl_odm", "Lease")._base_manager.using(self._using)
        return rows

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """Acquire a lease that is free or has ended; return None while it is held."""
        with self._changing():
            lease = self._take(name, holder, duration)
            if lease is None and self._make(name):
                lease = self._take(name, holder, duration)
        return lease

    def renew(self, lease: Lease) -> bool:
        """Extend a lease to its full duration from now; return False if it is lost."""
        with self._changing():
            return bool(self._held(lease).update(acquired_until=Ahead(lease.duration)))

    def release(self, lease: Lease) -> None:
        """Release a lease; do nothing if it is lost."""
        with self._changing():
            self._held(lease).update(holder=None, acquired_until=None)

    def read(self, name: str) -> LeaseState:
        """Return the state of a lease, even if no lease with this name ever existed."""
        with self._changing():
            return self._state(name)

    def _state(self, name: str) -> LeaseState:
        row = self._rows.annotate(now=DatabaseNow()).filter(name=name).first()
        if row is None:
            return LeaseState()
        seconds_left = 0.0
        if row.holder is not None and row.acquired_until is not None:
            seconds_left = max(0.0, (row.acquired_until - row.now).total_seconds())
        ago = None if row.recorded_at is None else (row.now - row.recorded_at).total_seconds()
        return LeaseState(
            holder=row.holder if seconds_left else None,
            token=row.token,
            seconds_left=seconds_left,
            paused=row.paused,
            history=row.history,
            recorded_ago=None if ago is None else max(0.0, ago),
        )

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (as in the Protocol)
        """Pause or resume the sweepers with this lease name, even if the lease is free."""
        with self._changing():
            if not self._rows.filter(name=name).update(paused=paused) and self._make(name):
                self._rows.filter(name=name).update(paused=paused)

    def record(self, lease: Lease, history: str) -> bool:
        """Store the history; return False if the lease is lost."""
        with self._changing():
            return bool(self._held(lease).update(history=history, recorded_at=DatabaseNow()))

    def finish(self, lease: Lease, history: str) -> bool:
        """Store the history and release the lease; return False if it is lost."""
        released = {"holder": None, "acquired_until": None}
        with self._changing():
            rows = self._held(lease)
            return bool(rows.update(history=history, recorded_at=DatabaseNow(), **released))

    def _take(self, name: str, holder: str, duration: float) -> Lease | None:
        """Take the lease of this name if its row exists, and it is free or has ended."""
        free = Q(holder__isnull=True) | Q(acquired_until__lte=DatabaseNow())
        until, token = Ahead(duration), F("token") + 1
        with transaction.atomic(using=self._using):
            rows = self._rows.filter(free, name=name).order_by()
            if not rows.update(holder=holder, acquired_until=until, token=token):
                return None
            state = self._state(name)
        return Lease(name, holder, state.token, duration, state)

    def _held(self, lease: Lease) -> AnyQuerySet:
        return self._rows.filter(name=lease.name, holder=lease.holder, token=lease.token)

    def _make(self, name: str) -> bool:
        """Create a lease's row, unless it exists; return whether it was missing."""
        if self._rows.filter(name=name).exists():
            return False
        with suppress(IntegrityError), transaction.atomic(using=self._using):
            # Another sweeper may have created it just now.
            self._rows.create(name=name, token=0, paused=False, history="")
        return True

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Raise the sweeper's errors; if the table is missing, say what to do."""
        with store_errors(), impatient(self._using, row_wait=ROW_WAIT):
            try:
                yield
            except (ProgrammingError, OperationalError) as error:
                if not re.search("no such table|does not exist|doesn't exist", str(error)):
                    raise
                raise StoreError(
                    "There is no table ttl_odm_lease for the sweepers' lease in the database "
                    f"{self._using!r}: run 'manage.py migrate ttl_odm --database={self._using}', "
                    "or sweep without a lease, if no other sweeper runs."
                ) from error
