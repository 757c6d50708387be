"""`sweep="database"` of every policy: dates, columns of the table's own, limits, kinds of rows."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    BigInteger,
    DateTime,
    String,
    column,
    insert,
    inspect,
    select,
    table,
    text,
)
from sqlalchemy.orm import Session, mapped_column

from tests.clocks import age
from tests.guard import GUARD
from tests.migrations.conftest import models
from tests.migrations.projects import lines
from tests.migrations.swept import alone, deletions_held, left, run, whole
from tests.migrations.test_views_of_policies import HOUR, KINDS, dates, events
from tests.sql.raising import Raise
from ttl_odm import TTL, ExpireAfter, ExpireAt, Stored
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.alembic.operations import written
from ttl_odm.database_sweep.alembic.installation import install_job, job_statements, remove_job
from ttl_odm.database_sweep.cli.checks import database_sweep
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy import include_expired, set_policy
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

pytestmark = [
    pytest.mark.databases("mariadb", "mysql", "postgres"),
    pytest.mark.usefixtures("scheduler"),
]

SPANS = (-3 * HOUR, -HOUR - 60, -HOUR - 1, -HOUR // 2, -60, -1, 60, HOUR, 3 * HOUR)
"""Seconds, each side of a moment; MySQL's DATETIME rounds to whole ones."""


def swept(engine: Engine, model: Any, *rows: Any) -> set[str]:
    """Let the job run once over these rows; those that are left are those that the gate shows."""
    with alone(engine, model.__tablename__) as let_run:
        with Session(engine) as session:
            session.add_all(rows)
            session.commit()
        with Session(engine) as session:
            every = len(session.scalars(select(model).options(include_expired())).all())
        deleted, _, outcome = let_run()
        assert outcome == "swept"
        with Session(engine) as session:
            live = set(session.scalars(select(model.id)))
            there = set(session.scalars(select(model.id).options(include_expired())))
        assert there == live
        if rows:  # without, an EVENT may have been here before
            assert deleted == every - len(there)
    assert Sweeper(engine, model, lease=False).run_once().deleted == 0
    return live


def migrated(project: Any, engine: Engine, model: Any, policy: Any) -> Any:
    model.metadata.create_all(engine)
    here = project(model)
    here.revision(
        f"import ttl_odm; op.alter_ttl('events', {written(policy)}, sweep='database')",
        f"import ttl_odm; op.alter_ttl('events', {written(policy)}, sweep='index')",
    )
    here.upgrade()
    here.check()
    return here


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seconds", [None, HOUR])
def test_rows_with_dates_go(engine: Engine, project: Any, seconds: int | None, kind: str) -> None:
    kept, value, reading = KINDS[kind]
    policy: Any = ExpireAt("ends", **reading)
    if seconds is not None:
        policy = ExpireAfter("ends", seconds, **reading)
    events(None, kept).metadata.create_all(engine)
    model = events(policy, kept)
    here = project(model)
    told = written(policy)
    here.revision(
        f"import ttl_odm; op.add_ttl('events', {told}, sweep='database', max_fraction=1)",
        f"import ttl_odm; op.drop_ttl('events', {told})",
    )
    here.upgrade()
    here.check()
    now = datetime.now(timezone.utc)
    rows = [model(id=str(span), ends=value(now, span)) for span in SPANS]
    rows.append(model(id="none", ends=None))
    ahead = {str(span) for span in SPANS if span > -(seconds or 0)}
    assert swept(engine, model, *rows) == {"none", *ahead}
    here.downgrade()
    assert left(engine) == []
    assert set(inspect(engine).get_table_names()) <= {"alembic_version", "events"}


@pytest.mark.slow
def test_a_job_follows_the_policy_of_dates(engine: Engine, project: Any) -> None:
    kind = DateTime(timezone=True)
    model = events(ExpireAfter("ends", HOUR), kind)
    here = migrated(project, engine, model, ExpireAfter("ends", HOUR))
    old = datetime.now(timezone.utc) - timedelta(minutes=10)
    assert swept(engine, model, model(id="a", ends=old)) == {"a"}
    model = events(ExpireAfter("ends", 60), kind)
    here.metadata = model.metadata
    up, down = lines(here.autogenerate())
    assert up == ["op.alter_ttl('events', ttl_odm.ExpireAfter('ends', 60))"]
    assert down == ["op.alter_ttl('events', ttl_odm.ExpireAfter('ends', 3600))"]
    here.upgrade()
    here.check()
    assert swept(engine, model) == set()


