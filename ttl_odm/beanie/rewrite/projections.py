"""How MongoDB reads a projection, in ``find`` and in ``$project``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def is_inclusive(projection: Mapping[str, Any]) -> bool:
    """Say whether it names what it wants, and not what it doesn't."""
    for name, value in projection.items():
        if isinstance(value, Mapping):
            if "$slice" in value or "$meta" in value:
                continue  # allowed in both kinds
            return True
        if name == "_id" and len(projection) > 1:
            continue  # the same
        return bool(value)
    return False
