"""The annotations of a class are read on every Python, also names that aren't there yet."""

from __future__ import annotations

import sys
from typing import Any

from ttl_odm.core.class_attributes import annotations_of

# From 3.14 on nobody quotes such a name.
LATER = "Later" if sys.version_info >= (3, 14) else "'Later'"


def test_a_class_may_annotate_what_comes_later() -> None:
    names: dict[str, Any] = {}
    source = f"class Base:\n    a: int\nclass Model(Base):\n    b: str\n    c: {LATER}\n"
    exec(compile(source, "models.py", "exec", dont_inherit=True), names)  # noqa: S102
    read = annotations_of(names["Model"])
    assert (list(read), read["b"]) == (["b", "c"], str)
    assert annotations_of(type("Plain", (names["Model"],), {})) == {}
