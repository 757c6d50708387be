"""The example of a migration does what it says, on every database."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.guard import GUARD

if TYPE_CHECKING:
    from tests.backends import Backend

EXAMPLE = Path(__file__).parents[2] / "examples" / "migration" / "walk_through.py"


@pytest.mark.slow
def test_old_rows_expire_by_their_own_date_once_migrated(backend: Backend) -> None:
    assert backend.sync_url is not None
    finished = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLE), backend.sync_url],
        capture_output=True,
        text=True,
        check=False,
        timeout=GUARD,
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [
        "before: ann, bob",
        "autogenerate wrote:",
        "    op.add_ttl('logins', 3600, backfill='now')",
        "    op.drop_ttl('logins')",
        "after: bob",
        "and back: ann, bob",
    ]
