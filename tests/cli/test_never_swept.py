"""Commands on a database that nobody has swept yet make its server log no error."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import Engine, event, text

from tests.cli.running import CliRunner
from tests.cli.test_policy_command import Base, Basket
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy.sweep.leases import NAME

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """What databases answer with an error."""
    found: list[str] = []

    def note(context: object) -> None:
        found.append(str(context.original_exception))  # type: ignore[attr-defined]

    event.listen(Engine, "handle_error", note)
    yield found
    event.remove(Engine, "handle_error", note)


@pytest.mark.databases("postgres")
@pytest.mark.parametrize(
    "words",
    [
        *(["status"], ["check"], ["sweep", "--dry-run"], ["sweep"], ["pause"], ["resume"]),
        *(["plan", "Visit"], ["policy", "show"], ["policy", "history"]),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("is_stored", [True, False])
def test_no_command_makes_postgresql_log_an_error(
    engine: Engine, errors: list[str], words: list[str], *, is_stored: bool
) -> None:
    Base.metadata.create_all(engine)
    if not is_stored:
        with engine.begin() as connection:
            Basket.__table__.drop(connection)
            for table in ("jottings", "ttl_odm_policies", "ttl_odm_policy_changes"):
                connection.execute(text(f"DROP TABLE IF EXISTS {table} CASCADE"))
    url = engine.url.render_as_string(hide_password=False)
    model = "Base" if is_stored else "Visit"
    app = ["--app", f"tests.cli.test_policy_command:{model}", "--url", url]
    finished = CliRunner().invoke(cli, [*words, *app])
    assert finished.exit_code in (0, 1), finished.output
    assert finished.exception is None or isinstance(finished.exception, SystemExit)
    assert errors == []


@pytest.mark.databases("postgres")
def test_a_lease_table_that_was_dropped_is_made_again(engine: Engine) -> None:
    from tests.cli.test_policy_command import Visit
    from ttl_odm.sweeper import Sweeper

    Visit.metadata.create_all(engine)
    sweeper = Sweeper(engine, Visit)
    sweeper.run_once()
    with engine.begin() as connection:
        connection.execute(text(f"DROP TABLE {NAME}"))
    assert sweeper.run_once().targets
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT count(*) FROM {NAME}")) == 1  # noqa: S608
