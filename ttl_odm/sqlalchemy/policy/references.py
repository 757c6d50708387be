"""Which rows expire with other rows, or keep them from being deleted: rules, and foreign keys.

An extension puts a `Rule` on a table without a policy (`bind_rule`); `rules_below` finds the rules
that lead to a table, and `remove_dependents` removes their rows before the rows that they belong
to.

A `Change` is a DELETE, or an UPDATE of a key. Its `Consequence` for rows that refer to the changed
ones matters because expired rows don't exist, so they may keep no other row from being deleted. The
declared foreign keys tell which tables may have such rows: the tables with a policy, those of their
joined subclasses, the tables with a rule, and the tables above them through which the database
passes a change on (ON DELETE CASCADE).

Two kinds of expired rows must be removed before the database changes them. A cascade would delete
the rows of a *recorded* model (one with an archive, hooks or ``__ttl_purge__ = "orm"``) without a
trace. And a foreign key that writes to a column of the policy itself (SET NULL on the column of
scopes) would give an expired row another lifetime.

Tables of every `MetaData` count, because the base of a model says nothing about its database.

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
    """Foreign keys by the full name of the table that they refer to."""

    Recorded = frozenset[Table]
    """The tables of recorded models."""

RULE_KEY: Final = "ttl_odm.rule"
"""In ``Table.info``: the `Rule` of a table."""

_BELOW: Final = "ttl_odm.rules_below"
"""In ``MetaData.info``: the rules that lead to each of its tables, until a table is added."""

_NO_HOOKS: Final = Hooks()

_CONSEQUENCES: Final = "ttl_odm.consequences"
"""In ``MetaData.info``: the consequences of changes of its tables, until a table is added."""

dependents: Final[list[Dependents]] = []
"""The `Dependents` of the extensions that models have declared."""

done_by_flush: ContextVar[set[object] | None] = ContextVar("ttl_odm_done_by_flush", default=None)
"""What rules have done once for the current flush; None outside of a flush."""

ruled_tables: Final[WeakKeyDictionary[Table, None]] = WeakKeyDictionary()
"""Every table in use that has a rule, except copies by `to_metadata`."""


class GatedTables:
    """Every table whose expired rows are hidden: `bound_tables`, and `ruled_tables`."""

    def __iter__(self) -> Iterator[Table]:
        yield from bound_tables
        references = ruled_tables.keyrefs()
        yield from (table for reference in references if (table := reference()) is not None)


gated_tables: Final = GatedTables()


def bind_extension(mapper: Mapper[Any], cls: type, declared: Extension) -> None:
    """Have the package of a declaration put it on the table of a class."""
    import_module(declared.package("sqlalchemy")).bind(mapper, cls, declared)


def bind_rule(table: Table, rule: Rule) -> None:
    """Put a rule on a table."""
    bind_info(table, RULE_KEY, rule)
    ruled_tables[table] = None
    bound_tables.changed()


def rule_of(table: object) -> Rule | None:
    """Return the rule of a table, or None if it has none."""
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
    """Add the index of its link to a table that has a rule.

    Only once the table is needed: a later declaration may have such an index.

    Raises:
        TTLConfigurationError: The link is misdeclared.
    """
    rule = rule_of(table)
    if rule is not None:
        rule.add_index()


def root_of(table: Table) -> Binding | None:
    """Return the policy by which rows of a table expire: its own, or that of its rule's root."""
    rule = rule_of(table)
    while rule is not None:
        table = rule.links().parent
        rule = rule_of(table)
    return root_binding_of(table)


def rules_below(table: Table) -> Sequence[Rule]:
    """Return the rules whose parent is a table."""
    metadata = table.metadata
    state = bound_tables.changes, len(metadata.tables)
    # Each DELETE asks. Cached beside the tables that it names, so that all are freed together.
    known_state, known = metadata.info.get(_BELOW, (None, {}))
    if known_state != state:
        known = defaultdict(list)
        for rule in filter(None, map(rule_of, tuple(metadata.tables.values()))):
            known[rule.links().parent].append(rule)
        metadata.info[_BELOW] = state, known
    return known.get(table, ())  # type: ignore[no-any-return]


def all_rules_below(table: Table) -> list[Rule]:
    """Return the rules that lead to a table at any depth, those of parents before the others."""
    tables = [table]
    rules: list[Rule] = []
    while tables:
        below = rules_below(tables.pop())
        rules += below
        tables += [rule.table for rule in below]
    return rules


def reason_of_dependents(binding: Binding) -> str | None:
    """Return why the rows of a policy can't be deleted by themselves; None if they can."""
    if not rules_below(binding.table):
        return None
    return next(filter(None, (extension.reason(binding) for extension in dependents)), None)


def remove_dependents(
    connection: Connection, binding: Binding, keys: Keys, limit: int | None = None
) -> Removed:
    """Remove the dependents of rows of a policy, by primary key."""
    rows: Counter[str] = Counter()
    if not rules_below(binding.table):
        return Removed(rows)
    for extension in dependents:
        rest = None if limit is None else limit - rows.total()
        removed = extension.remove(connection, binding, keys, rest)
        rows += removed.rows
        if not removed.is_done:
            return Removed(rows, is_done=False)
    return Removed(rows)


