"""What ``__ttl__ = ...`` can declare: `TTL`, `ExpireAfter` and `ExpireAt`.

A policy is an immutable value that is valid once it exists, so that no other code has to check it
again: a number of seconds that is not a ttl raises `InvalidTTL`, any other mistake
`TTLConfigurationError`, with the field, the value and what to write instead.

A default ttl may be a function, and may differ between the kinds of rows of one table. Functions
are called when a value is needed, never when the policy is made. If the database stores the default
(`Stored`), its value is not available here at all.

This module must not know which database has the named fields, nor whether they exist there; the
adapters check that.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from ttl_odm.core.extension import DefaultExtension, Extension
from ttl_odm.core.values import MAX_TTL, default_ttl, short_repr, whole_seconds
from ttl_odm.errors import InvalidTTL, TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.stored import Stored

Values = Literal["strict", "lenient"]
Unit = Literal["s", "ms", "us", "iso"]
Null = Literal["never", "expired"]

Default = int | float | timedelta | None
"""What a program may write for a default ttl."""

DefaultSource = Default | Callable[[], Default] | DefaultExtension
"""A default ttl, a function without arguments that returns it, or `ttl_odm.Stored`."""

Declared = int | None | Callable[[], Default] | DefaultExtension
"""A `DefaultSource` as a policy keeps it: whole seconds, -1, None, the function, or `Stored`."""

_INT64_LIMIT = 2**63


@dataclass(frozen=True, slots=True, init=False, repr=False)
class TTL:
    """A default ttl for the container, and optionally a ttl per row (the Cosmos DB contract).

    The first argument is the default ttl: seconds, -1 (on, but rows never expire by default), or
    None (TTL is off). It may also be a function without arguments that returns one of these
    and is called each time a statement runs, or `Stored` if the database stores the default.
    If a table holds several kinds of rows, pass a mapping of such defaults; ``by`` names the
    field that tells the kinds apart::

        TTL({"cart": 3600, "order": None, "draft": lambda: settings.draft_ttl}, by="resource")

    Rows of unlisted kinds, and rows without a kind, have the default ``other`` (None: they never
    expire). All kinds use the same fields.

    A lifetime that each write extends can have a hard limit::

        TTL(1800, max_lifetime=86_400, created="created_at")  # idle for 30 minutes, a day at most

    The limit applies to every row while TTL is on, regardless of its own ttl and the default (even
    -1). A row without a creation date (NULL, missing, not a date) has no limit.

    Attributes:
        declared_default: What was declared for rows of unlisted kinds: seconds, -1, None, the
            function, or `Stored`.
        by: The field with a row's kind; None if all rows share one default.
        kinds: Each listed kind, with what was declared for it.
        last_modified: The field with the time of the last modification.
        override: The field with the row's own ttl; None if rows have none.
        never: Stored values of `override` that mean "never", besides -1.
        max_lifetime: The most seconds a row lives after its creation; None for no limit.
        created: The field with the creation time; None if there is no limit.
        values: Whether a row's own ttl is validated on write ("strict") or stored as it is
            ("lenient"); None leaves the choice to the adapter.
        timezone: What naive datetimes in `last_modified` and `created` mean: "UTC", "local" or an
            IANA name.
        unit: "s", "ms" or "us" where `last_modified` holds epoch numbers, "iso" where it holds
            ISO-8601 strings in UTC; None where it holds datetimes or dates. `created` holds the
            same, or datetimes or dates.
    """

    declared_default: Declared
    by: str | None
    kinds: tuple[tuple[object, Declared], ...]
    last_modified: str
    override: str | None
    never: tuple[int, ...]
    max_lifetime: int | None
    created: str | None
    values: Values | None
    timezone: str
    unit: Unit | None

    def __init__(  # noqa: PLR0913 (all but the first by keyword)
        self,
        default: DefaultSource | Mapping[Any, DefaultSource] = None,
        *,
        by: str | None = None,
        other: DefaultSource = None,
        last_modified: str = "_ts",
        override: str | None = "ttl",
        never: tuple[int, ...] = (),
        max_lifetime: float | timedelta | None = None,
        created: str | None = None,
        values: Values | None = None,
        timezone: str = "UTC",
        unit: Unit | None = None,
    ) -> None:
        """Check and normalise; see the class for the arguments."""
        _check_field(last_modified, "TTL.last_modified")
        if override is not None:
            _check_field(override, "TTL.override")
        if override == last_modified:
            raise _misdeclared(override, "TTL.override", "name another field than last_modified")
        if by is not None:
            _check_field(by, "TTL.by")
            if by in (last_modified, override):
                raise _misdeclared(
                    by, "TTL.by", "name a separate field, which holds the row's kind"
                )
        limit = _limit(max_lifetime, created, {last_modified, override, by})
        _check_choice(values, ("strict", "lenient", None), "TTL.values")
        _check_reading(timezone, unit, "TTL")
        declared, kinds = _defaults(default, by, other)
        rows_by = declared.by if isinstance(declared, DefaultExtension) else None
        if rows_by is not None and rows_by in (last_modified, override):
            raise _misdeclared(
                rows_by, "Stored.by", "name a field whose values distinguish the rows"
            )
        _store(
            self,
            declared_default=declared,
            by=by,
            kinds=kinds,
            last_modified=last_modified,
            override=override,
            never=_never_values(never),
            max_lifetime=limit,
            created=created,
            values=values,
            timezone=timezone,
            unit=unit,
        )

    @property
    def default(self) -> int | None:
        """The current default ttl of rows of unlisted kinds.

        Seconds, -1 (on, but never by default) or None (TTL is off). A function is called.

        Raises:
            InvalidTTL: The function returned something that is not a ttl.
            TTLConfigurationError: The default is stored in the database (`stored`).
        """
        return _current(self.declared_default, "TTL.default()")

    @property
    def stored(self) -> Stored | None:
        """The declaration of a default stored in the database; None if the code holds it."""
        declared = default_extension(self)
        return None if declared is None else cast("Stored", declared)

    @property
    def defaults(self) -> dict[Any, int | None]:
        """The current default ttl of each listed kind; functions are called.

        Raises:
            InvalidTTL: A function returned something that is not a ttl.
        """
        return {kind: _current(declared, f"TTL[{kind!r}]()") for kind, declared in self.kinds}

    @property
    def is_fixed(self) -> bool:
        """Whether the policy is constant: it depends on no function and no stored default."""
        defaults = (self.declared_default, *(declared for _, declared in self.kinds))
        return self.stored is None and not any(map(callable, defaults))

    @property
    def shape(self) -> TTL:
        """The same policy with every default None: its fields, its kinds and its `max_lifetime`.

        What an adapter sets up (columns, indexes, SQL) depends on this alone. The defaults may
        change while the application runs, but not whether the database stores them.
        """
        return self._with(
            declared_default=self.stored and self.stored.shape,
            kinds=tuple((kind, None) for kind, _ in self.kinds),
        )

    @property
    def settled(self) -> TTL:
        """The policy at this moment, with its functions replaced by what they return.

        Raises:
            InvalidTTL: A function returned something that is not a ttl.
        """
        if self.is_fixed:
            return self
        return self._with(declared_default=self.default, kinds=tuple(self.defaults.items()))

    @property
    def limit(self) -> ExpireAfter | None:
        """The lifetime limit as a policy of its own; None for no limit."""
        if self.created is None or self.max_lifetime is None:
            return None
        return ExpireAfter(self.created, self.max_lifetime, timezone=self.timezone, unit=self.unit)

    @property
    def unlimited(self) -> TTL:
        """The same policy without a limit."""
        return self._with(max_lifetime=None, created=None)

    def default_of(self, kind: object) -> int | None:
        """Return the current default ttl of rows of a kind; a function is called.

        Args:
            kind: The value of the field `by`.

        Raises:
            InvalidTTL: The function returned something that is not a ttl.
        """
        for listed, declared in self.kinds:
            if listed == kind:
                return _current(declared, f"TTL[{kind!r}]()")
        return self.default

    def with_default(self, value: DefaultSource) -> TTL:
        """Return the same policy with a different default ttl for all rows."""
        declared = value if isinstance(value, DefaultExtension) else _declared(value, "TTL.default")
        return self._with(declared_default=declared, by=None, kinds=())

    def with_kinds(
        self, kinds: Mapping[Any, DefaultSource], *, by: str, other: DefaultSource
    ) -> TTL:
        """Return the same policy with a default per kind of row; arguments as for the class."""
        declared, sorted_kinds = _defaults(kinds, by, other)
        return self._with(declared_default=declared, by=by, kinds=sorted_kinds)

    def _with(self, **fields: object) -> TTL:
        changed = copy.copy(self)
        _store(changed, **fields)
        return changed

    def __repr__(self) -> str:
        """Return the shortest declaration that makes an equal policy."""
        if self.by is None:
            first = [] if self.declared_default is None else [f"{self.declared_default!r}"]
        else:
            first = [f"{dict(self.kinds)!r}", f"by={self.by!r}"]
            if self.declared_default is not None:
                first.append(f"other={self.declared_default!r}")
        rest = (
            f"{name}={getattr(self, name)!r}"
            for name, usual in _USUAL.items()
            if getattr(self, name) != usual
        )
        return f"{type(self).__name__}({', '.join([*first, *rest])})"


_USUAL: dict[str, object] = {
    "last_modified": "_ts",
    "override": "ttl",
    "never": (),
    "max_lifetime": None,
    "created": None,
    "values": None,
    "timezone": "UTC",
    "unit": None,
}


@dataclass(frozen=True, slots=True, init=False)
class ExpireAfter:
    """A row expires a number of seconds after a date field; writes do not extend its life.

    Attributes:
        field: The date field that the seconds are counted from.
        seconds: 1..MAX_TTL. Not 0: see `ExpireAt`, or declare no policy if rows never expire.
        timezone: What naive datetimes in `field` mean: "UTC", "local" or an IANA name.
        unit: "s", "ms" or "us" where `field` holds epoch numbers, "iso" where it holds ISO-8601
            strings in UTC; None where it holds datetimes or dates.
    """

    field: str
    seconds: int
    timezone: str
    unit: Unit | None

    def __init__(
        self,
        field: str,
        seconds: int | float | timedelta,  # noqa: PYI041
        *,
        timezone: str = "UTC",
        unit: Unit | None = None,
    ) -> None:
        """Check and normalise; see the class for the arguments."""
        _check_field(field, "ExpireAfter.field")
        _check_reading(timezone, unit, "ExpireAfter")
        declared: object = seconds
        if isinstance(declared, DefaultExtension):
            fix = "give a number of seconds; only the default of a TTL can be stored"
            raise _misdeclared(declared, "ExpireAfter.seconds", fix)
        whole = whole_seconds(seconds, lowest=1)
        if whole is None:
            raise InvalidTTL(
                f"ExpireAfter.seconds = {short_repr(seconds)}{_no_seconds(seconds, field)} give "
                f"whole seconds from 1 to {MAX_TTL} as an int, an integral float or a timedelta."
            )
        _store(self, field=field, seconds=whole, timezone=timezone, unit=unit)

    @property
    def stored(self) -> Stored | None:
        """Always None: this policy has no default that the database could store."""
        return None


@dataclass(frozen=True, slots=True, init=False)
class ExpireAt:
    """A row expires at the instant that a field holds.

    Attributes:
        field: The field with the instant.
        null: What NULL or a missing field means: "never" or "expired".
        timezone: What naive datetimes in `field` mean: "UTC", "local" or an IANA name.
        unit: "s", "ms" or "us" where `field` holds epoch numbers, "iso" where it holds ISO-8601
            strings in UTC; None where it holds datetimes or dates.
    """

    field: str
    null: Null
    timezone: str
    unit: Unit | None

    def __init__(
        self, field: str, *, null: Null = "never", timezone: str = "UTC", unit: Unit | None = None
    ) -> None:
        """Check; see the class for the arguments."""
        _check_field(field, "ExpireAt.field")
        _check_choice(null, ("never", "expired"), "ExpireAt.null")
        _check_reading(timezone, unit, "ExpireAt")
        _store(self, field=field, null=null, timezone=timezone, unit=unit)

    @property
    def stored(self) -> Stored | None:
        """Always None: this policy has no default that the database could store."""
        return None


Policy = TTL | ExpireAfter | ExpireAt
"""Any of the three."""

DURATIONS: Final = frozenset({"default", "other", "seconds", "max_lifetime"})
"""The arguments of policies that are seconds."""


def as_policy(declared: object, *, where: str = "__ttl__") -> Policy:
    """Return what ``__ttl__ = declared`` means.

    Args:
        declared: A policy, a `Stored`, or a default ttl in any form that `default_ttl` accepts.
        where: The name of the declaration for the error message, such as ``WebSession.__ttl__``.

    Returns:
        The policy itself, or a `TTL` with that default.

    Raises:
        InvalidTTL: `declared` is neither.
        TTLConfigurationError: `declared` is an `Extension`, which isn't a lifetime by itself.
    """
    if isinstance(declared, Extension):
        raise declared.misplaced(where)
    if isinstance(declared, (TTL, ExpireAfter, ExpireAt)):
        return declared
    if isinstance(declared, DefaultExtension):
        return TTL(declared)
    return TTL(default_ttl(declared, where=where))


def default_extension(policy: Policy) -> DefaultExtension | None:
    """Return a policy's default ttl if an extension determines it; None if it is in the code."""
    declared = policy.declared_default if isinstance(policy, TTL) else None
    return declared if isinstance(declared, DefaultExtension) else None


