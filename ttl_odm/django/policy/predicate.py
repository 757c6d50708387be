"""The one predicate: whether a row is live or expired, as SQL.

Reads, writes, the purge of keys and the sweeper all get their condition here, and nowhere else.
It consists of ranges, because planners can't estimate a COALESCE. Invalid own ttls (0 or -2, from
raw SQL on a table without the CHECK) count as "no override".

Django compiles each statement anew, so results are cached: a `Predicate` for each table or alias,
and in it the SQL for each default.
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
    from collections.abc import Callable, Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.core import Policy
    from ttl_odm.django.policy.bindings import Binding, TablePolicy
    from ttl_odm.django.policy.options import Kind
    from ttl_odm.django.policy.sources import AgeLookup
    from ttl_odm.django.time.fields import SQL, BoundSQL

TRUE, FALSE = "1 = 1", "1 = 0"

_BOOLEAN: BooleanField[bool, bool] = BooleanField()

_SCOPE: Final = re.compile("\0([0-9]+)\0")
"""A placeholder for one of the scopes that a query fixes, by its number."""

_MOST_TEXTS: Final = 100
"""In one `Predicate`: a test's clock, or a function as default, may need any number of them."""


def alias_quoter(compiler: SQLCompiler) -> Callable[[str], str]:
    """Return the function that quotes tables and aliases; before Django 6.1, aliases stay bare."""
    own: Callable[[str], str] | None = getattr(compiler, "quote_name", None)
    return own or compiler.quote_name_unless_alias


class RowCondition(Expression):
    """A condition for rows that the gate adds to a statement."""

    def __init__(self) -> None:
        """Make a boolean expression."""
        super().__init__(output_field=_BOOLEAN)


class Predicate(RowCondition):
    """Whether the row of a table in a statement is live, or whether it is expired."""

    def __init__(
        self, policy: TablePolicy, alias: str, kind: Kind, *, writing: bool = False
    ) -> None:
        """Take the row's table or alias; `writing` judges the row at the moment of the write."""
        super().__init__()
        self.policy = policy
        self.alias = alias
        self.kind: Kind = kind
        self.writing = writing
        self._texts: dict[tuple[object, ...], tuple[str, tuple[int, ...]]] = {}

    @staticmethod
    @functools.lru_cache(maxsize=1_000)
    def of(policy: TablePolicy, alias: str, kind: Kind, *, writing: bool = False) -> Predicate:
        """Return a cached instance, since every statement needs one."""
        return Predicate(policy, alias, kind, writing=writing)

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> BoundSQL:
        """Return the SQL, in parentheses; the only bound values are scopes that the query fixes."""
        alias, family = alias_quoter(compiler)(self.alias), clock.family_of(connection)
        # Everything on which the text depends.
        binding, present = self.policy.binding, family.present(writing=self.writing)
        declared, source = binding.default, binding.source
        scopes: tuple[str, ...] = ()
        if source.is_known:
            default: object = declared()
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
        """Return the text for a table or alias, quoted, whose rows have these scopes, if any."""
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
        """Return the predicate for the table that holds the fields, or its alias, quoted."""
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
    """Whether a row of a query will expire within so many seconds, if nothing changes."""

    def __init__(self, binding: Binding, seconds: int) -> None:
        """Take the table of the rows, and the seconds from now."""
        super().__init__(output_field=_BOOLEAN)
        self._binding = binding
        self._seconds = seconds
        self._stamp: Any = F(binding.stamp.name)

    def get_source_expressions(self) -> list[object]:
        """Return the field with the instant, whose alias is the table's."""
        return [self._stamp]

    def set_source_expressions(self, exprs: Sequence[object]) -> None:
        """Set the field, once resolved."""
        (self._stamp,) = exprs

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> SQL:
        """Return the SQL."""
        source = alias_quoter(compiler)(self._stamp.alias)
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
    """Return SQL for whether a row of a table or alias, quoted, is expired `seconds` from now."""
    if binding.is_off:
        return FALSE
    row = _Row(connection, binding, source, scopes, writing=writing, later=seconds)
    if isinstance(binding.policy, TTL):
        return row.ttl_expired()
    return row.passed(null_expires=_null_expires(binding.policy))


def inherits_in(connection: BaseDatabaseWrapper, binding: Binding, source: str) -> str:
    """Return SQL for whether a row of a table, quoted, has no valid ttl of its own.

    The table must have a column for it.
    """
    return _Row(connection, binding, source, writing=True).inherits


