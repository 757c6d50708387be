"""The rows that an upsert meets, which its update half may move onto the key of an expired row.

What its INSERT brings is freed as for any other (`ttl_odm.sqlalchemy.keys.taken`). If the other
half sets a key to something else, or one to which rows refer, it is an UPDATE of the live rows
that have a key of the new ones: that UPDATE is made here, and prepared like any.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Alias,
    BindParameter,
    ClauseElement,
    Column,
    SelectBase,
    TextClause,
    literal,
    or_,
    update,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import Function

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.keys.conversions import as_sql
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, with_defaults
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.table_keys import keys_of
from ttl_odm.sqlalchemy.rewrite.writes import Assignment, Target, plain, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import ColumnElement, Insert, Table
    from sqlalchemy.engine.default import DefaultExecutionContext

    Row = Mapping[str, Any]


class MetRows:
    """The rows that an upsert of a table may meet; looked up like those of an UPDATE."""

    def __init__(self, target: Target, brought: frozenset[str]) -> None:
        self.target = target
        self.brought = brought
        """The columns that it sets to what its INSERT brings for them."""
        self._keys = keys_of(target.table)

    @classmethod
    def of(cls, statement: Insert, half: compat.UpdateHalf) -> MetRows | None:
        """Those of an INSERT that is being compiled; None if it moves none."""
        values: dict[str, Any] = half.values
        table: Any = compat.original(statement.table)
        brought = frozenset(key for key, value in values.items() if _new(value, table) == key)
        moving = {key: value for key, value in values.items() if key not in brought & half.met_by}
        target = _target(table, moving)
        return cls(target, brought) if moving and target.may_change_keys else None

    def targets(self, context: DefaultExecutionContext) -> Iterator[tuple[Target, list[Row]]]:
        """For each row of the INSERT an UPDATE of what it meets, with no parameters of its own."""
        statement = compat.emitted(compat.invoked(context))
        half = compat.update_half(statement)
        if half is None or compat.selected_names(statement):  # nobody knows yet what it inserts
            return
        executions, table = context.compiled_parameters, self.target.table
        reclaimer = KeyReclaimer.of(context)
        columns = dict.fromkeys(column for key in self._keys for column in key.columns)
        for number, row in enumerate(rows_of(statement, executions)):
            parameters = executions[0 if compat.value_lists(statement) else number]
            new = with_defaults(row, columns, parameters, number)
            held = (key.held_by(new, reclaimer) for key in self._keys)
            met = [same for same in held if same is not None]
            fixed = partial(_fixed, new=new, table=table, parameters=parameters)
            if met:
                where = fixed(half.where)
                values = {key: fixed(value) for key, value in half.values.items()}
                known = {key: value for key, value in values.items() if value is not UNKNOWN}
                only = () if where is None or where is UNKNOWN else (where,)
                yield _target(table, known, or_(*met), *only), [{}]


def _target(table: Table, values: Row, *criteria: ColumnElement[bool]) -> Target:
    half = compat.Resolved(update(table), [table], criteria)
    assignments = [Assignment(key, key, value) for key, value in values.items()]
    return Target(half, table, table, assignments, (), is_first=True, is_inner=True)


def _new(element: Any, table: Table) -> str | None:
    """The key of a column of the row that is inserted, if an element stands for one."""
    if isinstance(element, Function) and element.name.lower() == "values":  # MariaDB, MySQL
        (element,) = element.clauses
        return str(element.key)
    source = getattr(element, "table", None)
    if (
        isinstance(element, Column)
        and isinstance(source, Alias)
        and source.name in {"excluded", "inserted"}
        and compat.original(source.element) is table
    ):
        return element.key
    return None


def _fixed(value: Any, *, new: Row, table: Table, parameters: Row) -> Any:
    """What an update half has for one new row, as it would stand in an UPDATE.

    `UNKNOWN` where text may name that row, or a subquery would find itself in another statement.
    """
    value = plain(value, parameters)
    if not isinstance(value, ClauseElement):
        return value
    for element in visitors.iterate(value):
        key = _new(element, table)
        is_text = isinstance(element, TextClause) or getattr(element, "is_literal", False)
        if is_text or isinstance(element, SelectBase) or (key and new.get(key, UNKNOWN) is UNKNOWN):
            return UNKNOWN

    def replaced(element: Any, **_: object) -> Any:
        key = _new(element, table)
        if key is not None:
            return as_sql(new[key], table.c[key])
        if isinstance(element, BindParameter) and not compat.is_anonymous(element):
            return literal(parameters[element.key], element.type)
        return None

    return visitors.replacement_traverse(value, {}, replaced)
