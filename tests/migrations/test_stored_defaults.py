"""Defaults that the database stores: migrations begin their rows, and take them away."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from alembic.util.exc import CommandError
from sqlalchemy import Integer, Text, inspect, select, text
from sqlalchemy.orm import Mapped, mapped_column

from tests.migrations.conftest import fill, models
from tests.migrations.projects import catalogue, lines
from ttl_odm import Stored
from ttl_odm.dialects.mysql import INHERITED_END
from ttl_odm.sqlalchemy import create_policies, policy_tables, set_policy, stored_policies
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.sweep.due import stored_indexes
from ttl_odm.stored.rows import CHANGES, POLICIES
from ttl_odm.stored.sqlalchemy.scope_ranges import scope_index
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine


def stored(engine: Engine, *targets: Any) -> dict[str, int | None]:
    with engine.connect() as connection:
        return {row.name: row.ttl for row in stored_policies(connection, *targets)}


@pytest.mark.slow
def test_a_stored_default_is_one_line_each_way(engine: Engine, before: Any, project: Any) -> None:
    model = models(Stored(3600, most=7200))
    here = project(model)
    up, down = lines(here.autogenerate())
    assert up == ["op.add_ttl('web_sessions', ttl_odm.Stored(3600, most=7200), backfill='now')"]
    assert down == ["op.drop_ttl('web_sessions', ttl_odm.Stored(3600, most=7200))"]
    here.upgrade()
    here.check()
    assert stored(engine) == {"web_sessions": 3600}
    with engine.connect() as connection:
        set_policy(connection, model, 60, by="ann")
        create_policies(connection, model.__table__)
        connection.commit()
    here.check()
    assert stored(engine) == {"web_sessions": 60}
    here.downgrade()
    assert stored(engine) == {}
    assert inspect(engine).has_table(CHANGES)
    here.upgrade()
    assert stored(engine) == {"web_sessions": 3600}


@pytest.mark.slow
def test_a_new_table_begins_with_it(engine: Engine, project: Any) -> None:
    here = project(models(Stored(60)))
    up, _ = lines(here.autogenerate())
    assert up[1:] == ["op.add_ttl('web_sessions', ttl_odm.Stored(60), in_transaction=True)"]
    here.upgrade()
    here.check()
    assert stored(engine) == {"web_sessions": 60}
    here.downgrade()
    assert stored(engine) == {}


@pytest.mark.slow
def test_a_default_that_a_dropped_table_left_behind_is_reported(
    engine: Engine, project: Any, caplog: pytest.LogCaptureFixture
) -> None:
    model = models(Stored(3600))
    here = project(model)
    here.autogenerate()
    here.upgrade()
    with engine.connect() as connection:
        set_policy(connection, model, 60, by="ann")
        connection.commit()
    here.revision("op.drop_table('web_sessions')")
    here.upgrade()
    here.autogenerate()
    here.upgrade()
    (line,) = (line for line in caplog.messages if "former table" in line)
    assert "'web_sessions': begins with the default" in line
    assert "(all rows: 60), not with Stored(3600)" in line
    assert stored(engine) == {"web_sessions": 60}


@pytest.mark.slow
def test_a_default_is_taken_into_the_database_and_back_out(engine: Engine, project: Any) -> None:
    model = models(3600)
    model.metadata.create_all(engine)
    fill(engine, "web_sessions")
    made = catalogue(engine, "web_sessions")
    here = project(models(Stored(3600)))
    with pytest.raises(CommandError, match="alter_ttl"):
        here.check()
    up, down = lines(here.autogenerate())
    assert up == ["op.alter_ttl('web_sessions', ttl_odm.Stored(3600))"]
    assert down == ["op.alter_ttl('web_sessions', 3600)"]
    here.upgrade()
    here.check()
    assert stored(engine) == {"web_sessions": 3600}
    here.metadata = model.metadata
    assert lines(here.autogenerate())[0] == ["op.alter_ttl('web_sessions', 3600)"]
    here.upgrade()
    here.check()
    assert stored(engine) == {}
    assert catalogue(engine, "web_sessions") == made


def test_nobody_drops_the_tables_of_the_policies(engine: Engine, project: Any) -> None:
    model = models(Stored(3600))
    model.metadata.create_all(engine)
    here = project(model)
    here.check()
    without = models(Stored(3600))
    policy_tables(without.metadata)
    here.metadata = without.metadata
    here.check()


@pytest.mark.parametrize("are_declared", [True, False])
def test_autogenerate_says_nothing_of_tables_that_are_ours(
    engine: Engine, project: Any, caplog: pytest.LogCaptureFixture, *, are_declared: bool
) -> None:
    model = models(Stored(3600))
    if are_declared:
        policy_tables(model.metadata)
    model.metadata.create_all(engine)
    Sweeper(engine, model).run_once()
    assert {POLICIES, CHANGES, "ttl_odm_lease"} <= set(inspect(engine).get_table_names())
    here = project(model)
    caplog.set_level("INFO")
    assert lines(here.autogenerate()) == ([], [])
    assert [line for line in caplog.messages if "Detected" in line] == []


def test_the_tables_may_be_the_applications(engine: Engine, project: Any) -> None:
    model = models(Stored(60))
    policies, _ = policy_tables(model.metadata)
    here = project(model)
    up, _ = lines(here.autogenerate())
    assert [line.partition("(")[0] for line in up] == ["op.create_table", "op.add_ttl"]
    here.upgrade()
    here.check()
    assert stored(engine, model) == {"web_sessions": 60}
    with engine.connect() as connection:
        assert connection.scalars(select(policies.c.name)).all() == ["web_sessions"]


@pytest.mark.databases("postgres", "sqlite", "mariadb", "mysql")
def test_a_script_begins_it(engine: Engine, before: Any, project: Any) -> None:
    here = project(models(Stored(60)))
    here.revision(
        "op.add_ttl('web_sessions', __import__('ttl_odm').Stored(60))",
        "op.drop_ttl('web_sessions', __import__('ttl_odm').Stored(60))",
    )
    script = here.script()
    assert f"CREATE TABLE IF NOT EXISTS {POLICIES}" in script
    assert f"CREATE TABLE IF NOT EXISTS {CHANGES}" in script
    assert f"INSERT INTO {POLICIES}" in script


def test_a_view_follows_what_is_stored(engine: Engine, before: Any, project: Any) -> None:
    model = models(Stored(3600))
    here = project(model)
    here.revision(
        "op.add_ttl('web_sessions', __import__('ttl_odm').Stored(3600), enforce='view')",
        "op.drop_ttl('web_sessions')",
    )
    here.upgrade()
    here.check()

    def shown() -> tuple[int, ...]:
        with engine.connect() as connection:
            count = text("SELECT count(*), count(expires_at) FROM web_sessions_live")
            return tuple(connection.execute(count).one())

    number, _ = shown()
    assert number > 0
    with engine.begin() as connection:
        clock = connection.dialect.name
        older = {"sqlite": "100000", "postgresql": "interval '100 seconds'"}.get(clock, "100000000")
        connection.execute(text(f"UPDATE web_sessions SET _ts = _ts - {older}"))  # noqa: S608
    for ttl, rows in {
        60: (0, 0),
        3600: (number, number),
        -1: (number, 0),
        None: (number, 0),
    }.items():
        with engine.connect() as connection:
            set_policy(connection, model, ttl, by="ann")
        assert shown() == rows


def test_a_column_of_scopes_leads_the_index(engine: Engine, before: Any, project: Any) -> None:
    column = mapped_column("site views", Integer, default=0, nullable=False)
    model = models(Stored(3600, by="views"), views=column, __annotations__={"id": Mapped[str]})
    with engine.begin() as connection:
        quote = engine.dialect.identifier_preparer.quote
        rename = f"ALTER TABLE web_sessions RENAME COLUMN views TO {quote('site views')}"
        connection.execute(text(rename))
    here = project(model)
    (up,), _ = lines(here.autogenerate())
    line = "op.add_ttl('web_sessions', ttl_odm.Stored(3600, by='site views'), backfill='now')"
    assert up == line
    here.upgrade()
    here.check()
    with engine.connect() as connection:
        found = scope_index(connection, binding_of(model.__table__))
    assert found is not None
    assert (found.name, found.first) == ("ix_web_sessions_ttl_inherited", "site views")


def test_a_column_of_long_text_may_have_the_scopes(engine: Engine, project: Any) -> None:
    model = models(note=mapped_column(Text))
    model.metadata.create_all(engine)
    here = project(models(Stored(3600, by="note"), note=mapped_column(Text)))
    here.autogenerate()
    here.upgrade()
    here.check()


@pytest.mark.slow
def test_a_default_gains_and_loses_its_scopes(engine: Engine, before: Any, project: Any) -> None:
    plain, scoped = Stored(3600), Stored(3600, by="views")
    index = "ix_web_sessions_ttl_inherited"

    def leading() -> str | None:
        with engine.connect() as connection:
            found = stored_indexes(connection, models(plain).__table__)
        (first,) = [one.first for one in found if one.name == index]
        return None if first in ("_ts", INHERITED_END) else first

    here = project(models(plain))
    here.autogenerate()
    here.upgrade()
    assert leading() is None

    here.metadata = models(scoped).metadata
    up, down = lines(here.autogenerate())
    more, less = (
        f"op.alter_ttl('web_sessions', ttl_odm.{declared!r}, sweep='index')"
        for declared in (scoped, plain)
    )
    assert (up, down) == ([more], [less])
    here.upgrade()
    here.check()
    assert leading() == "views"
    with engine.connect() as connection:
        assert scope_index(connection, binding_of(models(scoped).__table__)) is not None
    here.downgrade()
    assert leading() is None
    here.upgrade()

    here.metadata = models(plain).metadata
    up, down = lines(here.autogenerate())
    assert (up, down) == ([less], [more])
    here.upgrade()
    here.check()
    assert leading() is None
