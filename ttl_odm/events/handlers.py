"""Who is told of events: functions of the application, each a consumer of its own.

`on_expired` registers one. Nothing is imported, and no database is asked, before a worker needs
it, or a row of the table is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Any, Final, TypeVar

from ttl_odm.core.values import integral
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.expiry import Expiry

if TYPE_CHECKING:
    from collections.abc import Iterable

HandlerT = TypeVar("HandlerT", bound=Callable[[Expiry], object])

ATTEMPTS: Final = 16
"""Deliveries of an event to a handler that fails, before it is dead: over four hours."""

LONGEST_NAME: Final = 200
"""The most characters of a consumer's name, by its column."""

LONGEST_REST: Final = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that gets events of one table.

    Attributes:
        consumer: Its name, under which the database keeps what it hasn't dealt with.
        table: The table.
        call: The function; with an `AsyncEventWorker` it may be a coroutine function.
        attempts: How often an event is delivered to it before it is dead.
    """

    consumer: str
    table: str
    call: Callable[[Expiry], object]
    attempts: int = ATTEMPTS

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited."""
        return iscoroutinefunction(self.call)


handlers: list[Handler] = []
"""All that are registered in this process."""


def on_expired(
    target: Any,
    *,
    include: Iterable[str] = (),
    name: str | None = None,
    attempts: int = ATTEMPTS,
) -> Callable[[HandlerT], HandlerT]:
    """Register a function that is called with the `Expiry` of each row that has expired.

    A model's events are recorded from then on: see `record_expired`. They are delivered by an
    `EventWorker` or an `AsyncEventWorker`, in any process that imports the handler. A handler that
    raises an exception gets the event again: after 1, 2, 4 ... seconds, at most an hour.

    Args:
        target: A SQLAlchemy model or Table with a policy of its own; or the name of a table whose
            events another process records.
        include: The names of further columns that the events are to have; see `Expiry`.
        name: The consumer's name, which must stay the same when the function moves; by default its
            module and its qualified name.
        attempts: How often an event is delivered before it is dead.

    Returns:
        A decorator, which returns the function as it is.

    Raises:
        TTLConfigurationError: The target has no policy, or can't have events; or there is such a
            consumer already.
    """
    if integral(attempts) is None or attempts < 1:
        raise TTLConfigurationError(
            f"attempts = {attempts!r}: give a whole number, 1 for a single delivery."
        )
    table = _recorded(target, tuple(include))

    def register(function: HandlerT) -> HandlerT:
        if not callable(function):
            raise TTLConfigurationError(f"A handler must be callable, but {function!r} isn't.")
        consumer = name or _name_of(function)
        if name is None and "<" in consumer:
            raise TTLConfigurationError(
                f"{consumer} has no name that is the same in every process: give name=."
            )
        check_name(consumer)
        known = next((one for one in handlers if one.consumer == consumer), None)
        if known is not None:
            if _name_of(known.call) != _name_of(function):  # otherwise its module was reloaded
                raise TTLConfigurationError(
                    f"There is a consumer {consumer!r} already: give one of the handlers a name=."
                )
            handlers.remove(known)
        handlers.append(Handler(consumer, table, function, attempts))
        return function

    return register


def record_expired(target: Any, *, include: Iterable[str] = ()) -> str:
    """Record an event for each row of a model that has expired, in the transaction that deletes it.

    That transaction is a sweep's, or of a write that takes a key of the row. What is recorded is
    kept in the tables that `event_tables` describes, which are added to the model's MetaData.

    `on_expired` calls it. It is needed only where the process that deletes rows has no handler.

    Args:
        target: A SQLAlchemy model or Table with a policy of its own.
        include: The names of further columns that the events are to have. A second call adds to
            them.

    Returns:
        The name of the table.

    Raises:
        TTLConfigurationError: The target has no policy, or can't have events, or lacks such a
            column.
    """
    recorded: str = adapter_of(target).record(target, tuple(include))
    return recorded


def adapter_of(target: Any) -> Any:
    """Return the package that knows a model, an engine or their like.

    Raises:
        TTLConfigurationError: There is none.
    """
    for cls in [*getattr(target, "__mro__", ()), *type(target).__mro__]:
        if cls.__module__.partition(".")[0] == "sqlalchemy" or "__mapper__" in vars(cls):
            return import_module("ttl_odm.events.sqlalchemy")
    raise TTLConfigurationError(
        f"{getattr(target, '__name__', None) or repr(target)} can't have events: they are recorded "
        "for SQLAlchemy models and Tables. Elsewhere write an outbox in a hook: __ttl_on_purged__."
    )


def rest_after(delivery: int) -> timedelta:
    """How long to wait after a delivery that failed: 1, 2, 4 ... seconds, at most an hour."""
    return min(timedelta(seconds=2 ** min(delivery - 1, 20)), LONGEST_REST)


def check_name(consumer: object) -> None:
    """Reject what can't be a consumer's name.

    Raises:
        TTLConfigurationError: It isn't text, or is too long.
    """
    if not isinstance(consumer, str) or not 0 < len(consumer) <= LONGEST_NAME:
        raise TTLConfigurationError(
            f"{consumer!r} can't be a consumer's name: give 1 to {LONGEST_NAME} characters."
        )


def _recorded(target: Any, include: tuple[str, ...]) -> str:
    """Return the name of a table, whose events are recorded if its model was given."""
    if not isinstance(target, str):
        return record_expired(target, include=include)
    if include:
        raise TTLConfigurationError(
            f"include = {include!r}: the process that records events of {target!r} decides what "
            "they have; write it there, with record_expired()."
        )
    return target


def _name_of(function: Any) -> str:
    module = getattr(function, "__module__", "<unknown>")
    name = getattr(function, "__qualname__", "<unknown>")
    return f"{module}.{name}"
