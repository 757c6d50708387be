"""Which rows expire with others, or keep others from going: rules, and foreign keys.

An extension puts a `Rule` on a table without a policy (`bind_rule`); `rules_below` finds those that
lead to a table, and `remove_dependents` removes their rows before the rows that they belong to.

A `Change` is a DELETE, or an UPDATE of a key, and its consequences are what it means for the rows
that refer to those it changes. An expired row doesn't exist, so it may keep no other from going.
The foreign keys that are declared tell which tables may have such rows: those of tables with a
policy, of their joined subclasses and of tables with a rule, and those above them by which the
database hands a change on (ON DELETE CASCADE).

Two kinds of expired rows must be removed before the database gets at them. A cascade would delete
the rows of a *recorded* model (one with an archive, hooks or ``__ttl_purge__ = "orm"``) without a
trace. And a foreign key that writes to a column of the policy itself (SET NULL on the column of
scopes) would give an expired row another lifetime.

All these tables are asked, whatever their `MetaData`: on which base a model was declared says
nothing about the database that it is in.

This module must not know which extensions there are.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakKeyDictionary

from sqlalchemy import Column, ColumnElement, Table, or_, true
from sqlalchemy.exc import InvalidRequestError, NoReferenceError

from ttl_odm.sqlalchemy.compat import ANNOTATED
from ttl_odm.sqlalchemy.policy.bindings import (
    Binding,
    all_subtables,
    bind_info,
    binding_of,
    bound_tables,
    copying,
    first_of,
    root_binding_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.rules import Removed
from ttl_odm.sweeper.hooks import Hooks

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Connection, ForeignKeyConstraint
    from sqlalchemy.orm import Mapper

    from ttl_odm.core.extension import Extension
    from ttl_odm.sqlalchemy.policy.rules import Dependents, Keys, Rule

    References = Mapping[str, list["_Reference"]]
    """By the full name of the table that they refer to."""

    Recorded = frozenset[Table]
    """The tables of recorded models."""

RULE_KEY: Final = "ttl_odm.rule"
"""Where a table has its `Rule`."""

_BELOW: Final = "ttl_odm.rules_below"
"""In ``MetaData.info``: the rules that lead to each of its tables, while no table is added."""

_NO_HOOKS: Final = Hooks()

_CONSEQUENCES: Final = "ttl_odm.consequences"
"""In ``MetaData.info``: what changes of its tables mean, while no table is added."""

dependents: Final[list[Dependents]] = []
"""Those of the extensions that models have asked for."""

done_by_flush: ContextVar[set[object] | None] = ContextVar("ttl_odm_done_by_flush", default=None)
"""What rules have done once for the flush at hand; None outside of one."""

ruled_tables: Final[WeakKeyDictionary[Table, None]] = WeakKeyDictionary()
"""Every table with a rule, while it is in use; copies by `to_metadata` aside."""


class GatedTables:
    """Every table whose expired rows aren't seen: see `BoundTables`, and `ruled_tables`."""

    def __iter__(self) -> Iterator[Table]:
        yield from bound_tables
        references = ruled_tables.keyrefs()
        yield from (table for reference in references if (table := reference()) is not None)


gated_tables: Final = GatedTables()


def bind_extension(mapper: Mapper[Any], cls: type, declared: Extension) -> None:
    """Let the package of a declaration put it on the table of a class."""
    import_module(declared.package("sqlalchemy")).bind(mapper, cls, declared)


def bind_rule(table: Table, rule: Rule) -> None:
    """Put a rule on a table."""
    bind_info(table, RULE_KEY, rule)
    ruled_tables[table] = None
    bound_tables.changed()


def rule_of(table: object) -> Rule | None:
    """The rule of a table, or None where it has none."""
    original = getattr(table, ANNOTATED, table)
    if not isinstance(original, Table):
        return None
    rule: Rule | None = original.info.get(RULE_KEY)
    if rule is not None and rule.table is not original:  # to_metadata() copies `info`
        with copying:
            rule = cast("Rule", original.info[RULE_KEY])
            if rule.table is not original:
                rule = rule.on(original)
                bind_info(original, RULE_KEY, rule)
    return rule


def index_link(table: Table) -> None:
    """Give a table the index of its link, if a rule asks for one.

    Only once the table is needed: a declaration that comes later may have such an index.

    Raises:
        TTLConfigurationError: The link is misdeclared.
    """
    rule = rule_of(table)
    if rule is not None:
        rule.add_index()


