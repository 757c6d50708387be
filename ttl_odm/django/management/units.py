"""Fields of Django's models whose values are in another unit, or form, than the policy reads.

The values of the first and the last rows by primary key are judged by `ttl_odm.sweeper.units`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from django.db import connections

from ttl_odm.core.policy import TTL
from ttl_odm.django.time import clock
from ttl_odm.sweeper.units import misread_dates, misread_instants, misread_lifetimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.sweeper.units import Misread

_SAMPLE: Final = 500


def misread(binding: Binding, alias: str) -> Iterator[Misread]:
    """Find fields of a policy whose values are in another unit, or can't be read as dates."""
    yield from _misread_texts(binding, alias)
    policy, columns = binding.policy, []
    if policy.unit not in (None, "iso"):
        columns.append(str(binding.stamp.column))
    if binding.own is not None:
        columns.append(str(binding.own.column))
    if not columns:
        return
    quote = connections[alias].ops.quote_name
    values = _values(binding, alias, {column: quote(column) for column in columns})
    nevers = policy.never if isinstance(policy, TTL) else ()
    for column, sample in values.items():
        if binding.own is not None and column == binding.own.column:
            lifetimes = [value for value in sample if value not in nevers]
            wrong = misread_lifetimes(column, lifetimes)
        else:
            wrong = misread_instants(column, policy.unit, sample)
        if wrong is not None:
            yield wrong


def is_read(binding: Binding, alias: str, table: str = "") -> str | None:
    """Return SQL for whether a DateTimeField holds a date; None if the database ensures that.

    SQLite stores any text in its column. `table`, quoted, qualifies the column.
    """
    connection = connections[alias]
    if connection.vendor != "sqlite" or binding.form != "datetime":
        return None
    column = connection.ops.quote_name(str(binding.stamp.column))
    return clock.family_of(connection).is_date(f"{table}.{column}" if table else column)


def _misread_texts(binding: Binding, alias: str) -> Iterator[Misread]:
    read = is_read(binding, alias)
    if read is None:
        return
    # An expression has no type: for a column, Django would convert the text to a datetime.
    value = f"(+{connections[alias].ops.quote_name(str(binding.stamp.column))})"
    samples = _values(binding, alias, {"value": value, "read": read})
    pairs = zip(samples["value"], samples["read"], strict=True)
    texts = [(value, bool(read)) for value, read in pairs if value is not None]
    wrong = misread_dates(str(binding.stamp.column), "YYYY-MM-DD HH:MM:SS", texts)
    if wrong is not None:
        yield wrong


def _values(
    binding: Binding, alias: str, expressions: Mapping[str, str]
) -> dict[str, list[object]]:
    """Return the values of expressions, by their names, in the first and the last rows."""
    connection, meta = connections[alias], binding.model._meta
    quote = connection.ops.quote_name
    key = [quote(str(field.column)) for field in meta.pk_fields]
    names, size = ", ".join([*key, *expressions.values()]), len(key)
    rows: dict[object, tuple[object, ...]] = {}
    with connection.cursor() as cursor:
        for order in ("", " DESC"):
            columns = ", ".join(f"{column}{order}" for column in key)
            cursor.execute(
                f"SELECT {names} FROM {quote(meta.db_table)} "  # noqa: S608 (names, quoted)
                f"ORDER BY {columns} LIMIT {_SAMPLE}"
            )
            rows |= {row[:size]: row[size:] for row in cursor.fetchall()}
    return {name: [row[place] for row in rows.values()] for place, name in enumerate(expressions)}
