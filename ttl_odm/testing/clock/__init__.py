"""`TTLClock`: moves the time by which rows expire, for a test, on every database.

The databases' own clocks go on. The clock moves the time that ttl_odm's adapters read from them in
this process, for predicates and stamps alike. While no clock is in use there is no overhead: each
adapter's module in this package replaces parts of its adapter, and restores them at the end.

`Adapter` says what such a module has. It is loaded once its adapter's package has been imported.
This module must not know a database, a driver, or pytest.
"""

from __future__ import annotations

import math
import sys
import threading
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

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
"""The modules that move an adapter's clock, by the adapter's package."""


class Adapter(Protocol):
    """The functions of an adapter's module, which `_ADAPTERS` lists."""

    def install(self, clock: TTLClock) -> Callable[[], object]:
        """Let the clock move the adapter's time; return a function that restores everything.

        From then on the adapter passes each time that it reports through `TTLClock.moved` (or
        reads `offset` and `frozen_at`) *at the moment of the report*, since it isn't notified of
        moves. Samples of a database's clock are stored unmoved. Leases use the unmoved clock: a
        lease from the future would stay in the database and lock out real sweepers.
        """
        ...

    def real_now(self) -> datetime | None:
        """Return the unmoved time of its database (aware, UTC), without a query.

        It is rather late than early; None if it isn't known.
        """
        ...

    def lifetime(self, target: object) -> timedelta | None:
        """Return the lifetime of a row written now; None for targets of other adapters.

        Args:
            target: A class with a policy, or one of its rows, whose own ttl then counts.

        Raises:
            TTLError: The row never expires, or its lifetime doesn't start when it is written
                (`ExpireAfter`, `ExpireAt`).
        """
        ...


class _Position(NamedTuple):
    """The position of the clock: an offset from the real time, or an instant."""

    offset: timedelta
    frozen_at: datetime | None


_UNMOVED: Final = _Position(timedelta(0), None)


class _Clockwork:
    """The state that all clocks of the process share, since a process has one time.

    The position is replaced as a whole, so that other threads always read a consistent one.

    Attributes:
        marks: The open contexts, outermost first, each with the position before it.
        listeners: Called after each move.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.position = _UNMOVED
        self.marks: list[tuple[object, _Position]] = []
        self.listeners: list[Callable[[], object]] = []
        self._adapters: dict[str, Adapter] = {}
        self._undo = ExitStack()

    def open(self, context: object, before: _Position) -> None:
        """Store the position to restore at the end of a context."""
        with self.lock:
            self.marks.append((context, before))

    def close(self, context: object) -> None:
        """Restore the position before a context, and forget the contexts opened within it.

        A forgotten context, which outlives the one around it, changes nothing when it is closed.
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
        """Whether a context is open."""
        return any(mark is context for mark, _ in self.marks)

    def adapters(self, clock: TTLClock) -> list[Adapter]:
        """Return the modules of all imported adapters, installed if they weren't."""
        with self.lock:
            for package in self._missing():
                module = cast("Adapter", import_module(_ADAPTERS[package]))
                self._adapters[package] = module
                self._undo.callback(module.install(clock))
            return list(self._adapters.values())

    def announce(self) -> None:
        """Call the listeners after a move."""
        for listener in [*self.listeners]:
            listener()

    def overlooked(self) -> list[str]:
        """Return the packages that were imported after the last move, which don't follow it."""
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
        """Return a text with the position."""
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

    def expiring(
        self, target: object, seconds: float | timedelta
    ) -> AbstractContextManager[TTLClock]:
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
        remaining = _span(seconds)
        with self._moving():
            for adapter in _clockwork.adapters(self):
                lifetime = adapter.lifetime(target)
                if lifetime is not None:
                    return self._advance(remaining - lifetime)
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
            now = adapter.real_now()
            if now is not None:
                return now.astimezone(timezone.utc)
        return datetime.now(timezone.utc)


class _Moved:
    """A completed move; as a context manager, it is undone at the end of the block."""

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
    """Return the lifetime by a default ttl and a row's own, for an adapter's ``lifetime``."""
    seconds = expiry.effective_ttl(default, own)
    if seconds is None:
        raise TTLError(
            f"TTLClock.expiring({name}): it never expires (default ttl {default!r}, ttl {own!r})."
        )
    return timedelta(seconds=seconds)


def not_counted_from_writing(name: str, field: str) -> TTLError:
    """Return the error for a row whose expiry is in a field of its own."""
    return TTLError(
        f"TTLClock.expiring({name}): its field {field!r} determines its expiry, whenever it is "
        "written; set that field."
    )