@dataclass(frozen=True, slots=True)
class Change:
    """Rows of a table are deleted, or get other values in `columns` (by key).

    Attributes:
        by_cascade: Whether the database does it, so that the rows, and rows that expire with them,
            may have expired. A statement changes live rows, whose dependents are live too.
        with_parent: Whether the rows are deleted with their parent. Rows of the same family don't
            keep them, as these are deleted too.
    """

    table: Table
    columns: frozenset[str] | None = None
    by_cascade: bool = False
    with_parent: bool = False

    def consequences(self, hooks: Hooks = _NO_HOOKS) -> Sequence[Consequence]:
        """Return what the change does to rows that refer to these, if expired ones can block it.

        `hooks` are those that will be called, besides the models' own.
        """
        metadata = self.table.metadata
        state = bound_tables.changes, len(metadata.tables)
        # This reads all foreign keys of all tables, which is too much for each execution. Cached
        # beside the tables that it names, so that all are freed together.
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
        """Return whether each model that a cascade reaches is recorded; it may change any time."""
        self.consequences(hooks)
        _, known = self.table.metadata.info[_CONSEQUENCES]
        return tuple(is_recorded(binding, hooks) for binding in known[self][0])

    def endangers_rows(
        self, hooks: Hooks = _NO_HOOKS, seen: frozenset[Change] = frozenset()
    ) -> bool:
        """Return whether the database would change expired rows that must be removed before."""
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
        """Yield the policies of the tables from which the database would delete rows."""
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
        """Return whether an expired row can block it, at any depth below."""
        if self in seen:
            return False
        seen.add(self)
        return any(
            outcome.change is None or outcome.change._leads_on(references, recorded, seen)  # noqa: SLF001
            for outcome in self._outcomes(references, recorded)
        )

    def _outcomes(self, references: References, recorded: Recorded) -> Iterator[Consequence]:
        binding = binding_of(self.table) if self.columns is None else None
        # A joined subclass's part of a row is deleted with it.
        subtables = [] if binding is None else [sub.table for sub in all_subtables(binding)]
        # Rows whose rule leads here are deleted, whatever their foreign key says.
        below = rules_below(self.table) if self.columns is None else ()
        links = {rule.table: rule.links() for rule in below}
        root = root_of(self.table) if self.with_parent else None
        for table in (self.table, *subtables):
            for reference in references.get(table.fullname, ()):
                if not reference.reaches(table):
                    continue
                for outcome in reference.outcomes(table, self.columns, recorded):
                    if outcome.is_link and not self.by_cascade:
                        continue
                    if (
                        self.with_parent
                        and outcome.change is None
                        and root_of(outcome.table) is root
                    ):
                        continue  # of the same family, and deleted too
                    yield outcome
                    link = links.get(outcome.table)
                    is_gone = outcome.rule is not None or (
                        outcome.change is not None and outcome.change.columns is None
                    )
                    if link is not None and is_gone and set(link.own) == set(outcome.columns):
                        del links[outcome.table]
        for table, link in links.items():
            own, referred = tuple(link.own), tuple(link.theirs)
            yield Consequence(own, referred, None, Change(table, with_parent=True), is_certain=True)


@dataclass(frozen=True, slots=True)
class Consequence:
    """What a change of rows does to the rows that refer to them by one foreign key.

    Either the referring rows are changed too (`change`), or the expired ones, which belong to the
    policy `binding` or the table of a `rule`, have to be deleted before: they restrict the change,
    or the database wouldn't treat them as their model declares (`is_silent`).

    Attributes:
        columns: The referring columns.
        referred: The columns of the rows that change, or of a joined subclass's part of them.
        is_certain: Whether the referring table is in the same database. It may not be if its
            foreign key has only the name of a table that its own `MetaData` doesn't have.
        is_silent: Whether the database raises no error if the expired rows are still there.
        cascades: Whether it raises none because it would delete them.
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
        """The kind of the referring rows, or their change."""
        child = self.change or self.binding or self.rule
        assert child is not None  # noqa: S101 (one of the three it has)
        return child

    @property
    def is_link(self) -> bool:
        """Whether the rows that restrict the change expire with those that they refer to."""
        return self.rule is not None and set(self.rule.links().own) == set(self.columns)

    def refers_to_another_row(self) -> ColumnElement[bool]:
        """Return the condition for rows that don't refer to themselves, which isn't an obstacle."""
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
    """A declared foreign key to the columns with these keys.

    `parent` is the table that it refers to, None if its `MetaData` has only the name.
    """

    constraint: ForeignKeyConstraint
    columns: tuple[Column[object], ...]
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
        """Return whether it refers to a table of its name, which is `parent` if that is known."""
        if self.parent is not None:
            return self.parent is table
        return all(key in table.c for key in self.keys)

    def outcomes(
        self, parent: Table, changed: frozenset[str] | None, recorded: Recorded
    ) -> Iterator[Consequence]:
        """Yield what happens when rows of a table are deleted, or these columns are changed.

        Yields nothing if no expired row can be affected.
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
        is_own_part = (  # a joined subclass's part of the same row
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
    """Return whether expired rows are archived, reported to hooks, or deleted by the ORM."""
    owner = binding.default.owner
    return (
        getattr(owner, "__ttl_archive__", None) is not None
        or bool(getattr(owner, "__ttl_on_purged__", None))
        or getattr(owner, "__ttl_purge__", "delete") != "delete"
        or hooks.watches(binding.table.fullname)
    )


def _references() -> References:
    """Return the foreign keys of all tables whose rows may expire, and of those above them."""
    return _references_above(table for table in gated_tables if first_of(table) is table)


def _references_above(tables: Iterable[Table]) -> References:
    """Return the foreign keys of tables, those of the tables that they refer to, and so on."""
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
    """Return the unqualified names of all tables that these refer to, directly or not."""
    return {name.rpartition(".")[2] for name in _references_above(tables)}


def referred_table(constraint: ForeignKeyConstraint) -> Table | None:
    """Return the table that a foreign key refers to; None if that isn't declared (yet)."""
    try:
        columns = [element.column for element in constraint.elements]
    except NoReferenceError:  # no table of ours
        return None
    return columns[0].table
