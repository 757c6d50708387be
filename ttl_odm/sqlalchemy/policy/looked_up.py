"""Defaults that statements look up in the database: `LookedUp`, which extensions derive from.

A plain model never imports it. `examples/own_extension` is the shortest source made of it.

This module must not know which extensions there are.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final

from sqlalchemy import (
    BigInteger,
    BindParameter,
    Boolean,
    ColumnElement,
    Integer,
    and_,
    case,
    literal_column,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.ext.compiler import compiles

from ttl_odm.core.values import FOREVER, NEVER, OFF
from ttl_odm.errors import TTLError
from ttl_odm.sqlalchemy.compat import SQLTemplate
from ttl_odm.sqlalchemy.policy.predicate import BASE_ROW_WRITTEN
from ttl_odm.sqlalchemy.policy.sources import DefaultSource
from ttl_odm.sqlalchemy.time.clock import Native

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler

    from ttl_odm.core.policy import TTL, Policy
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.sources import (
        DefaultTTL,
        LifetimePart,
        Moment,
        Seconds,
        SourceColumns,
    )

    SQL = ColumnElement[Any]
    Condition = ColumnElement[bool]


class Overruling(BindParameter[Any]):
    """NULL, so that what is looked up counts; `OFF` in an execution that asks for it.

    The execution names `overruled_by`, as `include_expired` does.
    """

    inherit_cache = True

    def __init__(self, default: DefaultTTL, overruled_by: str) -> None:
        self._default = default
        self.overruled_by = overruled_by
        super().__init__("ttl_overruled", None, unique=True, type_=BigInteger())

    @property
    def value(self) -> Any:
        """None; raises where the model declares by now that its default isn't looked up."""
        default = self._default
        if getattr(default.owner, "__ttl__", None) is not default.seen:
            default.check()
        return None

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


@compiles(Overruling)
def _render_overruling(element: Overruling, compiler: SQLCompiler, **kw: Any) -> str:
    # Of a NULL that is written out, as in a view, SQLAlchemy would warn.
    return "NULL" if kw.get("literal_binds") else str(compiler.visit_bindparam(element, **kw))  # type: ignore[no-untyped-call]


class LookedUp(DefaultSource):
    """A default that every statement looks up for itself; a subclass says where.

    Of an object in memory Python can't tell whether its row has expired. By itself this source
    leaves that to the database, with a query for each object that may have. A subclass that notes
    what it has read overrides the methods for rows in memory.
    """

    is_known: ClassVar[bool] = False

    def __init__(self, binding: Binding) -> None:
        self.binding = binding

    @abstractmethod
    def age(self, columns: SourceColumns, overruled_by: str, *, locking: bool) -> SQL:
        """The age at which a row expires that inherits, in seconds.

        `FOREVER` where none ever does, `OFF` while TTL is off, which is also what
        `Overruling(binding.default, overruled_by)` makes of it where that isn't NULL.

        Args:
            columns: The columns of the row.
            overruled_by: The parameter of an execution that turns TTL off.
            locking: Whether what is read is to be locked, shared.
        """

    # In statements

    def seconds(self, columns: SourceColumns, part: LifetimePart, moment: Moment) -> SQL:
        """The age, or what follows from it."""
        age = self.age(columns, moment.overruled_by, locking=moment.locking)
        if part == "inherited_age":
            return age
        age = self.once(age)
        if part == "inherited_life":
            return case((age < FOREVER_SECONDS, age))
        limit = self.binding.max_lifetime
        longest = OFF_SECONDS if limit is None else number(limit.seconds)
        while_on, while_off = {
            "own_slack": (number(0), OFF_SECONDS),
            "own_life": (number(0), None),
            "max_age": (longest, OFF_SECONDS),
            "max_life": (longest, None),
        }[part]
        return case((age <= FOREVER_SECONDS, while_on), else_=while_off)

    def once(self, expression: SQL) -> SQL:
        """As a subquery, or SQLite would compute for each row what has a subquery in it.

        As it is where each row may have another default.
        """
        if self.scoping is not None:
            return expression
        return select(expression).correlate(None).scalar_subquery()

    def shortest(self) -> SQL | None:
        """None: all rows have one default."""
        return None

    def live_by_age(self, columns: SourceColumns, moment: Moment) -> Condition | None:
        """One comparison with what is looked up, and so one look-up.

        It is compared with the instant that a row's life counts from. For a row that lives by its
        own ttl this is an instant still to come. For one that has outlived its own it is one before
        all that a default reaches back to, but for `OFF`: then the row lives all the same. In a
        read, nothing is looked up for a row that is younger than the shortest default.
        """
        clock, column_format = moment.clock, self.binding.instants.on(moment.clock)
        if columns.override is None or not isinstance(column_format, Native):
            return None
        start = column_format.plain(columns.last_modified)
        own, forever = type_coerce(columns.override, Integer()), clock.span(FOREVER_SECONDS)
        is_never = (own == number(never) for never in self.binding.nevers)
        begin = case(
            (own.is_(None), start),
            (or_(*is_never, start > moment.now - clock.span(own)), moment.now + forever),
            (own > number(0), moment.now - clock.span(_BEYOND_FOREVER)),
            else_=start,
        )
        age = self.age(columns, moment.overruled_by, locking=moment.locking)
        reached, of_all = begin <= self.ago(age, moment), self.shortest_ago(moment)
        if of_all is not None and not moment.writing:
            reached = and_(begin <= of_all, reached)
        return SQLTemplate("(({0}) IS NOT TRUE)", Boolean(), reached)

    # For rows in memory

    def see(self, connection: Connection) -> None:
        """Note nothing."""

    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:  # noqa: ARG002 (the seam's)
        """None: the database is asked."""
        return None

    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> Policy:  # noqa: ARG002 (as above)
        """Raise: nothing was noted."""
        raise TTLError(
            f"The default ttl of {self.binding.name} isn't known in Python, only in the database: "
            "select expires_at()."
        )

    # In sweeps

    def ages(self) -> Iterator[tuple[Seconds, list[Condition]]]:
        """One for all rows."""
        yield self.shortest_age(), []

    def shortest_age(self) -> SQL:
        """What looks the age up."""
        columns = self.binding.columns_of(self.binding.table)
        return self.age(columns, BASE_ROW_WRITTEN, locking=False)

    # In the schema

    def prepare_schema(self) -> None:
        """Do nothing."""


def age_in(ttl: SQL) -> SQL:
    """The age that a column of ttls means: seconds, -1 for never; anything else is `OFF`."""
    return case((ttl > number(0), ttl), (ttl == number(NEVER), FOREVER_SECONDS), else_=OFF_SECONDS)


def number(value: int) -> SQL:
    """A number that stands in the SQL itself."""
    return literal_column(str(value), BigInteger())


FOREVER_SECONDS: Final = number(FOREVER)
OFF_SECONDS: Final = number(OFF)
_BEYOND_FOREVER: Final = number((FOREVER + OFF) // 2)
