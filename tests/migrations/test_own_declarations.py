"""Migrations of models with a declaration of which only the application knows what it means."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.migrations.conftest import models
from tests.migrations.own_declarations import Clustered, Setting
from tests.migrations.projects import lines
from ttl_odm import TTL
from ttl_odm.alembic import MigrationRefusedError

if TYPE_CHECKING:
    from sqlalchemy import Engine

OWN = "tests.migrations.own_declarations"


@pytest.mark.parametrize("declared", [Setting("sessions"), TTL(Setting("sessions"), never=(0,))])
def test_a_default_of_the_applications_own_is_added_once(
    before: Any, project: Any, declared: Any
) -> None:
    here = project(models(declared))
    up, down = lines(here.autogenerate())
    default = f"{OWN}.Setting(name='sessions', by=None)"
    assert up == [f"op.add_ttl('web_sessions', {default}, backfill='now')"]
    assert down == [f"op.drop_ttl('web_sessions', {default})"]
    assert f"\nimport {OWN}\n" in here.path().read_text()
    here.upgrade()
    here.check()
    here.downgrade()


def test_a_view_holds_such_a_default(before: Any, project: Any, engine: Engine) -> None:
    here = project(models(Setting("sessions")))
    here.autogenerate()
    here.edit("backfill='now'", "enforce='view'")
    here.upgrade()
    here.check()
    with engine.begin() as connection:
        count = text("SELECT count(*) FROM web_sessions_live")
        assert connection.scalar(count) == 3
        is_postgresql = engine.dialect.name == "postgresql"
        ago = "interval '2 hours'" if is_postgresql else "7200000000"
        connection.execute(text(f"UPDATE web_sessions SET _ts = _ts - {ago} WHERE id = 'a'"))  # noqa: S608
        assert connection.scalar(count) == 2


def test_nobody_compares_a_layout_of_the_applications_own(before: Any, project: Any) -> None:
    here = project(models(3600, __ttl_partition__=Clustered("id")))
    up, _ = lines(here.autogenerate())
    assert up == ["op.add_ttl('web_sessions', 3600, backfill='now')"]
    here.upgrade()
    here.check()


def test_an_operation_is_not_told_of_a_layout_that_it_can_not_make(
    before: Any, project: Any
) -> None:
    here = project(models(3600))
    here.autogenerate()
    here.edit("from alembic import op", f"from alembic import op\nimport {OWN}")
    here.edit("backfill='now'", f"partition={OWN}.Clustered('id')")
    with pytest.raises(MigrationRefusedError, match=r"own_declarations\.alembic, which doesn't"):
        here.upgrade()
