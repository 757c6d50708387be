"""`TTLClock`: moves the now by which rows expire, for a test, on every database.

The databases' own clocks go on as ever. What moves is the now that ttl_odm's adapters read from
them, for predicates and stamps alike, in this process. Nothing of it is in the way while no clock
is in use: each adapter's module in this package swaps pieces of its adapter in, and out again.

An adapter's module, listed in `_ADAPTERS`, has

* ``install(clock) -> undo``: from then on the adapter passes each now that it tells through
  `TTLClock.moved` (or reads `offset` and `frozen_at`) *at the moment at which it tells it*: a move
  is not announced. What is kept of a database's clock (samples) is kept unmoved. ``undo()`` puts
  everything back. Leases stay with the unmoved clock: one that was taken in the future would stay
  in the database, and keep real sweepers out.
* ``real_now() -> datetime | None``: the unmoved now of its database (aware, UTC) as far as it is
  known without asking, rather late than early; None if nothing is known.
* ``lifetime(target) -> timedelta | None``: how long a row lives that is written now, by the policy
  of its class, and by its own ttl if it is a row and no class; None where the target isn't of this
  adapter. Raises `TTLError` where it lives for ever, or where its end isn't counted from its
  writing (`ExpireAfter`, `ExpireAt`).

It is loaded when its package has been imported, and not before. This module knows no database, no
driver and not pytest.
"""

from __future__ import annotations

import math
import sys
import threading
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ttl_odm.core import expiry
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from typing_extensions import Self

_ADAPTERS: Final = {
    "ttl_odm.beanie": "ttl_odm.testing.clock.on_beanie",
    "ttl_odm.django": "ttl_odm.testing.clock.on_django",
    "ttl_odm.sqlalchemy": "ttl_odm.testing.clock.on_sqlalchemy",
}
"""Package of an adapter: the module that moves its clock."""


class _Position(NamedTuple):
    """Where the clock stands: so far from the real now, or at an instant."""

    offset: timedelta
    frozen_at: datetime | None


_UNMOVED: Final = _Position(timedelta(0), None)


class _Clockwork:
    """What all clocks of the process share, since a process has one now.

    The position is replaced as a whole, so that other threads always read one that there was. The
    marks are the contexts that are open, from the outermost in, each with the position before it.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.position = _UNMOVED
        self.marks: list[tuple[object, _Position]] = []
        self.listeners: list[Callable[[], object]] = []
        self._adapters: dict[str, Any] = {}
        self._undo = ExitStack()

    def open(self, context: object, before: _Position) -> None:
        """Remember where to go back to."""
        with self.lock:
            self.marks.append((context, before))

    def close(self, context: object) -> None:
        """Go back to where the clock stood before a context, and forget those opened within it.

        A context that was forgotten in this way, since it outlived the one around it, changes
        nothing any more.
        """
        with self.lock:
            for depth, (mark, before) in enumerate(self.marks):
                if mark is context:
                    self.position = before
                    del self.marks[depth:]
                    break
            if not any(isinstance(mark, TTLClock) for mark, _ in self.marks):
                self.marks.clear()
                self.position = _UNMOVED
                self._adapters.clear()
                self._undo.close()

    def is_open(self, context: object) -> bool:
        """Whether a context has begun and not ended."""
        return any(mark is context for mark, _ in self.marks)

    def adapters(self, clock: TTLClock) -> list[Any]:
        """The modules of the adapters that have been imported, installed."""
        with self.lock:
            for package in self._missing():
                module = self._adapters[package] = import_module(_ADAPTERS[package])
                self._undo.callback(module.install(clock))
            return list(self._adapters.values())

    def announce(self) -> None:
        """Call those that asked to be called after a move."""
        for listener in [*self.listeners]:
            listener()

    def overlooked(self) -> list[str]:
        """The packages that were imported after the clock was moved, so that they don't follow."""
        return [] if self.position == _UNMOVED else self._missing()

    def _missing(self) -> list[str]:
        return [name for name in _ADAPTERS if name in sys.modules and name not in self._adapters]


_clockwork: Final = _Clockwork()