def root_of(table: Table) -> Binding | None:
    """The policy that says when rows of a table expire: its own, or that at the end of its rule."""
    rule = rule_of(table)
    while rule is not None:
        table = rule.links().parent
        rule = rule_of(table)
    return root_binding_of(table)


def rules_below(table: Table) -> Sequence[Rule]:
    """The rules whose parent is a table."""
    metadata = table.metadata
    state = bound_tables.changes, len(metadata.tables)
    # Each DELETE asks. Kept beside the tables that it names, so that they may go together.
    known_state, known = metadata.info.get(_BELOW, (None, {}))
    if known_state != state:
        known = defaultdict(list)
        for rule in filter(None, map(rule_of, tuple(metadata.tables.values()))):
            known[rule.links().parent].append(rule)
        metadata.info[_BELOW] = state, known
    return known.get(table, ())  # type: ignore[no-any-return]


def all_rules_below(table: Table) -> list[Rule]:
    """The rules that lead to a table at whatever depth, those of parents before the others."""
    tables, every = [table], list[Rule]()
    while tables:
        below = rules_below(tables.pop())
        every += below
        tables += [rule.table for rule in below]
    return every


def reason_of_dependents(binding: Binding) -> str | None:
    """Why the rows of a policy can't go alone; None if they can."""
    if not rules_below(binding.table):
        return None
    return next(filter(None, (one.reason(binding) for one in dependents)), None)


def remove_dependents(
    connection: Connection, binding: Binding, keys: Keys, limit: int | None = None
) -> Removed:
    """Remove what goes before rows of a policy, by primary key."""
    rows: Counter[str] = Counter()
    if not rules_below(binding.table):
        return Removed(rows)
    for one in dependents:
        left = None if limit is None else limit - rows.total()
        removed = one.remove(connection, binding, keys, left)
        rows += removed.rows
        if not removed.is_done:
            return Removed(rows, is_done=False)
    return Removed(rows)