def instant_field(policy: Policy) -> str:
    """Return the field with a row's instant: its end, or the date that its life is counted from."""
    return policy.last_modified if isinstance(policy, TTL) else policy.field


def fields_of(policy: Policy) -> tuple[str, ...]:
    """Return the fields that a policy reads: a row's instants, and its own ttl."""
    if not isinstance(policy, TTL):
        return (policy.field,)
    fields = (policy.last_modified, policy.created, policy.override)
    return tuple(field for field in fields if field is not None)


def _defaults(
    default: object, by: str | None, other: object
) -> tuple[Declared, tuple[tuple[object, Declared], ...]]:
    """Return the default of rows of unlisted kinds, and the defaults of the listed kinds."""
    if not isinstance(default, Mapping):
        fix = "give a mapping of defaults as the first argument"
        if by is not None:
            raise _misdeclared(default, f"TTL(by={by!r}).default", fix)
        if other is not None:
            raise _misdeclared(other, "TTL.other", f"{fix}, and by='field'")
        if isinstance(default, DefaultExtension):
            return default, ()
        return _declared(default, "TTL.default"), ()
    if by is None:
        fix = "add by='field', which holds the row's kind"
        raise _misdeclared(dict(default), "TTL.default", fix)
    if None in default:
        raise _misdeclared(
            None, "a kind of TTL", "set the default of rows without a kind by other="
        )
    kinds = [(kind, _declared(value, f"TTL[{kind!r}]")) for kind, value in default.items()]
    # In one order, so that equal mappings make equal policies.
    return _declared(other, "TTL.other"), tuple(sorted(kinds, key=repr))


