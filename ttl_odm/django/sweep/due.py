"""Which rows are due: whether a table has expired rows, since when, and which are next."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, Final

from django.db import connections
from django.db.models import F, Field, Func, IntegerField, Q, QuerySet, Value

from ttl_odm.core import TTL, ExpireAt
from ttl_odm.django.policy.indexes import PartEnd, has_contract_fields
from ttl_odm.django.policy.rules import dependents, rules_below
from ttl_odm.django.policy.sources import INHERITED_AGE
from ttl_odm.django.purge.removal import Removal, every, expired_rows
from ttl_odm.django.sweep.walks import Keys, walk_of
from ttl_odm.django.time import clock
from ttl_odm.django.time.fields import Cutoff, DatabaseNow
from ttl_odm.sweeper import Due, Hooks, Part
from ttl_odm.sweeper.findings import Finding, Severity
from ttl_odm.sweeper.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import TypeAlias

    from django.db.models import Model as Instance
    from django.db.models.expressions import Combinable, Expression

    from ttl_odm.dialects import Family
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.time.fields import AnyField

    Place: TypeAlias = tuple[object, object]
    """Where a batch begins: the value that orders a row, and its key; None is before all keys.

    Without parts, rows are in the order of their keys alone, and the value is None.
    """

_AS_IT_IS: Final[AnyField] = Field()
"""A field that doesn't convert the driver's values."""

_ITSELF: Final = "%(expressions)s"


def find_due(binding: Binding, using: str) -> Due | None:
    """Find out which rows are to be purged; see `ttl_odm.sweeper.Store.due`."""
    due = _find_due(binding, using)
    if due is None or not rules_below(binding.model):
        return due
    parts = due.parts
    if Part.INHERITING in parts and Part.OWN not in parts and binding.own is not None:
        parts = (*parts, Part.OWN)  # dependents may move rows from the first part to it
    further = (dependent.part for dependent in dependents if dependent.is_due(binding, using))
    return replace(due, parts=(*parts, *further))


def _find_due(binding: Binding, using: str) -> Due | None:
    if is_off(binding, using):
        return None
    parts, oldest = [], 0.0
    for part in parts_of(binding):
        if part is Part.ALL:
            # An expired NULL has no age, but all others are in the order of their dates.
            dated = ExpiredRows(binding, using, Part.INHERITING) if binding.own is None else None
            oldest_row = None if dated is None else dated.overdue()
            return Due((Part.ALL,), oldest_row, _loads_rows(binding, using))
        first = _overdue(binding, using, part)
        if first is not None:
            parts.append(part)
            oldest = max(oldest, first)
    return Due(tuple(parts), oldest, bool(parts) and _loads_rows(binding, using))


def _overdue(binding: Binding, using: str, part: Part) -> float | None:
    """Return for how many seconds the first row of a part has been expired; None without rows."""
    walk = walk_of(binding, using) if part is Part.INHERITING else None
    return ExpiredRows(binding, using, part).overdue() if walk is None else walk.overdue()


def is_off(binding: Binding, using: str) -> bool:
    """Whether no row of a table can expire at this moment."""
    return all(default is None for default in binding.source.defaults(using))


def _loads_rows(binding: Binding, using: str) -> bool:
    """Whether rows are deleted as objects even without hooks."""
    return not Removal(binding.model, using, Hooks()).is_plain


def out_of_reach(binding: Binding, using: str) -> list[Finding]:
    """Find rows that no sweep finds; this reads the whole table.

    Reads and the sweeper rely on the CHECK and the NOT NULL of the contract's columns, which raw
    SQL may have disabled.
    """
    connection, own = connections[using], binding.own
    quote, family = connection.ops.quote_name, clock.family_of(connection)
    name = binding.model._meta.db_table
    table, stamp = quote(name), quote(str(binding.stamp.column))
    problems = []
    if own is not None and binding.sweep == "index" and has_contract_fields(binding):
        ttl = quote(str(own.column))
        invalid = f"NOT ({family.ttl_check(ttl)})"
        what = f"with an invalid {own.name}"
        problems.append(("invalid-ttl", what, f"SET {ttl} = NULL WHERE {invalid}"))
    if not binding.stamp.null:
        what = f"without {binding.stamp.name}, which no query returns"
        present = clock.now(connection, binding.form, writing=True).replace("%%", "%")
        fix = f"SET {stamp} = {present} WHERE {family.is_null(stamp)}"
        problems.append(("undated", what, fix))
    elif not isinstance(binding.policy, ExpireAt):
        present = clock.now(connection, binding.form, writing=True).replace("%%", "%")
        what = f"without {binding.stamp.name}, from which their lifetime is counted"
        problems.append(("undated", what, f"SET {stamp} = {present} WHERE {stamp} IS NULL"))
    findings = []
    with connection.cursor() as cursor:
        for code, what, change in problems:
            _, _, condition = change.partition(" WHERE ")
            cursor.execute(f"SELECT COUNT(*) FROM {table} WHERE {condition}")  # noqa: S608 (quoted)
            (rows,) = cursor.fetchone()
            if rows:
                message = f"no sweep finds {counted(rows, 'row')} {what}"
                fix = f"UPDATE {table} {change}"
                is_error = code != "undated" or not binding.stamp.null
                severity = Severity.ERROR if is_error else Severity.WARNING
                findings.append(Finding(severity, code, name, message, fix))
    return findings


def parts_of(binding: Binding) -> list[Part]:
    """Return the parts of a table that are purged separately."""
    policy = binding.policy
    if isinstance(policy, TTL) and binding.own is not None:
        if binding.sweep == "scan" or not has_contract_fields(binding):
            return [Part.ALL]
        inherits = binding.source.shortest_age() is not None
        return [Part.INHERITING, Part.OWN] if inherits else [Part.OWN]
    if isinstance(policy, ExpireAt) and policy.null == "expired":
        return [Part.ALL]
    return [Part.INHERITING] if binding.source.shortest_age() is not None else []


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of a part's rows, of at most the size of a batch.

    Attributes:
        first: The value that orders the first rows.
        beyond: The value that orders the first rows behind the range; None if there are none.
    """

    first: object
    beyond: object

    @property
    def resume(self) -> Place | None:
        """Where the next range begins."""
        return None if self.beyond is None else (self.beyond, None)

    @property
    def is_crowded(self) -> bool:
        """Whether more rows than a batch have the same place, so only keys distinguish them."""
        return bool(self.first == self.beyond)


