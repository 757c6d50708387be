"""What a class declares with `Follows`, and the parent that it leads to.

The parent is looked for once the mappers are configured, as its class may be declared later.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from sqlalchemy import Column, Table, UniqueConstraint, event, inspect
from sqlalchemy.exc import NoInspectionAvailable, NoReferenceError
from sqlalchemy.orm import Mapper, RelationshipProperty
from sqlalchemy.orm.interfaces import RelationshipDirection

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows import check_options, last_parent
from ttl_odm.follows.sqlalchemy.follower import column_of, following_of, index_link, key_of
from ttl_odm.follows.sqlalchemy.links import link_of
from ttl_odm.follows.sqlalchemy.rule import FollowsRule
from ttl_odm.sqlalchemy.policy.bindings import (
    binding_of,
    key_columns,
    root_binding_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.references import bind_rule, rule_of
from ttl_odm.sqlalchemy.policy.rules import Links
from ttl_odm.sqlalchemy.rewrite.from_clauses import equal_columns
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.follows import Follows

    Pairs = list[tuple[Column[object], Column[object]]]

_unchecked: Final[WeakSet[Table]] = WeakSet()
"""Tables whose parents haven't been looked for yet."""


class _UndeclaredParentError(UnwrappedConfigurationError):
    """The parent doesn't exist yet, but may be declared later."""


def bind(mapper: Mapper[Any], cls: type, declared: Follows) -> None:
    """Put the rule of a class on its table; the parent may be declared later."""
    where, table = f"{cls.__name__}.__ttl__", mapper.local_table
    if not isinstance(table, Table):
        raise TTLConfigurationError(
            f"{where}: {cls.__name__} is mapped to {type(table).__name__}, not to a Table; "
            "declare __ttl__ on the models of the tables inside it."
        )
    other = binding_of(table)
    if other is not None or rule_of(table) is not None:
        raise TTLConfigurationError(
            f"{where}: table {table.fullname!r} already has a policy; a table has one policy, so "
            "declare __ttl__ on one class only."
        )
    key_columns(table)
    check_options(cls)
    links = cache(partial(_links, mapper, cls, declared))
    bind_rule(table, FollowsRule(table, cls, links, declared))
    _unchecked.add(table)
    # create_all() may come before the mappers are configured.
    event.listen(table, "before_create", _index_link, propagate=True)


def _index_link(table: Table, *_: object, **__: object) -> None:
    index_link(table)


@event.listens_for(Mapper, "after_configured")
def _check_all() -> None:
    """Find mistakes before any row is affected; each is raised by a single configuration only."""
    tables = list(_unchecked)
    _unchecked.clear()
    errors = []
    for table in tables:
        following = following_of(table)
        try:
            if following is not None:
                following.links()
                index_link(table)
        except _UndeclaredParentError:
            _unchecked.add(table)
        except TTLConfigurationError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _links(mapper: Mapper[Any], cls: type, declared: Follows) -> Links:
    where = f"{cls.__name__}.__ttl__ = {declared!r}"
    table: Any = mapper.local_table
    pairs = _pairs(mapper, declared, where)
    parents = {theirs.table for _, theirs in pairs}
    parent: Any = parents.pop()
    if parents or not all(own.table is table for own, _ in pairs):
        raise UnwrappedConfigurationError(
            f"{where}: these columns are in several tables; name columns of {table.fullname!r} "
            "only."
        )
    if parent.metadata is not table.metadata:
        raise UnwrappedConfigurationError(
            f"{where}: table {parent.fullname!r} and {table.fullname!r} have different MetaData; "
            "declare both on the same base."
        )
    theirs = {theirs for _, theirs in pairs}
    if not any(theirs.issuperset(key) for key in _unique(parent)):
        names = ", ".join(column.name for column in theirs)
        raise UnwrappedConfigurationError(
            f"{where}: {names} of {parent.fullname!r} is neither its primary key nor unique, so a "
            "row could have several parents; name a key of that table."
        )
    sub = sub_binding_of(parent)
    if sub is not None:  # lifetimes are in the table at the root
        roots = dict(sub.keys)
        if not theirs <= roots.keys():
            raise UnwrappedConfigurationError(
                f"{where}: {parent.fullname!r} is the table of a joined subclass, whose lifetimes "
                f"are in {sub.base.table.fullname!r}; name its primary key."
            )
        parent, pairs = sub.base.table, [(own, roots[column]) for own, column in pairs]
    _check_chain(table, parent, declared, where)
    links = Links(parent, tuple(pairs))
    for column in link_of(links).columns:
        if column.onupdate is not None:
            raise UnwrappedConfigurationError(
                f"{where}: {column.name!r} has an onupdate, so writing a row of "
                f"{table.fullname!r} would give it another parent; remove the onupdate."
            )
    return links