class TTLClock:
    """Lets a test control the time by which rows expire; as a fixture, ``ttl_clock``.

    Within its context, `advance` and `freeze` affect every predicate and every stamp of every
    adapter in this process, in all threads and on every engine and client::

        with TTLClock() as clock:
            session.add(WebSession(id="a"))  # __ttl__ = 3600
            session.commit()
            clock.advance(3600)
            assert session.get(WebSession, "a") is None

    Leaving the context undoes everything, regardless of what happened inside. Clocks may be
    nested: they share one time, and each context restores it as it was on entry.

    An adapter first imported while the clock differs from the real time follows only from the
    clock's next move. If there is none, leaving the context raises `TTLError`.
    """

    @property
    def offset(self) -> timedelta:
        """How far the clock is ahead of the database's own (negative: behind it).

        It has no meaning while the clock is frozen.
        """
        return _clockwork.position.offset

    @property
    def frozen_at(self) -> datetime | None:
        """The instant at which the clock is frozen (aware, UTC), or None."""
        return _clockwork.position.frozen_at

    def moved(self, real_now: datetime) -> datetime:
        """Convert a time of the database's clock to a time of this clock (aware, UTC)."""
        offset, frozen_at = _clockwork.position
        return real_now + offset if frozen_at is None else frozen_at

    def __repr__(self) -> str:
        """Where it stands."""
        if self.frozen_at is not None:
            return f"<{type(self).__name__} frozen at {self.frozen_at.isoformat()}>"
        return f"<{type(self).__name__} moved by {self.offset.total_seconds():g} s>"

    def advance(self, by: float | timedelta) -> AbstractContextManager[TTLClock]:
        """Move the clock forward, even if it is frozen.

        It takes effect at once. Used as a context manager (``with clock.advance(60):``), it
        restores the clock at the end of the block.

        Args:
            by: Seconds, or a timedelta; negative values move it back.

        Raises:
            TypeError: It is neither.
            ValueError: It is not finite, or the clock would leave the years 1 to 9999.
        """
        moved = self._advance(by)
        _clockwork.announce()
        return moved

    def _advance(self, by: float | timedelta) -> _Moved:
        step = _span(by)
        with self._moving():
            offset, frozen_at = _clockwork.position
            try:
                if frozen_at is not None:
                    moved = _Position(offset, frozen_at + step)
                else:
                    moved = _Position(offset + step, None)
                    _ = self._real_now() + moved.offset  # its range is checked here, not in a query
            except OverflowError:
                raise ValueError(
                    f"TTLClock.advance({by!r}) would leave the years 1 to 9999."
                ) from None
            return self._move_to(moved)

    def freeze(self, at: datetime | None = None) -> AbstractContextManager[TTLClock]:
        """Stop the clock.

        It takes effect at once. Used as a context manager (``with clock.freeze():``), it lets the
        clock run again at the end of the block.

        Args:
            at: The instant (aware). None for the clock's current time, as far as it is known
                without a query: from the last database queried, or else from this host's clock. It
                is in whole milliseconds, which every database can store.

        Raises:
            TypeError: It is not a datetime.
            ValueError: It is naive.
        """
        if at is not None and not isinstance(at, datetime):
            raise TypeError(
                f"TTLClock.freeze(at={at!r}): an instant is an aware datetime, "
                "as in datetime(2030, 1, 1, tzinfo=timezone.utc)."
            )
        if at is not None and at.utcoffset() is None:
            raise ValueError(
                f"TTLClock.freeze(at={at!r}): a naive datetime is ambiguous; "
                "add tzinfo=datetime.timezone.utc if it is UTC."
            )
        with self._moving():
            instant = at
            if instant is None:
                instant = self.moved(self._real_now())
                if self.frozen_at is None:
                    # Up, not down: no row that has just been stamped comes to lie in the future.
                    instant += timedelta(microseconds=-instant.microsecond % 1000)
            instant = instant.astimezone(timezone.utc)
            moved = self._move_to(_Position(_clockwork.position.offset, instant))
        _clockwork.announce()
        return moved

    def expiring(self, target: Any, seconds: float | timedelta) -> AbstractContextManager[TTLClock]:
        """Move the clock so that rows written in the block have this long to live afterwards.

        It is an `advance` by the right amount for the row's lifetime. Use it as a context
        manager::

            with clock.expiring(Cart, -300):  # a cart that expired five minutes ago
                session.add(Cart(id=1))
                session.flush()

        Args:
            target: A class with a policy, or one of its rows, whose own ttl then counts.
            seconds: Seconds (or a timedelta) until it expires; negative: since it expired.

        Raises:
            TTLError: Rows of the target live forever, or their lifetime doesn't start when they
                are written; then set the field that it is counted from.
        """
        left = _span(seconds)
        with self._moving():
            for adapter in _clockwork.adapters(self):
                lifetime = adapter.lifetime(target)
                if lifetime is not None:
                    return self._advance(left - lifetime)
        raise TTLError(
            f"TTLClock.expiring({target!r}): it has no policy. Pass a class that declares __ttl__ "
            "or was enabled with enable(), or a row of such a class."
        )

    @contextmanager
    def after_moves(self, call: Callable[[], object]) -> Iterator[None]:
        """Call a function after each `advance` and `freeze`, of this clock or of another one.

        It isn't called after `expiring`, nor when a clock goes back at the end of a block. What it
        raises is raised by the move, which has been made.

        Args:
            call: The function; until the end of the block.
        """
        _clockwork.listeners.append(call)
        try:
            yield
        finally:
            _clockwork.listeners.remove(call)

    def __enter__(self) -> Self:
        with _clockwork.lock:
            if _clockwork.is_open(self):
                raise TTLError("This TTLClock is already in use; create another one to nest them.")
            _clockwork.open(self, _clockwork.position)
            try:
                _clockwork.adapters(self)
            except BaseException:
                _clockwork.close(self)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        overlooked = _clockwork.overlooked()
        _clockwork.close(self)
        if overlooked and kind is None:
            raise TTLError(
                f"{' and '.join(overlooked)} was imported after the TTLClock had moved, so it "
                "still used the real time; import it earlier, at the top of the test module."
            )

    def _moving(self) -> threading.RLock:
        if not _clockwork.is_open(self):
            raise TTLError(
                "A TTLClock moves only within its context: use with TTLClock() as clock: ..., or "
                "the fixture ttl_clock."
            )
        return _clockwork.lock

    def _move_to(self, position: _Position) -> _Moved:
        before = _clockwork.position
        _clockwork.adapters(self)
        _clockwork.position = position
        return _Moved(self, before)

    def _real_now(self) -> datetime:
        for adapter in _clockwork.adapters(self):
            known: datetime | None = adapter.real_now()
            if known is not None:
                return known.astimezone(timezone.utc)
        return datetime.now(timezone.utc)