class ExpiredRows:
    """The expired rows of one part, in the order in which they are purged."""

    def __init__(self, binding: Binding, using: str, part: Part) -> None:
        self._binding = binding
        self._using = using
        self._part = part
        self._among: tuple[object, int | Expression] | None = None

    def among(self, scope: object, life: int | Expression) -> ExpiredRows:
        """Return the rows of one scope (None: of no scope) that inherit, and live for `life`."""
        rows = copy(self)
        rows._among = (scope, life)
        return rows

    def before(self, cutoffs: Mapping[object, Sequence[object]]) -> AnyQuerySet:
        """Return the rows of scopes up to a bookmark, in no order.

        Args:
            cutoffs: The scopes that end at each bookmark.
        """
        return self._before(self._in_order(), cutoffs)

    def every_before(self, cutoffs: Mapping[object, Sequence[object]]) -> AnyQuerySet:
        """Return the same rows as `before`, and rows among them that live longer."""
        return self._before(self._ordered(every(self._binding.model, self._using)), cutoffs)

    def _before(self, rows: AnyQuerySet, cutoffs: Mapping[object, Sequence[object]]) -> AnyQuerySet:
        """Limit rows to scopes, each up to its bookmark in the index."""
        ranges = (
            Q(ttl_of__in=values, ttl_end__lte=self._of_bookmark(cutoff))
            for cutoff, values in cutoffs.items()
        )
        return self._with_scope(rows).filter(reduce(or_, ranges))

    def _with_scope(self, rows: AnyQuerySet) -> AnyQuerySet:
        """Add ``ttl_of``, the scope in the driver's form."""
        assert self._binding.scope is not None  # noqa: S101 (or there are no scopes)
        scope = F(self._binding.scope.attname)
        return rows.annotate(ttl_of=Func(scope, template=_ITSELF, output_field=_AS_IT_IS))

    def all(self) -> AnyQuerySet:
        """Return the rows, with ``ttl_end``, which orders them."""
        rows = self._in_order()
        if self._part is Part.ALL:
            return rows
        return rows.filter(ttl_end__lte=self._cutoff(self._life))

    def _cutoff(self, life: int | Expression) -> Cutoff:
        """Return the value that orders a row whose life has lasted so long by now."""
        if self._is_by_field:
            return Cutoff(life, self._binding.form, self._binding.stamp)
        return Cutoff(life, "instant", PartEnd(F(self._binding.stamp.name)).output_field)

    def _in_order(self) -> AnyQuerySet:
        """Return the part's rows with ``ttl_end``, without the upper bound of expired ones."""
        rows = self._ordered(expired_rows(self._binding.model, self._using))
        if self._among is None:
            return rows
        (scope, _), rows = self._among, self._with_scope(rows)
        return rows.filter(ttl_of__isnull=True) if scope is None else rows.filter(ttl_of=scope)

    def _ordered(self, rows: AnyQuerySet) -> AnyQuerySet:
        binding, part = self._binding, self._part
        stamp = F(binding.stamp.name)
        if part is Part.ALL:
            return rows
        if self._is_by_field:
            return rows.annotate(ttl_end=stamp)
        assert binding.own is not None  # noqa: S101 (else it would be by the field)
        own = binding.own.name
        if part is Part.OWN:
            return rows.filter(**{f"{own}__gt": 0}).annotate(ttl_end=PartEnd(stamp, F(own)))
        return rows.filter(**{f"{own}__isnull": True}).annotate(ttl_end=PartEnd(stamp))

    def after(self, resume: Any) -> AnyQuerySet:
        """Return the rows that come after a place (None: all of them), in order."""
        if self._part is Part.ALL:
            rows, pk = self.all().order_by("pk"), resume and resume[1]
            return rows if pk is None else rows.filter(pk__gt=pk)
        rows = self.all().order_by("ttl_end", "pk")
        if resume is None:
            return rows
        end, pk = self._of_bookmark(resume[0]), resume[1]
        rows = rows.filter(ttl_end__gte=end)
        return rows if pk is None else rows.filter(Q(ttl_end__gt=end) | Q(ttl_end=end, pk__gt=pk))

    def places(self, resume: object, size: int) -> list[Place]:
        """Return the places of the first rows of `after`, `size` of them."""
        end = Value(None, _AS_IT_IS) if self._part is Part.ALL else self._bookmark
        return list(self.after(resume).values_list(end, "pk")[:size])

    def keys(self, resume: object, size: int) -> Keys | None:
        """Return the keys of the first rows of `after`, `size` of them; None if there are none."""
        places = self.places(resume, size)
        resume = places[-1] if len(places) == size else None
        if not places:
            return None
        return Keys([pk for _, pk in places], resume, (places[0][0], None))

    def next_range(self, resume: object, size: int) -> KeyRange | None:
        """Return the range of the next `size` rows, by order alone; None if there are none."""
        ends = self.after(resume).order_by("ttl_end").values_list("ttl_end")
        # Bookmarks of the results: inside, PostgreSQL would compute one for each skipped row.
        lookups = [ends[:1], ends[size : size + 1]]
        first, beyond = scalars(lookups, self._using, self._as_bookmark)
        return None if first is None else KeyRange(first, beyond)

    def within(self, key_range: KeyRange) -> AnyQuerySet:
        """Return the rows of a range, with one upper bound: SQLite may use the wrong one of two."""
        rows = self.all() if key_range.beyond is None else self._in_order()
        rows = rows.filter(ttl_end__gte=self._of_bookmark(key_range.first))
        if key_range.beyond is None:
            return rows
        return rows.filter(ttl_end__lt=self._of_bookmark(key_range.beyond))

    def overdue(self) -> float | None:
        """Return for how many seconds the first row has been expired; None if there are none."""
        earliest = clock.earliest(connections[self._using], self._binding.form)
        clamped = f"CASE WHEN {_ITSELF} < {earliest} THEN {earliest} ELSE {_ITSELF} END"
        order: Combinable = (
            F("ttl_end") if earliest is None else Func(F("ttl_end"), template=clamped)
        )
        life = Value(self._life) if isinstance(self._life, int) else self._life
        rows = self.all().order_by("ttl_end")
        first = rows.values_list(order, DatabaseNow(), life).first()
        if first is None:
            return None
        end, now, seconds = first
        if not isinstance(end, datetime):
            end = datetime.fromtimestamp(float(end) / clock.UNITS[self._binding.form], timezone.utc)
        elif end.tzinfo is None:
            end = end.replace(tzinfo=timezone.utc)
        expired_for: float = (now - end).total_seconds() - seconds
        return max(0.0, expired_for)

    @property
    def _bookmark(self) -> Func:
        """The value that orders a row, in a form for any driver; `_of_bookmark` is the inverse."""
        return Func(F("ttl_end"), template=self._as_bookmark(_ITSELF), output_field=_AS_IT_IS)

    def _as_bookmark(self, end: str) -> str:
        return self._family.bookmark(end) if self._is_by_date else end

    def _of_bookmark(self, value: object) -> Func:
        template = self._family.of_bookmark(_ITSELF) if self._is_by_date else _ITSELF
        bound = Value(value, output_field=_AS_IT_IS)
        return Func(bound, template=template, output_field=_AS_IT_IS)

    @property
    def _is_by_field(self) -> bool:
        """Whether the index is on the field itself, because the contract's fields are missing."""
        return self._binding.own is None or not has_contract_fields(self._binding)

    @property
    def _family(self) -> Family:
        return clock.family_of(connections[self._using])

    @property
    def _is_by_date(self) -> bool:
        return self._part is not Part.ALL and self._binding.form in ("instant", "datetime")

    @property
    def _life(self) -> int | Expression:
        """How long rows live at least from the value that orders them.

        The predicate decides which rows live longer. 0 if that value is the end itself, as for rows
        with their own ttl.
        """
        if self._part is Part.OWN:
            return 0
        if self._among is not None:
            _, life = self._among
            return life
        return self._binding.source.shortest_age() or 0


