"""A follower is swept with its root: commands that select models know its name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.cli.running import CliRunner
from tests.mongo import following
from tests.sql.following import Cart, Item, Note, fill, stored
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from typing import Any

    from sqlalchemy import Engine

FAMILY = [Item, Note, Cart]
TREE = ("carts", "items", "remarks")
DOCUMENTS = [following.Cart, following.Item, following.Note]


@pytest.fixture
def app(engine: Engine) -> list[str]:
    fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", f"{__name__}:FAMILY", "--url", url]


@pytest.mark.slow
@pytest.mark.parametrize("names", [[], ["Item", "Cart"], ["carts", "remarks", "items"]])
def test_a_family_is_swept_once_whichever_of_it_are_named(
    engine: Engine, app: list[str], names: list[str]
) -> None:
    selection = [word for name in names for word in ("--model", name)]
    finished = CliRunner().invoke(cli, ["sweep", *app, *selection, "--json"])
    assert finished.exit_code == 0, finished.output
    (target,) = json.loads(finished.stdout)["targets"]
    assert (target["table"], target["deleted"]) == ("carts", 1)
    assert stored(engine, *TREE) == [1, 2, 2]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    "words",
    [
        ["sweep", "--model", "Item"],
        ["sweep", "--model", "remarks"],
        ["sweep", "--except", "Item"],
        ["status", "--model", "items"],
        ["check", "--model", "items"],
        ["plan", "items"],
        ["plan", "Note"],
        ["policy", "show", "Item"],
    ],
)
def test_a_follower_alone_is_rejected_with_the_name_of_its_root(
    engine: Engine, app: list[str], words: list[str]
) -> None:
    finished = CliRunner().invoke(cli, [*words, *app])
    assert finished.exit_code == 2
    assert "its rows follow those of Cart" in " ".join(finished.stderr.split())
    assert stored(engine, *TREE) == [2, 4, 4]


@pytest.mark.databases("postgres")
def test_nor_is_it_swept_alone_by_the_database(app: list[str]) -> None:
    finished = CliRunner().invoke(cli, ["install-sweep", "Item", *app])
    assert finished.exit_code == 2
    assert "its rows follow those of Cart" in " ".join(finished.stderr.split())


@pytest.mark.databases("sqlite")
def test_a_follower_left_out_with_its_root_is_accepted(engine: Engine, app: list[str]) -> None:
    finished = CliRunner().invoke(cli, ["sweep", *app, "--except", "Item", "--except", "Cart"])
    assert finished.exit_code == 2
    assert "leave nothing to work on" in finished.stderr


def test_documents_that_follow_others_are_named_alike(mongodb: Any) -> None:
    app = ["--app", f"{__name__}:DOCUMENTS", "--url", mongodb[0]]
    named = ["--model", "Note", "--model", "Cart"]
    finished = CliRunner().invoke(cli, ["sweep", *app, *named, "--json"])
    assert [target["table"] for target in json.loads(finished.stdout)["targets"]] == ["carts"]
    for words in (["sweep", "--model", "notes"], ["plan", "Item"]):
        finished = CliRunner().invoke(cli, [*words, *app])
        assert finished.exit_code == 2
        assert "its rows follow those of Cart" in " ".join(finished.stderr.split())