@pytest.mark.parametrize("most", [None, 2 * HOUR])
def test_lives_by_columns_of_the_tables_own(engine: Engine, project: Any, most: int | None) -> None:
    limit = {} if most is None else {"max_lifetime": most, "created": "made"}
    policy = TTL(HOUR, last_modified="ends", override=None, **limit)
    dated = {name: mapped_column(DateTime(timezone=True), index=True) for name in ("ends", "made")}
    model = events(policy, None, **dated)
    here = migrated(project, engine, model, policy)
    now = datetime.now(timezone.utc)
    moments = (column(name, DateTime(timezone=True)) for name in ("ends", "made"))
    raw = table("events", column("id"), column("views"), *moments)  # past the gate, which stamps
    with engine.begin() as connection:
        for key, changed, made in (("a", -60, -120), ("b", -HOUR - 5, None), ("c", -5, -3 * HOUR)):
            at = None if made is None else dates(now, made)
            values = {"id": key, "ends": dates(now, changed), "made": at}
            connection.execute(raw.insert().values(**values, views=0))
    assert swept(engine, model) == ({"a", "c"} if most is None else {"a"})
    here.downgrade()
    assert left(engine) == []


def limited(default: int | None, most: int) -> Any:
    policy = TTL(default, max_lifetime=most, created="made")
    return models(policy, "events", made=mapped_column(DateTime(timezone=True), index=True))


@pytest.mark.slow
@pytest.mark.parametrize("default", [HOUR, -1, None])
def test_a_limit_to_all_lives_holds(engine: Engine, project: Any, default: int | None) -> None:
    model = limited(default, 2 * HOUR)
    policy = TTL(default, max_lifetime=2 * HOUR, created="made")
    here = migrated(project, engine, model, policy)
    now = datetime.now(timezone.utc)
    rows = [
        model(id=f"{made} {ttl}", made=made and now - timedelta(seconds=made), ttl=ttl)
        for made in (None, 60, 2 * HOUR - 30, 2 * HOUR + 1, 3 * HOUR)
        for ttl in (None, -1, 60)
    ]
    live = swept(engine, model, *rows)
    assert len(live) == (15 if default is None else 9)
    here.metadata = limited(default, HOUR).metadata
    up, _ = lines(here.autogenerate())
    shorter = written(TTL(default, max_lifetime=HOUR, created="made"))
    assert up == [f"op.alter_ttl('events', {shorter})"]
    here.upgrade()
    here.check()
    assert len(swept(engine, limited(default, HOUR))) == (15 if default is None else 6)


def of_kinds(**defaults: int | None) -> Any:
    policy = TTL(defaults, by="kind", other=HOUR)
    return models(policy, "events", kind=mapped_column(String(10), default="usual"))


@pytest.mark.slow
def test_each_kind_of_rows_has_its_default(engine: Engine, project: Any) -> None:
    model = of_kinds(brief=60, lasting=-1, off=None)
    policy = TTL({"brief": 60, "lasting": -1, "off": None}, by="kind", other=HOUR)
    here = migrated(project, engine, model, policy)
    kinds = ("brief", "lasting", "off", "usual")
    with Session(engine) as session:
        for kind in kinds:
            for seconds in (30, 60, 600, 2 * HOUR):
                for ttl in (None, -1, 10, 3 * HOUR):
                    session.add(model(id=f"{kind} {seconds} {ttl}", kind=kind, ttl=ttl))
        session.commit()
        keys = session.scalars(select(model.id)).all()
    with engine.begin() as connection:
        for key in keys:
            age(connection, "events", key, int(key.split()[1]))
    live = swept(engine, model)
    assert {"brief 30 None", "usual 600 None", "lasting 7200 None", "off 7200 10"} <= live
    assert not {"brief 60 None", "brief 600 None", "usual 7200 None", "lasting 30 10"} & live
    model = of_kinds(brief=HOUR, lasting=60)
    here.metadata = model.metadata
    up, _ = lines(here.autogenerate())
    assert up == [
        "op.alter_ttl('events', ttl_odm.TTL({'brief': 3600, 'lasting': 60}, by='kind', other=3600))"
    ]
    here.upgrade()
    here.check()
    assert "lasting 600 None" not in swept(engine, model)


