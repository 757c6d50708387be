"""Each pair of `ttl_odm.combinations` is tried on Django: it works, or its reason is given."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models

from tests.combined import pairs, pattern
from tests.django_app.data import forget, kill, raw, tables_of
from ttl_odm import Follows, Partitions, Stored, TTLConfigurationError
from ttl_odm.combinations import CAPABILITIES
from ttl_odm.django import Archive, TTLModel, set_policy
from ttl_odm.django.policy.bindings import unbind
from ttl_odm.stored.django.changes import begin_policies
from ttl_odm.sweeper import Sweeper, SweepError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend
    from ttl_odm.combinations import Combination

HOUR, YEAR = 3600, 365 * 86_400
EXPIRED, LIVE = 1, 2
NAMES = ("combinedroot", "combined", "combineditem", "combinedold")


def declared(name: str, base: Any = TTLModel, **members: Any) -> Any:
    """Declare a model with an integer as its key."""
    meta = type("Meta", (), {"app_label": "shop", "db_table": name.lower()})
    key = models.BigIntegerField(primary_key=True)
    return type(name, (base,), {"__module__": __name__, "Meta": meta, "id": key, **members})


class Family:
    """A model with two capabilities, and what each has to show for itself."""

    def __init__(self, *capabilities: str) -> None:
        """Declare it, with what it follows, what follows it, and its archive."""
        self._has = {*capabilities}
        assert self._has <= CAPABILITIES.keys()
        self.hooked: list[int] = []
        members: dict[str, Any] = {"__ttl__": Stored(YEAR) if "stored" in self._has else HOUR}
        old = declared("CombinedOld", models.Model)
        self.models = [old]
        self.root: Any = None
        if "follows" in self._has:
            self.root = declared("CombinedRoot", __ttl__=HOUR)
            self.models.append(self.root)
            members["root"] = models.ForeignKey(self.root, models.CASCADE)
            members["__ttl__"] = Follows("root")
        if "archive" in self._has:
            members["__ttl_archive__"] = Archive(old)
        if "hooks" in self._has:
            members["__ttl_on_purged__"] = lambda purged: self.hooked.extend(
                key for (key,) in purged.keys
            )
        self.thing = declared("Combined", **members)
        self.models.append(self.thing)
        self.item = None
        if "followed" in self._has:
            key = models.ForeignKey(self.thing, models.CASCADE)
            self.item = declared("CombinedItem", __ttl__=Follows("thing"), thing=key)
            self.models.append(self.item)

    def use(self) -> None:
        """Write a row that expires, and one that doesn't; read and sweep."""
        if "stored" in self._has:
            begin_policies()
        if self._has == {"follows", "stored"}:
            set_policy(self.thing, HOUR, by="test")
        for key in (EXPIRED, LIVE):
            values = {}
            if self.root is not None:
                values["root"] = self.root.objects.create(pk=key)
            thing = self.thing.objects.create(pk=key, **values)
            if self.item is not None:
                self.item.objects.create(pk=10 * key, thing=thing)
        kill(self.thing if self.root is None else self.root, [EXPIRED], 2 * HOUR)
        if "stored" in self._has:
            assert self.read() == [EXPIRED, LIVE]
            set_policy(self.thing, HOUR, by="test")
        assert self.read() == [LIVE]
        swept = [model for model in self.models if model is not self.models[0]]
        report = Sweeper(connections["default"], swept, lease=False).run_once()
        report.raise_for_failures()
        for model in swept:
            assert stored(model) == [LIVE * (10 if model is self.item else 1)]
        assert stored(self.models[0]) == [EXPIRED] * ("archive" in self._has)
        assert self.hooked == [EXPIRED] * ("hooks" in self._has)
        assert self.read() == [LIVE]

    def read(self) -> list[int]:
        """The keys of the live rows."""
        keys = [*self.thing.objects.order_by("pk").values_list("pk", flat=True)]
        if self.item is not None:
            items = self.item.objects.order_by("pk").values_list("pk", flat=True)
            assert [*items] == [10 * key for key in keys]
        return keys


def stored(model: Any) -> list[int]:
    return [key for (key,) in raw(f"SELECT id FROM {model._meta.db_table} ORDER BY id")]  # noqa: S608


@contextmanager
def forgotten() -> Iterator[None]:
    """Forget the models of a test, also those that were rejected halfway."""
    try:
        yield
    finally:
        for name in NAMES:
            unbind(name)
            forget(name)


def try_pair(line: Combination) -> None:
    with forgotten():
        family = Family(line.first, line.second)
        with tables_of(*family.models):
            family.use()


@pairs("django", "sqlite")
def test_each_pair(backend: Backend, line: Combination) -> None:
    if line.outcome != "rejected":
        try_pair(line)
        return
    with pytest.raises(TTLConfigurationError, match=pattern(line)):
        try_pair(line)


@pytest.mark.usefixtures("backend")
def test_an_archive_that_is_declared_after_a_follower_is_rejected_before_rows_are_lost() -> None:
    with forgotten():
        family = Family("follows")
        with tables_of(*family.models):
            root = family.root.objects.create(pk=EXPIRED)
            family.thing.objects.create(pk=EXPIRED, root=root)
            kill(family.root, [EXPIRED], 2 * HOUR)
            family.thing.__ttl_archive__ = Archive(family.models[0])
            report = Sweeper(connections["default"], family.root, lease=False).run_once()
            with pytest.raises(SweepError, match="Leave __ttl_archive__ out"):
                report.raise_for_failures()
            assert stored(family.thing) == stored(family.root) == [EXPIRED]


@pytest.mark.parametrize("capability", ["partitions", "orm"])
def test_what_django_has_not_is_rejected(capability: str) -> None:
    assert "django" not in CAPABILITIES[capability].declared
    attribute = CAPABILITIES[capability].attribute
    value = {"partitions": Partitions("1 day"), "orm": "orm"}[capability]
    with forgotten(), pytest.raises(TTLConfigurationError, match=rf"Combined\.{attribute} = .*: "):
        declared("Combined", __ttl__=HOUR, **{attribute: value})
