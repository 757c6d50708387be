"""A table that has its dates already gets an index for the sweeper, and nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, Integer, inspect
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import mapped_column

from tests.migrations.conftest import models
from tests.migrations.projects import catalogue, lines
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.alembic import MigrationRefusedError
from ttl_odm.alembic.target_schema import TargetSchema

if TYPE_CHECKING:
    from sqlalchemy import Engine


def events(**declared: Any) -> Any:
    return models(ends=mapped_column(DateTime), name="events", **declared)


POLICIES = [
    (ExpireAt("ends"), "ttl_odm.ExpireAt('ends')"),
    (ExpireAfter("ends", 60), "ttl_odm.ExpireAfter('ends', 60)"),
]


@pytest.mark.parametrize(("policy", "written"), POLICIES)
def test_the_index_comes_and_goes_by_one_line(
    engine: Engine, project: Any, policy: Any, written: str
) -> None:
    events().metadata.create_all(engine)
    plain = catalogue(engine, "events")
    model = events(__ttl__=policy)
    here = project(model)
    text = here.autogenerate()
    assert lines(text) == (
        [f"op.add_ttl('events', {written})"],
        [f"op.drop_ttl('events', {written})"],
    )
    here.upgrade()
    here.check()
    made = catalogue(engine, "events")
    assert made != plain
    here.downgrade()
    assert catalogue(engine, "events") == plain
    model.metadata.drop_all(engine)
    model.metadata.create_all(engine)
    assert catalogue(engine, "events") == made


def test_a_removed_declaration_drops_its_index(engine: Engine, project: Any) -> None:
    events(__ttl__=ExpireAt("ends")).metadata.create_all(engine)
    here = project(events(__ttl__=ExpireAt("ends"), __ttl_sweep__="scan"))
    assert lines(here.autogenerate())[0] == ["op.drop_ttl('events', ttl_odm.ExpireAt('ends'))"]
    here.upgrade()
    here.check()
    assert inspect(engine).get_indexes("events") == []


@pytest.mark.parametrize("keeps", [True, False])
def test_a_policy_may_change_to_another_column(
    engine: Engine, project: Any, *, keeps: bool
) -> None:
    events(__ttl__=ExpireAt("ends")).metadata.create_all(engine)
    former = {"ends": mapped_column(DateTime)} if keeps else {}
    closes = mapped_column(DateTime, nullable=True)
    here = project(models(ExpireAt("closes"), "events", closes=closes, **former))
    text = here.autogenerate()
    for _ in range(2):
        here.upgrade()
        here.check()
        names = {index["name"] for index in inspect(engine).get_indexes("events")}
        assert names == {"ix_events_closes_ttl"}
        here.downgrade()
        names = {index["name"] for index in inspect(engine).get_indexes("events")}
        assert names == {"ix_events_ends_ttl"}
    (first, *_), _ = lines(text)
    assert first == "op.drop_ttl('events', ttl_odm.ExpireAt('ends'))"


def test_a_policy_may_go_with_its_column(engine: Engine, project: Any) -> None:
    events(__ttl__=ExpireAt("ends")).metadata.create_all(engine)
    here = project(models(name="events"))
    here.autogenerate()
    here.upgrade()
    here.check()
    here.downgrade()
    assert [index["name"] for index in inspect(engine).get_indexes("events")] == [
        "ix_events_ends_ttl"
    ]


@pytest.mark.parametrize("name", ["ttl", "_ts"])
def test_a_column_of_dates_may_have_the_name_of_one_of_ours(
    engine: Engine, project: Any, name: str
) -> None:
    def named(**declared: Any) -> Any:
        return models(ends=mapped_column(name, Integer), name="events", **declared)

    named().metadata.create_all(engine)
    here = project(named(__ttl__=ExpireAt(name, unit="s")))
    here.autogenerate()
    for _ in range(2):
        here.upgrade()
        here.check()
        assert len(inspect(engine).get_indexes("events")) == 1
        here.downgrade()


def test_a_new_table_is_created_with_its_index(engine: Engine, project: Any) -> None:
    here = project(events(__ttl__=ExpireAt("ends")))
    assert "add_ttl" not in here.autogenerate()
    here.upgrade()
    here.check()
    assert len(inspect(engine).get_indexes("events")) == 1


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("'events', ttl_odm.ExpireAt('end')", "no column 'end'; it has"),
        ("'events', ttl_odm.ExpireAt('ends'), backfill='ends'", "backfill has no meaning here"),
        ("'events', ttl_odm.TTL(60, last_modified='ends')", "needs no migration"),
    ],
)
def test_what_makes_no_sense_is_refused(
    engine: Engine, project: Any, operation: str, words: str
) -> None:
    events().metadata.create_all(engine)
    here = project()
    here.revision(f"import ttl_odm; op.add_ttl({operation})")
    with pytest.raises(MigrationRefusedError, match=words):
        here.upgrade()


def test_a_limit_brings_an_index_on_the_creation(engine: Engine, project: Any) -> None:
    events().metadata.create_all(engine)
    plain = catalogue(engine, "events")
    model = events(ttl=TTL(60, max_lifetime=600, created="ends"))
    here = project(model)
    assert lines(here.autogenerate()) == (
        [
            "op.add_ttl('events', ttl_odm.ExpireAfter('ends', 600))",
            "op.add_ttl('events', 60, backfill='now')",
        ],
        [
            "op.drop_ttl('events')",
            "op.drop_ttl('events', ttl_odm.ExpireAfter('ends', 600))",
        ],
    )
    here.upgrade()
    here.check()
    assert "ix_events_ends_ttl" in str(catalogue(engine, "events"))
    here.downgrade()
    assert catalogue(engine, "events") == plain


def test_a_view_of_the_living_does_not_overlook_a_limit() -> None:
    wanted = TargetSchema.of("events", TTL(60, max_lifetime=600, created="ends"), None)
    with pytest.raises(TTLConfigurationError, match="reads the types"):
        wanted.live(postgresql.dialect())