@dataclass(frozen=True, slots=True)
class Change:
    """What becomes of rows of a table: they are deleted, or columns (by key) get other values.

    `by_cascade`: the database does it, so the rows, and rows that expire with them, may have
    expired. A statement changes live rows, and what expires with these is live too. `with_parent`:
    they go with their parent, and rows of the same family don't keep them, as these go too.
    """

    table: Table
    columns: frozenset[str] | None = None
    by_cascade: bool = False
    with_parent: bool = False

    def consequences(self, hooks: Hooks = _NO_HOOKS) -> Sequence[Consequence]:
        """What it does to the rows that refer to these, where expired ones can be in its way.

        `hooks` are those that will be called, besides what the models declare.
        """
        metadata = self.table.metadata
        state = bound_tables.changes, len(metadata.tables)
        # Of all foreign keys of all tables, which is too much for each execution. Kept beside the
        # tables that it names, so that they may go together.
        known_state, known = metadata.info.get(_CONSEQUENCES, (None, {}))
        if known_state != state:
            known = {}
            metadata.info[_CONSEQUENCES] = state, known
        if self not in known:
            known[self] = list(self._cascading(_references(), set())), {}
        cascading, by_recorded = known[self]
        # A model may get its archive, and a sweeper its hooks, after the table got its policy.
        recorded = frozenset(binding.table for binding in cascading if is_recorded(binding, hooks))
        if recorded not in by_recorded:
            references = _references()
            by_recorded[recorded] = [
                consequence
                for consequence in self._outcomes(references, recorded)
                if consequence.change is None
                or consequence.change._leads_on(references, recorded, set())  # noqa: SLF001 (its own)
            ]
        return by_recorded[recorded]  # type: ignore[no-any-return]

    def recorded(self, hooks: Hooks = _NO_HOOKS) -> tuple[bool, ...]:
        """Which of the models that a cascade reaches are recorded: it may change at any time."""
        self.consequences(hooks)
        _, known = self.table.metadata.info[_CONSEQUENCES]
        return tuple(is_recorded(binding, hooks) for binding in known[self][0])

    def endangers_rows(
        self, hooks: Hooks = _NO_HOOKS, seen: frozenset[Change] = frozenset()
    ) -> bool:
        """Whether the database would get at expired rows that must be removed before."""
        return any(
            consequence.is_silent
            or (
                consequence.change is not None
                and consequence.change not in seen
                and consequence.change.endangers_rows(hooks, seen | {self})
            )
            for consequence in self.consequences(hooks)
        )

    def _cascading(self, references: References, seen: set[Change]) -> Iterator[Binding]:
        """The policies of the tables that the database would delete rows of."""
        for outcome in self._outcomes(references, frozenset()):
            change = outcome.change
            if change is None or change in seen:
                continue
            seen.add(change)
            binding = root_binding_of(change.table)
            if binding is not None and change.columns is None:
                yield binding
            yield from change._cascading(references, seen)  # noqa: SLF001 (its own)

    def _leads_on(self, references: References, recorded: Recorded, seen: set[Change]) -> bool:
        """Whether an expired row can be in its way, however far below."""
        if self in seen:
            return False
        seen.add(self)
        return any(
            outcome.change is None or outcome.change._leads_on(references, recorded, seen)  # noqa: SLF001
            for outcome in self._outcomes(references, recorded)
        )

    def _outcomes(self, references: References, recorded: Recorded) -> Iterator[Consequence]:
        binding = binding_of(self.table) if self.columns is None else None
        # What a joined subclass has of a row goes with it.
        subtables = [] if binding is None else [sub.table for sub in all_subtables(binding)]
        # Rows whose rule leads here are deleted, whatever their foreign key says.
        below = rules_below(self.table) if self.columns is None else ()
        links = {rule.table: rule.links() for rule in below}
        for table in (self.table, *subtables):
            for reference in references.get(table.fullname, ()):
                if not reference.reaches(table):
                    continue
                for outcome in reference.outcomes(table, self.columns, recorded):
                    if outcome.is_link and not self.by_cascade:
                        continue
                    if self.with_parent and outcome.change is None and self._is_family(outcome):
                        continue
                    yield outcome
                    link = links.get(outcome.table)
                    is_gone = outcome.rule is not None or (
                        outcome.change is not None and outcome.change.columns is None
                    )
                    if link is not None and is_gone and set(link.own) == set(outcome.columns):
                        del links[outcome.table]
        for table, link in links.items():
            own, theirs = tuple(link.own), tuple(link.theirs)
            yield Consequence(own, theirs, None, Change(table, with_parent=True), is_certain=True)

    def _is_family(self, outcome: Consequence) -> bool:
        return root_of(outcome.table) is root_of(self.table)


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a change of rows does to those that refer to them by one foreign key.

    Either they are changed too (`change`), or expired ones of the policy `binding`, or of the table
    of a `rule`, have to go before: they restrict it, or the database wouldn't treat them as their
    model says (`is_silent`).

    Attributes:
        columns: What refers to rows.
        referred: The columns of the rows that change, or of what a joined subclass has of them.
        is_certain: Whether the referring table is in the same database. Where its foreign key has
            only the name of a table, which its own `MetaData` doesn't know, it may not be.
        is_silent: Whether the database raises no error if they are still there.
        cascades: Whether that is so because it would delete them.
    """

    columns: tuple[Column[Any], ...]
    referred: tuple[Column[Any], ...]
    binding: Binding | None
    change: Change | None
    is_certain: bool
    is_silent: bool = False
    cascades: bool = False
    rule: Rule | None = None

    @property
    def table(self) -> Table:
        """The table that refers."""
        return self.columns[0].table

    @property
    def child(self) -> Binding | Rule | Change:
        """The kind of the rows that refer, or what becomes of them."""
        child = self.change or self.binding or self.rule
        assert child is not None  # noqa: S101 (one of the three it has)
        return child

    @property
    def is_link(self) -> bool:
        """Whether the rows that restrict it expire with those that they refer to."""
        return self.rule is not None and set(self.rule.links().own) == set(self.columns)

    def refers_to_another_row(self) -> ColumnElement[bool]:
        """The condition for rows that don't refer to themselves by it, which is not an obstacle."""
        if self.rule is None and self.binding is not root_binding_of(self.referred[0].table):
            return true()
        sub = sub_binding_of(self.table)
        own = {} if sub is None else {root: column for column, root in sub.keys}
        own.update((column, column) for column in self.table.c)
        if not own.keys() >= set(self.referred):
            return true()
        pairs = zip(self.columns, self.referred, strict=True)
        return or_(*(column != own[referred] for column, referred in pairs))


