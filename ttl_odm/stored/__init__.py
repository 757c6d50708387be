"""Default ttls that a database stores, so that they change without a deployment: `Stored`.

A program declares the initial value of such a default, and its limits. Only the database knows the
current value. So `Stored` has no "default now": adapters put a look-up of the stored value into
their statements.

An extension:

- `rows`: stored defaults and their changes, as adapters read them;
- `scope_columns`: one form for each value that has a default of its own;
- `scopes`: rows by such values, in reports;
- `scope_walk`: how a sweep goes from one of these values to the next;
- `approval`: a change, previewed and approved; `cli`: the same at a prompt; `flask`: the same for
  operators of an application; `alembic`: stored defaults in migrations;
- `sqlalchemy`, `beanie`, `django`: all that these adapters need for it.

This module must not know how the value is stored, nor the rest of a policy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal, NoReturn

from ttl_odm.core.extension import DefaultExtension
from ttl_odm.core.values import MAX_TTL, NEVER, default_ttl, short_repr, whole_seconds
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.stored.rows import INHERIT

if TYPE_CHECKING:
    from datetime import timedelta

    StoredTTL = float | timedelta | Literal["default"] | None
    """A value to which a stored default can be set."""

DEFAULT: Final = "default"
"""In place of a ttl: removes a scope's own default."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Stored(DefaultExtension):
    """A default ttl that is stored in the database, next to the rows: ``__ttl__ = Stored(3600)``.

    The number is the initial value: `create_all()` or a migration writes it if nothing is stored
    yet. From then on only the stored value counts. A change takes effect with the next statement
    of each process. While nothing is stored, no row expires.

    With `by`, the rows with a certain value in a field, such as those of one tenant, may have a
    default of their own; all others have the table's::

        Stored(3600, by="tenant_id", least=DAY, most=7 * YEAR)

    Attributes:
        start: The initial default ttl: seconds, -1 (on, but never by default) or None (TTL is
            off).
        by: The field whose values may have defaults of their own; None if all rows share one.
        least: The fewest seconds that a stored default may have; None for no limit.
        most: The most seconds, which also rules out -1 and None; None for no limit.
        max_staleness: For how many seconds a process may use the default that it has read. For
            MongoDB only, where reading it costs a round trip. None: each operation reads it.
    """

    start: int | None
    by: str | None
    least: int | None
    most: int | None
    max_staleness: int | None

    def __init__(
        self,
        start: int | float | timedelta | None,  # noqa: PYI041 (as everywhere in the documentation)
        *,
        by: str | None = None,
        least: float | timedelta | None = None,
        most: float | timedelta | None = None,
        max_staleness: float | timedelta | None = None,
    ) -> None:
        """Check and normalise the arguments, which the class describes."""
        if isinstance(start, Mapping):
            _refuse(
                "start", dict(start), "give a single default; TTL({...}, by=...) can't be stored"
            )
        name_of_field: object = by
        if by is not None and not (isinstance(name_of_field, str) and name_of_field.strip()):
            _refuse("by", by, "give a field name as a string")
        limits = {"least": _seconds("least", least), "most": _seconds("most", most)}
        if None not in limits.values() and limits["least"] > limits["most"]:  # type: ignore[operator]
            _refuse("least", least, f"give no more than most={limits['most']}")
        limits["max_staleness"] = _seconds("max_staleness", max_staleness)
        for name, value in {"by": by, **limits}.items():
            object.__setattr__(self, name, value)
        object.__setattr__(self, "start", self.checked(start, where="Stored.start"))

    def checked(self, value: object, *, where: str, is_of_scope: bool = False) -> int | None:
        """Normalise a new value.

        Args:
            value: A default ttl in any form that `default_ttl` accepts; for a scope also "default".
            where: The name of the setting for the error message, such as ``WebSession.__ttl__``.
            is_of_scope: Whether the default is that of a single value of `by`.

        Returns:
            Seconds, -1, None if TTL is off, or 0 (`INHERIT`) for "default".

        Raises:
            InvalidTTL: It is not a ttl, or not between `least` and `most`.
        """
        if value == DEFAULT:
            if is_of_scope:
                return INHERIT
            raise InvalidTTL(
                f'{where} = {value!r}: give seconds. "default" is only for a single value of the '
                "field that `by` names, and removes its own default."
            )
        ttl = default_ttl(value, where=where)
        endless = ttl is None or ttl == NEVER
        if self.least is not None and not endless and ttl < self.least:  # type: ignore[operator]
            raise InvalidTTL(f"{where} = {short_repr(value)}: the least is {self.least} seconds.")
        if self.most is not None and (endless or ttl > self.most):  # type: ignore[operator]
            raise InvalidTTL(f"{where} = {short_repr(value)}: the most is {self.most} seconds.")
        return ttl

    @property
    def shape(self) -> Stored:
        """The part that can't change while the application runs, because the SQL depends on it."""
        return Stored(None, by=self.by)

    def by_column(self, name: str) -> Stored:
        """Return a copy with the name of a column in place of the attribute that `by` names."""
        return replace(self, by=name)

    def without_scopes(
        self, owner: str, scope: object, rows: str = "rows"
    ) -> TTLConfigurationError:
        """Return the error for a scope where all rows, or documents, share one default."""
        return TTLConfigurationError(
            f"{owner}.__ttl__ = {self!r} has one default for all {rows}, and none for "
            f"scope={short_repr(scope)}; declare Stored(..., by='field')."
        )

    def of_whole_table(self, declared: str, owner: str) -> TTLConfigurationError:
        """Return the error for a subclass with a default of its own in the table of its base."""
        return TTLConfigurationError(
            f"{declared}, and a stored default applies to a whole table: declare "
            f"Stored(...) on {owner} only, and no __ttl__ on its subclasses."
        )

    def __repr__(self) -> str:
        """Return the shortest declaration that makes an equal value."""
        names = ("by", "least", "most", "max_staleness")
        rest = (f"{name}={getattr(self, name)!r}" for name in names)
        arguments = [repr(self.start), *(text for text in rest if not text.endswith("=None"))]
        return f"Stored({', '.join(arguments)})"


def _seconds(name: str, value: object) -> int | None:
    seconds = None if value is None else whole_seconds(value, lowest=1)
    if seconds is None and value is not None:
        fix = f"give whole seconds from 1 to {MAX_TTL} as an int, an integral float or a timedelta"
        _refuse(name, value, fix)
    return seconds


def _refuse(name: str, value: object, fix: str) -> NoReturn:
    raise TTLConfigurationError(f"Stored.{name} = {short_repr(value)}: {fix}.")
