"""Nothing gets lost between turns: four in a row run every test on every database and driver."""

from __future__ import annotations

from itertools import product

import pytest

from tests.backends import SQLITE, database_of
from tests.turns import (
    ELSEWHERE,
    IN_PARTS,
    LATER,
    PARTS,
    SLOW,
    TURNS,
    Variant,
    left_out,
    share,
    shared_name,
)

TWO = (SQLITE, "postgres-psycopg")
ONE_DRIVER = (SQLITE, "postgres-psycopg", "mariadb-pymysql", "mysql-pymysql")
EVERY_DRIVER = (
    *(SQLITE, "postgres-psycopg", "postgres-psycopg2", "postgres-pg8000"),
    *("mariadb-pymysql", "mariadb-mysqldb", "mariadb-mysqlconnector", "mariadb-mariadbconnector"),
    *("mysql-pymysql", "mysql-mysqldb", "mysql-mysqlconnector"),
)
BACKENDS = {
    "none": (None,),
    "SQLite": (SQLITE,),
    "one server": ("mysql-pymysql",),
    "SQLite and a server": TWO,
    "two servers": ("mariadb-pymysql", "mysql-pymysql"),
    "one driver of each": ONE_DRIVER,
    "every driver": EVERY_DRIVER,
}
KINDS = [
    {"every_server": every_server, "slow": slow, "in_turns": in_turns}
    for every_server, slow, in_turns in product([False, True], repeat=3)
]


def several(folder: str, backends: tuple[str | None, ...], **kind: bool) -> list[Variant]:
    """Several tests of a kind, because a name decides with the turn."""
    return [
        Variant(f"tests/{folder}/test_a.py::test_{number}[*]", backend, **kind)
        for number in range(20)
        for backend in backends
    ]


def running(variants: list[Variant], turn: int, *, once: bool = False) -> set[Variant]:
    missing = left_out(variants, turn, once=once)
    return {variant for place, variant in enumerate(variants) if place not in missing}


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("backends", BACKENDS)
@pytest.mark.parametrize("folder", ["sql", "leaks"])
def test_four_turns_in_a_row_run_every_test_on_all_that_it_supports(
    folder: str, backends: str, kind: dict[str, bool]
) -> None:
    variants = several(folder, BACKENDS[backends], **kind)
    for first in (0, 1, 1135, 20_784):
        turns = range(first, first + TURNS)
        assert set().union(*(running(variants, turn) for turn in turns)) == {*variants}


@pytest.mark.parametrize("folder", ["contract", *sorted(IN_PARTS)])
@pytest.mark.parametrize("backends", BACKENDS)
def test_once_runs_every_test_on_all_that_it_supports_in_time(folder: str, backends: str) -> None:
    variants = several(folder, BACKENDS[backends])
    turns = (PARTS if folder in IN_PARTS else 1) * len(BACKENDS[backends])
    for first in (0, 1135):
        ran = [running(variants, turn, once=True) for turn in range(first, first + turns)]
        assert set().union(*ran) == {*variants}
        for variants_of_a_turn in ran:
            names = [variant.test for variant in variants_of_a_turn]
            assert len(names) == len({*names}), "a test ran twice"


@pytest.mark.parametrize("folder", ["contract", *sorted(IN_PARTS)])
def test_once_runs_a_part_of_some_folders(folder: str) -> None:
    variants = several(folder, ONE_DRIVER)
    turns = PARTS if folder in IN_PARTS else 1
    ran = [running(variants, turn, once=True) for turn in range(turns)]
    assert sum(map(len, ran)) == len({variant.test for variant in variants})


@pytest.mark.parametrize("slow", [False, True])
def test_a_test_runs_on_one_of_four_databases(*, slow: bool) -> None:
    variants = several("sql", ONE_DRIVER, slow=slow)
    for turn in range(TURNS):
        names = [variant.test for variant in running(variants, turn)]
        assert sorted(names) == sorted({variant.test for variant in variants})


