"""The keyword arguments of a sweeper, `SweepOptions`, and the plan's `Settings` made of them.

The options are documented here once, for both sweepers and everything that makes one (the command
line, the integrations). They are checked when the sweeper is made, against what its store offers,
so that a wrong one is found at once and not at three in the morning.

A new option goes into `SweepOptions` and `settings_of` and, if text can express it, into
`COMMAND_OPTIONS` of `ttl_odm.sweeper.command_line`. A limit also needs a field of `Limits` and a
rule of `Budget` in `ttl_odm.sweeper.pace`, a check in `BatchGate.look`, and an `Ending`: follow
``max_seconds``.
"""

from __future__ import annotations

import math
import random
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import time, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypedDict

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.fuse import Fuse
from ttl_odm.sweeper.hooks import Hook, Hooks, OnPurged
from ttl_odm.sweeper.leases import AsyncLeases, Leases
from ttl_odm.sweeper.pace import MOST_WORKERS, Limits, Pace
from ttl_odm.sweeper.report import Progress, SweepReport
from ttl_odm.sweeper.store import (
    Clocked,
    Counting,
    Dividing,
    Hooking,
    Leasing,
    Pacing,
    Replicating,
    Server,
    backend_of,
)

if TYPE_CHECKING:
    from datetime import datetime, tzinfo

    from ttl_odm.sweeper.store import AsyncStore, Store

OnProgress: TypeAlias = Callable[[Progress], object]
"""Called after each batch; with `AsyncSweeper` it may be a coroutine function."""

OnReport: TypeAlias = Callable[[SweepReport], object]
"""Called after each sweep of `run_forever`; with `AsyncSweeper` it may be a coroutine function."""

OnServer: TypeAlias = Callable[[Server], object]
"""Called when a sweep asks which server answers; with `AsyncSweeper` perhaps a coroutine function.
"""

Throttled: TypeAlias = "float | str | None"
Throttle: TypeAlias = Callable[[], "Throttled | Awaitable[Throttled]"]
"""Called before each batch: returns None to go on, seconds to wait, or a reason to wait."""

_OneHook: TypeAlias = "OnPurged | Hook"
_HooksOfOne: TypeAlias = "_OneHook | Sequence[_OneHook]"
HooksOption: TypeAlias = "_HooksOfOne | Mapping[str, _HooksOfOne] | None"

LEASE_NAME: Final = "ttl_odm"
LEASE_DURATION: Final = 60.0
SHORTEST_LEASE: Final = 1.0
"""Seconds. Batches take less than a lease, so with a shorter one a sweep would crawl."""

WAIT: Final = "wait"
EXIT: Final = "exit"
"""The values of `SweepOptions.standby`."""

LONGEST: Final = 2_147_483
"""The most seconds for a database: PostgreSQL's longest timeout, over three weeks."""

MOST: Final = 1_000_000
"""The most rows in a first batch, and the highest ``max_jump``."""

LONGEST_NAME: Final = 200
"""The most characters of a lease's name, by its column."""


