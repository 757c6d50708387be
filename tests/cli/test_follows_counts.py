"""What the command line says of rows that follow those which expire."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from sqlalchemy import ForeignKey, insert
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.clocks import age
from ttl_odm import Follows, Stored
from ttl_odm.cli.commands import cli
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from pathlib import Path

    from sqlalchemy import Engine

DAY = 86_400


class Base(DeclarativeBase):
    pass


class Crate(TTLMixin, Base):
    __tablename__ = "crates"
    __ttl__ = Stored(DAY, least=1)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Load(Base):
    __tablename__ = "loads"
    __ttl__ = Follows("crate_id")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    crate_id: Mapped[int] = mapped_column(ForeignKey("crates.id"))


@pytest.fixture
def app(engine: Engine) -> list[str]:
    """Two crates with a thousand loads; the first has expired."""
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Crate), [{"id": 1}, {"id": 2}])
        connection.execute(
            insert(Load), [{"id": n, "crate_id": n // 500 + 1} for n in range(1_000)]
        )
        age(connection, "crates", 1, 2 * DAY)
        age(connection, "crates", 2, 120)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", f"{__name__}:Base", "--url", url]


def call(*arguments: Any) -> str:
    finished = CliRunner().invoke(cli, list(arguments))
    assert finished.exit_code == 0, finished.output
    return finished.stdout


@pytest.mark.slow
def test_a_dry_run_counts_followers(app: list[str]) -> None:
    said = call("sweep", *app, "--dry-run")
    assert "501 rows expired" in said
    assert "crates: 500 rows of loads would be deleted as well" in said
    report = json.loads(call("sweep", *app, "--dry-run", "--json"))
    assert report["due"] == 501
    assert report["targets"][0]["due_followers"] == {"loads": 500}


@pytest.mark.slow
def test_a_plan_counts_followers(app: list[str], tmp_path: Path) -> None:
    page = tmp_path / "plan.html"
    said = call("plan", *app, "--default-ttl", "60", "--html", str(page), "Crate")
    assert "followers" in said
    assert "1,000" in said
    assert "and the rows that follow them: 500." in said
    assert "<th>followers</th>" in page.read_text()
    planned = json.loads(call("plan", *app, "--default-ttl", "60", "--json", "Crate"))["planned"]
    assert planned["followers"][0]["rows"] == 1_000
    assert planned["followers_expired_at_once"] == 500


def test_a_preview_counts_followers(app: list[str]) -> None:
    finished = CliRunner().invoke(cli, ["policy", "set", *app, "Crate", "60"])
    said = finished.stdout
    assert "at most 501 rows at once, 500 of which follow rows of crates" in said
