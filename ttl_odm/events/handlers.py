"""Handlers: functions of the application that get events, each a consumer of its own.

`on_expired` and `on_expiring` register one. They don't connect to a database: that happens when a
worker starts, or a row of the table is deleted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from inspect import iscoroutinefunction
from typing import TYPE_CHECKING, Final, TypeVar, cast

from ttl_odm.core.values import integral, whole_seconds
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.expiry import EXPIRED, EXPIRING, Expiry
from ttl_odm.events.outbox import Subscription

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ttl_odm.events.expiry import Kind
    from ttl_odm.events.outbox import EventAdapter

HandlerT = TypeVar("HandlerT", bound=Callable[[Expiry], object])

ATTEMPTS: Final = 16
"""The deliveries of an event to a failing handler before it is dead: over four hours."""

LONGEST_NAME: Final = 200
"""The most characters of a consumer's name, the size of its column."""

LONGEST_REST: Final = timedelta(hours=1)

_ADAPTERS: Final = {
    "beanie": "beanie",
    "django": "django",
    "motor": "beanie",
    "pymongo": "beanie",
    "sqlalchemy": "sqlalchemy",
}
"""The packages of `ttl_odm.events` by the library of a model, or an engine."""


@dataclass(frozen=True, slots=True)
class Handler:
    """A function that gets events of one table.

    Attributes:
        consumer: Its name, under which the database keeps the events that it hasn't dealt with.
        subscription: Which events it gets.
        call: The function; with an `AsyncEventWorker` it may be a coroutine function.
        attempts: How often an event is delivered to it before it is dead.
    """

    consumer: str
    subscription: Subscription
    call: Callable[[Expiry], object]
    attempts: int = ATTEMPTS

    @property
    def table(self) -> str:
        """The table whose events it gets."""
        return self.subscription.table

    @property
    def is_async(self) -> bool:
        """Whether the function must be awaited."""
        return iscoroutinefunction(self.call)


handlers: list[Handler] = []
"""All handlers of this process."""


def consumers_here(recorded: Subscription) -> set[str]:
    """Return the consumers of this process's handlers, which the database may not know yet."""
    return {handler.consumer for handler in handlers if handler.subscription == recorded}