class SweepOptions(TypedDict, total=False):
    """The keyword arguments of `Sweeper` and `AsyncSweeper`. Durations are seconds.

    How much and how fast:
        max_rows: The most rows that one sweep deletes; None for all expired rows.
        max_seconds: Seconds after which a sweep starts no further batch; None for no limit.
        max_rows_per_second: The maximum rate, rests included; None for no limit.
        batch_size: Rows in the first batch of each target; None for the database's default. Later
            batches adapt to the time that each takes.
        pace: Chooses the batch sizes, instead of the store's own `Pacing`.
        nice: Seconds to rest for each second of work; None for the database's default (1 on
            SQLite, 0 elsewhere).
        gentle: Take small batches, and rest so that at most a fifth of a core is used, for
            databases whose users must not notice the sweep. `nice` and `batch_size` override it.
        workers: How many batches of a target may run at once, each on its own connection. Fewer
            run if more don't help, and only one if the store can't divide a target. All limits
            apply to them together.
        throttle: Called before each batch, to check load or replication lag. It returns None to
            continue, seconds to wait, or a reason (a string) to wait for a second. After the wait
            it is called again. A name, such as ``"replication"``, stands for a function that a
            package has registered as an entry point of ``ttl_odm.throttles``.
        statement_timeout: Seconds that a statement of a batch may take. If one takes longer, the
            batch is retried with fewer rows. None for the connection's own timeout.
        standby: What to do at a server that takes no writes, such as a replica: ``"wait"`` (the
            default) for its promotion, or for another server at its address; ``"exit"`` to end
            at once. One sweep waits for a minute, `run_forever` until it is stopped.

    When:
        window: Hours of the day during which to sweep, such as ``"01:00-05:00"``, by the
            database's clock; None for any time.
        timezone: The IANA name of the window's time zone.

    Safety:
        max_fraction: The share of a target's rows, from 0 to 1, that may be due at once. If more
            are due, the target fails with the numbers, and none of its rows is deleted.
        max_jump: How many rows may be due, as a multiple of the most that a recent sweep found.
        force: Delete even if `max_fraction`, `max_jump` or the store objects.
        dry_run: Count what is due, and delete nothing.

    Elsewhere:
        replicate: False to not replicate the deletions to subscribers (PostgreSQL) and replicas
            (MariaDB, MySQL), where the database supports that.

    Notifications:
        on_purged: A function that is called with a `Purged` for each batch, a `Hook`, a list of
            these, or a mapping from targets to these.
        on_progress: Called with a `Progress` after each batch. An exception ends the sweep.
        on_report: Called with each `SweepReport` of `run_forever`. An exception ends
            `run_forever`.
        on_server: Called with the `Server` that answers, at the beginning of each sweep and after a
            lost connection, which may have led to another one. Each time costs a short query, where
            the database has servers. An exception ends the sweep.

    One at a time:
        lease: True to hold a lease if the store supports leases, False for none, or an object that
            keeps leases elsewhere (`Leases`, `AsyncLeases`).
        lease_name: Sweepers with the same lease name on the same database take turns.
        lease_duration: Seconds, at least 1, after which another sweeper takes over from one that
            died.
    """

    max_rows: int | None
    max_seconds: float | None
    max_rows_per_second: float | None
    batch_size: int | None
    pace: Pacing | None
    nice: float | None
    gentle: bool
    workers: int
    throttle: Throttle | str | None
    statement_timeout: float | None
    standby: str | None
    window: str | None
    timezone: str
    max_fraction: float | None
    max_jump: float | None
    force: bool
    dry_run: bool
    replicate: bool
    on_purged: HooksOption
    on_progress: OnProgress | None
    on_report: OnReport | None
    on_server: OnServer | None
    lease: bool | Leases | AsyncLeases
    lease_name: str
    lease_duration: float


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """Hours of the day by the wall clock of a time zone, so the same in summer and in winter.

    It lasts over midnight if it ends before it starts. It lacks an hour that the clocks skip, and
    has an hour that they repeat twice.
    """

    start: time
    end: time
    zone: tzinfo

    @classmethod
    def of(cls, text: str, timezone: str) -> DailyWindow:
        """Read ``"01:00-05:00"`` and the IANA name of a time zone."""
        hours = re.fullmatch(r"\s*(\d\d:\d\d)\s*-\s*(\d\d:\d\d)\s*", str(text))
        try:
            start, end = (
                time() if hour == "24:00" else time.fromisoformat(hour)
                for hour in (hours.groups() if hours else ("", ""))
            )
        except ValueError:
            start = end = time()
        if start == end:
            raise TTLConfigurationError(
                f"window = {text!r}: give hours of the day, such as '01:00-05:00' or '22:00-04:00'."
            )
        return cls(start, end, zone_of(timezone))

    def is_open(self, instant: datetime) -> bool:
        """Return whether an aware instant lies in it."""
        wall = instant.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= wall < self.end
        return wall >= self.start or wall < self.end