def begun_before(
    connection: BaseDatabaseWrapper, binding: Binding, source: str, seconds: int
) -> str:
    """Return SQL for whether a row's life began so many seconds ago, or earlier."""
    return _Row(connection, binding, source, writing=False).passed_since(seconds)


def _null_expires(policy: Policy) -> bool:
    return isinstance(policy, ExpireAt) and policy.null == "expired"


class _Row:
    """The parts of the predicate for one row, by a clock that is `later` by so many seconds."""

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
        """Whether the end of an inherited life is still to come."""
        lookup = self._looked_up
        if lookup is None:
            ahead = self._is_ahead_of(self._ago(self._binding.seconds))
        else:
            ahead = self._is_ahead_of(self._ago_by(lookup, lookup.age))
            if lookup.shortest is not None:
                # The default of a row that is younger than the shortest one isn't looked up.
                of_all = self._ago_by(lookup, lookup.shortest, of_all=True)
                ahead = f"({self._is_ahead_of(of_all)} OR {ahead})"
            # A column of dates or numbers may hold an instant to which `FOREVER` doesn't reach.
            if self._binding.form != "instant":
                ahead = f"({ahead} OR {lookup.once(lookup.age)} >= {FOREVER})"
        nullable = null_lives and self._binding.stamp.null
        return f"{self._stamp} IS NULL OR {ahead}" if nullable else ahead

    def passed(self, *, null_expires: bool = False) -> str:
        """Whether the end of an inherited life has come; not for NULL, unless `null_expires`."""
        lookup = self._looked_up
        if lookup is None:
            passed = self.passed_since(self._binding.seconds)
            is_null = clock.family_of(self._connection).is_null(self._stamp)
            return f"{is_null} OR ({passed})" if null_expires else passed
        passed = self._has_reached(self._ago_by(lookup, lookup.age))
        if lookup.shortest is not None:
            of_all = self._ago_by(lookup, lookup.shortest, of_all=True)
            passed = f"{self._has_reached(of_all)} AND {passed}"
        is_instant = self._binding.form == "instant"
        return passed if is_instant else f"{passed} AND {lookup.once(lookup.age)} < {FOREVER}"

    def passed_since(self, seconds: int | str | None) -> str:
        """Whether the instant was so many seconds ago, or earlier; not for NULL."""
        return self._has_reached(self._ago(seconds))

    def _ago_by(self, lookup: AgeLookup, age: str, *, of_all: bool = False) -> str:
        """Return the instant at which the life of rows of this age began.

        It is computed once if it is the same for all rows, except that a write judges each row at
        the moment when it is written.
        """
        age = clock.within_dates(self._connection, self._binding.form, age)
        if self._writing:
            return self._ago(lookup.once(age))
        instant = self._ago(age)
        return f"(SELECT {instant})" if of_all else lookup.once(instant)

    def _is_ahead_of(self, instant: str) -> str:
        ahead = f"{self._stamp} > {instant}"
        return f"({ahead} OR NOT {self._is_date})" if self._is_date else ahead

    def _has_reached(self, instant: str) -> str:
        passed = f"{self._stamp} <= {instant}"
        return f"{passed} AND {self._is_date}" if self._is_date else passed

    @property
    def _is_date(self) -> str | None:
        """Whether the column holds an instant; None if it always does."""
        if self._binding.form != "datetime":
            return None
        is_date = clock.family_of(self._connection).is_date(self._stamp)
        return None if is_date is None else is_date.replace("%", "%%")

    @property
    def _no_ttl(self) -> str:
        """Whether the own ttl is invalid, so that it doesn't count."""
        invalid = f"{self._own} <= 0"
        return invalid if self._counting is None else f"({invalid} OR NOT ({self._counting}))"

    @property
    def _limit(self) -> str:
        """The further condition on a valid own ttl, besides that it is above 0."""
        return "" if self._counting is None else f" AND {self._counting}"

    @property
    def _counting(self) -> str | None:
        """Whether an own ttl above 0 is valid; None if every one is."""
        family = clock.family_of(self._connection)
        return family.counting_ttl(self._own, is_checked=self._binding.is_strict)

    @property
    def _life(self) -> str:
        """A row's own ttl as seconds to calculate with."""
        if self._binding.is_strict:
            return self._own
        # A field that is not ours may hold a number that no sum of instants can represent.
        if self._connection.vendor == "postgresql":  # whose product of two int32 is an int32
            return f"CAST(LEAST({self._own}, {MAX_TTL}) AS bigint)"
        return f"(CASE WHEN {self._own} <= {MAX_TTL} THEN {self._own} ELSE {MAX_TTL} END)"

    @property
    def _inherits_end(self) -> bool:
        """Whether a row without a ttl of its own may expire."""
        return self._looked_up is not None or self._binding.seconds is not None

    def ttl_live(self) -> str:
        """Whether a row with a `TTL` policy is live; the negation of `ttl_expired` may be NULL."""
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
        """Whether `_live_by_one_lookup` is applicable and fast: SQLite scans faster by kinds."""
        binding = self._binding
        is_plain = binding.form == "instant" and not binding.stamp.null and binding.is_strict
        return is_plain and self._connection.vendor != "sqlite"

    def _live_by_one_lookup(self, lookup: AgeLookup) -> str:
        """Compare the looked-up default with an instant at which the row's life began.

        For a row that lives by its own ttl this is an instant in the future. For a row that has
        outlived its own ttl it is earlier than any default reaches back, except for `OFF`, under
        which the row lives anyway. The default of a row that is younger than the shortest one isn't
        looked up.
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
        """Join the three kinds of rows by OR: those that inherit, have a ttl, or never expire."""
        own = self._own
        odd, late = f" OR {self._no_ttl}", ""
        if self._connection.vendor == "sqlite" and self._binding.is_strict:
            # Invalid ttls, which only tables older than the CHECK hold, come last: otherwise they
            # would raise the cost of each row with a ttl of its own by half.
            odd, late = "", f"OR ({self._no_ttl} AND ({inherits})) "
        return (
            f"(({own} IS NULL{odd}) AND ({inherits})) "
            f"OR ({own} > 0 AND {self._is_ahead_of(self._ago(self._life))}{self._limit}) "
            f"{late}OR {own} IN ({self._nevers})"
        )

    def _live_by_halves(self, inherits: str) -> str:
        """Join two conditions by AND: the row outlives neither the default nor its own ttl.

        PostgreSQL's planner assumes that conditions are independent. A row's age and its kind of
        ttl are; but the three kinds exclude each other, so from an OR of them it would expect up to
        a quarter too few rows.
        """
        own = self._own
        by_default = [f"({inherits})", f"({own} > 0{self._limit})"]
        lookup = self._looked_up
        if lookup is not None and lookup.shortest is not None:
            by_default.reverse()  # so rows with a ttl of their own need no lookup
        positive = "".join(f" OR {own} = {never}" for never in self._binding.nevers if never > 0)
        own_ahead = self._presumed(self._is_ahead_of(self._ago(self._life)))
        return (
            f"({' OR '.join(by_default)} OR {own} IN ({self._nevers})) "
            f"AND ({own} IS NULL OR {self._no_ttl}{positive} OR {own_ahead})"
        )

    def _presumed(self, condition: str) -> str:
        """Return a condition in a form that PostgreSQL's planner expects of nearly all rows.

        If it can't estimate an inequality, such as one with a sum of columns or a subquery, it
        expects that a third of the rows meets it.
        """
        if self._connection.vendor != "postgresql":
            return condition
        return f"NULLIF({condition}, FALSE) IS NOT NULL"

    @property
    def _nevers(self) -> str:
        return ", ".join(map(str, self._binding.nevers))

    def ttl_expired(self) -> str:
        """Whether a row with a `TTL` policy has expired."""
        inherited = self.passed() if self._inherits_end else FALSE
        if not self._own:
            return inherited
        own, nevers = self._own, self._binding.nevers
        no_positive = "".join(f" AND {own} <> {never}" for never in nevers if never > 0)
        counts = f"{own} > 0{self._limit}{no_positive}"  # a number of seconds
        ended = f"{counts} AND {self.passed_since(self._life)}"
        lookup = self._looked_up
        if lookup is not None:
            ended += f" AND {lookup.once(lookup.age)} <= {FOREVER}"
        return f"({self.inherits} AND {inherited}) OR ({ended})"

    @property
    def inherits(self) -> str:
        """Whether the row has no valid ttl of its own."""
        no_never = "".join(f" AND {self._own} <> {never}" for never in self._binding.nevers)
        return f"({self._own} IS NULL OR ({self._no_ttl}{no_never}))"
