"""The one predicate: whether a row is live or expired, as SQL.

Reads, writes, the purge of keys and the sweeper all get their condition here, and nowhere else.
It is made of ranges, because planners can't estimate a COALESCE. Own ttls that are none (0, -2: raw
SQL, where no CHECK kept them out) read as "no override".

Django compiles each statement anew, so what this makes is kept: a `Predicate` for each row of a
statement, and its SQL for each default, with which it is asked for whenever that may have changed.
"""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING, Any, Final

from django.db.models import BooleanField, F
from django.db.models.expressions import Expression

from ttl_odm.core import TTL, ExpireAt
from ttl_odm.core.values import FOREVER, MAX_TTL, OFF
from ttl_odm.django.policy.sources import is_locking
from ttl_odm.django.time import clock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.core import Policy
    from ttl_odm.django.policy.bindings import Binding, TablePolicy
    from ttl_odm.django.policy.options import Kind
    from ttl_odm.django.policy.sources import AgeLookup
    from ttl_odm.django.time.fields import SQL

TRUE, FALSE = "1 = 1", "1 = 0"

_BOOLEAN: BooleanField[bool, bool] = BooleanField()

_SCOPE: Final = re.compile("\0([0-9]+)\0")
"""Where a text needs one of the scopes that a query fixes, by its number."""

_MOST_TEXTS: Final = 100
"""Of one `Predicate`: a test's clock, or a default that is a function, may ask for any number."""


class RowCondition(Expression):
    """A condition for rows that the gate adds to a statement."""

    def __init__(self) -> None:
        """It is a boolean."""
        super().__init__(output_field=_BOOLEAN)


class Predicate(RowCondition):
    """Whether the row of a table in a statement is live, or whether it is expired."""

    def __init__(
        self, policy: TablePolicy, alias: str, kind: Kind, *, writing: bool = False
    ) -> None:
        """Say which row; when `writing`, it is judged at the moment of the write."""
        super().__init__()
        self.policy = policy
        self.alias = alias
        self.kind: Kind = kind
        self.writing = writing
        self._texts: dict[tuple[Any, ...], tuple[str, tuple[int, ...]]] = {}

    @staticmethod
    @functools.lru_cache(maxsize=1_000)
    def of(policy: TablePolicy, alias: str, kind: Kind, *, writing: bool = False) -> Predicate:
        """The same, made once: it is asked for with each statement."""
        return Predicate(policy, alias, kind, writing=writing)

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        """Render it, in parentheses; the only bound values are scopes that the query fixes."""
        # Aliases stand unquoted before Django 6.1, which has another name for this.
        quote_alias = getattr(compiler, "quote_name", None) or compiler.quote_name_unless_alias
        alias, family = quote_alias(self.alias), clock.family_of(connection)
        # All that may differ from one time to the next.
        binding, present = self.policy.binding, family.present(writing=self.writing)
        declared, source = binding.default, binding.source
        scopes: tuple[str, ...] = ()
        if source.is_known:
            default: Any = declared()
        else:
            if source.scoping is not None:
                scopes = source.scoping.fixed_in(compiler.query, self.alias, connection)
            default = binding.is_off, is_locking(), len(scopes)
        key = (alias, declared, default, family, present, connection.timezone)
        rendered = self._texts.get(key)
        if rendered is None:
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            places = [f"\0{number}\0" for number in range(len(scopes))]
            text, *rest = _SCOPE.split(self.render(connection, alias, places))
            order = tuple(map(int, rest[::2]))
            rendered = self._texts[key] = "%s".join([text, *rest[1::2]]), order
        if not scopes:
            return rendered
        text, order = rendered
        return text, tuple([scopes[number] for number in order])

    def render(
        self, connection: BaseDatabaseWrapper, alias: str, scopes: Sequence[str] = ()
    ) -> str:
        """Its text for the table, or its alias, quoted, whose rows have these scopes, if any."""
        binding, link = self.policy.binding, self.policy.link
        quote = connection.ops.quote_name
        by_rule = self.policy.condition(connection, alias, self.kind, writing=self.writing)
        if by_rule is not None:
            return f"({by_rule})"
        if link is None:
            return f"({self._of(connection, alias, scopes)})"
        if binding.is_off:
            return f"({TRUE if self.kind == 'live' else FALSE})"
        # The table of a multi-table subclass: its rows live and die with those at the root.
        root, meta = quote("ttl_root"), binding.model._meta
        ends = f"{root}.{quote(str(meta.pk.column))} = {alias}.{quote(str(link.column))}"
        rows = f"{quote(meta.db_table)} {root} WHERE {ends} AND ({self._of(connection, root)})"
        return f"(EXISTS (SELECT 1 FROM {rows}))"  # noqa: S608 (names that Django quotes)

    def _of(self, connection: BaseDatabaseWrapper, source: str, scopes: Sequence[str] = ()) -> str:
        """The predicate for the table that holds the fields, or its alias, quoted."""
        binding, live = self.policy.binding, self.kind == "live"
        if not live:
            return expired_in(connection, binding, source, scopes, writing=self.writing)
        if binding.is_off:
            return TRUE
        row = _Row(connection, binding, source, scopes, writing=self.writing)
        policy = binding.policy
        if isinstance(policy, TTL):
            return row.ttl_live()
        return row.ahead(null_lives=not _null_expires(policy))