def zone_of(name: str) -> tzinfo:
    """Read the IANA name of a time zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 (few sweepers need it)

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise TTLConfigurationError(
            f"timezone = {name!r}: give an IANA name that this machine knows, such as "
            "'Europe/Berlin' (the package tzdata brings them where the system doesn't)."
        ) from error


@dataclass(frozen=True, slots=True)
class Settings:
    """The checked options, with the store's defaults.

    Attributes:
        jitter: Returns a random number from 0 to 1, for waits that shouldn't all be equal.
        throttle: Whether there is one to ask.
        hooks: The hooks besides those that the store's targets declare.
        waits_at_standby: Whether to wait where the server takes no writes.
        asks_server: Whether to ask which server answers.
    """

    pace: Pacing
    workers: int = 1
    jitter: Callable[[], float] = random.random
    limits: Limits = field(default_factory=Limits)
    throttle: bool = False
    statement_timeout: float | None = None
    window: DailyWindow | None = None
    fuse: Fuse | None = None
    force: bool = False
    dry_run: bool = False
    replicate: bool = True
    hooks: Hooks = field(default_factory=Hooks)
    waits_at_standby: bool = True
    asks_server: bool = False


def settings_of(options: SweepOptions, store: Store | AsyncStore) -> Settings:
    """Check options against each other and against what a store offers."""
    unknown = sorted(set(options) - SweepOptions.__optional_keys__)
    if unknown:
        known = ", ".join(sorted(SweepOptions.__optional_keys__))
        raise TTLConfigurationError(f"A sweeper has no option {unknown[0]!r}; it has {known}.")
    window, timezone = options.get("window"), options.get("timezone", "UTC")
    if window is None and timezone != "UTC":
        zone_of(timezone)  # finds a misspelt name before there is a window
    for name in ("throttle", "on_progress", "on_report", "on_server"):
        function = options.get(name)
        is_named = name == "throttle" and isinstance(function, str)
        if function is not None and not callable(function) and not is_named:
            raise TTLConfigurationError(f"{name} = {function!r}: give a function.")
    fraction = _number(options, "max_fraction", most=1)
    jump = _number(options, "max_jump", most=MOST)
    settings = Settings(
        pace=_pace_of(options, store),
        workers=_workers_of(options, store),
        limits=Limits(
            max_rows=_rows(options, "max_rows"),
            max_seconds=_number(options, "max_seconds"),
            max_rows_per_second=_number(options, "max_rows_per_second"),
            nice=_number(options, "nice", zero=True),
        ),
        throttle=options.get("throttle") is not None,
        statement_timeout=_number(options, "statement_timeout", most=LONGEST),
        window=None if window is None else DailyWindow.of(window, timezone),
        fuse=None if fraction is None and jump is None else Fuse(fraction, jump),
        force=_flag(options, "force"),
        dry_run=_flag(options, "dry_run"),
        replicate=_flag(options, "replicate", usually=True),
        hooks=Hooks.of(options.get("on_purged")),
        waits_at_standby=_waits_at_standby(options),
        asks_server=options.get("on_server") is not None,
    )
    for needs, offered, option, method in (
        (settings.window is not None, Clocked, "window", "now()"),
        (settings.fuse is not None, Counting, "max_fraction and max_jump", "count()"),
        (settings.dry_run, Counting, "dry_run", "count()"),
        (bool(settings.hooks), Hooking, "on_purged", "hooks"),
    ):
        if needs and not isinstance(store, offered):
            raise TTLConfigurationError(
                f"{type(store).__name__} has no {method}, which {option} needs."
            )
    if not settings.replicate and not (isinstance(store, Replicating) and store.hides_purges):
        raise TTLConfigurationError(
            f"replicate = False: {backend_of(store)} can't hide a sweep from replicas. Leave "
            "replicate out; only PostgreSQL, MariaDB and MySQL support it."
        )
    return settings


def leases_of(options: SweepOptions, store: object) -> Leases | AsyncLeases | None:
    """Return the keeper of leases; None for no lease."""
    lease: object = options.get("lease", True)
    leases: Any = lease
    if isinstance(lease, bool):
        leases = store.leases if lease and isinstance(store, Leasing) else None
    if leases is not None and not isinstance(leases, Leases):  # AsyncLeases has the same names
        raise TTLConfigurationError(f"lease = {lease!r}: pass True, False, or a Leases object.")
    if leases is None and options.get("max_jump") is not None:
        raise TTLConfigurationError(
            "max_jump compares with the previous sweeps, which are recorded with the lease: use "
            "a lease, or max_fraction instead."
        )
    return leases


def lease_duration_of(options: SweepOptions) -> float:
    """Return the seconds that the lease lasts."""
    seconds = _number(options, "lease_duration", most=LONGEST)
    if seconds is None:
        return LEASE_DURATION
    if seconds < SHORTEST_LEASE:
        raise TTLConfigurationError(
            f"lease_duration = {seconds:g}: give at least {SHORTEST_LEASE:g} second."
        )
    return seconds


def lease_name_of(options: SweepOptions) -> str:
    """Return the name of the lease."""
    name: object = options.get("lease_name", LEASE_NAME)
    if isinstance(name, str) and 0 < len(name) <= LONGEST_NAME and "\0" not in name:
        return name
    raise TTLConfigurationError(
        f"lease_name = {name!r}: give a string of at most {LONGEST_NAME} characters."
    )


def check_interval(interval: float, jitter: float) -> None:
    """Check the arguments of `Sweeper.run_forever`."""
    _number({"interval": interval}, "interval", none=False)
    _number({"jitter": jitter}, "jitter", none=False, zero=True, most=1)


def scheduled(every: Any) -> Any:
    """Return a scheduler's `every`, in seconds if it is a duration and not a schedule."""
    if isinstance(every, timedelta):
        every = every.total_seconds()
    if isinstance(every, (int, float)):
        _number({"every": every}, "every", none=False)
    return every


