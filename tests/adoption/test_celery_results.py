"""Celery's database result backend keeps its results under ttl_odm."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import DateTime, text

from tests.adoption.conftest import ROWS, example, in_batches, moved, stored
from ttl_odm.sqlalchemy import disable
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

DAY = 86_400


@pytest.fixture
def app(backend: Backend) -> Iterator[Any]:
    celery_results = example("celery_results")
    made = celery_results.make_app(backend.sync_url)
    yield made
    for model in celery_results.RESULTS:
        disable(model)


@pytest.fixture
def state(app: Any) -> Any:
    return lambda task_id: example("celery_results").state_of(app, task_id)


def end_all(database: Engine) -> None:
    with database.begin() as connection:
        for table in ("celery_taskmeta", "celery_tasksetmeta"):
            connection.execute(moved(table, "date_done", DAY + 1))


@pytest.mark.slow
def test_a_result_that_is_over_is_unknown_again_and_its_id_is_free(
    app: Any, state: Any, database: Engine
) -> None:
    app.backend.store_result("sum", 6, "SUCCESS")
    assert state("sum") == "SUCCESS 6"
    assert app.AsyncResult("sum").get(timeout=600) == 6
    end_all(database)
    assert state("sum") == "PENDING None"
    app.backend.store_result("sum", 7, "SUCCESS")
    assert state("sum") == "SUCCESS 7"
    app.backend.forget("sum")
    assert state("sum") == "PENDING None"
    with database.connect() as connection:
        assert stored(connection, "celery_taskmeta") == 0


def test_a_result_that_is_young_is_served(app: Any, state: Any, database: Engine) -> None:
    app.backend.store_result("sum", 6, "SUCCESS")
    with database.begin() as connection:
        done = connection.scalar(
            text("SELECT date_done FROM celery_taskmeta").columns(date_done=DateTime)
        )
        assert abs(datetime.now(timezone.utc).replace(tzinfo=None) - done) < timedelta(minutes=1)
        connection.execute(moved("celery_taskmeta", "date_done", DAY - 60))
    assert state("sum") == "SUCCESS 6"


def test_a_task_that_is_not_done_never_ends(app: Any, state: Any, database: Engine) -> None:
    app.backend.store_result("sum", None, "STARTED")
    with database.begin() as connection:
        connection.exec_driver_sql("UPDATE celery_taskmeta SET date_done = NULL")
    assert state("sum").startswith("STARTED")


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("never", [0, timedelta(0), None])
def test_results_stay_where_the_setting_of_celery_says_for_ever(
    backend: Backend, database: Engine, never: Any
) -> None:
    celery_results = example("celery_results")
    app = celery_results.make_app(backend.sync_url, never)
    app.backend.store_result("sum", 6, "SUCCESS")
    with database.begin() as connection:
        connection.execute(moved("celery_taskmeta", "date_done", 9 * DAY))
    assert celery_results.state_of(app, "sum") == "SUCCESS 6"


def test_groups_end_too(app: Any, database: Engine) -> None:
    app.backend.save_group("g", app.GroupResult("g", [app.AsyncResult("sum")]))
    assert app.backend.restore_group("g", cache=False) is not None
    end_all(database)
    assert app.backend.restore_group("g", cache=False) is None
    app.backend.save_group("g", app.GroupResult("g", [app.AsyncResult("sum")]))
    assert app.backend.restore_group("g", cache=False) is not None


@pytest.mark.slow
def test_the_sweeper_deletes_them_in_batches_and_the_own_cleanup_finds_nothing_to_do(
    app: Any, state: Any, database: Engine
) -> None:
    for number in range(ROWS):
        app.backend.store_result(f"task {number}", number, "SUCCESS")
    end_all(database)
    app.backend.store_result("sum", 6, "SUCCESS")
    app.backend.cleanup()
    with database.connect() as connection:
        assert stored(connection, "celery_taskmeta") == ROWS + 1
    report = Sweeper(database, example("celery_results").RESULTS, batch_size=2).run_once()
    assert in_batches(report, "celery_taskmeta", ROWS, database)
    assert state("sum") == "SUCCESS 6"