def with_a_subclass() -> tuple[Any, Any]:
    base = models(
        60,
        "events",
        kind=mapped_column(String(10)),
        __mapper_args__={"polymorphic_on": "kind", "polymorphic_identity": "usual"},
    )
    declared = {"__ttl__": HOUR, "__mapper_args__": {"polymorphic_identity": "slow"}}
    return base, type("Slow", (base,), declared)


def test_a_subclass_may_have_a_default_of_its_own(engine: Engine, project: Any) -> None:
    model, slow = with_a_subclass()
    model.metadata.create_all(engine)
    here = project(model)
    here.revision("op.alter_ttl('events', 60, sweep='database')")
    with pytest.raises(MigrationRefusedError, match=r"ttl_odm.TTL\({'slow': 3600}, by='kind', ot"):
        here.upgrade()
    binding = binding_of(model.__table__)
    assert binding is not None
    with engine.connect() as connection:
        assert job_statements(connection, binding)
        connection.commit()
        install_job(connection, binding)
        connection.commit()
    with Session(engine) as session:
        session.add_all([model(id="usual"), slow(id="slow"), slow(id="old")])
        session.commit()
    with engine.begin() as connection:
        age(connection, "events", "usual", 600)
        age(connection, "events", "slow", 600)
        age(connection, "events", "old", 2 * HOUR)
    assert swept(engine, model) == {"slow"}
    with engine.connect() as connection:
        assert remove_job(connection, binding)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [String(40), BigInteger()])
def test_each_scope_has_its_default(engine: Engine, project: Any, kind: Any) -> None:
    policy = TTL(Stored(HOUR, by="tenant"))
    model = models(policy, "events", tenant=mapped_column(kind, nullable=True))
    here = migrated(project, engine, model, policy)
    is_text = isinstance(kind, String)
    scopes = ["acme", "Acme", "never", "off", "usual"] if is_text else [1, 2, 3, 4, 5]
    with engine.connect() as connection:
        for scope, ttl in zip(scopes, (60, 3 * HOUR, -1, None), strict=False):
            set_policy(connection, model, ttl, scope=scope, by="ann")
    with alone(engine, "events"):  # which keeps an EVENT away
        with Session(engine) as session:
            for scope in (None, *scopes):
                for seconds in (30, 61, 600, 2 * HOUR, 4 * HOUR):
                    for ttl in (None, -1, 10, 5 * HOUR):
                        key = f"{scope} {seconds} {ttl}"
                        session.add(model(id=bin_of(key), tenant=scope, ttl=ttl))
            session.commit()
            keys = session.scalars(select(model.id)).all()
        with engine.begin() as connection:
            for key in keys:
                age(connection, "events", key, int(key.split()[1]))
    live = swept(engine, model)
    first, second, third, *_, last = map(bin_of, map(str, scopes))
    assert {f"{second} 7200 None", f"{third} 14400 None", f"{last} 600 None"} <= live
    assert {"None 600 None", f"{first} 30 None"} <= live
    gone = {f"{first} 61 None", f"{second} 14400 None", f"{last} 7200 None", "None 7200 None"}
    assert not gone & live
    with engine.connect() as connection:
        set_policy(connection, model, 20, by="ann")
    assert f"{last} 30 None" not in swept(engine, model)
    here.check()
    here.downgrade()
    assert left(engine) == []


def bin_of(key: str) -> str:
    """Keys that no collation takes for the same."""
    return key.replace("Acme", "A-cme")


@pytest.mark.databases("mariadb", "mysql")  # whose usual collations ignore case
def test_scopes_that_an_index_takes_for_the_same_keep_their_defaults(
    engine: Engine, project: Any
) -> None:
    policy = TTL(Stored(HOUR, by="tenant"))
    model = models(policy, "events", tenant=mapped_column(String(40), nullable=True))
    migrated(project, engine, model, policy)
    # Whichever of a pair the job comes across, it is once the one that lives longer.
    ttls = {"acme": 60, "Acme": 3 * HOUR, "globex": 3 * HOUR, "Globex": 60}
    with engine.connect() as connection:
        for scope, ttl in ttls.items():
            set_policy(connection, model, ttl, scope=scope, by="ann")
    rows = [model(id=f"{number}", tenant=scope) for number, scope in enumerate(ttls)]
    with alone(engine, "events"):  # which keeps an EVENT away
        with Session(engine) as session:
            session.add_all(rows)
            session.commit()
        with engine.begin() as connection:
            for number in range(len(ttls)):
                age(connection, "events", f"{number}", 600)
    assert swept(engine, model) == {"1", "2"}


