"""What it costs that a default is stored: against the same model with a bound value.

One default for a table, and a default for each of 10,000 tenants: of a tenth of them, or of all;
on rows that are younger than the shortest of these, of which nobody has to ask, and on older ones.
And what one of these tenants reads, with `WHERE tenant_id = :t`, of a table full of his own rows.

Beside it stands what the same reads cost without ttl_odm: by a condition that looks up the same
defaults, against one with a number. A join looks them up for rows of many tenants, a subquery for
those of one; and another one the table's, for tenants without a default of their own.
"""

from __future__ import annotations

from itertools import count, cycle
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Result, String, and_, bindparam, cast, func, select, update

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
from benchmarks.sql_models import ROWS, is_live, live_by_hand
from benchmarks.sql_samples import acting, flushing, reading
from benchmarks.sql_timing import Operations, measured
from benchmarks.stored_models import BY_TENANT, LONGEST, ONE, ONE_TENANT, create_tables
from benchmarks.workers import serve
from ttl_odm.stored.sqlalchemy.tables import tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sqlalchemy import Engine, Select
    from sqlalchemy.orm import Session

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding, Goal
    from benchmarks.harness import Sample
    from benchmarks.sql_groups import NewEngine
    from benchmarks.stored_models import Variant

    Timed = Callable[[Engine, str, Variant], Sample]
    """Times an operation in one of the ways, of a variant's rows, by an engine of its own."""

OF_TABLE: Final = "SQLAlchemy: a stored default / a bound value"
OF_TENANTS: Final = "SQLAlchemy: stored defaults of 10,000 tenants / a bound value"
OF_ONE_TENANT: Final = "SQLAlchemy: one tenant's rows, of 10,000 stored defaults / a bound value"

BY_HAND: Final = "looked up by hand"

_STORED: Final = "stored"
_BOUND: Final = "bound"
_LOOKED_UP: Final = "looked up"
_NUMBER: Final = "a number"
_WAYS: Final = (_STORED, _BOUND, _LOOKED_UP, _NUMBER)

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
    def timed(engine: Engine, way: str, variant: Variant) -> Sample:
        statement, keys, dialect = of(_model(way, variant)), cycle(_KEYS), engine.dialect.name
        if way == _LOOKED_UP:
            statement = _looked_up(statement, variant, dialect)
        elif way == _NUMBER:
            statement = statement.where(live_by_hand(dialect, variant.by_hand, LONGEST))

        def make(session: Session) -> Callable[[], object]:
            return lambda: fetch(session.execute(statement, {"key": next(keys)}))

        return reading(engine, make)

    return timed


def _model(way: str, variant: Variant) -> Any:
    return {_STORED: variant.stored, _BOUND: variant.bound}.get(way, variant.by_hand)


def _looked_up(statement: Select[Any], variant: Variant, dialect: str) -> Select[Any]:
    """The same of live rows, by a condition that somebody writes by hand."""
    model, policies = variant.by_hand, tables_of(ONE.stored.__table__).policies
    lookups = [_lookup(variant, "")]
    if variant.tenant is not None:
        lookups.insert(0, _lookup(variant, str(variant.tenant)))
    elif variant.tenants is not None:
        is_its = policies.c.name == model.__tablename__
        is_his = policies.c.scope == cast(model.tenant_id, String)
        statement = statement.outerjoin(policies, and_(is_its, is_his))
        lookups.insert(0, f"{policies.name}.ttl")
    default = f"coalesce({', '.join(lookups)}, {LONGEST})"
    return statement.where(live_by_hand(dialect, model, default))


def _lookup(variant: Variant, scope: str) -> str:
    return (
        "(SELECT p.ttl FROM ttl_odm_policies p "  # noqa: S608 (no input)
        f"WHERE p.name = '{variant.by_hand.__tablename__}' AND p.scope = '{scope}')"
    )


def _of_tenant(of: Callable[[Any], Any]) -> Callable[[Any], Any]:
    is_his: Any = bindparam("tenant", ONE_TENANT.tenant)
    return lambda model: of(model).where(model.tenant_id == is_his)


def _insert(engine: Engine, way: str, variant: Variant) -> Sample:
    model, keys = _model(way, variant), count(ROWS + 1)

    def add(session: Session) -> None:
        session.add(model(id=next(keys), tenant_id=7, payload="x" * 100, amount=0))

    return flushing(engine, add)


def _update(engine: Engine, way: str, variant: Variant) -> Sample:
    model, keys, amounts = _model(way, variant), cycle(_KEYS), count(ROWS)
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
    told = [Comparison(section, what, _STORED, _BOUND, goal)]
    if goal is not None:
        told.append(Comparison(section, f"{what}; {BY_HAND}", _LOOKED_UP, _NUMBER))

    def prepare(new_engine: NewEngine) -> Mapping[str, Sample]:
        return {way: timed(new_engine(), way, variant) for way in _WAYS}

    return Group(prepare, tuple(told))


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
