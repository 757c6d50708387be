"""Warnings: events of rows that are about to expire, and whether such an event still holds.

Rows are looked for by the indexes of the sweeper, and recorded page by page. A call records some
pages, and the next call goes on, because the worker has rows to sweep meanwhile. See
`ttl_odm.events.intervals`.
"""

from __future__ import annotations

from collections import deque
from math import ceil
from typing import TYPE_CHECKING, Final

from django.db import IntegrityError, connections, models, transaction
from django.db.models import QuerySet

from ttl_odm.django.policy.sources import INHERITED_AGE
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.django.sweep.due import EndingRows, parts_of
from ttl_odm.django.time.clock import database_now
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.django.recorder import RowEvents, binding_with_events
from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.intervals import PAGES, Looks
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime, timedelta

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.sweep.due import Place
    from ttl_odm.events.expiry import Expiry
    from ttl_odm.sweeper import Part

PAGE: Final = 500
"""Rows that are read at once, and recorded in one transaction."""

_TRIES: Final = 3
_KEPT_AS: Final = "__ttl_odm_warned__"


class Warned(RowEvents):
    """The warnings of one table.

    Attributes:
        befores: How long before the end of a row each warning is given.
    """

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self.befores: dict[timedelta, None] = {}

    def warning(self, row: models.Model, before: timedelta) -> Expiry | None:
        """Return the warning of an instance that was just read; None if it never expires."""
        end = self.binding.expires_at(row, vars(row).get(INHERITED_AGE))
        if end is None:
            return None
        fields = row._meta.concrete_fields
        values = {str(field.column): getattr(row, field.attname) for field in fields}
        key = [getattr(row, field.attname) for field in row._meta.pk_fields]
        return self.event(key, values, end, before)


def warn(target: object, before: timedelta, include: Sequence[str]) -> str:
    """Record warnings of the rows of a model; see `ttl_odm.events.record_expiring`."""
    binding = binding_with_events(target)
    warned = warned_of(binding.model) or Warned(binding)
    warned.include(include)
    warned.befores[before] = None
    setattr(binding.model, _KEPT_AS, warned)
    return warned.table


def warned_of(model: Model) -> Warned | None:
    """Return the warnings of a model; None if it has none."""
    warned: Warned | None = vars(model).get(_KEPT_AS)
    return warned


class _Window:
    """The rows of a table that end in a window, and the progress of reading them."""

    def __init__(self, warned: Warned, before: timedelta, using: str) -> None:
        self._warned = warned
        self._before = before
        self._using = using
        self._looks = Looks(before)
        self._parts: deque[Part] = deque()
        self._since: datetime | None = None
        self._resume: Place | None = None

    def record(self) -> int:
        """Look, and record as many pages as one call may; return how many events are new."""
        connection, number = connections[self._using], 0
        now = database_now(connection)
        if not self._parts:
            self._look(now)
        for _ in range(PAGES):
            if not self._parts:
                break
            number += self._record_page(now)
            if not self._parts and self._looks.is_whole:
                self._looks.end(database_now(connection))
        return number

    def _look(self, now: datetime) -> None:
        """Choose the parts to read."""
        binding, last = self._warned.binding, self._looks.last
        default = tuple(binding.source.defaults(self._using))
        is_whole = self._looks.after(now, default) is None
        self._looks.note(now, default, is_whole=is_whole)
        self._since, self._resume = None if is_whole else last, None
        self._parts.extend(
            part for part in parts_of(binding) if is_whole or self._rows(part, now).is_followed
        )

    def _rows(self, part: Part, now: datetime) -> EndingRows:
        since = None if self._since is None else ceil((now - self._since).total_seconds()) + 1
        seconds = int(self._before.total_seconds())
        return EndingRows(self._warned.binding, self._using, part, seconds, since=since)

    def _record_page(self, now: datetime) -> int:
        page = self._rows(self._parts[0], now).page(self._resume, PAGE)
        events = (self._warned.warning(row, self._before) for row, _ in page)
        until = now + self._before
        due = [event for event in events if event is not None and event.expires_at <= until]
        number = self._record(due) if due else 0
        if len(page) == PAGE:
            self._resume = page[-1][1]
        else:
            self._parts.popleft()
            self._resume = None
        return number

    def _record(self, events: Sequence[Expiry]) -> int:
        outbox, connection = TableOutbox(self._using), connections[self._using]
        recorded = Subscription(self._warned.table, EXPIRING, self._before)
        for _ in range(_TRIES):
            try:
                with transaction.atomic(using=self._using):
                    return outbox.record(events, database_now(connection), recorded)
            except IntegrityError:  # another worker has just recorded some of them
                continue
        raise TransientStoreError(f"Other workers record the warnings of {recorded.table!r}, too.")


class TableWarnings:
    """The `ttl_odm.events.outbox.Warnings` of an alias of ``DATABASES``."""

    def __init__(self, using: str, warned: Sequence[Warned]) -> None:
        """Choose the tables; nothing is read yet."""
        self._using = using
        self._warned = {known.table: known for known in warned}
        self._windows: dict[tuple[str, timedelta], _Window] = {}

    def record(self) -> int:
        """See `Warnings` in `ttl_odm.events.outbox`."""
        number = 0
        with store_errors():
            for name, warned in self._warned.items():
                for before in warned.befores:
                    window = _Window(warned, before, self._using)
                    number += self._windows.setdefault((name, before), window).record()
        return number

    def hold(self, event: Expiry) -> bool:
        """See `Warnings` in `ttl_odm.events.outbox`.

        The id of an event stands for the life of a row, its end, and the time before it.
        """
        warned = self._warned.get(event.table)
        if event.kind != EXPIRING or event.before is None or warned is None:
            return True
        model, age = warned.binding.model, warned.binding.source.row_age()
        values: Sequence[object] = event.key
        key = values[0] if len(values) == 1 else tuple(values)
        rows: AnyQuerySet = QuerySet(model=model, using=self._using).filter(pk=key)
        with store_errors():
            row = (rows if age is None else rows.annotate(**{INHERITED_AGE: age})).first()
        warning = None if row is None else warned.warning(row, event.before)
        return warning is not None and warning.id == event.id