@pytest.mark.slow
def test_many_rows_of_many_scopes_go_in_several_batches(engine: Engine, project: Any) -> None:
    policy = TTL(Stored(HOUR, by="tenant"))
    model = models(policy, "events", tenant=mapped_column(String(40), nullable=True))
    here = migrated(project, engine, model, policy)
    here.revision(
        f"import ttl_odm; op.alter_ttl('events', {written(policy)}, max_fraction=0.1)",
        f"import ttl_odm; op.alter_ttl('events', {written(policy)}, max_fraction=1)",
    )
    here.upgrade()
    clock = clock_of(engine.dialect)
    with alone(engine, "events") as let_run:
        with Session(engine) as session:
            session.add_all(model(id=f"{n}", tenant=f"t{n % 7}") for n in range(3_000))
            session.add(model(id="live", tenant="t1"))
            session.commit()
        past = f"{clock.now} - {2 * HOUR} * {clock.second}"
        run(engine, f"UPDATE events SET _ts = {past} WHERE id <> 'live'")  # noqa: S608
        deleted, _, outcome = let_run()
        assert (deleted, outcome[:25]) == (0, "fuse: more than 1000 rows")
        run(engine, "UPDATE events_ttl_sweeps SET max_fraction = NULL, outcome = ''")
        assert whole(let_run)[::2] == (3_000, "swept")
    with Session(engine) as session:
        assert session.scalars(select(model.id).options(include_expired())).all() == ["live"]


@pytest.mark.slow
@pytest.mark.parametrize("scope", [None, "acme"])
def test_a_job_deletes_no_row_that_a_raise_has_made_live(
    engine: Engine, project: Any, scope: str | None
) -> None:
    policy = TTL(Stored(HOUR, by="tenant"))
    model = models(policy, "events", tenant=mapped_column(String(40), nullable=True))
    migrated(project, engine, model, policy)

    def live() -> set[str]:
        with Session(engine) as session:
            return set(session.scalars(select(model.id)))

    def make() -> None:
        with engine.connect() as connection:
            set_policy(connection, model, 3 * HOUR, scope=scope, by="ann")

    with (
        Raise(engine, make, live) as operator,
        alone(engine, "events") as let_run,
        ThreadPoolExecutor(1) as pool,
    ):
        with Session(engine) as session:
            session.add_all([model(id="a", tenant="acme"), model(id="b", tenant="globex")])
            session.commit()
        with deletions_held(engine, "events") as wait_for_one:
            with engine.begin() as connection:
                age(connection, "events", "a", 2 * HOUR)
                age(connection, "events", "b", 2 * HOUR)
            running = pool.submit(let_run)
            wait_for_one()
            operator.begin()
        assert running.result(GUARD)[::2] == (2, "swept")
        assert operator.seen() <= live()


@pytest.mark.slow
def test_a_job_waits_for_no_change_of_the_default(engine: Engine, project: Any) -> None:
    policy = TTL(Stored(HOUR))
    model = models(policy, "events")
    migrated(project, engine, model, policy)
    with alone(engine, "events") as let_run, engine.connect() as operator:
        with Session(engine) as session:
            session.add(model(id="a"))
            session.commit()
        with engine.begin() as connection:
            age(connection, "events", "a", 2 * HOUR)
        with operator.begin():
            set_policy(operator, model, 3 * HOUR, by="ann")
            assert let_run()[::2] == (0, "the default is being changed")
        assert let_run()[::2] == (0, "swept")


def outdated(connection: Connection, model: Any) -> list[str]:
    binding = binding_of(model.__table__)
    assert binding is not None
    found = database_sweep(connection, "Event", binding, None)
    return [said.message for said in found if said.code == "database-sweep-outdated"]


