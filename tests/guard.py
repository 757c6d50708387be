"""How long a test waits for what has to happen, however slow the machine is."""

from __future__ import annotations

from typing import Final

GUARD: Final = 600
"""Seconds after which something hangs; nothing is judged by it that works."""
