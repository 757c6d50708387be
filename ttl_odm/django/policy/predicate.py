"""The one predicate: whether a row is live or expired, as SQL.

Reads, writes, the purge of keys and the sweeper all get their condition here, and nowhere else.
The form is an OR of ranges, because PostgreSQL's planner estimates it best. Own ttls that are none
(0, -2: raw SQL, where no CHECK kept them out) read as "no override".

The SQL is made when Django compiles the statement, with the default of that moment in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from django.db.models import BooleanField
from django.db.models.expressions import Expression

from ttl_odm.core import TTL, ExpireAt
from ttl_odm.core.values import MAX_TTL
from ttl_odm.django.time import clock

if TYPE_CHECKING:
    from ttl_odm.django.policy.binding import Binding, TablePolicy

Kind = Literal["live", "expired"]

TRUE, FALSE = "1 = 1", "1 = 0"


class Verdict(Expression):
    """Whether the row of a table in a statement is live, or whether it is expired."""

    output_field = BooleanField()
    contains_aggregate = False
    contains_over_clause = False

    def __init__(
        self, place: TablePolicy, alias: str, kind: Kind, *, writing: bool = False
    ) -> None:
        """Say which row.

        Args:
            place: How its table hangs on a policy.
            alias: What the statement calls the table.
            kind: What is asked.
            writing: The statement is an UPDATE or DELETE: judged at the moment of the write.
        """
        super().__init__()
        self.place = place
        self.alias = alias
        self.kind: Kind = kind
        self.writing = writing

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, list[Any]]:
        """Render it; no values are bound."""
        return condition(
            compiler, connection, self.place, self.alias, self.kind, writing=self.writing
        ), []


def condition(  # noqa: PLR0913 (what a statement knows of a row)
    compiler: Any,
    connection: Any,
    place: TablePolicy,
    alias: str,
    kind: Kind,
    *,
    writing: bool = False,
) -> str:
    """The predicate for one table of a statement, in parentheses."""
    binding = place.binding
    quote_name = connection.ops.quote_name
    # Aliases stand unquoted before Django 6.1, which has another name for this.
    quote = getattr(compiler, "quote_name", None) or compiler.quote_name_unless_alias
    if place.link is None:
        return f"({judged(connection, binding, quote(alias), kind, writing=writing)})"
    if binding.is_off:
        return f"({TRUE if kind == 'live' else FALSE})"
    # The table of a multi-table subclass: its rows live and die with those at the root.
    root = quote_name("ttl_root")
    verdict = judged(connection, binding, root, kind, writing=writing)
    table = quote_name(binding.model._meta.db_table)
    pk = quote_name(binding.model._meta.pk.column)
    link = f"{quote(alias)}.{quote_name(place.link.column)}"
    return f"(EXISTS (SELECT 1 FROM {table} {root} WHERE {root}.{pk} = {link} AND ({verdict})))"  # noqa: S608 (names that Django quotes)


def judged(
    connection: Any, binding: Binding, source: str, kind: Kind, *, writing: bool = False
) -> str:
    """The predicate for a table that holds the fields.

    Args:
        connection: Django's.
        binding: The table's policy.
        source: The table or its alias, quoted.
        kind: What is asked.
        writing: As for `Verdict`.
    """
    if binding.is_off:
        return TRUE if kind == "live" else FALSE
    parts = _Parts(connection, binding, source, writing=writing)
    policy = binding.policy
    if isinstance(policy, TTL):
        return parts.ttl_live() if kind == "live" else parts.ttl_expired()
    null = isinstance(policy, ExpireAt) and policy.null == "expired"
    return (
        parts.passed(null_expires=null) if kind == "expired" else parts.ahead(null_lives=not null)
    )


class _Parts:
    """The pieces of the predicate for one row."""

    def __init__(self, connection: Any, binding: Binding, source: str, *, writing: bool) -> None:
        quote = connection.ops.quote_name
        self._connection = connection
        self._binding = binding
        self._writing = writing
        self._stamp = f"{source}.{quote(binding.stamp.column)}"
        self._own = "" if binding.own is None else f"{source}.{quote(binding.own.column)}"

    def _ago(self, seconds: str) -> str:
        return clock.ago(self._connection, self._binding.form, seconds, writing=self._writing)

    def ahead(self, *, null_lives: bool) -> str:
        """The end of an inherited life is still to come."""
        ahead = f"{self._stamp} > {self._ago(str(self._binding.seconds))}"
        return f"{self._stamp} IS NULL OR {ahead}" if null_lives and self._nullable else ahead

    def passed(self, *, null_expires: bool = False) -> str:
        """The end of an inherited life has come; NULL says no unless it is told otherwise."""
        passed = f"{self._stamp} <= {self._ago(str(self._binding.seconds))}"
        return f"{self._stamp} IS NULL OR {passed}" if null_expires else passed

    @property
    def _nullable(self) -> bool:
        return bool(self._binding.stamp.null)

    @property
    def _inherits(self) -> str:
        own = self._own
        others = "".join(f" AND {own} <> {n}" for n in self._binding.nevers)
        return f"({own} IS NULL OR ({self._no_ttl}{others}))"

    @property
    def _has_own(self) -> str:
        others = "".join(f" AND {self._own} <> {n}" for n in self._binding.nevers if n > 0)
        return f"{self._own} > 0{self._at_most}{others}"

    @property
    def _no_ttl(self) -> str:
        """An own ttl that doesn't count."""
        own = self._own
        return f"{own} <= 0" if self._binding.is_strict else f"({own} <= 0 OR {own} > {MAX_TTL})"

    @property
    def _at_most(self) -> str:
        return "" if self._binding.is_strict else f" AND {self._own} <= {MAX_TTL}"

    @property
    def _life(self) -> str:
        """A row's own ttl as seconds to count with."""
        if self._binding.is_strict:
            return self._own
        # A field that is not ours may hold what no sum of instants can take.
        return f"(CASE WHEN {self._own} <= {MAX_TTL} THEN {self._own} ELSE {MAX_TTL} END)"

    def ttl_live(self) -> str:
        """What `ttl_expired` is not, spelled out: NOT would be NULL for a row without a ttl."""
        inherits = self.ahead(null_lives=True) if self._binding.seconds is not None else TRUE
        if not self._own:
            return inherits
        own = self._own
        ahead = f"{own} > 0{self._at_most} AND {self._stamp} > {self._ago(self._life)}"
        never = ", ".join(map(str, self._binding.nevers))
        lives = (
            f"(({own} IS NULL OR {self._no_ttl}) AND ({inherits})) OR ({ahead}) "
            f"OR {own} IN ({never})"
        )
        return f"{lives} OR {self._stamp} IS NULL" if self._nullable else lives

    def ttl_expired(self) -> str:
        """A TTL policy's rows that have expired."""
        inherited = self.passed() if self._binding.seconds is not None else FALSE
        if not self._own:
            return inherited
        own = f"{self._has_own} AND {self._stamp} <= {self._ago(self._life)}"
        return f"({self._inherits} AND {inherited}) OR ({own})"
