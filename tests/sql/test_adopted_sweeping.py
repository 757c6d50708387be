"""Sweeping tables with a policy over columns that exist: by their own index, or by a walk."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Integer, insert, inspect, select, text
from sqlalchemy.orm import Session, mapped_column

from tests.sql.adopted import DAY, KINDS, kinds_of, new_base, table
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.sweep.counts import count
from ttl_odm.sqlalchemy.sweep.due import find_due
from ttl_odm.sqlalchemy.sweep.store import whereabouts_of
from ttl_odm.sweeper import Part, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.sqlalchemy.policy.bindings import Binding


def bound(model: Any) -> Binding:
    binding = binding_of(model.__table__)
    assert binding is not None
    return binding


def left(session: Session, model: Any) -> set[str]:
    return set(session.scalars(select(model.id).options(include_expired())))


def fill(session: Session, model: Any, value: Any, dead: int = 250, live: int = 5) -> None:
    now = datetime.now(timezone.utc).replace(microsecond=0)
    rows = [
        {"id": f"dead {n}", "at": value(now - 3 * DAY - n // 3 * timedelta(seconds=1)), "views": 0}
        for n in range(dead)
    ]
    rows += [
        {"id": f"live {n}", "at": value(now + 3 * DAY + n * timedelta(seconds=1)), "views": 0}
        for n in range(live)
    ]
    rows.append({"id": "live null", "at": None, "views": 0})
    session.execute(insert(model.__table__), rows, execution_options={"keep_last_modified": True})


@pytest.mark.slow
def test_every_kind_is_swept_by_its_own_index(engine: Engine) -> None:
    base = new_base()
    kinds = kinds_of(engine.dialect.name)
    models = {
        name: table(name, ExpireAt("at", **kind.options), base, kind.type)
        for name, kind in kinds.items()
    }
    base.metadata.create_all(engine)
    with Session(engine) as session:
        for name, model in models.items():
            fill(session, model, kinds[name].value)
        session.commit()
    with engine.connect() as connection:
        for name, model in models.items():
            binding = bound(model)
            due = find_due(connection, binding, whereabouts_of(binding))
            connection.rollback()
            assert due is not None
            if name == "iso_text":  # a text without a length has no index
                assert due.parts == (Part.ALL,)
            else:
                assert due.parts == (Part.INHERITING,), name
                lateness = 2 * 86_400 if kinds[name].tick == DAY else 3 * 86_400
                assert due.oldest is not None
                assert lateness - 86_400 < due.oldest < lateness + 86_400, name
    report = Sweeper(engine, base, batch_size=100).run_once()
    assert report.deleted == 250 * len(models)
    with Session(engine) as session:
        for name, model in models.items():
            assert left(session, model) == {f"live {n}" for n in range(5)} | {"live null"}, name


POLICIES = {
    "after": ExpireAfter("at", 60),
    "null": ExpireAt("at", null="expired"),
    "shared": TTL(60, last_modified="at", override=None),
    "own": TTL(60, last_modified="at", override="life"),
}


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_is_swept(engine: Engine, policy: str) -> None:
    base = new_base()
    model = table(
        "swept",
        POLICIES[policy],
        base,
        KINDS["variant"].type,
        life=mapped_column(Integer, nullable=True),
    )
    base.metadata.create_all(engine)
    with Session(engine) as session:
        fill(session, model, KINDS["variant"].value)
        session.commit()
        with engine.connect() as connection:
            binding = bound(model)
            counted = count(connection, binding, whereabouts_of(binding))
            connection.rollback()
        dead = 251 if policy == "null" else 250
        assert (counted.due, counted.rows) == (dead, 256)
        report = Sweeper(engine, model).run_once()
        assert report.deleted == dead
        nulls = set() if policy == "null" else {"live null"}
        assert left(session, model) == {f"live {n}" for n in range(5)} | nulls


@pytest.mark.slow
def test_an_index_that_comes_later_is_found(engine: Engine) -> None:
    base = new_base()
    model = table("late", ExpireAt("at"), base, KINDS["variant"].type)
    base.metadata.create_all(engine)
    binding = bound(model)
    (index,) = model.__table__.indexes
    with Session(engine) as session:
        fill(session, model, KINDS["variant"].value, dead=3)
        session.commit()

    def parts() -> tuple[Part, ...]:
        with engine.connect() as connection:
            due = find_due(connection, binding, whereabouts_of(binding))
            assert due is not None
            return tuple(due.parts)

    index.drop(engine)
    assert parts() == (Part.ALL,)
    index.create(engine)
    assert parts() == (Part.INHERITING,)
    assert Sweeper(engine, model).run_once().deleted == 3


def test_an_index_is_made_where_there_is_none_and_only_there(engine: Engine) -> None:
    base = new_base()
    kind = KINDS["variant"].type
    table("plain", ExpireAt("at"), base, kind)
    table("scanned", ExpireAt("at"), base, kind, __ttl_sweep__="scan")
    table("indexed", ExpireAt("at"), base, kind, at=mapped_column(kind, index=True))
    table("unique", ExpireAt("at"), base, kind, at=mapped_column(kind, unique=True))
    table("stamped", TTL(60, last_modified="at", override=None), base, kind)
    table("nulls", ExpireAt("at", null="expired"), base, kind)
    base.metadata.create_all(engine)
    found = inspect(engine)
    names = ("plain", "scanned", "indexed", "unique", "stamped", "nulls")
    indexes = {
        name: [each["name"] for each in found.get_indexes(f"t_{name}") if not each["unique"]]
        for name in names
    }
    assert indexes == {
        "plain": ["ix_t_plain_at_ttl"],
        "scanned": [],
        "indexed": ["ix_t_indexed_at"],
        "unique": [],
        "stamped": [],
        "nulls": [],
    }
    columns = {column["name"] for column in found.get_columns("t_plain")}
    assert columns == {"id", "at", "views"}


def test_a_look_for_expired_rows_searches_the_index(engine: Engine) -> None:
    base = new_base()
    models = [
        table("plain", ExpireAt("at"), base, KINDS["variant"].type),
        table("zoned", ExpireAt("at", timezone="Europe/Paris"), base, KINDS["paris"].type),
        table("epoch", ExpireAfter("at", 60, unit="s"), base, KINDS["seconds"].type),
        table("day", ExpireAt("at"), base, KINDS["day"].type),
        table("iso", ExpireAt("at", unit="iso"), base, KINDS["iso"].type),
    ]
    base.metadata.create_all(engine)
    with Session(engine) as session:
        for model, kind in zip(models, ("variant", "paris", "seconds", "day", "iso"), strict=True):
            fill(session, model, KINDS[kind].value, dead=3, live=400)
            session.commit()
            binding = binding_of(model.__table__)
            assert binding is not None
            index = next(iter(model.__table__.indexes)).name
            plan = plan_of_expired(session, model)
            assert index in plan, (model, plan)


def plan_of_expired(session: Session, model: Any) -> str:
    statement = select(model.id).where(expired_bare(session, model)).options(include_expired())
    dialect = session.get_bind().dialect
    compiled = statement.compile(dialect=dialect)
    explain = "EXPLAIN QUERY PLAN" if dialect.name == "sqlite" else "EXPLAIN"
    if dialect.name == "postgresql":
        session.execute(text("SET LOCAL enable_seqscan = off"))
    parameters = compiled.construct_params()
    sql: Any = str(compiled)
    if compiled.positional:
        values: Any = tuple(parameters[name] for name in compiled.positiontup or ())
    else:
        values = parameters
    return "\n".join(map(str, session.connection().exec_driver_sql(f"{explain} {sql}", values)))


def expired_bare(session: Session, model: Any) -> Any:
    """The predicate as the sweeper has it."""
    from ttl_odm.sqlalchemy.policy.predicate import Predicate
    from ttl_odm.sqlalchemy.time.clock import clock_of

    binding = binding_of(model.__table__)
    assert binding is not None
    predicate = Predicate(clock_of(session.get_bind().dialect))
    return predicate.expired(binding, binding.columns_of(model.__table__))


def test_an_unknown_way_to_sweep_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"Rows\.__ttl_sweep__ = 'fast'"):
        table("rows", ExpireAt("at"), new_base(), KINDS["naive"].type, __ttl_sweep__="fast")
