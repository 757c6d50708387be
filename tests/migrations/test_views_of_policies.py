"""`enforce="view"` of tables that have their dates, or a limit to all lives."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import BigInteger, DateTime, Integer, String, column, inspect, select, table, text
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.migrations.conftest import models
from tests.migrations.projects import catalogue, lines
from ttl_odm import TTL, ExpireAfter, ExpireAt, Stored
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.alembic.operations import written
from ttl_odm.sqlalchemy import TTLMixin, expires_at, set_policy

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

HOUR = 3600


def dates(now: datetime, seconds: int) -> datetime:
    return now + timedelta(seconds=seconds)


def naive(now: datetime, seconds: int) -> datetime:
    return dates(now, seconds).replace(tzinfo=None)


def epochs(now: datetime, seconds: int) -> int:
    return int(now.timestamp()) + seconds


def iso(now: datetime, seconds: int) -> str:
    return f"{dates(now, seconds):%Y-%m-%dT%H:%M:%S.%fZ}"


KINDS: dict[str, tuple[Any, Callable[[datetime, int], Any], dict[str, str]]] = {
    "zoned": (DateTime(timezone=True), dates, {}),
    "naive": (DateTime, naive, {}),
    "epochs": (BigInteger, epochs, {"unit": "s"}),
    "iso": (String(40), iso, {"unit": "iso"}),
}


def events(policy: Any, kind: Any, **declared: Any) -> Any:
    more = {"ends": mapped_column(kind, nullable=True), **declared}
    return models(name="events", **({} if policy is None else {"__ttl__": policy}), **more)


def shown(engine: Engine, view: str = "events_live") -> set[str]:
    with engine.connect() as connection:
        return set(connection.scalars(text(f"SELECT id FROM {view}")))  # noqa: S608


POLICIES: dict[str, Callable[..., Any]] = {
    "at": lambda **reading: ExpireAt("ends", **reading),
    "at, NULL is over": lambda **reading: ExpireAt("ends", null="expired", **reading),
    "after": lambda **reading: ExpireAfter("ends", HOUR, **reading),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("declared", POLICIES)
def test_it_shows_what_the_gate_shows(
    engine: Engine, project: Any, declared: str, kind: str
) -> None:
    column, value, reading = KINDS[kind]
    policy = POLICIES[declared](**reading)
    events(None, column).metadata.create_all(engine)
    plain = catalogue(engine, "events")
    model = events(policy, column)
    here = project(model)
    how = "scan" if "NULL" in declared else "index"  # which no index would serve
    here.revision(
        f"import ttl_odm; op.add_ttl('events', {written(policy)}, sweep='{how}', enforce='view')",
        f"import ttl_odm; op.drop_ttl('events', {written(policy)})",
    )
    here.upgrade()
    here.check()
    now = datetime.now(timezone.utc)
    spans = (-3 * HOUR, -HOUR // 2, -60, 60, HOUR, 3 * HOUR)
    with Session(engine) as session:
        session.add_all(model(id=str(span), ends=value(now, span)) for span in spans)
        session.add(model(id="none", ends=None))
        session.commit()
    with Session(engine) as session:
        live = set(session.scalars(select(model.id)))
        ends = dict(session.execute(select(model.id, expires_at(model))).all())
    assert 0 < len(live) <= len(spans)
    assert shown(engine) == live
    with engine.connect() as connection:
        found = dict(connection.execute(text("SELECT id, expires_at FROM events_live")).all())
    for key, end in found.items():
        read = datetime.fromisoformat(end) if isinstance(end, str) else end
        if read is not None and read.tzinfo is None:
            read = read.replace(tzinfo=timezone.utc)
        assert read == pytest.approx(ends[key], abs=timedelta(milliseconds=1)) if read else True
        assert (read is None) is (ends[key] is None)
    here.downgrade()
    assert inspect(engine).get_view_names() == []
    assert catalogue(engine, "events") == plain


def test_the_view_follows_the_policy(engine: Engine, project: Any) -> None:
    old, new = ExpireAfter("ends", HOUR), ExpireAfter("ends", 60)
    model = events(old, DateTime(timezone=True))
    model.metadata.create_all(engine)
    here = project(model)
    with Session(engine) as session:
        ended = datetime.now(timezone.utc) - timedelta(minutes=10)
        session.add(model(id="a", ends=ended))
        session.commit()
    here.revision(
        "import ttl_odm; op.alter_ttl('events', ttl_odm.ExpireAfter('ends', 3600), enforce='view')"
    )
    here.upgrade()
    here.check()
    assert shown(engine) == {"a"}
    here.metadata = events(new, DateTime(timezone=True)).metadata
    up, down = lines(here.autogenerate())
    assert up == ["op.alter_ttl('events', ttl_odm.ExpireAfter('ends', 60))"]
    assert down == ["op.alter_ttl('events', ttl_odm.ExpireAfter('ends', 3600))"]
    here.upgrade()
    here.check()
    assert shown(engine) == set()
    here.downgrade()
    assert shown(engine) == {"a"}


def test_the_view_follows_the_unit_of_the_ends(engine: Engine, project: Any) -> None:
    old, new = ExpireAt("ends", unit="s"), ExpireAt("ends", unit="ms")
    model = events(old, BigInteger)
    model.metadata.create_all(engine)
    here = project(model)
    with Session(engine) as session:
        session.add(model(id="a", ends=epochs(datetime.now(timezone.utc), HOUR)))
        session.commit()
    here.revision(f"import ttl_odm; op.alter_ttl('events', {written(old)}, enforce='view')")
    here.upgrade()
    here.check()
    assert shown(engine) == {"a"}
    here.metadata = events(new, BigInteger).metadata
    up, _ = lines(here.autogenerate())
    assert up == ["op.alter_ttl('events', ttl_odm.ExpireAt('ends', unit='ms'))"]
    here.upgrade()
    here.check()
    assert shown(engine) == set()


def limited(most: int, default: int = HOUR) -> Any:
    policy = TTL(default, max_lifetime=most, created="made")
    made = mapped_column(DateTime(timezone=True))
    return models(policy, "events", made=made)


@pytest.mark.slow
def test_a_limit_to_all_lives_holds_in_the_view(engine: Engine, project: Any) -> None:
    model = limited(2 * HOUR)
    model.metadata.create_all(engine)
    here = project(model)
    policy = "ttl_odm.TTL(3600, max_lifetime=7200, created='made')"
    here.revision(f"import ttl_odm; op.alter_ttl('events', {policy}, enforce='view')")
    here.upgrade()
    here.check()
    now = datetime.now(timezone.utc)
    with Session(engine) as session:
        for key, age, ttl in (("a", 60, None), ("b", 3 * HOUR, None), ("c", 3 * HOUR, -1)):
            made = now - timedelta(seconds=age)
            session.add(model(id=key, made=made, ttl=ttl))
        session.commit()
    with Session(engine) as session:
        assert set(session.scalars(select(model.id))) == {"a"}
    assert shown(engine) == {"a"}
    with engine.connect() as connection:
        (end,) = connection.scalars(text("SELECT expires_at FROM events_live"))
    assert end is not None

    here.metadata = limited(30).metadata
    up, _ = lines(here.autogenerate())
    assert up == ["op.alter_ttl('events', ttl_odm.TTL(3600, max_lifetime=30, created='made'))"]
    here.upgrade()
    here.check()
    assert shown(engine) == set()
    here.metadata = limited(2 * HOUR, -1).metadata
    up, _ = lines(here.autogenerate())
    assert up == ["op.alter_ttl('events', ttl_odm.TTL(-1, max_lifetime=7200, created='made'))"]
    here.upgrade()
    here.check()
    assert shown(engine) == {"a"}


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_script_can_not_ask_for_a_columns_type(engine: Engine, project: Any) -> None:
    here = project()
    here.revision("import ttl_odm; op.add_ttl('events', ttl_odm.ExpireAt('ends'), enforce='view')")
    with pytest.raises(MigrationRefusedError, match="reads the types of its columns 'ends'"):
        here.script()


def test_a_column_that_is_not_there_is_named(engine: Engine, project: Any) -> None:
    events(None, Integer).metadata.create_all(engine)
    here = project()
    policy = "ttl_odm.TTL(60, max_lifetime=90, created='made')"
    here.revision(f"import ttl_odm; op.add_ttl('events', {policy}, backfill='now', enforce='view')")
    with pytest.raises(MigrationRefusedError, match=r"no column 'made'; it has .*ends"):
        here.upgrade()
    assert "_ts" not in {column["name"] for column in inspect(engine).get_columns("events")}


def over_columns(**declared: Any) -> Any:
    columns: dict[str, Any] = {
        "__tablename__": "events",
        "__annotations__": {"id": Mapped[str], "kind": Mapped[str]},
        "id": mapped_column(String(40), primary_key=True),
        "kind": mapped_column(String(10), default="usual"),
        "changed": mapped_column("changed at", DateTime(timezone=True)),
        "life": mapped_column(BigInteger, nullable=True),
    }
    base = type("Base", (DeclarativeBase,), {})
    return type("Event", (TTLMixin, base), {**columns, **declared})


@pytest.mark.slow
def test_lives_by_columns_of_the_tables_own(engine: Engine, project: Any) -> None:
    policy = TTL(HOUR, last_modified="changed", override="life", never=(0,))
    model = over_columns(__ttl__=policy)
    model.metadata.create_all(engine)
    here = project(model)
    there = "ttl_odm.TTL({}, last_modified='changed at', override='life', never=(0,))"
    here.revision(
        f"import ttl_odm; op.add_ttl('events', {there.format(HOUR)}, enforce='view')",
        f"import ttl_odm; op.drop_ttl('events', {there.format(HOUR)})",
    )
    here.upgrade()
    here.check()
    now = datetime.now(timezone.utc)
    ages = {"young": 60, "old": 2 * HOUR, "short": 60, "long": 2 * HOUR, "never": 2 * HOUR}
    lives = {"short": 30, "long": 3 * HOUR, "never": 0}
    changed = column("changed at", DateTime(timezone=True))
    raw = table("events", column("id"), column("kind"), changed, column("life"))
    with engine.begin() as connection:
        for key, seconds in ages.items():
            at = now - timedelta(seconds=seconds)
            values = {"id": key, "kind": "usual", "changed at": at, "life": lives.get(key)}
            connection.execute(raw.insert().values(values))
    with Session(engine) as session:
        assert set(session.scalars(select(model.id))) == {"young", "long", "never"}
    assert shown(engine) == {"young", "long", "never"}
    shorter = TTL(30, last_modified="changed", override="life", never=(0,))
    here.metadata = over_columns(__ttl__=shorter).metadata
    up, down = lines(here.autogenerate())
    assert up == [f"op.alter_ttl('events', {there.format(30)})"]
    assert down == [f"op.alter_ttl('events', {there.format(HOUR)})"]
    here.upgrade()
    here.check()
    assert shown(engine) == {"long", "never"}
    here.downgrade()
    assert shown(engine) == {"young", "long", "never"}
    here.downgrade()
    assert inspect(engine).get_view_names() == []


def of_kinds(**defaults: int) -> Any:
    policy = TTL(defaults, by="kind", other=HOUR)
    column = mapped_column(String(10), default="usual")
    return models(policy, "events", kind=column)


@pytest.mark.slow
def test_each_kind_of_rows_has_its_default(engine: Engine, project: Any) -> None:
    model = of_kinds(brief=60, lasting=-1)
    model.metadata.create_all(engine)
    here = project(model)
    policy = "ttl_odm.TTL({'brief': 60, 'lasting': -1}, by='kind', other=3600)"
    here.revision(f"import ttl_odm; op.alter_ttl('events', {policy}, enforce='view')")
    here.upgrade()
    here.check()
    with Session(engine) as session:
        session.add_all(model(id=kind, kind=kind) for kind in ("brief", "lasting", "usual"))
        session.commit()
    with engine.begin() as connection:
        for kind in ("brief", "lasting", "usual"):
            age(connection, "events", kind, 600)
    with Session(engine) as session:
        assert set(session.scalars(select(model.id))) == {"lasting", "usual"}
    assert shown(engine) == {"lasting", "usual"}
    here.metadata = of_kinds(brief=HOUR, lasting=60).metadata
    up, _ = lines(here.autogenerate())
    assert up == [
        "op.alter_ttl('events', ttl_odm.TTL({'brief': 3600, 'lasting': 60}, by='kind', other=3600))"
    ]
    here.upgrade()
    here.check()
    assert shown(engine) == {"brief", "usual"}


@pytest.mark.slow
def test_a_subclass_may_have_a_default_of_its_own(engine: Engine, project: Any) -> None:
    model = models(
        HOUR,
        "events",
        kind=mapped_column(String(10)),
        __mapper_args__={"polymorphic_on": "kind", "polymorphic_identity": "usual"},
    )
    brief = type(
        "Brief", (model,), {"__ttl__": 60, "__mapper_args__": {"polymorphic_identity": "b"}}
    )
    model.metadata.create_all(engine)
    here = project(model)
    here.revision("op.alter_ttl('events', 3600, enforce='view')")
    here.upgrade()
    up, _ = lines(here.autogenerate())
    assert up == ["op.alter_ttl('events', ttl_odm.TTL({'b': 60}, by='kind', other=3600))"]
    here.upgrade()
    here.check()
    with Session(engine) as session:
        session.add_all([model(id="usual"), brief(id="brief")])
        session.commit()
    with engine.begin() as connection:
        for key in ("usual", "brief"):
            age(connection, "events", key, 600)
    assert shown(engine) == {"usual"}


def test_each_tenants_default_holds_in_the_view(engine: Engine, project: Any) -> None:
    model = models(Stored(HOUR, by="tenant"), "events", tenant=mapped_column(String(40)))
    model.metadata.create_all(engine)
    here = project(model)
    stored = "ttl_odm.Stored(3600, by='tenant')"
    here.revision(f"import ttl_odm; op.alter_ttl('events', {stored}, enforce='view')")
    here.upgrade()
    here.check()
    with Session(engine) as session:
        session.add_all(model(id=key, tenant=key) for key in ("acme", "initech"))
        session.commit()
    with engine.begin() as connection:
        for key in ("acme", "initech"):
            age(connection, "events", key, 600)
    assert shown(engine) == {"acme", "initech"}
    with engine.connect() as connection:
        set_policy(connection, model, 60, scope="acme", by="ann")
    assert shown(engine) == {"initech"}
