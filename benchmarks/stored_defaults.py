"""What it costs that a default is stored: against the same model with a bound value.

One default for a table, and a default for each of 10,000 tenants: of a tenth of them, or of all;
on rows that are younger than the shortest of these, of which nobody has to ask, and on older ones.
And what one of these tenants reads, with `WHERE tenant_id = :t`, of a table full of his own rows.
"""

from __future__ import annotations

from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Result, bindparam, func, select, update

from benchmarks.goals import (
    ONE_TENANT_KEY,
    ONE_TENANT_LIST,
    ONE_TENANT_SCAN,
    STORED_KEY,
    STORED_LIST,
    STORED_SCAN,
    TENANTS_KEY,
    TENANTS_LIST,
    TENANTS_SCAN,
)
from benchmarks.sql_groups import Comparison, Group
from benchmarks.sql_models import ROWS, is_live
from benchmarks.sql_samples import acting, flushing, reading
from benchmarks.sql_timing import Operations, measured
from benchmarks.stored_models import BY_TENANT, ONE, ONE_TENANT, create_tables
from benchmarks.workers import serve

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.orm import Session

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding, Goal
    from benchmarks.harness import Sample
    from benchmarks.stored_models import Variant

    Timed = Callable[[Engine, Any], Sample]
    """Times an operation of a model, by an engine of its own."""

OF_TABLE: Final = "SQLAlchemy: a stored default / a bound value"
OF_TENANTS: Final = "SQLAlchemy: stored defaults of 10,000 tenants / a bound value"
OF_ONE_TENANT: Final = "SQLAlchemy: one tenant's rows, of 10,000 stored defaults / a bound value"

_LIST = 100
_KEYS: Final = [key for key in range(1, ROWS - 2 * _LIST, 7) if is_live(key)]


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    rounds = max(2, bench.scale.rounds // 2)  # there are many operations
    return measured(bench, GROUPS, module=__name__, create=create_tables, rounds=rounds)


def _by_key(model: Any) -> Any:
    return select(model).where(model.id == bindparam("key"))


def _list(model: Any) -> Any:
    return select(model).where(model.id >= bindparam("key")).order_by(model.id).limit(_LIST)


def _scan(model: Any) -> Any:
    return select(func.sum(model.amount)).where(model.amount > -bindparam("key"))


def _reading(of: Callable[[Any], Any], fetch: Callable[[Any], object]) -> Timed:
    def timed(engine: Engine, model: Any) -> Sample:
        statement, keys = of(model), cycle(_KEYS)

        def make(session: Session) -> Callable[[], object]:
            return lambda: fetch(session.execute(statement, {"key": next(keys)}))

        return reading(engine, make)

    return timed


def _of_tenant(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    is_his: Any = bindparam("tenant", ONE_TENANT.tenant)
    return lambda model: of(model).where(model.tenant_id == is_his)


def _insert(engine: Engine, model: Any) -> Sample:
    keys = count(ROWS + 1)

    def add(session: Session) -> None:
        session.add(model(id=next(keys), tenant_id=7, payload="x" * 100, amount=0))

    return flushing(engine, add)


def _update(engine: Engine, model: Any) -> Sample:
    keys, amounts = cycle(_KEYS), count(ROWS)
    statement = update(model).where(model.id == bindparam("key")).values(amount=bindparam("new"))
    options = {"synchronize_session": False}

    def make(session: Session) -> Callable[[], object]:
        values = {"key": next(keys), "new": next(amounts)}
        return lambda: session.connection().execute(statement, values, execution_options=options)

    return acting(engine, make)


_OPERATIONS: Final[tuple[tuple[str, Timed, Goal | None, Goal | None], ...]] = (
    ("select by key", _reading(_by_key, Result.one), STORED_KEY, TENANTS_KEY),
    ("list of 100", _reading(_list, Result.all), STORED_LIST, TENANTS_LIST),
    ("scan of 10,000 rows", _reading(_scan, Result.one), STORED_SCAN, TENANTS_SCAN),
    ("flush of 1 row, its own key", _insert, None, None),
    ("execute(update()) by key", _update, None, None),
)

_OF_ONE_TENANT: Final[tuple[tuple[str, Timed, Goal], ...]] = (
    ("select by key", _reading(_of_tenant(_by_key), Result.one), ONE_TENANT_KEY),
    ("list of 100", _reading(_of_tenant(_list), Result.all), ONE_TENANT_LIST),
    ("scan of 10,000 rows", _reading(_of_tenant(_scan), Result.one), ONE_TENANT_SCAN),
)


def _group(section: str, variant: Variant, what: str, timed: Timed, goal: Goal | None) -> Group:
    models = {"stored": variant.stored, "bound": variant.bound}
    told = Comparison(section, what, "stored", "bound", goal)
    return Group(
        lambda new_engine: {name: timed(new_engine(), model) for name, model in models.items()},
        (told,),
    )


GROUPS: Final = (
    *(_group(OF_TABLE, ONE, what, timed, goal) for what, timed, goal, _ in _OPERATIONS),
    *(
        _group(OF_TENANTS, variant, f"{what}; {variant.what}", timed, goal)
        for what, timed, _, goal in _OPERATIONS
        for variant in BY_TENANT
    ),
    *(_group(OF_ONE_TENANT, ONE_TENANT, what, timed, goal) for what, timed, goal in _OF_ONE_TENANT),
)

if __name__ == "__main__":
    serve(lambda url: Operations(url, GROUPS))
