"""The shipped suite on the sweeper's store for Django, on every database."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connections, models, transaction
from django.db.backends.signals import connection_created

from tests.backends import refusing
from tests.django_app.data import raw
from ttl_odm.django import DjangoStore, TTLModel, include_expired
from ttl_odm.django.policy import bindings
from ttl_odm.django.time import clock
from ttl_odm.sweeper import Clocked, Counting, Hooking, Leasing
from ttl_odm.testing import StoreContract, StoreRig
from ttl_odm.testing.contract import HoldContract, PurgeContract, RefusalContract

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

    from tests.backends import Backend
    from ttl_odm.sweeper import ArchiveSink


class DjangoRig(StoreRig):
    """A store over ``default``; models come and go with each test."""

    def __init__(self, *, plain: bool) -> None:
        super().__init__()
        self._models: dict[str, Any] = {}
        self._plain = plain
        self.store = DjangoStore("default", [])
        self._opened: list[Any] = []
        connection_created.connect(self._note)
        with connections["default"].cursor() as cursor:
            cursor.execute("CREATE TABLE outbox (text varchar(200))")

    def _note(self, connection: Any, **_: Any) -> None:
        """Remember it: Django keeps one for each thread, and the suite's threads just end."""
        self._opened.append(connection.connection)

    def create(self, target: str, default: int | None, hooks: Any = None) -> None:
        self._create(target, {"__ttl__": default, "__ttl_on_purged__": hooks})

    def create_archived(self, target: str, default: int | None, sink: ArchiveSink) -> None:
        self._create(target, {"__ttl__": default, "__ttl_archive__": sink})

    def _create(self, target: str, declared: dict[str, Any]) -> None:
        meta = type("Meta", (), {"app_label": "shop", "db_table": target})
        members = {
            "__module__": __name__,
            "id": models.BigIntegerField(primary_key=True),
            "Meta": meta,
            **declared,
        }
        model = type(target.title(), (TTLModel,), members)
        self._models[target] = model
        with connections["default"].schema_editor() as editor:
            editor.create_model(model)
        if not self._plain:
            # A receiver is a reason for Django's Collector.
            models.signals.pre_delete.connect(_receive, sender=model)
        self.store = DjangoStore("default", list(self._models.values()))

    def set_default(self, target: str, default: int | None) -> None:
        self._models[target].__ttl__ = default

    def add(self, target: str, keys: Sequence[int], *, age: float, ttl: int | None = None) -> None:
        connection = connections["default"]
        past = clock.ago(connection, "instant", str(int(age)), writing=True).replace("%%", "%")
        if keys:
            ((now,),) = raw(f"SELECT {past}")
            for key in keys:
                raw(f"INSERT INTO {target} (id, ttl, _ts) VALUES (%s, %s, %s)", [key, ttl, now])  # noqa: S608

    def renew(self, target: str, key: int) -> None:
        now = clock.now(connections["default"], "instant", writing=True).replace("%%", "%")
        with _another_connection():
            raw(f"UPDATE {target} SET _ts = {now} WHERE id = %s", [key], "behind")  # noqa: S608

    def keys(self, target: str) -> set[int]:
        return set(include_expired(self._models[target].objects.values_list("pk", flat=True)))

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        """Before the rows are locked, or deleted where there are no such locks."""
        actions = [action]

        def act(execute: Any, sql: str, *rest: Any) -> Any:
            if actions and ("FOR UPDATE" in sql or sql.startswith("DELETE")):
                actions.pop()()
            return execute(sql, *rest)

        with connections["default"].execute_wrapper(act):
            yield
        assert not actions

    @contextmanager
    def refuse(self, target: str, keys: Collection[int]) -> Iterator[None]:
        make, drop = refusing(connections["default"].vendor, target, keys)
        for statement in make:
            raw(statement)
        yield
        for statement in drop:
            raw(statement)

    def end_lease(self, name: str) -> None:
        past = clock.ago(connections["default"], "instant", "3600", writing=True).replace("%%", "%")
        raw(f"UPDATE ttl_odm_lease SET acquired_until = {past} WHERE name = %s", [name])  # noqa: S608

    def write(self, transaction: Any, text: str) -> object:
        with transaction.cursor() as cursor:
            return cursor.execute("INSERT INTO outbox (text) VALUES (%s)", [text])

    def written(self) -> list[str]:
        return [text for (text,) in raw("SELECT text FROM outbox")]

    def close(self) -> None:
        connections["default"].close()
        raw("DROP TABLE outbox")
        for target, model in self._models.items():
            raw(f"DROP TABLE {target}")
            models.signals.pre_delete.disconnect(_receive, sender=model)
            bindings.unbind(target)
            del model._meta.apps.all_models["shop"][target]
        connections["default"].close()
        connection_created.disconnect(self._note)
        for each in self._opened:
            with suppress(Exception):  # it is closed
                each.close()
        super().close()


def _receive(**_: Any) -> None:
    return


@contextmanager
def _another_connection() -> Iterator[None]:
    connections["behind"] = connections["default"].copy("behind")
    try:
        yield
    finally:
        connections["behind"].close()
        del connections["behind"]


class ServerRig(DjangoRig):
    """A database that locks rows, not files."""

    @contextmanager
    def hold(self, target: str, key: int) -> Iterator[None]:
        with _another_connection(), transaction.atomic("behind"):
            raw(f"SELECT id FROM {target} WHERE id = %s FOR UPDATE", [key], "behind")  # noqa: S608
            yield


class TestDjangoStore(StoreContract):
    """Rows that go by one statement."""

    @pytest.fixture
    def rig(self, backend: Backend) -> Iterator[DjangoRig]:
        made = (DjangoRig if backend.database == "sqlite" else ServerRig)(plain=True)
        yield made
        made.close()

    def test_it_offers_everything(self, rig: DjangoRig) -> None:
        for each in (Hooking, Leasing, Counting, Clocked):
            assert isinstance(rig.store, each)


@pytest.mark.databases("postgres", "mariadb", "mysql")
class TestRowsThatDjangoCollects(PurgeContract, HoldContract, RefusalContract):
    """Rows that Django's Collector deletes, since a signal has a receiver."""

    @pytest.fixture
    def rig(self, backend: Backend) -> Iterator[DjangoRig]:  # noqa: ARG002 (a fixture)
        made = ServerRig(plain=False)
        yield made
        made.close()