class EndingRows(ExpiredRows):
    """The live rows of one part that expire within some seconds, in the order of their ends.

    If rows have different defaults, the shortest one is assumed for all.
    """

    def __init__(
        self, binding: Binding, using: str, part: Part, seconds: int, *, since: int | None = None
    ) -> None:
        """Select the rows.

        Args:
            binding: The table's policy.
            using: The alias of the database.
            part: The part.
            seconds: The rows expire within so many seconds from now.
            since: Leave out rows for which that was true so many seconds ago; None for all rows.
        """
        super().__init__(binding, using, part)
        self._seconds = seconds
        self._since = since

    @property
    def is_followed(self) -> bool:
        """Whether the order can tell which rows are new to the range of seconds; see `since`."""
        return self._part is not Part.ALL and self._binding.source.scoping is None

    def page(self, resume: Place | None, size: int) -> list[tuple[Instance, Place]]:
        """Return the first `size` rows after a place (None: of all), each with its own place."""
        rows = self.after(resume)
        if self._part is not Part.ALL:
            rows = rows.annotate(ttl_place=self._bookmark)
        age = self._binding.source.row_age()
        if age is not None:
            rows = rows.annotate(**{INHERITED_AGE: age})
        return [(row, (vars(row).get("ttl_place"), row.pk)) for row in rows[:size]]

    def all(self) -> AnyQuerySet:
        """Return the rows, with ``ttl_end``, which orders them."""
        rows = super().all()
        if self._since is None or self._part is Part.ALL:
            return rows
        return rows.filter(ttl_end__gt=self._cutoff(_longer(self._life, self._since)))

    def _in_order(self) -> AnyQuerySet:
        return self._ordered(QuerySet(model=self._binding.model, using=self._using))

    @property
    def _life(self) -> int | Expression:
        return _longer(super()._life, -self._seconds)


