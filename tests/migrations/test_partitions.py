"""Autogenerate and tables that are cut by time: what it writes, and that it then is content."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.autogenerate import produce_migrations
from alembic.migration import MigrationContext
from sqlalchemy import text

import ttl_odm.alembic  # noqa: F401 (as in env.py)
from tests.migrations.projects import catalogue, lines
from tests.sql.cutting import log, partitions, run, visits
from ttl_odm import ExpireAfter, ExpireAt, Partitions
from ttl_odm.alembic.operations import written

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = [pytest.mark.databases("postgres"), pytest.mark.usefixtures("noon")]


@pytest.mark.parametrize("declare", [log, visits])
def test_autogenerate_drops_no_partition(engine: Engine, declare: Any) -> None:
    model = declare()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE of_nobody (id int)"))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)
        upgrade = produce_migrations(context, model.metadata).upgrade_ops
    assert upgrade is not None
    assert [type(op).__name__ for op in upgrade.ops] == ["DropTableOp"]
    assert upgrade.ops[0].table_name == "of_nobody"  # type: ignore[attr-defined]


PLAIN = "CREATE TABLE events (id int PRIMARY KEY, created_at timestamptz NOT NULL)"
EVENTS = "'events', ttl_odm.ExpireAfter('created_at', 172800)"
VISITS = "ttl_odm.TTL(3600, max_lifetime=2592000, created='began')"
HERE = "partition=ttl_odm.Partitions('1 day', ahead=2)"


@pytest.mark.slow
def test_a_table_that_is_there_is_cut_by_the_line_that_adds_its_index(
    engine: Engine, project: Any
) -> None:
    run(engine, PLAIN)
    here = project(log())
    written = here.autogenerate()
    assert lines(written) == ([f"op.add_ttl({EVENTS}, {HERE})"], [f"op.drop_ttl({EVENTS})"])
    here.upgrade()
    here.check()
    made = partitions(engine, "events")
    assert "events_past" in made
    here.downgrade()
    assert partitions(engine, "events") == made  # it stays cut
    assert "ix_events_created_at_ttl" not in str(catalogue(engine, "events"))
    here.upgrade()
    here.check()
    assert partitions(engine, "events") == made


@pytest.mark.slow
def test_only_the_span_is_written_where_all_else_is_usual(engine: Engine, project: Any) -> None:
    run(engine, PLAIN)
    here = project(log(cut=Partitions("1 week")))
    assert lines(here.autogenerate())[0] == [f"op.add_ttl({EVENTS}, partition='1 week')"]
    here.upgrade()
    here.check()


@pytest.mark.slow
def test_a_table_that_has_its_index_is_only_cut(engine: Engine, project: Any) -> None:
    run(engine, PLAIN, "CREATE INDEX ix_events_created_at_ttl ON events (created_at)")
    here = project(log())
    assert lines(here.autogenerate()) == (
        [f"op.alter_ttl({EVENTS}, {HERE})"],
        [f"op.alter_ttl({EVENTS})"],
    )
    here.upgrade()
    here.check()
    assert "events_past" in partitions(engine, "events")
    here.downgrade()
    here.upgrade()
    here.check()


@pytest.mark.slow
def test_a_table_gets_ttl_and_its_partitions(engine: Engine, project: Any) -> None:
    run(engine, "CREATE TABLE visits (id int PRIMARY KEY, began timestamptz NOT NULL)")
    run(engine, "INSERT INTO visits VALUES (1, now())")
    here = project(visits())
    limit = "'visits', ttl_odm.ExpireAfter('began', 2592000)"
    assert lines(here.autogenerate()) == (
        [f"op.add_ttl({limit})", f"op.add_ttl('visits', {VISITS}, backfill='now', {HERE})"],
        ["op.drop_ttl('visits')", f"op.drop_ttl({limit})"],
    )
    here.upgrade()
    here.check()
    assert "visits_past" in partitions(engine, "visits")


@pytest.mark.slow
def test_a_table_that_has_ttl_is_only_cut(engine: Engine, project: Any) -> None:
    visits(cut=None).metadata.create_all(engine)
    here = project(visits())
    assert lines(here.autogenerate()) == (
        [f"op.alter_ttl('visits', {VISITS}, {HERE})"],
        [f"op.alter_ttl('visits', {VISITS})"],
    )
    here.upgrade()
    here.check()
    assert "visits_past" in partitions(engine, "visits")


@pytest.mark.parametrize("declare", [log, visits])
def test_a_new_table_is_created_with_its_partitions(
    engine: Engine, project: Any, declare: Any
) -> None:
    model = declare()
    model.metadata.create_all(engine)
    name = model.__table__.name
    made = partitions(engine, name)
    model.metadata.drop_all(engine)
    here = project(model)
    up, down = lines(here.autogenerate())
    assert any(f"{HERE}, in_transaction=True)" in line for line in up)
    assert down[-1] == f"op.drop_table('{name}')"
    here.upgrade()
    here.check()
    assert partitions(engine, name) == made
    here.downgrade()
    assert not partitions(engine, name)


def test_the_partitions_of_others_are_theirs(engine: Engine, project: Any) -> None:
    run(engine, PLAIN)
    here = project(log(cut=Partitions("1 day", made_by="others")))
    assert "partition" not in "".join(lines(here.autogenerate())[0])
    here.upgrade()
    assert not partitions(engine, "events")


def test_a_table_that_env_py_leaves_out_is_left_out(engine: Engine, project: Any) -> None:
    run(engine, PLAIN, "CREATE INDEX ix_events_created_at_ttl ON events (created_at)")
    here = project(log(), include_object=lambda _, name, *__: name != "events")
    assert lines(here.autogenerate()) == ([], [])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Partitions("1 hour"), "'1 hour'"),
        (
            Partitions("1 week", 3, survivors="move", made_by="others"),
            "ttl_odm.Partitions('1 week', ahead=3, survivors='move', made_by='others')",
        ),
        (ExpireAfter("at", 60, unit="ms"), "ttl_odm.ExpireAfter('at', 60, unit='ms')"),
        (
            ExpireAt("at", null="expired", timezone="Asia/Tokyo"),
            "ttl_odm.ExpireAt('at', null='expired', timezone='Asia/Tokyo')",
        ),
    ],
)
def test_what_is_written_means_the_same(value: Any, text: str) -> None:
    import ttl_odm

    assert written(value) == text
    read = eval(text, {"ttl_odm": ttl_odm})  # noqa: S307 (as a revision does)
    assert read == value or Partitions(read) == value
