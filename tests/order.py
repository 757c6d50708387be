"""`--order`: run the test files in another order, which must not change any result.

| option | order of the files |
|---|---|
| `--order reversed` | the last one first |
| `--order 17` | shuffled; the same number gives the same order |

Tests of one file keep their order.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

REVERSED = "reversed"


def _order(text: str) -> str | int:
    return text if text == REVERSED else int(text)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --order."""
    parser.addoption(
        "--order",
        type=_order,
        metavar=f"{REVERSED}|SEED",
        help="run the test files in reversed order, or shuffled with a number as the seed",
    )


def pytest_report_header(config: pytest.Config) -> str | None:
    """Print the order, so that a failure can be reproduced."""
    order = config.getoption("--order")
    return None if order is None else f"order of the files: --order {order}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Reorder the files, after all other hooks have selected and sorted the tests."""
    order = config.getoption("--order")
    if order is None:
        return
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    paths = [*files]
    if order == REVERSED:
        paths.reverse()
    else:
        random.Random(order).shuffle(paths)  # noqa: S311 - an order is not a secret
    items[:] = [item for path in paths for item in files[path]]
