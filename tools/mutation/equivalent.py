"""Mutants that no test can notice, each with the reason: what they change has no effect."""

from __future__ import annotations

from typing import Final

EQUIVALENT: Final[dict[tuple[str, str, str], str]] = {}
"""By module, the lines that change, and what they become (`Mutant.texts`)."""
