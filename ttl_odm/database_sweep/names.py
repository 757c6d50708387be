"""The names of what `sweep="database"` makes, on every database that can sweep by itself."""

from __future__ import annotations

from typing import Final

JOB: Final = "ttl_sweep"
JOB_LOG: Final = "ttl_sweeps"
"""The ends of the names of the job with its procedure, and of the table of what it did."""

JOB_NOTE: Final = "ttl_odm: sweeps by default ttl "
"""What a job says of itself, with the default behind it."""

ARCHIVE_NOTE: Final = ", and archives in "
"""What follows where its rows are kept, with the archive's name behind it."""

FUSE: Final = "fuse: "
FAILED: Final = "failed: "
"""How the outcomes of runs that need somebody's attention begin."""

SIGNATURE: Final = "(integer)"
"""The parameters of PostgreSQL's procedure: the seconds for which it works."""
