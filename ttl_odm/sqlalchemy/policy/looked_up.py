"""`LookedUp`: the base for sources whose default statements look up in the database.

A plain model never imports it. `examples/own_extension` has the shortest subclass.

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
    from collections.abc import Iterator, Mapping

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
    """A parameter that overrules the age looked up: NULL, or `OFF` in executions that ask for it.

    These have the option `overruled_by`, such as ``include_expired``.
    """

    inherit_cache = True

    def __init__(self, default: DefaultTTL, overruled_by: str) -> None:
        self._default = default
        self.overruled_by = overruled_by
        super().__init__("ttl_overruled", None, unique=True, type_=BigInteger())

    @property
    def value(self) -> Any:
        """None; raises if the model has got a declaration whose default isn't looked up."""
        default = self._default
        if getattr(default.owner, "__ttl__", None) is not default.seen:
            default.check()
        return None

    @value.setter
    def value(self, value: object) -> None:
        """SQLAlchemy's constructor sets one."""


@compiles(Overruling)
def _render_overruling(element: Overruling, compiler: SQLCompiler, **kw: Any) -> str:
    # SQLAlchemy would warn of a NULL that is written out, as in a view.
    return "NULL" if kw.get("literal_binds") else str(compiler.visit_bindparam(element, **kw))  # type: ignore[no-untyped-call]


class LookedUp(DefaultSource):
    """A default that each statement looks up; a subclass says where.

    Python can't tell whether the row of an object in memory has expired. This class leaves that to
    the database, with a query for each object that may have. A subclass that caches the default
    overrides the methods for rows in memory.
    """

    is_known: ClassVar[bool] = False

    def __init__(self, binding: Binding) -> None:
        self.binding = binding

    @abstractmethod
    def age(self, columns: SourceColumns, overruled_by: str, *, locking: bool) -> SQL:
        """Return the age at which an inheriting row expires, in seconds.

        `FOREVER` if none ever does, `OFF` while TTL is off. If the parameter
        `Overruling(binding.default, overruled_by)` isn't NULL, its value is the age.

        Args:
            columns: The columns of the row.
            overruled_by: The option of an execution that turns TTL off.
            locking: Whether to take shared locks on the rows that the look-up reads.
        """

    # In statements

    def seconds(self, columns: SourceColumns, part: LifetimePart, moment: Moment) -> SQL:
        """Return the age, or the field that follows from it."""
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
        """Return the expression as a subquery, or SQLite would compute it for each row.

        If each row may have another default, return it unchanged.
        """
        if self.scoping is not None:
            return expression
        return select(expression).correlate(None).scalar_subquery()

    def shortest(self) -> SQL | None:
        """Return None: all rows have one default."""
        return None

    def live_by_age(self, columns: SourceColumns, moment: Moment) -> Condition | None:
        """Return one comparison with the age, and so one look-up.

        It compares the instant from which the row's life counts. For a row that lives by its own
        ttl this is an instant in the future. For one that has outlived its own ttl it is so far in
        the past that every default but `OFF` has ended; with `OFF` the row lives all the same. A
        read looks nothing up for a row that is younger than the shortest default.
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

    def see(self, connection: Connection, options: Mapping[str, object]) -> None:
        """Do nothing: no default is cached."""

    def policy_on(self, dialect: Dialect, scope: object) -> TTL | None:  # noqa: ARG002 (the seam's)
        """Return None: the database is asked."""
        return None

    def policy_as_noted(self, dialect: Dialect | None, scope: object) -> Policy:  # noqa: ARG002 (as above)
        """Raise: no default is cached."""
        raise TTLError(
            f"The default ttl of {self.binding.name} isn't known in Python, only in the database: "
            "select expires_at()."
        )

    # In sweeps

    def ages(self) -> Iterator[tuple[Seconds, list[Condition]]]:
        """Yield one age for all rows."""
        yield self.shortest_age(), []

    def shortest_age(self) -> SQL:
        """Return the expression that looks the age up."""
        columns = self.binding.columns_of(self.binding.table)
        return self.age(columns, BASE_ROW_WRITTEN, locking=False)

    # In the schema

    def prepare_schema(self) -> None:
        """Do nothing."""


def age_in(ttl: SQL) -> SQL:
    """Return the age for a column of ttls: seconds, -1 for never; anything else is `OFF`."""
    return case((ttl > number(0), ttl), (ttl == number(NEVER), FOREVER_SECONDS), else_=OFF_SECONDS)


def number(value: int) -> SQL:
    """Return a number that is written into the SQL."""
    return literal_column(str(value), BigInteger())


FOREVER_SECONDS: Final = number(FOREVER)
OFF_SECONDS: Final = number(OFF)
_BEYOND_FOREVER: Final = number((FOREVER + OFF) // 2)