def test_check_finds_a_job_of_an_older_policy(engine: Engine) -> None:
    old, new = of_kinds(brief=60), of_kinds(brief=90)
    old.metadata.create_all(engine)
    binding = binding_of(old.__table__)
    assert binding is not None
    with engine.connect() as connection:
        install_job(connection, binding)
        connection.commit()
        assert outdated(connection, old) == []
        (message,) = outdated(connection, new)
        assert message == "the database sweeps it by an older policy than the model's"
        assert read_job(connection, None, "events") is not None
        connection.commit()
        assert remove_job(connection, binding)


@pytest.mark.parametrize(
    ("policy", "kind"),
    [
        (ExpireAt("ends", null="expired"), DateTime(timezone=True)),
        (TTL(HOUR, last_modified="ends", override="views"), DateTime(timezone=True)),
        (TTL(HOUR, last_modified="ends", override=None), BigInteger()),
        (TTL(HOUR, max_lifetime=2 * HOUR, created="ends"), DateTime(timezone=True)),
    ],
)
def test_what_no_index_leads_to_is_refused(
    engine: Engine, project: Any, policy: Any, kind: Any
) -> None:
    model = models(name="events", ends=mapped_column(kind))
    model.metadata.create_all(engine)
    if isinstance(kind, BigInteger):
        policy = TTL(HOUR, last_modified="ends", override=None, unit="s")
    here = project(model)
    here.revision(f"import ttl_odm; op.add_ttl('events', {written(policy)}, sweep='database')")
    with pytest.raises(MigrationRefusedError, match="would read the whole table every second"):
        here.upgrade()
    assert left(engine) == []


def test_it_goes_by_its_index(engine: Engine, project: Any) -> None:
    """The bound of a batch is one that an index can be searched by."""
    policy = ExpireAfter("ends", HOUR)
    model = events(policy, DateTime(timezone=True))
    migrated(project, engine, model, policy)
    now = datetime.now(timezone.utc)
    with Session(engine) as session:
        session.add_all(model(id=str(n), ends=dates(now, n * 60)) for n in range(1_000))
        session.commit()
    is_postgresql = engine.dialect.name == "postgresql"
    column, place = ("routine_definition", "information_schema.routines WHERE routine_name")
    if is_postgresql:
        column, place = "prosrc", "pg_proc WHERE proname"
    (body,) = run(engine, f"SELECT {column} FROM {place} = 'events_ttl_sweep'")[0]  # noqa: S608
    query = re.findall(
        r"SELECT (?:ctid|id) FROM \S*events\s+WHERE .*? LIMIT 1000", body, re.DOTALL
    )[0]
    query = query.replace("ttl_odm_default", str(HOUR)).replace("ttl_odm_now", "now()")
    with engine.connect() as connection:
        connection.exec_driver_sql("ANALYZE events" if is_postgresql else "ANALYZE TABLE events")
        plan = connection.exec_driver_sql(f"EXPLAIN {query}").all()
    assert "ix_events_ends_ttl" in str(plan), plan


@pytest.mark.slow
def test_a_renamed_table_takes_all_along_as_the_documentation_says(
    engine: Engine, project: Any
) -> None:
    page = (Path(__file__).parents[2] / "docs" / "migrating.md").read_text()
    block = page.split("### Renaming a table")[1].split("```python\n")[1].split("```")[0]
    stored = "ttl_odm.Stored(3600)"
    models().metadata.create_all(engine)
    here = project(models(Stored(HOUR)))
    here.revision(
        f"import ttl_odm; op.add_ttl('web_sessions', {stored}, sweep='database', enforce='view')"
    )
    here.upgrade()
    with engine.begin() as connection:
        set_policy(connection, models(Stored(HOUR)), 60, by="ann")
    here.revision(indent(f"import ttl_odm\n{block}", "    ").strip())
    renamed = models(Stored(HOUR), name="logins")
    here.metadata = renamed.metadata
    here.upgrade()
    with engine.connect() as connection:
        assert inspect(connection).get_view_names() == ["logins_live"]
        assert read_job(connection, None, "web_sessions") is None
        assert read_job(connection, None, "logins") is not None
        connection.execute(insert(renamed), [{"id": "old"}, {"id": "new"}])
        age(connection, "logins", "old", 90)
        live = connection.scalars(text("SELECT id FROM logins_live")).all()
        assert live == connection.scalars(select(renamed.id)).all() == ["new"]
