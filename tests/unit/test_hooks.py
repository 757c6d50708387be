"""Whom a batch is told to, when, and with what."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import Any

import pytest

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import (
    ArchiveSink,
    Hook,
    HookError,
    Hooks,
    Purged,
    archive,
    archive_async,
)

PURGED = Purged(
    "carts",
    keys=[(1,), (2,)],
    count=2,
    as_of=datetime(2024, 1, 1, tzinfo=timezone.utc),
    rows=[{"id": 1}, {"id": 2}],
    transaction="the connection",
)


class Heard:
    """A hook that remembers."""

    def __init__(self) -> None:
        self.purged: list[Purged] = []

    def __call__(self, purged: Purged) -> None:
        self.purged.append(purged)


def broken(_: Purged) -> None:
    raise ValueError("no\n  thanks")


async def test_hooks_are_called_at_their_moment() -> None:
    inside, after = Heard(), Heard()
    hooks = Hooks.of([Hook(inside, rows=True), Hook(after, when="commit", rows=True)])
    hooks.call(PURGED)
    assert (inside.purged, after.purged) == ([PURGED], [])
    hooks.call(PURGED, "commit")
    await hooks.call_async(PURGED, "commit")
    assert len(inside.purged) == 1
    assert after.purged == [replace(PURGED, transaction=None)] * 2


def test_only_who_asks_for_rows_gets_them() -> None:
    keys, rows = Heard(), Heard()
    hooks = Hooks.of([keys, Hook(rows, rows=True)])
    hooks.call(PURGED)
    assert keys.purged == [replace(PURGED, rows=None)]
    assert rows.purged == [PURGED]
    assert hooks.wants_rows("carts")
    assert not Hooks.of(keys).wants_rows("carts")


def test_hooks_may_be_for_one_target() -> None:
    carts, everything = Heard(), Heard()
    hooks = Hooks.of({"carts": [carts]}) + Hooks.of(everything)
    hooks.call(PURGED)
    hooks.call(replace(PURGED, table="orders"))
    assert [each.table for each in carts.purged] == ["carts"]
    assert [each.table for each in everything.purged] == ["carts", "orders"]
    assert not Hooks.of({"carts": carts}).watches("orders")
    assert Hooks.of({"carts": carts}).watches("carts")


def test_no_hooks_are_false() -> None:
    assert not Hooks.of(None)
    assert not Hooks.of([])
    assert Hooks.of(print)
    assert Hooks.of(Hooks.of(print)) == Hooks.of(print)


async def test_an_asynchronous_hook_is_awaited() -> None:
    heard: list[Purged] = []

    async def hook(purged: Purged) -> None:
        heard.append(purged)

    await Hooks.of(hook).call_async(PURGED)
    assert len(heard) == 1


def test_an_asynchronous_hook_is_known_as_one() -> None:
    class Waits:
        async def __call__(self, purged: Purged) -> None: ...

    async def waits(_: Purged) -> None: ...

    assert Hooks.of(waits).has_async
    assert Hooks.of(Waits()).has_async
    assert not Hooks.of([Heard(), print]).has_async


def test_an_asynchronous_hook_is_never_dropped_silently() -> None:
    async def waits(_: Purged) -> None: ...

    with pytest.raises(HookError, match="needs an AsyncSweeper"):
        Hooks.of(waits).call(PURGED)


async def test_a_hook_that_raises_is_named_with_what_it_said() -> None:
    message = r"^The hook broken failed on 2 rows of carts: no thanks$"
    with pytest.raises(HookError, match=message) as raised:
        Hooks.of(broken).call(PURGED)
    assert isinstance(raised.value.__cause__, ValueError)
    with pytest.raises(HookError, match=message) as raised:
        await Hooks.of(broken).call_async(PURGED)
    assert isinstance(raised.value.__cause__, ValueError)


def test_hooks_after_one_that_raised_are_not_called() -> None:
    heard = Heard()
    with pytest.raises(HookError):
        Hooks.of([broken, heard]).call(PURGED)
    assert heard.purged == []


@pytest.mark.parametrize("given", [3, "carts", {"carts": 3}, [print, None, "x"]])
def test_what_is_no_hook_is_refused(given: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^on_purged = .*: pass a function"):
        Hooks.of(given)


def test_a_hook_is_checked_when_it_is_made() -> None:
    with pytest.raises(TTLConfigurationError, match="must be callable"):
        Hook(3)  # type: ignore[arg-type]
    with pytest.raises(TTLConfigurationError, match=r"^when = 'later'"):
        Hook(print, when="later")  # type: ignore[arg-type]


# archives


class Shelf:
    def __init__(self) -> None:
        self.rows: list[Any] = []

    def write(self, purged: Purged) -> None:
        self.rows.extend(purged.rows or ())


class AsyncShelf(Shelf):
    async def write(self, purged: Purged) -> None:  # type: ignore[override]
        super().write(purged)


class BrokenShelf:
    def write(self, _: Purged) -> None:
        raise OSError("disk full")


async def test_archives_are_written_to_at_once_or_awaited() -> None:
    shelf, async_shelf = Shelf(), AsyncShelf()
    assert isinstance(shelf, ArchiveSink)
    archive(shelf, PURGED)
    await archive_async(shelf, PURGED)
    await archive_async(async_shelf, PURGED)
    assert len(shelf.rows) == 4
    assert len(async_shelf.rows) == 2


async def test_an_archive_that_fails_is_named_with_what_it_said() -> None:
    one_row = replace(PURGED, count=1)
    message = r"^The archive BrokenShelf.write failed on 1 row of carts: disk full$"
    with pytest.raises(HookError, match=message):
        archive(BrokenShelf(), one_row)
    with pytest.raises(HookError, match=message):
        await archive_async(BrokenShelf(), one_row)


def test_an_asynchronous_archive_is_never_dropped_silently() -> None:
    with pytest.raises(HookError, match="needs an AsyncSweeper"):
        archive(AsyncShelf(), PURGED)


def test_an_awaitable_that_is_no_coroutine_is_refused_too() -> None:
    class Later:
        def __await__(self) -> Any:
            yield

    with pytest.raises(HookError, match="needs an AsyncSweeper"):
        Hooks.of(lambda _: Later()).call(PURGED)


def test_hooks_that_were_read_are_the_same_when_they_are_read_again() -> None:
    hooks = Hooks.of({"carts": print})
    assert Hooks.of(hooks) is hooks