def _declared(value: object, where: str) -> Declared:
    if isinstance(value, DefaultExtension):
        fix = "only the default of all rows can be stored: TTL(Stored(seconds, by='field'))"
        raise _misdeclared(value, where, fix)
    if callable(value) and not isinstance(value, type):
        source: Callable[[], Any] = value
        return source
    return default_ttl(value, where=where)


def _current(declared: Declared, where: str) -> int | None:
    if isinstance(declared, DefaultExtension):
        raise _misdeclared(
            declared, where, "it is stored in the database, which has to be asked for it"
        )
    return default_ttl(declared(), where=where) if callable(declared) else declared


def _store(policy: Policy, **fields: object) -> None:
    # The policies are frozen, and their __init__ accepts more types than they store.
    for name, value in fields.items():
        object.__setattr__(policy, name, value)


def _misdeclared(value: object, where: str, fix: str) -> TTLConfigurationError:
    return TTLConfigurationError(f"{where} = {short_repr(value)}: {fix}.")


def _check_field(name: object, where: str) -> None:
    if isinstance(name, (tuple, list)) or (isinstance(name, str) and "," in name):
        raise _misdeclared(name, where, "name one field; TTL indexes are single-field")
    if not isinstance(name, str) or not name.strip():
        raise _misdeclared(name, where, "give a field name as a string")