class ExpiresWithin(Expression):
    """Whether the row of a query will have expired so many seconds from now, if nothing changes."""

    def __init__(self, binding: Binding, seconds: int) -> None:
        """Say of which table's rows."""
        super().__init__(output_field=_BOOLEAN)
        self._binding = binding
        self._seconds = seconds
        self._stamp: Any = F(binding.stamp.name)

    def get_source_expressions(self) -> list[Any]:
        """The field with the instant, which stands for its table."""
        return [self._stamp]

    def set_source_expressions(self, exprs: Sequence[Any]) -> None:
        """Set it, once it is resolved."""
        (self._stamp,) = exprs

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Render it."""
        quote_alias = getattr(compiler, "quote_name", None) or compiler.quote_name_unless_alias
        source = quote_alias(self._stamp.alias)
        expired = expired_in(connection, self._binding, source, writing=True, seconds=self._seconds)
        return f"(CASE WHEN {expired} THEN 1 ELSE 0 END = 1)", ()  # never NULL: it may be negated


def expired_in(  # noqa: PLR0913 (the pieces of one condition)
    connection: BaseDatabaseWrapper,
    binding: Binding,
    source: str,
    scopes: Sequence[str] = (),
    *,
    writing: bool = False,
    seconds: int = 0,
) -> str:
    """Whether the row of a table, or of its alias, quoted, is expired so many seconds from now."""
    if binding.is_off:
        return FALSE
    row = _Row(connection, binding, source, scopes, writing=writing, later=seconds)
    if isinstance(binding.policy, TTL):
        return row.ttl_expired()
    return row.passed(null_expires=_null_expires(binding.policy))


def inherits_in(connection: BaseDatabaseWrapper, binding: Binding, source: str) -> str:
    """Whether the row of a table, quoted, has no ttl of its own that counts; of those with one."""
    return _Row(connection, binding, source, writing=True).inherits


def begun_before(
    connection: BaseDatabaseWrapper, binding: Binding, source: str, seconds: int
) -> str:
    """Whether the instant that its life counts from was so many seconds ago, or earlier."""
    return _Row(connection, binding, source, writing=False).passed_since(seconds)


def _null_expires(policy: Policy) -> bool:
    return isinstance(policy, ExpireAt) and policy.null == "expired"


class _Row:
    """The pieces of the predicate for one row, by a clock that is so many seconds `later`."""

    def __init__(  # noqa: PLR0913 (as above)
        self,
        connection: BaseDatabaseWrapper,
        binding: Binding,
        source: str,
        scopes: Sequence[str] = (),
        *,
        writing: bool,
        later: int = 0,
    ) -> None:
        quote = connection.ops.quote_name
        self._connection = connection
        self._binding = binding
        self._writing = writing
        self._later = later
        self._looked_up = binding.source.looked_up(connection, source, scopes)
        self._stamp = f"{source}.{quote(str(binding.stamp.column))}"
        if binding.form in clock.FRACTIONAL.values():
            # NaN is above all numbers, and minus infinity is not an instant either.
            self._stamp = (
                f"(CASE WHEN {self._stamp} < {-(2**63)} THEN 1e300 ELSE {self._stamp} END)"
            )
        self._own = "" if binding.own is None else f"{source}.{quote(str(binding.own.column))}"

    def _ago(self, seconds: int | str | None) -> str:
        if self._later and isinstance(seconds, int):
            seconds -= self._later
        elif self._later:
            seconds = f"({seconds} - {self._later})"
        form = self._binding.form
        return clock.ago(self._connection, form, str(seconds), writing=self._writing)

    def ahead(self, *, null_lives: bool) -> str:
        """The end of an inherited life is still to come."""
        if self._looked_up is None:
            ahead = self._ahead(self._binding.seconds)
        else:
            ahead = self._ahead_of(self._looked_up)
        nullable = null_lives and self._binding.stamp.null
        return f"{self._stamp} IS NULL OR {ahead}" if nullable else ahead

    def passed(self, *, null_expires: bool = False) -> str:
        """The end of an inherited life has come; NULL says no, unless it expires."""
        if self._looked_up is not None:
            return self._passed_by(self._looked_up)
        passed = self._passed(self._binding.seconds)
        is_null = clock.family_of(self._connection).is_null(self._stamp)
        return f"{is_null} OR ({passed})" if null_expires else passed

    def passed_since(self, seconds: int) -> str:
        """The instant was so many seconds ago, or earlier; NULL says no."""
        return self._passed(seconds)

    def _ahead_of(self, lookup: AgeLookup) -> str:
        ahead = self._is_ahead_of(self._ago_by(lookup, lookup.age))
        if lookup.shortest is not None:
            # Of young rows nobody has to ask what default they have.
            of_all = self._ago_by(lookup, lookup.shortest, of_all=True)
            ahead = f"({self._is_ahead_of(of_all)} OR {ahead})"
        # A column of dates or numbers may hold one before all ages.
        is_instant = self._binding.form == "instant"
        return ahead if is_instant else f"({ahead} OR {lookup.once(lookup.age)} >= {FOREVER})"

    def _passed_by(self, lookup: AgeLookup) -> str:
        passed = self._has_reached(self._ago_by(lookup, lookup.age))
        if lookup.shortest is not None:
            of_all = self._ago_by(lookup, lookup.shortest, of_all=True)
            passed = f"{self._has_reached(of_all)} AND {passed}"
        is_instant = self._binding.form == "instant"
        return passed if is_instant else f"{passed} AND {lookup.once(lookup.age)} < {FOREVER}"

    def _ago_by(self, lookup: AgeLookup, age: str, *, of_all: bool = False) -> str:
        """The instant so many seconds ago; computed once where it is that of all rows.

        A write judges each row by the moment when it is written.
        """
        age = clock.within_dates(self._connection, self._binding.form, age)
        if self._writing:
            return self._ago(lookup.once(age))
        instant = self._ago(age)
        return f"(SELECT {instant})" if of_all else lookup.once(instant)

    def _ahead(self, seconds: int | str | None) -> str:
        """Some seconds after the instant are still to come, or there is none."""
        return self._is_ahead_of(self._ago(seconds))

    def _is_ahead_of(self, instant: str) -> str:
        ahead = f"{self._stamp} > {instant}"
        return f"({ahead} OR NOT {self._is_date})" if self._is_date else ahead

    def _passed(self, seconds: int | str | None) -> str:
        """Some seconds after the instant have passed."""
        return self._has_reached(self._ago(seconds))

    def _has_reached(self, instant: str) -> str:
        passed = f"{self._stamp} <= {instant}"
        return f"{passed} AND {self._is_date}" if self._is_date else passed

    @property
    def _is_date(self) -> str | None:
        """Whether the column holds an instant; None where it always does."""
        if self._binding.form != "datetime":
            return None
        is_date = clock.family_of(self._connection).is_date(self._stamp)
        return None if is_date is None else is_date.replace("%", "%%")

    @property
    def _no_ttl(self) -> str:
        """An own ttl that doesn't count."""
        none = f"{self._own} <= 0"
        return none if self._counting is None else f"({none} OR NOT ({self._counting}))"

    @property
    def _limit(self) -> str:
        """What stands beside that it is over 0."""
        return "" if self._counting is None else f" AND {self._counting}"

    @property
    def _counting(self) -> str | None:
        family = clock.family_of(self._connection)
        return family.counting_ttl(self._own, is_checked=self._binding.is_strict)

    @property
    def _life(self) -> str:
        """A row's own ttl as seconds to count with."""
        if self._binding.is_strict:
            return self._own
        # A field that is not ours may hold what no sum of instants can take.
        if self._connection.vendor == "postgresql":  # whose product of two int32 is one
            return f"CAST(LEAST({self._own}, {MAX_TTL}) AS bigint)"
        return f"(CASE WHEN {self._own} <= {MAX_TTL} THEN {self._own} ELSE {MAX_TTL} END)"

    @property
    def _inherits_end(self) -> bool:
        """Whether a row without a ttl of its own may expire."""
        return self._looked_up is not None or self._binding.seconds is not None

    def ttl_live(self) -> str:
        """What `ttl_expired` is not, spelled out: NOT would be NULL for a row without a ttl."""
        lookup = self._looked_up
        if lookup is not None and self._own and self._is_compared_at_once:
            return self._live_by_one_lookup(lookup)
        inherits = self.ahead(null_lives=True) if self._inherits_end else TRUE
        if not self._own:
            return inherits
        if self._connection.vendor == "postgresql":
            lives = self._live_by_halves(inherits)
        else:
            lives = self._live_by_kinds(inherits)
        if lookup is not None:
            is_off = f"{lookup.once(lookup.age)} > {FOREVER}"
            lives += f" OR {self._presumed(is_off)}"
        return f"{lives} OR {self._stamp} IS NULL" if self._binding.stamp.null else lives

    @property
    def _is_compared_at_once(self) -> bool:
        """Whether `_live_by_one_lookup` is as good as it is short; SQLite scans faster by kinds."""
        binding = self._binding
        is_plain = binding.form == "instant" and not binding.stamp.null and binding.is_strict
        return is_plain and self._connection.vendor != "sqlite"

    def _live_by_one_lookup(self, lookup: AgeLookup) -> str:
        """A comparison of what is looked up with the instant that a row's life counts from.

        For a row that lives by its own ttl this is an instant still to come. For one that has
        outlived its own it is one before all that a default reaches back to, but for `OFF`: then
        the row lives all the same. Nothing is looked up for a row that is younger than the shortest
        default.
        """
        own, start = self._own, self._stamp
        to_come, beyond_forever = self._ago(-FOREVER), self._ago((FOREVER + OFF) // 2)
        begin = (
            f"CASE WHEN {own} IS NULL THEN {start} "
            f"WHEN {own} IN ({self._nevers}) OR {start} > {self._ago(own)} THEN {to_come} "
            f"WHEN {own} > 0 THEN {beyond_forever} ELSE {start} END"
        )
        reached = f"{begin} <= {self._ago_by(lookup, lookup.age)}"
        if lookup.shortest is not None:
            of_all = self._ago_by(lookup, lookup.shortest, of_all=True)
            reached = f"{begin} <= {of_all} AND {reached}"
        return self._presumed(f"(({reached}) IS NOT TRUE)")

    def _live_by_kinds(self, inherits: str) -> str:
        """An OR of the rows that inherit, those with a ttl of their own, and those with "never"."""
        own = self._own
        odd, late = f" OR {self._no_ttl}", ""
        if self._connection.vendor == "sqlite" and self._binding.is_strict:
            # What only tables from before the CHECK hold is asked for last: it would cost each row
            # with a ttl of its own half as much again as all the rest.
            odd, late = "", f"OR ({self._no_ttl} AND ({inherits})) "
        return (
            f"(({own} IS NULL{odd}) AND ({inherits})) "
            f"OR ({own} > 0 AND {self._ahead(self._life)}{self._limit}) "
            f"{late}OR {own} IN ({self._nevers})"
        )

    def _live_by_halves(self, inherits: str) -> str:
        """An AND: the row doesn't outlive the default, nor a ttl of its own.

        PostgreSQL's planner takes conditions for independent of each other. A row's age and what
        kind of ttl it has are; the three kinds exclude each other, so of an OR of them it would
        expect up to a quarter too few rows.
        """
        own = self._own
        by_default = [f"({inherits})", f"({own} > 0{self._limit})"]
        lookup = self._looked_up
        if lookup is not None and lookup.shortest is not None:
            by_default.reverse()  # of rows with a ttl of their own no default is looked up
        positive = "".join(f" OR {own} = {never}" for never in self._binding.nevers if never > 0)
        own_ahead = self._presumed(self._ahead(self._life))
        return (
            f"({' OR '.join(by_default)} OR {own} IN ({self._nevers})) "
            f"AND ({own} IS NULL OR {self._no_ttl}{positive} OR {own_ahead})"
        )

    def _presumed(self, condition: str) -> str:
        """The same condition; true of nearly all rows where PostgreSQL's planner can't look at it.

        It would expect an inequality to hold for a third of them, such as one of a sum of columns,
        or of what a subquery reads.
        """
        if self._connection.vendor != "postgresql":
            return condition
        return f"NULLIF({condition}, FALSE) IS NOT NULL"

    @property
    def _nevers(self) -> str:
        return ", ".join(map(str, self._binding.nevers))

    def ttl_expired(self) -> str:
        """A TTL policy's rows that have expired."""
        inherited = self.passed() if self._inherits_end else FALSE
        if not self._own:
            return inherited
        own, nevers = self._own, self._binding.nevers
        no_positive = "".join(f" AND {own} <> {never}" for never in nevers if never > 0)
        counts = f"{own} > 0{self._limit}{no_positive}"  # a number of seconds
        ended = f"{counts} AND {self._passed(self._life)}"
        lookup = self._looked_up
        if lookup is not None:
            ended += f" AND {lookup.once(lookup.age)} <= {FOREVER}"
        return f"({self.inherits} AND {inherited}) OR ({ended})"

    @property
    def inherits(self) -> str:
        """The row has no ttl of its own that counts."""
        no_never = "".join(f" AND {self._own} <> {never}" for never in self._binding.nevers)
        return f"({self._own} IS NULL OR ({self._no_ttl}{no_never}))"