class _Moved:
    """A move that has been made; as a context manager, one that is undone at the end."""

    def __init__(self, clock: TTLClock, before: _Position) -> None:
        self._clock = clock
        self._before = before

    def __enter__(self) -> TTLClock:
        _clockwork.open(self, self._before)
        return self._clock

    def __exit__(self, *_: object) -> None:
        _clockwork.close(self)


def _span(value: object) -> timedelta:
    if isinstance(value, timedelta):
        return value
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            f"{value!r} is not a duration to move a TTLClock by: give seconds or a timedelta."
        )
    if not math.isfinite(value):
        raise ValueError(f"{value!r} seconds can't move a TTLClock: give a finite number.")
    try:
        return timedelta(seconds=value)
    except OverflowError:
        raise ValueError(f"{value!r} seconds are more than 2.7 million years.") from None


def life(name: str, default: int | None, own: int | None) -> timedelta:
    """The lifetime by a default ttl and a row's own, for an adapter's ``lifetime``."""
    seconds = expiry.effective_ttl(default, own)
    if seconds is None:
        raise TTLError(
            f"TTLClock.expiring({name}): it never expires (default ttl {default!r}, ttl {own!r})."
        )
    return timedelta(seconds=seconds)


def not_counted_from_writing(name: str, field: str) -> TTLError:
    """The error for a row whose end a field of its own decides."""
    return TTLError(
        f"TTLClock.expiring({name}): its field {field!r} determines its expiry, whenever it is "
        "written; set that field."
    )