def _limit(max_lifetime: object, created: object, others: set[str | None]) -> int | None:
    """Return `TTL.max_lifetime` in seconds; it needs a field to count from."""
    if max_lifetime is None:
        if created is not None:
            raise _misdeclared(
                created, "TTL.created", "also give max_lifetime=seconds, or leave created out"
            )
        return None
    if created is None:
        fix = "also give created='field', the field from which max_lifetime is counted"
        raise _misdeclared(max_lifetime, "TTL.max_lifetime", fix)
    _check_field(created, "TTL.created")
    if created in others:
        raise _misdeclared(created, "TTL.created", "name a separate field, which no write resets")
    seconds = whole_seconds(max_lifetime, lowest=1)
    if seconds is None:
        fix = f"give whole seconds from 1 to {MAX_TTL} as an int, an integral float or a timedelta"
        raise _misdeclared(max_lifetime, "TTL.max_lifetime", fix)
    return seconds


def _no_seconds(value: object, field: str) -> str:
    """Return what is wrong with the seconds of `ExpireAfter`, and what to declare instead.

    They often come from an application's settings, where None and 0 mean "never".
    """
    if value is None:
        return ": for rows that never expire, declare no policy at all; otherwise"
    if whole_seconds(value, lowest=0) == 0:
        return (
            ': 0 means "never" in some settings and "at once" in others. For rows that never '
            "expire, declare no policy at all; for rows that expire at the date itself, declare "
            f"ExpireAt({field!r}); otherwise"
        )
    return " is not a duration:"


