"""What a model declares of its expired rows besides its policy."""

from __future__ import annotations

from typing import Any

import pytest

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.hooks import Archive, archive_of, hooks_of, purge_of, sweep_of


class Sink:
    def write(self, purged: object) -> None:
        """Keep nothing."""


class Plain:
    pass


def model(**declared: Any) -> type:
    return type("Cart", (), declared)


def test_a_class_that_declares_nothing_has_the_defaults() -> None:
    assert purge_of(Plain, ("delete", "orm")) == "delete"
    assert purge_of(Plain, ("native", "sweeper")) == "native"
    assert archive_of(Plain) is None
    assert sweep_of(Plain) == "index"
    assert not hooks_of(Plain, "carts")


def test_what_a_class_declares_is_read() -> None:
    sink = Sink()
    assert purge_of(model(__ttl_purge__="orm"), ("delete", "orm")) == "orm"
    assert archive_of(model(__ttl_archive__=Archive("old"))) == Archive("old")
    assert archive_of(model(__ttl_archive__=sink)) is sink
    assert sweep_of(model(__ttl_sweep__="scan")) == "scan"
    hooks = hooks_of(model(__ttl_on_purged__=[print, print]), "carts")
    assert [table for table, _ in hooks.entries] == ["carts", "carts"]


def test_a_purge_may_be_declared_elsewhere() -> None:
    assert purge_of(Plain, ("native", "sweeper"), "sweeper") == "sweeper"


@pytest.mark.parametrize("purge", ["orm?", None, 7, ["delete"]])
def test_a_purge_that_nobody_knows_is_refused_by_name(purge: Any) -> None:
    with pytest.raises(TTLConfigurationError) as caught:
        purge_of(model(__ttl_purge__=purge), ("delete", "orm"))
    expected = f"Cart.__ttl_purge__ = {purge!r}: write 'delete' or 'orm'."
    assert str(caught.value) == expected


@pytest.mark.parametrize("archive", [Archive("old"), Sink(), Sink])
def test_an_archive_in_the_place_of_a_purge_is_told_where_to_go(archive: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"declare __ttl_archive__.*'delete'"):
        purge_of(model(__ttl_purge__=archive), ("delete",))


@pytest.mark.parametrize("archive", ["old", 7, Sink, Plain])
def test_what_is_no_archive_is_refused(archive: Any) -> None:
    with pytest.raises(
        TTLConfigurationError, match=r"Cart\.__ttl_archive__ = .*Archive.*write\(\)"
    ):
        archive_of(model(__ttl_archive__=archive))


def test_what_is_no_hook_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match="on_purged = 7"):
        hooks_of(model(__ttl_on_purged__=7), "carts")


def test_an_unknown_way_to_find_rows_is_refused() -> None:
    with pytest.raises(TTLConfigurationError, match=r"Cart\.__ttl_sweep__ = 'fast': write 'index'"):
        sweep_of(model(__ttl_sweep__="fast"))