def _pace_of(options: SweepOptions, store: Store | AsyncStore) -> Pacing:
    pace = options.get("pace")
    is_own = pace is not None
    pace = store.pace if pace is None else pace
    size = _rows(options, "batch_size", most=MOST)
    if not isinstance(pace, Pacing):
        raise TTLConfigurationError(f"pace = {pace!r}: pass a Pace, or another Pacing.")
    if _flag(options, "gentle"):
        if is_own or not isinstance(pace, Pace):
            raise TTLConfigurationError(
                "gentle: it has no effect on a custom pace. Leave one of them out."
            )
        pace = pace.gentle()
    if size is None:
        return pace
    if not isinstance(pace, Pace):
        raise TTLConfigurationError(
            "batch_size: a custom pace sets the size of the first batch "
            "itself. Leave one of them out."
        )
    return pace.starting_at(size)


def _waits_at_standby(options: SweepOptions) -> bool:
    standby: object = options.get("standby")
    if standby is None or standby == WAIT:
        return True
    if standby == EXIT:
        return False
    raise TTLConfigurationError(f"standby = {standby!r}: give {WAIT!r} or {EXIT!r}.")


def _workers_of(options: SweepOptions, store: object) -> int:
    workers: object = options.get("workers")
    if workers is None:
        return 1
    if (
        not isinstance(workers, int)
        or isinstance(workers, bool)
        or not 1 <= workers <= MOST_WORKERS
    ):
        raise TTLConfigurationError(
            f"workers = {workers!r}: give a number from 1 to {MOST_WORKERS}."
        )
    if workers > 1 and options.get("gentle"):
        raise TTLConfigurationError(
            "gentle: it implies a single worker, which rests between batches. Leave workers out."
        )
    if workers > 1 and options.get("replicate") is False:
        raise TTLConfigurationError(
            "replicate = False: it implies a single worker, because PostgreSQL hides the changes "
            "of only one session. Leave workers out."
        )
    return workers if isinstance(store, Dividing) else 1


def _rows(options: Mapping[str, object], name: str, *, most: float = math.inf) -> int | None:
    number = options.get(name)
    if number is None:
        return None
    if isinstance(number, int) and not isinstance(number, bool) and 0 < number <= most:
        return number
    limit = "" if most == math.inf else f" and at most {most:,}"
    raise TTLConfigurationError(f"{name} = {number!r}: give a number of rows, at least 1{limit}.")


def _number(
    options: Mapping[str, object],
    name: str,
    *,
    none: bool = True,
    zero: bool = False,
    most: float = math.inf,
) -> float | None:
    number = options.get(name)
    if number is None and none:
        return None
    # An int may exceed all floats: it compares with them, but can't be converted.
    if (
        isinstance(number, (int, float))
        and not isinstance(number, bool)
        and 0 <= number <= sys.float_info.max
        and (number > 0 or zero)
    ):
        if number <= most:
            return float(number)
        limit = "a share, from 0 to 1" if most == 1 else f"at most {most:,}"
        raise TTLConfigurationError(f"{name} = {number!r}: give {limit}.")
    least = "0 or more" if zero else "more than 0"
    raise TTLConfigurationError(f"{name} = {number!r}: give a number, {least}.")


def _flag(options: Mapping[str, object], name: str, *, usually: bool = False) -> bool:
    flag = options.get(name)
    if flag is None:
        return usually
    if isinstance(flag, bool):
        return flag
    raise TTLConfigurationError(f"{name} = {flag!r}: give True or False.")