def _pairs(mapper: Mapper[Any], declared: Follows, where: str) -> Pairs:
    """Return the columns of the link, each with the parent's column that it equals."""
    if not isinstance(declared.parent, str):
        parent: Any = None
        with suppress(NoInspectionAvailable):
            parent = inspect(declared.parent)
        if not isinstance(parent, Mapper):
            raise UnwrappedConfigurationError(
                f"{where}: {declared.parent.__name__} is not a mapped class; give the parent's "
                "mapped class."
            )
        return [
            (column_of(mapper, own, where), column_of(parent, theirs, where))
            for own, theirs in declared.on
        ]
    relationship = mapper.relationships.get(declared.parent)
    if relationship is not None:
        return _of_relationship(relationship, where)
    key = key_of(mapper, declared.parent, where)
    try:
        return [(element.parent, element.column) for element in key.elements]
    except NoReferenceError as error:
        raise _UndeclaredParentError(
            f"{where}: the foreign key refers to a table that isn't declared: {error}"
        ) from error


def _of_relationship(relationship: RelationshipProperty[Any], where: str) -> Pairs:
    pairs = [(own, theirs) for own, theirs in relationship.local_remote_pairs or ()]
    equal = [{own, theirs} for own, theirs in equal_columns(relationship.primaryjoin)]
    is_plain = len(list(_parts(relationship.primaryjoin))) == len(equal) == len(pairs)
    if relationship.direction is not RelationshipDirection.MANYTOONE or not is_plain:
        raise UnwrappedConfigurationError(
            f"{where}: {relationship.key!r} is not a many-to-one relationship that joins on equal "
            "columns only; name such a relationship, or a foreign key."
        )
    return pairs  # type: ignore[return-value]


def _parts(condition: Any) -> Iterator[Any]:
    """Yield the conditions that a condition is made of by AND or OR."""
    clauses = getattr(condition, "clauses", None)
    if clauses is None:
        yield condition
        return
    for part in clauses:
        yield from _parts(part)


def _unique(table: Table) -> Iterator[list[Column[object]]]:
    """Yield the keys of a table: columns whose values occur once at most."""
    yield list(table.primary_key.columns)
    for constraint in table.constraints:
        if isinstance(constraint, UniqueConstraint):
            yield list(constraint.columns)
    for index in table.indexes:
        if index.unique and len(index.columns) == len(index.expressions):
            options = index.dialect_options.values()
            if all(option.get("where") is None for option in options):
                yield list(index.columns)


def _check_chain(table: Table, parent: Table, declared: Follows, where: str) -> None:
    """Check that the chain of parents ends at a table whose rows have a lifetime."""

    def parent_of(child: Table) -> Table | None:
        above = following_of(child)
        if above is None:
            return None
        # Not by its `links`, which would check the chain in turn, and never end in a cycle.
        pairs = _pairs(inspect(above.owner), above.declared, where)
        return pairs[0][1].table

    parent = last_parent(table, parent, parent_of, where, UnwrappedConfigurationError)
    root = root_binding_of(parent)
    if declared.renews and root is not None and not root.stamps:
        raise UnwrappedConfigurationError(
            f"{where}: with {root.policy!r}, no write renews rows of {parent.fullname!r}; leave "
            "renews out, or declare a TTL there."
        )
    if root is None:
        raise UnwrappedConfigurationError(
            f"{where}: the rows of {parent.fullname!r} have no lifetime; declare __ttl__ on its "
            "model."
        )
