"""An application whose table is cut by days."""

from __future__ import annotations

from tests.sql.cutting import log

Event = log(days=2)