def _check_choice(value: object, choices: tuple[str | None, ...], where: str) -> None:
    if value not in choices:
        raise _misdeclared(value, where, "give " + " or ".join(map(repr, choices)))


def _check_reading(timezone: object, unit: object, policy: str) -> None:
    """Check the time zone and the unit of a policy."""
    _check_choice(unit, ("s", "ms", "us", "iso", None), f"{policy}.unit")
    if timezone in ("UTC", "local"):
        return
    fix = "give 'UTC', 'local' or an IANA name such as 'Europe/Paris'"
    if not isinstance(timezone, str):
        raise _misdeclared(timezone, f"{policy}.timezone", fix)
    # Here and not above: zoneinfo would double the time that `import ttl_odm` takes.
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        ZoneInfo(timezone)
    except (KeyError, ValueError, OSError) as error:  # OSError: a folder of zones ("America")
        fix += " (install tzdata if the system has no time zone data)"
        raise _misdeclared(timezone, f"{policy}.timezone", fix) from error


def _never_values(values: object) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        raise _misdeclared(values, "TTL.never", "give a tuple of ints, such as (0,)")
    for value in values:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        if not is_int or not -_INT64_LIMIT <= value < _INT64_LIMIT:
            raise _misdeclared(values, "TTL.never", f"{short_repr(value)} is not a 64-bit int")
    return tuple(int(value) for value in values)
