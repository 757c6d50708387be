"""The inner loop, `dev.py test --quick`: what runs on SQLite within a minute.

Unit tests, the contract, the leak matrices of SQLAlchemy and Django, and what belongs to the files
that have changed; no slow ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from suite.lots import SQLITE, only_on, pytest

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from environments import Environment
    from suite.lots import Task

_MATRIX: Final = "test_a_path_sees_what_it_would_see_without_the_expired_rows"
_BASE: Final = (
    ("unit, contract", ("tests/unit", "tests/contract"), 30),
    ("leaks", (f"tests/leaks/test_leaks.py::{_MATRIX}", "tests/django_app/test_leaks.py"), 30),
)

BELONGING: Final = {
    "ttl_odm/alembic/": ("migrations",),
    "ttl_odm/cli/": ("cli",),
    "ttl_odm/django/": ("django_app",),
    "ttl_odm/forecast/": ("cli",),
    "ttl_odm/inspection/": ("cli",),
    "ttl_odm/integrations/": ("integrations",),
    "ttl_odm/metrics/": ("metrics",),
    "ttl_odm/sqlalchemy/": ("sql",),
    "ttl_odm/sweeper/": ("stores",),
    "ttl_odm/testing/": ("testkit",),
    "examples/": ("examples", "adoption"),
    "deploy/": ("deploy",),
    "tools/": ("servers", "suite"),
    "tests/turns.py": ("suite",),
    "tests/recorder.py": ("suite",),
}
"""Which folders of tests belong to code, besides those that run anyway."""

_RUN_ANYWAY: Final = ("tests/unit/", "tests/contract/", "tests/django_app/test_leaks.py")


def tasks(
    development: Environment, turn: int, words: Sequence[str], changed: Collection[str]
) -> list[Task]:
    """List the lots.

    Args:
        development: The environment with the newest versions.
        turn: Which turn it is.
        words: The files and folders to run besides, and other words for pytest; empty means what
            belongs to the files that have changed.
        changed: The files that have changed.
    """
    options = [*only_on([SQLITE]), "--turn", str(turn), "-m", "not slow"]
    lots = [
        replace(pytest(development, name, [*paths, *options], seconds), servers=False)
        for name, paths, seconds in _BASE
    ]
    if besides := [*words] or belonging(changed):
        lot = pytest(development, "named" if words else "changed", [*besides, *options], 50)
        lots.insert(0, replace(lot, servers=False, may_be_empty=True))
    return lots


def belonging(changed: Collection[str]) -> list[str]:
    """Return the files and folders of tests that belong to files that have changed.

    A file of tests stands for itself; any other in a folder of tests, for that folder.
    """
    wanted = set()
    for path in changed:
        if path.startswith(_RUN_ANYWAY):
            continue
        folder, _, name = path.rpartition("/")
        if path.startswith("tests/") and path.count("/") > 1:
            is_test = name.startswith("test_") and name.endswith(".py")
            wanted.add(path if is_test else "/".join(folder.split("/")[:2]))
        for place, folders in BELONGING.items():
            if path.startswith(place):
                wanted.update(f"tests/{each}" for each in folders)
    return sorted(path for path in wanted if not _is_inside_another(path, wanted))


def _is_inside_another(path: str, others: Collection[str]) -> bool:
    return any(path.startswith(f"{other}/") for other in others)
