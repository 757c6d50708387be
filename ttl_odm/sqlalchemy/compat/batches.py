"""Private names of SQLAlchemy's batches: an INSERT of several parameter sets."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from copy import copy as shallow_copy
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy.engine import Dialect
    from sqlalchemy.sql.compiler import SQLCompiler


@contextmanager
def batches_without_returning(compiler: SQLCompiler) -> Iterator[None]:
    """Let an INSERT of several parameter sets become one of many VALUES, also without RETURNING.

    A driver's ``executemany()`` may send several statements, some of which have run when one fails.
    """
    dialect = compiler.dialect
    compiler.dialect = shallow_copy(dialect)
    compiler.dialect.use_insertmanyvalues_wo_returning = True
    try:
        yield
    finally:
        compiler.dialect = dialect


def returns_own_keys(compiled: SQLCompiler) -> bool:
    """Return whether the rows of a batch can be identified by values that the INSERT gave them."""
    batches = compiled._insertmanyvalues
    return bool(batches and batches.sentinel_param_keys and compiled.effective_returning)


class Missing(NamedTuple):
    """The parameter sets of a batch whose rows were not inserted, in both of SQLAlchemy's forms."""

    parameters: list[Any]
    compiled_parameters: list[Any]


def missing_rows(context: Any, batch: Any, first: int, rows: Iterable[Sequence[Any]]) -> Missing:
    """Return the parameter sets of a batch for which no row came back.

    Args:
        context: The execution context.
        batch: The batch, as SQLAlchemy delivers it.
        first: The number of the batch's first parameter set in the whole execution.
        rows: The rows that the batch returned.
    """
    batches, columns = context.compiled._insertmanyvalues, context.cursor.description
    width = batches.num_sentinel_columns
    read = [
        column.type._cached_result_processor(context.dialect, described[1]) or (lambda value: value)
        for column, described in zip(batches.sentinel_columns, columns[-width:], strict=True)
    ]
    inserted = Counter(
        tuple(process(value) for process, value in zip(read, row[-width:], strict=True))
        for row in rows
    )
    missing = Missing([], [])
    for number, key in enumerate(batch.sentinel_values):
        values = key if width > 1 else (key,)
        if inserted[values]:
            inserted[values] -= 1
        else:
            missing.parameters.append(batch.batch[number])
            missing.compiled_parameters.append(context.compiled_parameters[first + number])
    return missing


def smaller_batches(context: Any, statement: str, missing: Missing) -> Iterator[Any]:
    """Return the batches in which a statement inserts these parameter sets."""
    return context.compiled._deliver_insertmanyvalues_batches(  # type: ignore[no-any-return]
        statement,
        missing.parameters,
        missing.compiled_parameters,
        None,
        len(missing.parameters),
        context.compiled._insertmanyvalues.sort_by_parameter_order,
        context.execution_options.get("schema_translate_map")
        if context.compiled.schema_translate_map
        else None,
    )


def limit_batches(context: Any, parameters: Sequence[Any], most: int) -> None:
    """Let the batches of an INSERT have no more than `most` characters or bytes of values.

    Args:
        context: The execution context.
        parameters: The parameter sets, as the driver gets them. A batch has one at least.
        most: The number.
    """
    sizes = [_size_of(values) for values in parameters]
    if sum(sizes) <= most:
        return
    option, options = "insertmanyvalues_page_size", context.execution_options
    page = min(len(sizes), options.get(option, context.dialect.insertmanyvalues_page_size))
    while page > 1 and any(
        sum(sizes[start : start + page]) > most for start in range(0, len(sizes), page)
    ):
        page = (page + 1) // 2
    context.execution_options = options.union({option: page})


def _size_of(values: Mapping[str, Any] | Sequence[Any]) -> int:
    """Return the characters and bytes in a parameter set."""
    plain: Iterable[Any] = values.values() if isinstance(values, dict) else values
    return sum([len(value) for value in plain if isinstance(value, (str, bytes, bytearray))])


def no_batches(context: Any) -> Iterator[Any]:
    """Return the batches of an INSERT without rows: none."""
    context._insertmanyvalues_rows = []
    return iter(())


def replace_batches(dialect: Dialect, wrapper: Callable[[Any], Any]) -> None:
    """Wrap the dialect's function that divides an INSERT of several parameter sets into batches."""
    replaced: Any = dialect
    replaced._deliver_insertmanyvalues_batches = wrapper(replaced._deliver_insertmanyvalues_batches)
