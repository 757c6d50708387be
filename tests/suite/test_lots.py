"""Every test is in one lot, in each environment that it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from environments import Environment
from suite.lots import (
    FIRST,
    LOTS_OF_LOWEST,
    LOTS_OF_NEWEST,
    ONLY_NEWEST,
    PARTS,
    SERVERS,
    SQLITE,
    Choice,
    Task,
    chosen,
    everything,
    in_order,
)
from suite.quick import BELONGING, belonging, tasks

ROOT = Path(__file__).parents[2]
NEWEST = Environment(ROOT / ".venv", "python3", ())
LOWEST = Environment(ROOT / ".venv-lowest", "python3", ())


def lots(choice: Choice) -> list[Task]:
    return [*everything(NEWEST, LOWEST, choice)]


def folders(tasks: list[Task], environment: Environment) -> list[str]:
    return [
        word.split("/")[1]
        for task in tasks
        if task.environment == environment.folder.name
        for word in task.words
        if word.startswith("tests/")
    ]


def test_every_folder_with_tests_is_in_one_lot_of_each_environment() -> None:
    there = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    for kind, further in ((LOTS_OF_NEWEST, ()), (LOTS_OF_LOWEST, ONLY_NEWEST)):
        named = [*FIRST, *further, *(name for names, _ in kind for name in names)]
        assert sorted(named) == sorted(there)


@pytest.mark.parametrize("names", PARTS)
def test_the_lots_that_a_lot_is_divided_into_hold_each_of_its_files_once(
    names: tuple[str, ...],
) -> None:
    here = tuple(f"tests/{name}" for name in names)
    divided = [
        [word for word in task.words if word.startswith(here)]
        for task in lots(Choice(7))
        if task.environment == NEWEST.folder.name and task.words[0].startswith(here)
    ]
    files = [path for name in names for path in (ROOT / "tests" / name).glob("test_*.py")]
    ran = [word for words in divided for word in words]
    assert sorted(ran) == sorted(str(path.relative_to(ROOT)) for path in files)
    assert len(divided) == PARTS[names]
    assert max(map(len, divided)) - min(map(len, divided)) <= 1


def test_no_test_is_outside_of_these_folders() -> None:
    assert [*(ROOT / "tests").glob("test_*.py")] == []
    deeper = [*(ROOT / "tests").glob("*/*/**/test_*.py")]
    assert [path for path in deeper if "packaging/uses" not in str(path)] == []


@pytest.mark.parametrize("choice", [Choice(1135), Choice(), Choice(1, ("sqlite",))], ids=str)
def test_both_environments_run_all_folders_that_belong_to_them(choice: Choice) -> None:
    newest, lowest = folders(lots(choice), NEWEST), folders(lots(choice), LOWEST)
    everywhere = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert {*newest} == everywhere
    assert {*lowest} == everywhere - {*(ONLY_NEWEST if choice.turn is not None else ())}
    assert len(lowest) == len({*lowest})


def test_the_contract_runs_on_all_databases() -> None:
    contract = [task for task in lots(Choice(7)) if "tests/contract" in task.words]
    ran = [
        word
        for task in contract
        if task.environment == NEWEST.folder.name
        for word in task.words
        if word in {SQLITE, *SERVERS}
    ]
    assert sorted(ran) == sorted([SQLITE, *SERVERS])


def test_the_lowest_versions_run_each_test_once() -> None:
    for task in lots(Choice(7)):
        assert "--turn" in task.words
        assert ("--once" in task.words) == (task.environment == LOWEST.folder.name)
    for task in lots(Choice()):
        assert not {"--turn", "--once"} & {*task.words}


def test_unit_tests_and_the_contract_come_first_and_then_the_longest_lots() -> None:
    tasks = in_order(lots(Choice(7)))
    names = [task.name for task in tasks]
    assert names[:2] == ["contract on SQLite", "unit"]
    rest = [task.seconds for task in tasks if not task.first]
    assert rest == sorted(rest, reverse=True)
    assert not any(task.servers for task in tasks if task.first)


def test_a_lot_may_be_empty_only_if_databases_are_left_out() -> None:
    assert not any(task.may_be_empty for task in lots(Choice(7)))
    rest = [task for task in lots(Choice(7, ("sqlite",))) if not task.first]
    assert all(task.may_be_empty for task in rest)


def test_whoever_chooses_tests_gets_them_in_both_environments_and_in_full() -> None:
    both = chosen(NEWEST, LOWEST, Choice(), ["-k", "expired", "tests/sql"])
    assert [task.environment for task in both] == [".venv", ".venv-lowest"]
    for task in both:
        assert task.words == ("-k", "expired", "tests/sql")
    for task in chosen(NEWEST, LOWEST, Choice(3, ("mysql",)), ["tests/sql"]):
        assert {"--only", "mysql", "--turn", "3"} <= {*task.words}


def test_the_inner_loop_runs_what_belongs_to_the_files_that_have_changed() -> None:
    changed = {
        "README.md",
        "ttl_odm/alembic/steps.py",
        "ttl_odm/core/expiry.py",
        "tests/cli/hotel.py",
        "tests/cli/test_check.py",
        "tests/unit/test_plan.py",
        "tests/mongo/test_counts.py",
        "tests/conftest.py",
        "tests/packaging/uses/django/app.py",
    }
    expected = ["tests/cli", "tests/migrations", "tests/mongo/test_counts.py", "tests/packaging"]
    assert belonging(changed) == expected
    assert belonging(set()) == []


def test_the_inner_loop_knows_folders_that_are_there() -> None:
    for place, names in BELONGING.items():
        assert (ROOT / place).exists()
        assert all((ROOT / "tests" / name).is_dir() for name in names)


def test_the_inner_loop_needs_no_server() -> None:
    for task in tasks(NEWEST, 7, ["tests/sql"], {"tests/cli/hotel.py"}):
        assert not task.servers
        assert task.words[-6:] == ("--only", "sqlite", "--turn", "7", "-m", "not slow")
        assert "tests/cli" not in task.words