@dataclass(frozen=True, slots=True)
class _Reference:
    """A foreign key as it is declared, to columns of these keys.

    `parent` is the table that it refers to, None where its `MetaData` has only the name.
    """

    constraint: ForeignKeyConstraint
    columns: tuple[Column[Any], ...]
    keys: tuple[str, ...]
    parent: Table | None
    name: str

    @classmethod
    def of(cls, constraint: ForeignKeyConstraint) -> _Reference | None:
        columns = tuple(element.parent for element in constraint.elements)
        try:
            referred = [element.column for element in constraint.elements]
        except NoReferenceError:
            pass
        else:
            parent = referred[0].table
            keys = tuple(column.key for column in referred)
            return cls(constraint, columns, keys, parent, parent.fullname)
        try:
            names = [element.target_fullname.rpartition(".") for element in constraint.elements]
        except InvalidRequestError:  # a dot in a name
            return None
        name, schema = names[0][0], constraint.table.metadata.schema
        if schema and "." not in name:
            name = f"{schema}.{name}"
        return cls(constraint, columns, tuple(key for *_, key in names), None, name)

    def reaches(self, table: Table) -> bool:
        """Whether it refers to a table of its name: that one, or whichever is called so."""
        if self.parent is not None:
            return self.parent is table
        return all(key in table.c for key in self.keys)

    def outcomes(
        self, parent: Table, changed: frozenset[str] | None, recorded: Recorded
    ) -> Iterator[Consequence]:
        """What it does when rows of a table are deleted, or these columns of them changed.

        Nothing where expired rows can have nothing to do with it.
        """
        outcome = self._outcome(parent, changed)
        if outcome is None:
            return
        yield outcome
        change, binding = outcome.change, root_binding_of(self.constraint.table)
        if change is None or binding is None:
            return
        if change.columns is None:
            goes_first = binding.table in recorded
        else:
            goes_first = change.table is binding.table and any(
                column.key in change.columns or column.computed is not None
                for column in binding.columns
            )
        if goes_first:
            cascades = change.columns is None
            yield replace(outcome, binding=binding, change=None, is_silent=True, cascades=cascades)

    def _outcome(self, parent: Table, changed: frozenset[str] | None) -> Consequence | None:
        if changed is not None and changed.isdisjoint(self.keys):
            return None
        constraint, table = self.constraint, self.constraint.table
        action = (constraint.ondelete if changed is None else constraint.onupdate) or ""
        sub, change = sub_binding_of(table), None
        is_own_part = (  # what a joined subclass has of the same row
            sub is not None
            and root_binding_of(parent) is sub.base
            and {own for own, _ in sub.keys}.issuperset(self.columns)
        )
        if action.upper() == "CASCADE":
            if is_own_part and changed is None and binding_of(parent) is not None:
                return None  # see `Change._outcomes`
            pairs = zip(self.columns, self.keys, strict=True)
            columns = (
                None
                if changed is None
                else frozenset(column.key for column, key in pairs if key in changed)
            )
            change = Change(table, columns, by_cascade=True)
        elif action.upper().startswith("SET"):
            columns = frozenset(column.key for column in self.columns)
            change = Change(table, columns, by_cascade=True)
        binding, rule = root_binding_of(table), rule_of(table)
        if change is None and (is_own_part or (binding is None and rule is None)):
            return None
        return Consequence(
            self.columns,
            tuple(parent.c[key] for key in self.keys),
            binding if change is None else None,
            change,
            self.parent is parent,
            rule=rule if change is None else None,
        )


def is_recorded(binding: Binding, hooks: Hooks = _NO_HOOKS) -> bool:
    """Whether expired rows of a table are archived, reported to hooks, or deleted by the ORM."""
    owner = binding.default.owner
    return (
        getattr(owner, "__ttl_archive__", None) is not None
        or bool(getattr(owner, "__ttl_on_purged__", None))
        or getattr(owner, "__ttl_purge__", "delete") != "delete"
        or hooks.watches(binding.table.fullname)
    )


def _references() -> References:
    """The foreign keys of all tables whose rows may expire, and of those above them."""
    return _references_above(table for table in gated_tables if first_of(table) is table)


def _references_above(tables: Iterable[Table]) -> References:
    """The foreign keys of tables, those of the tables that they refer to, and so on."""
    references: dict[str, list[_Reference]] = defaultdict(list)
    known = dict.fromkeys(tables)
    waiting = list(known)
    while waiting:
        for constraint in waiting.pop().foreign_key_constraints:
            reference = _Reference.of(constraint)
            if reference is not None:
                references[reference.name].append(reference)
                if reference.parent is not None and reference.parent not in known:
                    known[reference.parent] = None
                    waiting.append(reference.parent)
    return references


def names_above(tables: Iterable[Table]) -> set[str]:
    """The names, without schemas, of the tables whose rows those of these hang on."""
    return {name.rpartition(".")[2] for name in _references_above(tables)}


def referred_table(constraint: ForeignKeyConstraint) -> Table | None:
    """The table that a foreign key refers to; None where that isn't declared (yet)."""
    try:
        columns = [element.column for element in constraint.elements]
    except NoReferenceError:  # such a table holds no row of ours
        return None
    return columns[0].table
