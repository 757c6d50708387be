"""Results of commands that measure one thing after another and keep what is known of the others.

docs/engines.json and docs/clusters.json have one for each engine or setup, by its name.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from _typeshed import DataclassInstance

    M = TypeVar("M", bound=DataclassInstance)


@dataclass(frozen=True)
class Absent:
    """What was not available when it was asked for.

    Attributes:
        date: when.
        reason: in a few words.
    """

    date: str
    reason: str


def read(file: Path, kind: type[M]) -> dict[str, M | Absent]:
    """Read what was measured before.

    Args:
        file: it need not exist.
        kind: what a result is made into.
    """
    if not file.exists():
        return {}
    kept: dict[str, dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))
    return {
        name: Absent(**result) if "reason" in result else kind(**result)
        for name, result in kept.items()
    }


def dump(results: Mapping[str, DataclassInstance]) -> str:
    """Write down what was measured."""
    kept = {name: asdict(result) for name, result in results.items()}
    return json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