def on_expired(
    target: object,
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
        target: A SQLAlchemy model or Table, a Django model, or a Beanie document class, with a
            policy of its own; or the name of a table or collection whose events another process
            records.
        include: The names of further columns whose values the events get; see `Expiry`.
        name: The consumer's name, which must stay the same when the function moves; by default its
            module and its qualified name.
        attempts: How often an event is delivered before it is dead.

    Returns:
        A decorator, which returns the function unchanged.

    Raises:
        TTLConfigurationError: The target has no policy, or can't have events; or the name is
            already taken.
    """
    return _registration(_recorded(target, include, None), name, attempts)


def on_expiring(
    target: object,
    *,
    before: timedelta | float,
    include: Iterable[str] = (),
    name: str | None = None,
    attempts: int = ATTEMPTS,
) -> Callable[[HandlerT], HandlerT]:
    """Register a function that is called with the `Expiry` of each row that is about to expire.

    It is called `before` the end of the row, or at once for a row with a shorter ttl. There is one
    event for each life of a row, and another one if its end is moved meanwhile, by its own ttl or
    by a default. An event isn't delivered if its row has been renewed, or is gone.

    Args:
        target: See `on_expired`.
        before: How long before the end: seconds, or a timedelta of whole seconds.
        include: See `on_expired`.
        name: See `on_expired`.
        attempts: See `on_expired`.

    Returns:
        A decorator, which returns the function unchanged.

    Raises:
        TTLConfigurationError: See `on_expired`; or `before` isn't whole seconds from 1 on, or is
            longer than events are kept.
    """
    checked = _checked_before(before)
    return _registration(_recorded(target, include, checked), name, attempts)


def _registration(
    subscription: Subscription, name: str | None, attempts: int
) -> Callable[[HandlerT], HandlerT]:
    """The decorator that registers a function for events."""
    if integral(attempts) is None or attempts < 1:
        raise TTLConfigurationError(
            f"attempts = {attempts!r}: give a whole number, 1 for a single delivery."
        )

    def register(function: HandlerT) -> HandlerT:
        if not callable(function):
            raise TTLConfigurationError(f"A handler must be callable, but {function!r} isn't.")
        consumer = name or _name_of(function)
        if name is None and "<" in consumer:
            raise TTLConfigurationError(
                f"{consumer} has no name that is the same in every process: give name=."
            )
        check_name(consumer)
        known = next((handler for handler in handlers if handler.consumer == consumer), None)
        if known is not None:
            if _name_of(known.call) != _name_of(function):  # if equal, its module was reloaded
                raise TTLConfigurationError(
                    f"There is a consumer {consumer!r} already: give one of the handlers a name=."
                )
            handlers.remove(known)
        handlers.append(Handler(consumer, subscription, function, attempts))
        return function

    return register


def record_expired(target: object, *, include: Iterable[str] = ()) -> str:
    """Record an event for each expired row of a model, in the transaction that deletes it.

    That is the transaction of a sweep, or of a write that takes a key of the row. Events are kept
    in the tables that `event_tables` describes, which are added to the model's MetaData; on Django
    in the tables of the app ``ttl_odm.events.django``; or in collections of the documents'
    database.

    `on_expired` calls it. It is needed only where the process that deletes rows has no handler.

    Args:
        target: A SQLAlchemy model or Table, a Django model, or a Beanie document class, with a
            policy of its own.
        include: The names of further columns whose values the events get. A second call adds to
            them.

    Returns:
        The name of the table.

    Raises:
        TTLConfigurationError: The target has no policy, or can't have events, or lacks one of the
            columns.
    """
    return adapter_of(target).record(target, tuple(include))


def record_expiring(
    target: object, *, before: timedelta | float, include: Iterable[str] = ()
) -> str:
    """Record an event for each row of a model that is about to expire.

    A worker records them, for its models. `on_expiring` calls this function. It is needed only
    where the process of the worker has no handler.

    Args:
        target: See `record_expired`.
        before: How long before the end: seconds, or a timedelta of whole seconds.
        include: See `record_expired`.

    Returns:
        The name of the table.

    Raises:
        TTLConfigurationError: See `record_expired`; or `before` isn't whole seconds from 1 on, or
            is longer than events are kept.
    """
    return adapter_of(target).warn(target, _checked_before(before), tuple(include))


def adapter_of(target: object) -> EventAdapter:
    """Return the package of `ttl_odm.events` for a model, an engine, a connection or a database.

    Raises:
        TTLConfigurationError: There is none.
    """
    for cls in [*getattr(target, "__mro__", ()), *type(target).__mro__]:
        library = cls.__module__.partition(".")[0]
        adapter = "sqlalchemy" if "__mapper__" in vars(cls) else _ADAPTERS.get(library)
        if adapter is not None:
            return cast("EventAdapter", import_module(f"ttl_odm.events.{adapter}"))
    raise TTLConfigurationError(
        f"{getattr(target, '__name__', None) or repr(target)} can't have events: they are recorded "
        "for SQLAlchemy models and Tables, Django models, and Beanie document classes."
    )


def rest_after(delivery: int) -> timedelta:
    """Return the rest after a delivery that failed: 1, 2, 4 ... seconds, at most an hour."""
    return min(timedelta(seconds=2 ** min(delivery - 1, 20)), LONGEST_REST)


def check_name(consumer: object) -> None:
    """Reject a value that can't be a consumer's name.

    Raises:
        TTLConfigurationError: It isn't text, or is empty or too long.
    """
    if not isinstance(consumer, str) or not 0 < len(consumer) <= LONGEST_NAME:
        raise TTLConfigurationError(
            f"{consumer!r} can't be a consumer's name: give 1 to {LONGEST_NAME} characters."
        )


def _checked_before(before: timedelta | float) -> timedelta:
    seconds = whole_seconds(before, lowest=1)
    if seconds is None:
        raise TTLConfigurationError(
            f"before = {before!r}: give whole seconds, 1 or more, as a number or a timedelta."
        )
    return timedelta(seconds=seconds)


def _recorded(target: object, include: Iterable[str], before: timedelta | None) -> Subscription:
    """The subscription to events of a target, which are recorded from now on if it is a model."""
    kind: Kind = EXPIRED if before is None else EXPIRING
    if not isinstance(target, str):
        if before is None:
            return Subscription(record_expired(target, include=include))
        return Subscription(record_expiring(target, before=before, include=include), kind, before)
    if include := tuple(include):
        how = "record_expired" if before is None else "record_expiring"
        raise TTLConfigurationError(
            f"include = {include!r}: the process that records events of {target!r} decides what "
            f"they have; write it there, with {how}()."
        )
    return Subscription(target, kind, before)


def _name_of(function: object) -> str:
    module = getattr(function, "__module__", "<unknown>")
    name = getattr(function, "__qualname__", "<unknown>")
    return f"{module}.{name}"