def test_each_turn_has_tests_on_every_database() -> None:
    ran = running(several("sql", ONE_DRIVER), 7)
    assert {variant.backend for variant in ran} == {*ONE_DRIVER}


@pytest.mark.parametrize("once", [False, True])
def test_tests_that_share_what_is_made_on_a_database_run_on_the_same_one(*, once: bool) -> None:
    for turn in range(6):
        ran = running(several("leaks", ONE_DRIVER), turn, once=once)
        assert len({variant.backend for variant in ran}) == 1


def test_a_test_whose_subject_differs_by_server_runs_on_each_in_every_turn() -> None:
    variants = several("sql", EVERY_DRIVER, every_server=True)
    for turn in range(TURNS):
        ran = running(variants, turn)
        for test in {variant.test for variant in variants}:
            databases = {database_of(v.backend or "") for v in ran if v.test == test}
            assert databases == {SQLITE, "postgres", "mariadb", "mysql"}


def test_no_slow_test_runs_once() -> None:
    variants = several("sql", ONE_DRIVER, slow=True)
    assert running(variants, 0, once=True) == set()


@pytest.mark.parametrize("backends", BACKENDS)
def test_a_slow_test_runs_on_each_of_its_databases_in_one_of_four_turns(backends: str) -> None:
    variants = several("sql", BACKENDS[backends], slow=True, every_server=True)
    for first in (0, 1135):
        ran = [variant for turn in range(TURNS) for variant in running(variants, first + turn)]
        assert len(ran) == len({*ran}) == len(variants)


def test_each_turn_runs_some_of_the_slow_tests_that_need_no_database() -> None:
    variants = several("cli", (None,), slow=True)
    for turn in range(TURNS):
        assert 0 < len(running(variants, turn)) < len(variants)
        assert {*left_out(variants, turn).values()} == {LATER}


def test_whatever_is_left_out_has_a_reason() -> None:
    variants = [
        Variant("tests/contract/test_a.py::test_a[*]", SQLITE),
        Variant("tests/contract/test_a.py::test_a[*]", "mysql-pymysql"),
        Variant("tests/contract/test_a.py::test_slow", slow=True),
        *(Variant(f"tests/docs/test_a.py::test_a[{page}]", in_turns=True) for page in range(9)),
    ]
    reasons = left_out(variants, 0, once=True)
    assert [reasons[place] for place in (0, 1) if place in reasons] == [ELSEWHERE]
    assert reasons[2] == SLOW
    assert {reasons[place] for place in reasons if place > 2} == {LATER}


@pytest.mark.parametrize("length", range(1, 10))
def test_four_quarters_are_everything(length: int) -> None:
    values = [*range(length)]
    for first in range(12):
        shares = [share(values, number) for number in range(first, first + TURNS)]
        assert sorted({value for part in shares for value in part}) == values
        assert all(shares)
        assert max(map(len, shares)) <= -(-length // TURNS)


@pytest.mark.parametrize(
    ("node", "name", "shared"),
    [
        ("tests/sql/a.py::test", None, "tests/sql/a.py::test"),
        ("tests/sql/test_sqlite.py::test[sqlite]", SQLITE, "tests/sql/test_sqlite.py::test[*]"),
        ("a.py::test[mysql-pymysql-x-1]", "mysql-pymysql", "a.py::test[*-x-1]"),
        ("a.py::test[x-mysql-pymysql]", "mysql-pymysql", "a.py::test[x-*]"),
        ("a.py::test[my-sqlite3-sqlite-x]", SQLITE, "a.py::test[my-sqlite3-*-x]"),
        ("a.py::test[a [b]-sqlite]", SQLITE, "a.py::test[a [b]-*]"),
    ],
)
def test_variants_share_the_name_without_the_backend(
    node: str, name: str | None, shared: str
) -> None:
    assert shared_name(node, name) == shared
