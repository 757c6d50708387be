"""Django's ORM as a `Subject`, over a database alias of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing, contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar

from django.apps import apps
from django.core.exceptions import ObjectDoesNotExist
from django.db import DatabaseError, IntegrityError, connections, models, transaction
from django.db.models import Count, F

from tests.clocks import stop_clock
from tests.contract.django_models import DECLARED, Models, Place  # (sets Django up)
from tests.contract.raw_tables import NAMES, RawTables
from tests.contract.subject import CONTAINERS, TableSubject
from tests.django_app import project
from ttl_odm import ExpiredError
from ttl_odm.django import (
    DjangoStore,
    TTLModel,
    include_expired,
    keep_last_modified,
    touch,
)
from ttl_odm.django.policy.bindings import unbind
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from datetime import datetime

    from tests.backends import Backend
    from tests.contract.subject import Loaded

DRIVERS = {"sqlite": "sqlite3", "postgresql": "psycopg", "mysql": "pymysql"}


class OnDjango(TableSubject):
    """Models in a registry of their own, on an alias of their own."""

    adapter = "Django"
    checked = "carts"
    unchecked = "permits"
    remembering = "carts"
    gone = (ExpiredError, DatabaseError)
    missing = (ObjectDoesNotExist,)
    duplicate = (IntegrityError,)
    restricted = (IntegrityError,)
    refused = (DatabaseError,)
    place: ClassVar[Place] = DECLARED
    more_tables: ClassVar[tuple[Any, ...]] = ()

    def __init__(self, backend: Backend, made: Models) -> None:
        self._made = made
        self._models = made.containers
        self.alias = f"{made.place.prefix}{backend.database}"
        databases = {**connections.settings, self.alias: project.database_settings(backend)}
        connections.settings = connections.configure_settings(databases)
        with connections[self.alias].schema_editor() as editor:
            for model in (*self.more_tables, *made.tables.values()):
                editor.create_model(model)
        self.raw = RawTables(backend, prefix=made.place.prefix)
        self.database = NAMES[backend.database]
        self.driver = DRIVERS[self.raw.dialect]
        self.tick = self.raw.tick

    def _rows(self, container: str) -> Any:
        return self._models[container].objects.using(self.alias)

    def server(self) -> str:
        return self.raw.server()

    # Past the gate

    def clear(self) -> None:
        connections[self.alias].close()  # whatever state a case has left it in
        self.raw.clear()
        self._made.told.clear()
        for name, model in self._models.items():
            model.__ttl__ = CONTAINERS[name].policy

    def now(self) -> datetime:
        return self.raw.now()

    @contextmanager
    def stopped(self, instant: datetime) -> Iterator[None]:
        connection = connections[self.alias]
        try:
            with transaction.atomic(using=self.alias):
                connection.ensure_connection()
                _stop(connection, self.raw.dialect, instant)
                yield
                transaction.set_rollback(True, using=self.alias)
        finally:
            connection.close()

    @contextmanager
    def before_delete(self, action: Callable[[], object]) -> Iterator[None]:
        actions = [action]

        def act(execute: Any, statement: str, *rest: Any) -> Any:
            if actions and ("FOR UPDATE" in statement or statement.startswith("DELETE")):
                actions.pop()()
            return execute(statement, *rest)

        with connections[self.alias].execute_wrapper(act):
            yield
        assert not actions

    def put_at(self, container: str, key: int, at: Any, **values: Any) -> None:
        self.raw.put(container, key, at, **values)

    def move_to(self, container: str, key: int, at: datetime) -> None:
        self.raw.move(container, key, at)

    def stored(self, container: str, key: int) -> Mapping[str, Any] | None:
        return self.raw.stored(container, key)

    def keys(self, container: str) -> set[int]:
        return self.raw.keys(container)

    def put_line(self, key: int, cart: int) -> None:
        self.raw.uses("carts")
        self.raw.insert("lines", id=key, cart_id=cart)

    def put_raw_ttl(self, container: str, key: int, value: Any) -> None:
        self.raw.uses(container)
        table = self._models[container]._meta.db_table
        with transaction.atomic(using=self.alias), connections[self.alias].cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {table} (id, views, ttl) VALUES (%s, 0, %s)",  # noqa: S608
                [key, value],
            )

    # What an application does

    def set_policy(self, container: str, declared: Any) -> None:
        self._models[container].__ttl__ = declared

    def declare(self, declared: Any) -> None:
        class Meta:
            app_label = self._made.place.app
            db_table = "contract_things"

        members = {
            "__module__": __name__,
            "__ttl__": declared,
            "at": models.DateTimeField(null=True),
            "Meta": Meta,
        }
        try:
            type("Thing", (TTLModel,), members)
        finally:
            unbind("contract_things")
            apps.all_models[self._made.place.app].pop("thing", None)
            apps.clear_cache()

    def readings(self, container: str) -> Mapping[str, set[int] | int]:
        rows, model = self._rows(container), self._models[container]
        stored = self.keys(container)
        inner = rows.values("pk")
        return {
            "get": {key for key in stored if rows.filter(pk=key).first() is not None},
            "in_bulk": set(rows.in_bulk(stored)),
            "instances": {row.pk for row in rows.all()},
            "values": set(rows.values_list("pk", flat=True)),
            "_base_manager": {row.pk for row in model._base_manager.using(self.alias)},
            "a subquery": set(rows.filter(pk__in=inner).values_list("pk", flat=True)),
            "a union": set(
                rows.values_list("pk").union(rows.values_list("pk")).values_list("pk", flat=True)
            ),
            "exists": {key for key in stored if rows.filter(pk=key).exists()},
            "count": rows.count(),
            "aggregate": rows.aggregate(n=Count("pk"))["n"],
        }

    def keys_with_expired(self, container: str) -> set[int]:
        return set(include_expired(self._rows(container).values_list("pk", flat=True)))

    def writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        rows, model = self._rows(container), self._models[container]

        def save(key: int) -> None:
            row = rows.filter(pk=key).first()
            if row is not None:
                row.views += 1
                row.save()

        def save_one_field(key: int) -> None:
            row = rows.filter(pk=key).first()
            if row is not None:
                row.views += 1
                row.save(update_fields=["views"])

        def bulk_update(key: int) -> None:
            rows.bulk_update([model(pk=key, views=7)], ["views"])

        return {
            "save": save,
            "save(update_fields)": save_one_field,
            "update": lambda key: rows.filter(pk=key).update(views=5),
            "update with F()": lambda key: rows.filter(pk=key).update(views=F("views") + 1),
            "bulk_update": bulk_update,
        }

    def keeping_writes(self, container: str) -> Mapping[str, Callable[[int], object]]:
        rows, model = keep_last_modified(self._rows(container)), self._models[container]
        return {
            "update": lambda key: rows.filter(pk=key).update(views=5),
            "update with F()": lambda key: rows.filter(pk=key).update(views=F("views") + 1),
            "bulk_update": lambda key: rows.bulk_update([model(pk=key, views=7)], ["views"]),
        }

    def update_all(self, container: str, **values: Any) -> int:
        changed: int = self._rows(container).update(**values)
        return changed

    def touch(self, container: str, *keys: int, **arguments: Any) -> int:
        rows = self._rows(container).filter(**({"pk__in": keys} if keys else {}))
        return touch(rows, **arguments)

    def touched(self, container: str, key: int, **arguments: Any) -> int | None:
        rows = self._rows(container).filter(pk=key)
        touch(rows, **arguments)
        found: int | None = rows.values_list("pk", flat=True).first()
        return found

    def delete_all(self, container: str) -> int:
        gone: int = self._rows(container).all().delete()[0]
        return gone

    def inserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        rows, model = self._rows(container), self._models[container]
        self.raw.uses(container)

        def atomically(work: Callable[..., object]) -> Callable[..., object]:
            def insert(key: int, **values: Any) -> None:
                with transaction.atomic(using=self.alias):
                    work(key, **values)

            return insert

        def create(key: int, **values: Any) -> None:
            rows.create(pk=key, **values)

        def bulk_create(key: int, **values: Any) -> None:
            rows.bulk_create([model(pk=key, **values)])

        def save(key: int, **values: Any) -> None:
            model(pk=key, **values).save(using=self.alias, force_insert=True)

        return {
            "create": create,
            "create in a transaction": atomically(create),
            "bulk_create": bulk_create,
            "bulk_create in a transaction": atomically(bulk_create),
            "save(force_insert)": save,
        }

    def upserts(self, container: str) -> Mapping[str, Callable[..., object]]:
        rows, model = self._rows(container), self._models[container]
        self.raw.uses(container)

        def update_or_create(key: int, **values: Any) -> None:
            rows.update_or_create(pk=key, defaults=values)

        def bulk_create(key: int, **values: Any) -> None:
            target = {} if self.raw.dialect == "mysql" else {"unique_fields": ["id"]}
            rows.bulk_create(
                [model(pk=key, **values)],
                update_conflicts=True,
                update_fields=[*values],
                **target,
            )

        return {"update_or_create": update_or_create, "bulk_create": bulk_create}

    def ways_to_set_ttl(self, container: str) -> Mapping[str, Callable[[int, Any], object]]:
        rows, model = self._rows(container), self._models[container]
        own = CONTAINERS[container].own or ""

        def save(key: int, value: Any) -> None:
            row = rows.get(pk=key)
            setattr(row, own, value)
            row.save()

        def bulk_update(key: int, value: Any) -> None:
            row = rows.get(pk=key)
            setattr(row, own, value)
            rows.bulk_update([row], [own])

        def create(key: int, value: Any) -> None:
            rows.filter(pk=key).delete()
            rows.create(pk=key, **{own: value})

        def bulk_create(key: int, value: Any) -> None:
            rows.filter(pk=key).delete()
            rows.bulk_create([model(pk=key, **{own: value})])

        return {
            "save": save,
            "update": lambda key, value: rows.filter(pk=key).update(**{own: value}),
            "bulk_update": bulk_update,
            "create": create,
            "bulk_create": bulk_create,
        }

    @contextmanager
    def loaded(self, container: str, key: int) -> Iterator[Loaded]:
        found = self._rows(container).filter(pk=key).first()
        assert found is not None
        yield _Loaded(found, self.alias)

    def reached(self, line: int) -> Mapping[str, int | None]:
        lines, cart = self._made.tables["lines"].objects.using(self.alias), self._models["carts"]

        def attribute(row: Any) -> int | None:
            try:
                key: int = row.cart.pk
            except cart.DoesNotExist:
                return None
            return key

        return {
            "the attribute": attribute(lines.get(pk=line)),
            "select_related": attribute(lines.select_related("cart").get(pk=line)),
            "prefetch_related": attribute(lines.prefetch_related("cart").get(pk=line)),
            "a join in a filter": self._rows("carts")
            .filter(position=line)
            .values_list("pk", flat=True)
            .first(),
            "a join from the other side": lines.filter(pk=line, cart__views__gte=0)
            .values_list("pk", flat=True)
            .first(),
        }

    def sweep(self, container: str) -> int:
        store = DjangoStore(self.alias, [self._models[container]])
        return Sweeper(store, lease=False).run_once().deleted

    def told(self) -> list[tuple[str, set[int]]]:
        return [(each.reason, {key for (key,) in each.keys}) for each in self._made.told]

    def archived(self) -> set[int]:
        return self.raw.keys("old_seats")

    def archived_lives(self, key: int) -> int:
        return self.raw.count("old_seats", key)

    def insert_gift(self, key: int) -> None:
        self.raw.uses("orders", "gifts")
        self._made.tables["gifts"].objects.using(self.alias).create(pk=key, wish="old")

    def gift_writes(self) -> Mapping[str, Callable[[int], object]]:
        gifts = self._made.tables["gifts"].objects.using(self.alias)

        def save(key: int) -> None:
            row = gifts.get(pk=key)
            row.wish = "saved"
            row.save(update_fields=["wish"])

        return {
            "save(update_fields)": save,
            "update": lambda key: gifts.filter(pk=key).update(wish="updated"),
        }

    def close(self) -> None:
        self.clear()
        self.raw.engine.dispose()
        connections[self.alias].close()
        del connections[self.alias]
        connections.settings = {
            name: given for name, given in connections.settings.items() if name != self.alias
        }


class _Loaded:
    """An instance."""

    def __init__(self, row: Any, alias: str) -> None:
        self._row = row
        self._alias = alias

    @property
    def expires_at(self) -> datetime | None:
        end: datetime | None = self._row.expires_at
        return end

    def write(self, **values: Any) -> None:
        for name, value in values.items():
            setattr(self._row, name, value)
        self._row.save()

    def write_nothing(self) -> None:
        self._row.save()

    def delete(self) -> int:
        deleted: int = self._row.delete()[0]
        return deleted

    def refresh(self) -> None:
        self._row.refresh_from_db()

    def touch(self) -> None:
        self._row.touch()

    def help(self, name: str, *arguments: Any) -> None:
        getattr(self._row, name)(*arguments)
        self._row.save()

    def is_still_served(self) -> bool:
        return type(self._row).objects.using(self._alias).filter(pk=self._row.pk).exists()


def _stop(connection: Any, dialect: str, instant: datetime) -> None:
    """Let `tests.clocks` stop the clock of one of Django's connections."""

    def execute(statement: Any) -> None:
        with connection.cursor() as cursor:
            cursor.execute(str(statement))

    behind = SimpleNamespace(
        dialect=SimpleNamespace(name=dialect),
        connection=connection.connection,
        execute=execute,
    )
    stop_clock(behind, instant)  # type: ignore[arg-type]
    if dialect == "sqlite":  # DateTimeFields are compared with text
        stopped_at = instant.strftime("%Y-%m-%d %H:%M:%S.%f")

        def strftime(layout: str, when: str, *modifiers: str) -> Any:
            when = stopped_at if when == "now" else when
            places = ", ".join("?" * (2 + len(modifiers)))
            with closing(sqlite3.connect(":memory:")) as another:
                return another.execute(
                    f"SELECT strftime({places})", (layout, when, *modifiers)
                ).fetchone()[0]

        connection.connection.create_function("strftime", -1, strftime)
