"""Which of these tests a run in turns leaves out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

OF_CLUSTERS: Final = frozenset(
    {
        "test_faults.py",
        "test_galera.py",
        "test_mariadb_replica.py",
        "test_mongodb.py",
        "test_mysql_group.py",
        "test_mysql_replica.py",
        "test_outages_multi_primary.py",
        "test_outages_mongodb.py",
        "test_outages_mysql.py",
        "test_outages_postgres.py",
        "test_outages_shared.py",
        "test_pgbouncer.py",
        "test_postgres_standby.py",
    }
)
"""The tests that start clusters, kill their members and wait for elections: minutes for each file.
They run with `dev.py test --all`, and when they are named."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave them to runs without turns."""
    is_in_turns = config.getoption("turn") is not None
    return True if is_in_turns and collection_path.name in OF_CLUSTERS else None
