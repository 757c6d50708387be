"""The shipped suite on the shipped stores in memory."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from ttl_odm.sweeper import AsyncClocked, AsyncCounting, Clocked, Counting, Hooking, Leasing, Skip
from ttl_odm.testing import (
    AsyncInMemoryStore,
    InMemoryStore,
    StoreContract,
    StoreRig,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from contextlib import AbstractContextManager

    from ttl_odm.sweeper import ArchiveSink


class MemoryRig(StoreRig):
    """Everything that a rig can have."""

    def __init__(self, store: Any) -> None:
        super().__init__()
        self.store = store

    def create(self, target: str, default: int | None, hooks: Any = None) -> None:
        self.store.create(target, default, hooks=hooks)

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        self.store.create(target, default, archive=sink)

    def set_default(self, target: str, default: int | None) -> None:
        self.store.create(target, default)

    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        for key in keys:
            self.store.put(target, key, age=age, ttl=ttl)

    def renew(self, target: str, key: int) -> None:
        self.store.put(target, key)

    def keys(self, target: str) -> set[int]:
        return set(self.store.keys(target))

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        actions = [action]
        self.store.between = lambda: actions and actions.pop()()
        yield
        assert not actions

    def end_lease(self, name: str) -> None:
        # Moves the clock of rows as well, by less than any test minds.
        self.store.advance(self.run(self.store.leases.read(name)).seconds_left + 60)

    def hold(self, target: str, key: int) -> AbstractContextManager[object]:
        return self.store.hold(target, key)

    @contextmanager
    def refuse(self, target: str, keys: Collection[int]) -> Iterator[None]:
        with ExitStack() as stack:
            for key in keys:
                stack.enter_context(self.store.hold(target, key, Skip.REFUSED))
            yield

    def write(self, transaction: Any, text: str) -> object:
        async def write() -> None:
            transaction.append(text)

        return write() if self.is_async else transaction.append(text)

    def written(self) -> list[str]:
        return self.store.outbox


@pytest.mark.parametrize("kind", [InMemoryStore, AsyncInMemoryStore])
class TestInMemoryStore(StoreContract):
    """Both of them."""

    @pytest.fixture
    def rig(self, kind: Any) -> Iterator[MemoryRig]:
        made = MemoryRig(kind())
        yield made
        made.close()

    def test_it_offers_everything(self, rig: MemoryRig) -> None:
        counting, clocked = (AsyncCounting, AsyncClocked) if rig.is_async else (Counting, Clocked)
        for each in (Hooking, Leasing, counting, clocked):
            assert isinstance(rig.store, each)
