"""What a class annotates, whichever Python reads it.

From 3.14 on annotations are evaluated when somebody asks, and a name that isn't there yet, or for
type checkers only, is an error then. SQLAlchemy and pydantic read them in the same way as this.
"""

from __future__ import annotations

import inspect
import sys
from typing import Any


def annotations_of(cls: type) -> dict[str, Any]:
    """A class's own annotations; on Python 3.14 unknown names stay references by name."""
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415 (older ones don't have it)

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)
