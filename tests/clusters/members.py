"""What the tests of all clusters share: starting one, reviving its members, waiting for it."""

from __future__ import annotations

import time
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PATIENCE: Final = 60.0
"""Seconds within which any state has to come about."""

TOOLS: Final = Path(__file__).parents[2] / "tools"


@contextmanager
def running(module: str, kind: str, **settings: str) -> Iterator[Any]:
    """Run a cluster of a kind that a module of `local_servers` has, with other settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        from local_servers.lifetime import running_cluster

        kinds = import_module(f"local_servers.{module}")
        for name, value in settings.items():
            patch.setitem(kinds._SETTINGS, name, value)
        with running_cluster(getattr(kinds, kind)) as cluster:
            yield cluster


def revive(cluster: Any) -> None:
    """Start again the members that are down."""
    up = {cluster.primary(), *cluster.replicas()}
    for member in cluster.members:
        if member not in up:
            cluster.start(member)


def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds that the servers bring about in their own time."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def once(act: Callable[[], object]) -> Callable[[object], None]:
    """Return a callback that acts the first time only."""
    done: list[bool] = []

    def call(_: object) -> None:
        if not done:
            done.append(True)
            act()

    return call
