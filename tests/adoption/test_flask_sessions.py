"""Flask-Session's SQLAlchemy interface keeps its sessions under ttl_odm."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from tests.adoption.conftest import ROWS, example, in_batches, moved, stored
from ttl_odm.sqlalchemy import disable
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

    from tests.backends import Backend

HOUR = timedelta(hours=1)

# Flask-Session 0.8's own clock.
pytestmark = pytest.mark.filterwarnings("ignore:datetime.datetime.utcnow:DeprecationWarning")


@pytest.fixture
def app(backend: Backend) -> Iterator[Any]:
    flask_sessions = example("flask_sessions")
    app = flask_sessions.make_app(backend.sync_url)
    yield app
    disable(flask_sessions.sessions_of(app))
    with app.app_context():
        app.extensions["sqlalchemy"].engine.dispose()


def end_all(database: Engine) -> None:
    with database.begin() as connection:
        connection.execute(moved("sessions", "expiry", 5))


def test_a_session_that_is_over_starts_anew_and_is_left_to_the_sweeper(
    app: Any, database: Engine
) -> None:
    browser = app.test_client()
    assert [browser.get("/").text for _ in range(3)] == ["1", "2", "3"]
    end_all(database)
    assert [browser.get("/").text for _ in range(2)] == ["1", "2"]
    with database.connect() as connection:
        assert stored(connection, "sessions") == 2  # no delete on read


def test_the_id_of_a_session_that_is_over_is_free(app: Any, database: Engine) -> None:
    interface = app.session_interface

    def found() -> Any:
        with app.test_request_context("/"):
            return interface._retrieve_session_data("session:s")

    for visits in (1, 2):
        session = interface.session_class({"visits": visits}, sid="s")
        with app.test_request_context("/"):
            interface._upsert_session(HOUR, session, "session:s")
        assert found() == {"visits": visits}
        end_all(database)
        assert found() is None
    with database.connect() as connection:
        assert stored(connection, "sessions") == 1


def test_a_session_without_an_end_is_over_for_both(app: Any, database: Engine) -> None:
    browser = app.test_client()
    browser.get("/")
    with database.begin() as connection:
        connection.exec_driver_sql("UPDATE sessions SET expiry = NULL")
    assert browser.get("/").text == "1"


def test_the_sweeper_deletes_them_in_batches_and_the_own_cleanup_finds_nothing_to_do(
    app: Any, database: Engine
) -> None:
    for _ in range(ROWS):
        app.test_client().get("/")
    end_all(database)
    browser = app.test_client()
    browser.get("/")
    cleaned = app.test_cli_runner().invoke(args=["session_cleanup"])
    assert cleaned.exit_code == 0, cleaned.output
    with database.connect() as connection:
        assert stored(connection, "sessions") == ROWS + 1
    sessions = example("flask_sessions").sessions_of(app)
    report = Sweeper(database, sessions, batch_size=2).run_once()
    assert in_batches(report, "sessions", ROWS, database)
    assert browser.get("/").text == "2"
    with database.connect() as connection:
        assert stored(connection, "sessions") == 1
