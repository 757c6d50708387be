"""Rows, live and dead, and what is really in the tables: written and read past the gate.

Dead rows were last modified ten days ago. A row that came back to life is told by its ``_ts``.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections, models

from tests.django_app.shop import models as shop
from ttl_odm.django.policy.bindings import binding_of, unbind
from ttl_odm.django.time import clock

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DAYS = 10 * 86_400
LIVE, DEAD = 1_000_000, 2_000_000
"""Where primary keys begin, far from those that databases give out."""

HOLDERS = (
    shop.Session,
    shop.Profile,
    shop.Node,
    shop.Event,
    shop.Seat,
    shop.Nick,
    shop.Handle,
    shop.Link,
    shop.Upload,
    shop.Order,
    shop.Line,
)


def fill() -> None:
    """Write two live and two dead rows of nearly everything."""
    for number, name in enumerate(("ann", "bob", "eve", "kim")):
        shop.User.objects.create(pk=LIVE + number, name=name)
        shop.Tag.objects.create(pk=LIVE + number, name=f"tag-{name}")
    for base, word in ((LIVE, "live"), (DEAD, "dead")):
        for n in range(2):
            pk = base + n
            user = LIVE + n + (2 if word == "dead" else 0)
            shop.Session.objects.create(pk=pk, key=f"{word}{n}", user_id=user, number=n + 1)
            shop.Profile.objects.create(pk=pk, user_id=user, motto=f"{word}{n}")
            shop.Node.objects.create(pk=pk, name=f"{word}{n}")
            shop.Concert.objects.create(
                pk=pk, title=f"{word}{n}", band=f"{word}{n}", code=f"{word}{n}", user_id=user
            )
            shop.Seat.objects.create(pk=pk, row=word[:1], number=n, label=f"{word}{n}")
            shop.Nick.objects.create(pk=pk, name=f"{word}{n}")
            shop.Handle.objects.create(pk=pk, number=pk, name=f"{word}{n}")
            shop.Link.objects.create(token=f"{word}{n}")
            shop.Upload.objects.create(pk=pk, name=f"{word}{n}")
            shop.Note.objects.create(pk=pk, text=f"{word}{n}", session_id=pk, perhaps_id=pk)
            for tag in range(2):
                shop.Tagging.objects.create(session_id=pk, tag_id=LIVE + tag)
    shop.Session.objects.create(pk=LIVE + 5, key="mixed", user_id=LIVE + 2, number=5)
    shop.Tagging.objects.create(session_id=DEAD, tag_id=LIVE + 3)
    shop.Node.objects.create(pk=LIVE + 5, name="orphan", parent_id=DEAD)
    shop.Node.objects.create(pk=DEAD + 5, name="dead child", parent_id=LIVE)
    shop.Node.objects.create(pk=LIVE + 6, name="child", parent_id=LIVE)
    for model in HOLDERS:
        kill(model, _dead(model))
    raw("UPDATE shop_link SET expires = %s", [None])
    for token, seconds in (("live0", 3600), ("dead0", -1), ("dead1", -DAYS)):
        raw(
            f"UPDATE shop_link SET expires = {_ahead('datetime', seconds)} WHERE token = %s",  # noqa: S608
            [token],
        )
    raw(f"UPDATE shop_upload SET created = {_ahead('s', 0)} WHERE id < %s", [DEAD])  # noqa: S608


def _dead(model: Any) -> list[Any]:
    if model is shop.Link:
        return []
    rows = raw(f"SELECT {model._meta.pk.column} FROM {model._meta.db_table}")  # noqa: S608
    return [pk for (pk,) in rows if pk >= DEAD]


def kill(model: Any, keys: Iterable[Any], seconds: int = DAYS, alias: str = "default") -> None:
    """Move the last modification of rows into the past."""
    binding: Any = binding_of(model)
    meta, connection = binding.model._meta, connections[alias]
    quote = connection.ops.quote_name
    table, column = quote(meta.db_table), quote(binding.stamp.column)
    past = clock.ago(connection, binding.form, str(seconds), writing=True).replace("%%", "%")
    for key in keys:
        raw(
            f"UPDATE {table} SET {column} = {past} WHERE {quote(meta.pk.column)} = %s",  # noqa: S608
            [key],
            alias,
        )


def bury() -> None:
    """Delete the dead for real, and nothing else: the oracle."""
    raw(f"DELETE FROM shop_concert WHERE event_ptr_id >= {DEAD}")  # noqa: S608
    for model in HOLDERS:
        if model is shop.Link:
            raw("DELETE FROM shop_link WHERE token LIKE %s", ["dead%"])
        else:
            raw(f"DELETE FROM {model._meta.db_table} WHERE id >= {DEAD}")  # noqa: S608


def raw(sql: str, params: Any = None, alias: str = "default") -> list[tuple[Any, ...]]:
    """Run a statement past the gate; ``%s`` are its only placeholders."""
    if params is not None:
        sql = sql.replace("%", "%%").replace("%%s", "%s")
    with connections[alias].cursor() as cursor:
        cursor.execute(sql, params)
        return list(cursor.fetchall()) if cursor.description else []


def _ahead(form: Any, seconds: int) -> str:
    connection = connections["default"]
    return clock.ago(connection, form, str(-seconds), writing=True).replace("%%", "%")


def dump() -> dict[str, list[Any]]:
    """All rows of all tables, but the untouched dead, without generated keys and stamps."""
    connection = connections["default"]
    found: dict[str, list[Any]] = {}
    for model in models_of_shop():
        meta = model._meta
        binding = binding_of(model)
        fields = [
            each
            for each in meta.local_concrete_fields
            if each.column not in ("_ts", "id", "event_ptr_id")
        ]
        columns = ", ".join(connection.ops.quote_name(each.column) for each in fields) or "1"
        where = ""
        if binding is not None:
            where = f" WHERE {_alive(model, binding)}"
        elif model in (shop.Note, shop.Tagging):
            # What refers to the dead goes with them when they are purged; the oracle leaves it.
            where = f" WHERE session_id < {DEAD}"
            where += " OR text NOT LIKE 'dead%'" if model is shop.Note else ""
        rows = raw(f"SELECT {columns} FROM {meta.db_table}{where}")  # noqa: S608
        found[meta.db_table] = sorted(rows, key=repr)
    return found


def _alive(model: Any, binding: Any) -> str:
    connection = connections["default"]
    if model is shop.Link:
        return "token NOT LIKE 'dead%' OR expires IS NULL"
    column = connection.ops.quote_name(binding.stamp.column)
    limit = clock.ago(connection, binding.form, str(DAYS // 2), writing=True).replace("%%", "%")
    if model is shop.Concert:
        return f"event_ptr_id IN (SELECT id FROM shop_event WHERE {column} > {limit})"  # noqa: S608
    return f"{column} > {limit} OR {column} IS NULL"


def models_of_shop() -> list[Any]:
    """Every model with a table."""
    return [
        each
        for each in vars(shop).values()
        if isinstance(each, type)
        and issubclass(each, models.Model)
        and not each._meta.abstract
        and not each._meta.proxy
        and each._meta.app_label == "shop"
    ]


@contextmanager
def tables_of(*made: Any) -> Iterator[None]:
    """Have the tables of models that a test declares, and forget these."""
    connection = connections["default"]
    with connection.schema_editor() as editor:
        for model in made:
            editor.create_model(model)
    try:
        yield
    finally:
        for model in reversed(made):  # those that refer to others before these
            with connection.schema_editor() as editor:
                editor.delete_model(model)
            unbind(model._meta.db_table)
            for field in model._meta.local_many_to_many:
                if field.remote_field.through._meta.auto_created:
                    forget(field.remote_field.through._meta.model_name)
            forget(model._meta.model_name)


def forget(name: str) -> None:
    """Remove a model of the shop from Django's registry, even one whose class was rejected.

    The fields of such a class still wait for it, which Django's checks report (E307).
    """
    apps.all_models["shop"].pop(name, None)
    apps._pending_operations.pop(("shop", name), None)  # type: ignore[attr-defined]
    apps.clear_cache()