def _longer(life: int | Expression, seconds: int) -> int | Expression:
    if isinstance(life, int):
        return life + seconds
    return Func(life, template=f"({_ITSELF} + {seconds})", output_field=IntegerField())


def scalars(
    queries: Sequence[AnyQuerySet], using: str, form: Callable[[str], str] = str
) -> tuple[Any, ...]:
    """Return the single value of each query, all read by one statement without a FROM.

    Args:
        queries: Querysets of one column and at most one row each.
        using: The alias of the database.
        form: Makes the expression to select of each subquery.
    """
    subqueries, values = _compiled(queries, using)
    with connections[using].cursor() as cursor:
        cursor.execute("SELECT " + ", ".join(form(f"({sql})") for sql in subqueries), values)
        row: tuple[Any, ...] = cursor.fetchone()
    return row


def union(queries: Sequence[AnyQuerySet], using: str) -> list[tuple[Any, ...]]:
    """Return the rows of all the queries, read by one statement."""
    subqueries, values = _compiled(queries, using)
    parts = [f"SELECT * FROM ({sql}) AS part" for sql in subqueries]  # noqa: S608 (of Django's)
    with connections[using].cursor() as cursor:
        cursor.execute(" UNION ALL ".join(parts), values)
        return list(cursor.fetchall())


def _compiled(queries: Sequence[AnyQuerySet], using: str) -> tuple[list[str], list[Any]]:
    compiled = [query.query.get_compiler(using).as_sql() for query in queries]
    return [sql for sql, _ in compiled], [value for _, values in compiled for value in values]
