"""Autogenerate writes one operation for what __ttl__ says, and check agrees afterwards."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from alembic.util.exc import CommandError
from sqlalchemy import (
    CheckConstraint,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    UniqueConstraint,
    inspect,
    text,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm import DeclarativeBase, mapped_column

from tests.migrations.conftest import fill, models
from tests.migrations.projects import catalogue, lines, put_earlier_check, without_a_copy
from ttl_odm import Follows
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.sqlalchemy import TTLMixin, lease_table
from ttl_odm.sqlalchemy.sweep.leases import NAME

if TYPE_CHECKING:
    from sqlalchemy import Engine


def test_a_new_ttl_is_one_line_each_way(before: Any, project: Any) -> None:
    here = project(models(3600))
    up, down = lines(here.autogenerate())
    assert up == ["op.add_ttl('web_sessions', 3600, backfill='now')"]
    assert down == ["op.drop_ttl('web_sessions')"]


def test_a_check_says_nothing_of_indexes_that_are_as_they_should_be(
    before: Any, project: Any, caplog: pytest.LogCaptureFixture
) -> None:
    here = project(models(3600, clicks=mapped_column(Integer, index=True)))
    here.autogenerate()
    here.upgrade()
    caplog.clear()
    with caplog.at_level("INFO", logger="alembic"):
        here.check()
    assert [line for line in caplog.messages if "_ttl_" in line or "Detected" in line] == []


@pytest.mark.slow
def test_a_revision_brings_the_operations_with_it(before: Any, project: Any) -> None:
    here = project(models(3600))
    here.autogenerate()
    (revision,) = (here.scripts / "versions").glob("*.py")
    assert "\nimport ttl_odm.alembic\n" in revision.read_text()
    probe = f"import runpy; from alembic import op; runpy.run_path({str(revision)!r}); op.add_ttl"
    subprocess.run([sys.executable, "-c", probe], check=True)


def test_other_changes_of_the_table_come_before_it(before: Any, project: Any) -> None:
    here = project(models(3600, clicks=mapped_column(Integer, index=True)))
    up, down = lines(here.autogenerate())
    assert [line.split("(")[0] for line in up] == [
        "op.add_column",
        "op.create_index",
        "op.add_ttl",
    ]
    assert down[0] == "op.drop_ttl('web_sessions')"
    here.upgrade()
    here.check()
    here.downgrade()


def test_a_new_table_with_ttl_is_created_whole(engine: Engine, project: Any) -> None:
    model = models(3600)
    here = project(model)
    up, down = lines(here.autogenerate())
    assert up[0].startswith("op.create_table('web_sessions'")
    assert up[1:] == ["op.add_ttl('web_sessions', 3600, in_transaction=True)"]
    assert down == [
        "op.drop_ttl('web_sessions', in_transaction=True)",
        "op.drop_table('web_sessions')",
    ]
    here.upgrade()
    here.check()
    made = catalogue(engine, "web_sessions")
    here.downgrade()
    model.metadata.create_all(engine)
    assert made == catalogue(engine, "web_sessions")


def test_a_new_table_that_follows_another_is_created_without_a_line_of_ours(
    engine: Engine, project: Any
) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = 3600
        id = mapped_column(Integer, primary_key=True)

    class Item(Base):
        __tablename__ = "items"
        __ttl__ = Follows("cart_id")
        cart_id = mapped_column(ForeignKey("carts.id"), primary_key=True)

    here = project(Base.metadata)
    up, _ = lines(here.autogenerate())
    operations = [line.split("(")[0] for line in up]
    assert operations == ["op.create_table", "op.add_ttl", "op.create_table"]
    assert "info=" not in "".join(up)
    here.upgrade()
    here.check()
    here.downgrade()


def test_a_removed_ttl_is_dropped_and_its_downgrade_adds_it(engine: Engine, project: Any) -> None:
    model = models(3600)
    model.metadata.create_all(engine)
    fill(engine, "web_sessions")
    made = catalogue(engine, "web_sessions")
    here = project(models())
    up, down = lines(here.autogenerate())
    assert up == ["op.drop_ttl('web_sessions')"]
    assert down == ["op.add_ttl('web_sessions', None, backfill='now')"]
    here.upgrade()
    here.check()
    here.downgrade()
    assert catalogue(engine, "web_sessions") == without_a_copy(engine, made)


def test_a_dropped_table_gets_its_ttl_again_by_the_downgrade(engine: Engine, project: Any) -> None:
    model = models(3600)
    model.metadata.create_all(engine)
    made = catalogue(engine, "web_sessions")
    here = project(MetaData())
    up, down = lines(here.autogenerate())
    assert up == [
        "op.drop_ttl('web_sessions', in_transaction=True)",
        "op.drop_table('web_sessions')",
    ]
    assert down[0].startswith("op.create_table('web_sessions'")
    here.upgrade()
    here.downgrade()
    assert catalogue(engine, "web_sessions") == made


def test_indexes_come_and_go_with_the_way_of_sweeping(engine: Engine, project: Any) -> None:
    indexed, scanned = models(60), models(60, __ttl_sweep__="scan")
    indexed.metadata.create_all(engine)
    made = catalogue(engine, "web_sessions")
    here = project(scanned)
    up, down = lines(here.autogenerate())
    assert up == ["op.alter_ttl('web_sessions', 60, sweep='scan')"]
    assert down == ["op.alter_ttl('web_sessions', 60, sweep='index')"]
    here.upgrade()
    here.check()
    here.downgrade()
    assert catalogue(engine, "web_sessions") == made


def test_an_index_that_is_missing_is_put_back(engine: Engine, project: Any) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    made = catalogue(engine, "web_sessions")
    with engine.begin() as connection:
        on = " ON web_sessions" if engine.dialect.name == "mysql" else ""
        connection.execute(text(f"DROP INDEX ix_web_sessions_ttl_own{on}"))
    here = project(model)
    with pytest.raises(CommandError, match="alter_ttl"):
        here.check()
    assert lines(here.autogenerate())[0] == ["op.alter_ttl('web_sessions', 60, sweep='index')"]
    here.upgrade()
    here.check()
    assert catalogue(engine, "web_sessions") == made


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("form", ["inline", "copied"])
def test_the_check_of_an_earlier_release_is_replaced(
    engine: Engine, project: Any, form: str
) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    made = catalogue(engine, "web_sessions")
    with engine.begin() as connection:
        put_earlier_check(connection, form)
        connection.execute(text("INSERT INTO web_sessions (id, views, ttl) VALUES ('a', 1, 'x')"))
    here = project(model)
    assert lines(here.autogenerate())[0] == ["op.alter_ttl('web_sessions', 60)"]
    with pytest.raises(MigrationRefusedError, match="1 rows have an invalid ttl") as error:
        here.upgrade()
    with engine.begin() as connection:
        connection.exec_driver_sql(str(error.value).rpartition(": ")[2])
    here.upgrade()
    here.check()
    with engine.connect() as connection, pytest.raises(IntegrityError, match="CHECK"):
        connection.execute(text("INSERT INTO web_sessions (id, views, ttl) VALUES ('b', 1, 20.5)"))
    if form == "inline":
        assert catalogue(engine, "web_sessions") == made


def test_a_changed_default_needs_no_migration(engine: Engine, project: Any) -> None:
    models(60).metadata.create_all(engine)
    project(models(61)).check()


def test_our_own_tables_are_left_alone(before: Any, engine: Engine, project: Any) -> None:
    lease_table(MetaData()).create(engine)
    here = project(models())
    here.check()
    with_lease = models()
    lease_table(with_lease.metadata)
    here.metadata = with_lease.metadata
    here.check()
    assert NAME in inspect(engine).get_table_names()


def test_filters_of_env_py_are_respected(before: Any, project: Any) -> None:
    def without_our_columns(_: Any, name: str | None, kind: str, *__: Any) -> bool:
        return kind != "table" or name != "web_sessions"

    project(models(3600), include_object=without_our_columns).check()


@pytest.mark.databases("sqlite")
def test_filters_hold_where_alembic_has_nothing_to_say(engine: Engine, project: Any) -> None:
    model = models(60)
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(text("DROP INDEX ix_web_sessions_ttl_own"))
    here = project(model, include_object=lambda *given: given[2] != "table")
    here.check()


def test_a_ttl_column_that_was_kept_is_taken_over(before: Any, project: Any) -> None:
    here = project(models(3600))
    here.revision(
        "op.add_ttl('web_sessions', 3600)\n    op.drop_ttl('web_sessions', keep_ttl=True)"
    )
    here.upgrade()
    up, down = lines(here.autogenerate())
    assert up == ["op.add_ttl('web_sessions', 3600, backfill='now', keep_ttl=True)"]
    assert down == ["op.drop_ttl('web_sessions', keep_ttl=True)"]
    here.upgrade()
    here.check()


def test_batches_are_written_around_the_other_lines(before: Any, project: Any) -> None:
    model = models(3600, clicks=mapped_column(Integer))
    here = project(model, render_as_batch=True)
    up, _ = lines(here.autogenerate())
    assert up[-1] == "op.add_ttl('web_sessions', 3600, backfill='now')"
    here.upgrade()
    here.check()
    here.downgrade()


@pytest.mark.slow
def test_an_index_of_the_applications_own_on_our_columns(engine: Engine, project: Any) -> None:
    models().metadata.create_all(engine)
    fill(engine, "web_sessions")
    indexed = models(60, __table_args__=(Index("ix_by_time", "views", "_ts"), Index("ix_t", "_ts")))
    here = project(indexed)
    here.autogenerate()
    for _ in range(2):
        here.upgrade()
        here.check()
        here.downgrade()
    here.upgrade()
    here.metadata = models(60).metadata
    written = here.autogenerate()
    assert re.search(r"op\.drop_index\((op\.f\()?'ix_t'", written)  # newer Alembics add op.f()
    assert "_ttl(" not in written


@pytest.mark.slow
def test_a_new_table_may_have_other_constraints_on_our_columns(
    engine: Engine, project: Any
) -> None:
    constraints = (
        UniqueConstraint("id", "_ts", name="uq_ids"),
        CheckConstraint("ttl IS NULL OR ttl < 1000", name="ck_short"),
    )
    here = project(models(60, __table_args__=constraints))
    written = here.autogenerate().partition("def downgrade")[0]
    assert "in_transaction=True" in written.partition("op.alter_ttl(")[2]
    for _ in range(2):
        here.upgrade()
        here.check()
        fill(engine, "web_sessions")
        with engine.begin() as connection, pytest.raises(DBAPIError):
            connection.exec_driver_sql("UPDATE web_sessions SET ttl = 1000")
        here.downgrade()


@pytest.mark.slow
def test_an_index_of_the_applications_own_goes_before_our_columns(
    engine: Engine, project: Any
) -> None:
    indexes = Index("ix_by_time", "views", "_ts"), Index("ix_t", "_ts", unique=True)
    models(60, __table_args__=indexes).metadata.create_all(engine)
    here = project(models())
    here.autogenerate()
    for _ in range(2):
        here.upgrade()
        here.check()
        here.downgrade()
    names = {index["name"] for index in inspect(engine).get_indexes("web_sessions")}
    assert {"ix_by_time", "ix_t"} <= names


@pytest.mark.slow
def test_a_renamed_table_gets_its_indexes_and_loses_ttl(engine: Engine, project: Any) -> None:
    models(60).metadata.create_all(engine)
    fill(engine, "web_sessions")
    here = project(models(60, name="logins"))
    here.revision("op.rename_table('web_sessions', 'logins')")
    here.upgrade()
    here.autogenerate()
    here.upgrade()
    here.check()
    here.revision("op.drop_ttl('logins')", "op.add_ttl('logins', 60)")
    here.upgrade()
    assert {each["name"] for each in inspect(engine).get_columns("logins")} == {"id", "views"}
    here.downgrade()
    here.upgrade()
    here.metadata = models(name="logins").metadata
    here.check()


def test_a_renamed_table_loses_its_trigger_too(before: Any, engine: Engine, project: Any) -> None:
    here = project()
    here.revision("op.add_ttl('web_sessions', 60, touch_trigger=True)")
    here.revision("op.rename_table('web_sessions', 'logins')\n    op.drop_ttl('logins')")
    here.upgrade()
    with engine.begin() as connection:
        connection.execute(text("UPDATE logins SET views = 1"))


def test_a_renamed_tables_trigger_makes_room_for_that_of_another_table(
    before: Any, engine: Engine, project: Any
) -> None:
    del before
    another_under_the_former_name(project(), "op.alter_ttl('logins', 60, touch_trigger=True)")
    assert stamped(engine) == ["a"]


@pytest.mark.databases("postgres")
def test_a_function_stays_as_long_as_a_renamed_table_uses_it(
    before: Any, engine: Engine, project: Any
) -> None:
    del before
    here = project()
    another_under_the_former_name(here, "pass")
    assert stamped(engine) == ["a"]
    here.revision("op.drop_ttl('logins')")
    here.upgrade()
    with engine.connect() as connection:
        query = text("SELECT count(*) FROM pg_proc WHERE proname LIKE '%ttl_touch'")
        assert connection.scalar(query) == 0


def another_under_the_former_name(here: Any, after_rename: str) -> None:
    """Rename a table with a trigger, and let another of its former name get and lose TTL."""
    here.revision(
        "op.add_ttl('web_sessions', 60, sweep='scan', touch_trigger=True)\n"
        f"    op.rename_table('web_sessions', 'logins')\n    {after_rename}"
    )
    here.revision(
        "op.create_table('web_sessions', sa.Column('id', sa.String(40), primary_key=True))\n"
        "    op.add_ttl('web_sessions', 60, sweep='scan', touch_trigger=True)\n"
        "    op.drop_ttl('web_sessions')"
    )
    here.upgrade()


def stamped(engine: Engine) -> list[str]:
    """Which row of the renamed table a raw UPDATE of one stamps."""
    past = "now() - interval '1 day'" if engine.dialect.name == "postgresql" else "1000"
    with engine.begin() as connection:
        connection.execute(text(f"UPDATE logins SET _ts = {past}"))  # noqa: S608
        connection.execute(text("UPDATE logins SET views = 7 WHERE id = 'a'"))
        latest = text("SELECT id FROM logins WHERE _ts = (SELECT max(_ts) FROM logins)")
        return list(connection.scalars(latest))


@pytest.mark.slow
def test_a_renamed_tables_ttl_is_dropped_and_its_downgrade_adds_it(
    engine: Engine, project: Any
) -> None:
    models(60).metadata.create_all(engine)
    fill(engine, "web_sessions")
    here = project(models(name="logins"))
    here.revision("op.rename_table('web_sessions', 'logins')")
    here.upgrade()
    up, _ = lines(here.autogenerate())
    assert up == ["op.drop_ttl('logins')"]
    here.upgrade()
    here.check()
    here.downgrade()
    assert "_ts" in {each["name"] for each in inspect(engine).get_columns("logins")}


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_table_in_another_schema_is_compared_there(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA shop"))
    elsewhere = {"__table_args__": {"schema": "shop"}}
    models(**elsewhere).metadata.create_all(engine)
    here = project(models(60, **elsewhere), include_schemas=True)
    assert lines(here.autogenerate())[0] == [
        "op.add_ttl('web_sessions', 60, backfill='now', schema='shop')"
    ]
    here.upgrade()
    here.check()
    here.downgrade()


@pytest.mark.databases("postgres")
def test_a_table_of_the_same_name_elsewhere_keeps_its_lines(engine: Engine, project: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA shop"))
    elsewhere = {"__table_args__": {"schema": "shop"}}
    models().metadata.create_all(engine)
    models(**elsewhere).metadata.create_all(engine)
    metadata = MetaData()
    models(60, metadata=metadata, **elsewhere)
    models(metadata=metadata, own=mapped_column("ttl", Integer))
    up, _ = lines(project(metadata, include_schemas=True).autogenerate())
    assert [line.partition("(")[0] for line in up] == ["op.add_column", "op.add_ttl"]


def test_every_branch_migrates_its_own_table(engine: Engine, project: Any) -> None:
    metadata = MetaData()
    one, other = models(name="ones", metadata=metadata), models(name="others", metadata=metadata)
    metadata.create_all(engine)
    here = project(metadata)
    root = here.revision("pass")
    here.revision("op.add_ttl('ones', 1)", "op.drop_ttl('ones')", head=root)
    here.revision("op.add_ttl('others', 2)", "op.drop_ttl('others')", head=root, splice=True)
    here.upgrade("heads")
    assert {"_ts", "ttl"} <= {each["name"] for each in inspect(engine).get_columns("ones")}
    assert {"_ts", "ttl"} <= {each["name"] for each in inspect(engine).get_columns("others")}
    assert (one, other) is not None
