"""`empty` and `async_empty`: empty tables and collections between tests, expired rows included.

An adapter's module in this package is imported when a model of that adapter is passed. This module
knows no database, no driver and not pytest.
"""

from __future__ import annotations

import sys

from ttl_odm.errors import TTLError


def empty(*models: object, session: object = None) -> None:
    """Delete all rows of some tables, including expired rows.

    For use between tests: it bypasses the gate, archives nothing and calls no hooks. Tables that
    refer to others are emptied first. A model's table is emptied together with the tables of its
    base classes and subclasses (joined-table or multi-table inheritance).

    * SQLAlchemy: ``empty(Base, session=session)``. It flushes a Session first, expires its objects
      afterwards, and leaves the commit to the caller.
    * Django: ``empty(Cart, Item)``, in the database that the router names for writes, including
      the many-to-many tables that Django created for them.

    Args:
        models: SQLAlchemy's declarative bases, registries, MetaData, models or Tables; or Django's
            models. The tables that ttl_odm itself keeps in a MetaData (leases, stored defaults)
            are emptied only if they are passed by themselves.
        session: For SQLAlchemy: a Session, a scoped session or a Connection, which may be in a
            transaction; or an Engine, for a transaction that is committed.

    Raises:
        TTLError: Nothing to empty was passed, a model isn't one of these, or the session is
            missing, superfluous or asynchronous.
    """
    _check("empty", models)
    if _is_of("sqlalchemy", models):
        from ttl_odm.testing.cleanup import on_sqlalchemy  # noqa: PLC0415 (not for all)

        on_sqlalchemy.empty(models, session)
    elif _is_of("django", models):
        from ttl_odm.testing.cleanup import on_django  # noqa: PLC0415 (not for all)

        _check_no_session("empty", models, session)
        on_django.empty(models)
    elif _is_of("beanie", models):
        raise TTLError(f"empty({_named(models)}): await async_empty(...) for Beanie's documents.")
    else:
        raise _mixed("empty", models)


async def async_empty(*models: object, session: object = None) -> None:
    """Delete all rows of some tables, or all documents of some collections, expired or not.

    As `empty`, for SQLAlchemy's asynchronous sessions and for Beanie:

    * SQLAlchemy: ``await async_empty(Base, session=async_session)``.
    * Beanie: ``await async_empty(Event, Note)``. The whole collection is emptied, including
      documents of other classes that are kept there. Its indexes stay.

    Args:
        models: As for `empty`, or Beanie's document classes.
        session: For SQLAlchemy: an AsyncSession, an async scoped session or an AsyncConnection; or
            an AsyncEngine, for a transaction that is committed.

    Raises:
        TTLError: As for `empty`.
    """
    _check("async_empty", models)
    if _is_of("sqlalchemy", models):
        from ttl_odm.testing.cleanup import on_sqlalchemy  # noqa: PLC0415 (not for all)

        await on_sqlalchemy.async_empty(models, session)
    elif _is_of("beanie", models):
        from ttl_odm.testing.cleanup import on_beanie  # noqa: PLC0415 (not for all)

        _check_no_session("async_empty", models, session)
        await on_beanie.empty(models)
    elif _is_of("django", models):
        raise TTLError(
            f"async_empty({_named(models)}): Django's models need empty(), as in "
            "await sync_to_async(empty)(...)."
        )
    else:
        raise _mixed("async_empty", models)


def _check(call: str, models: tuple[object, ...]) -> None:
    if not models:
        raise TTLError(f"{call}(): pass at least one model, or SQLAlchemy's declarative base.")


def _check_no_session(call: str, models: tuple[object, ...], session: object) -> None:
    if session is not None:
        raise TTLError(
            f"{call}({_named(models)}, session=...): session= is for SQLAlchemy's models only; "
            "leave it out."
        )


def _is_of(library: str, models: tuple[object, ...]) -> bool:
    """Whether all models belong to a library, which need not be installed."""
    if library == "sqlalchemy":
        module = sys.modules.get("sqlalchemy")
        return module is not None and all(
            isinstance(model, (module.Table, module.MetaData))
            or isinstance(getattr(model, "metadata", None), module.MetaData)
            for model in models
        )
    name, base = ("django.db.models", "Model") if library == "django" else ("beanie", "Document")
    module = sys.modules.get(name)
    return module is not None and all(
        isinstance(model, type) and issubclass(model, getattr(module, base)) for model in models
    )


def _named(models: tuple[object, ...]) -> str:
    return ", ".join(getattr(model, "__name__", repr(model)) for model in models)


def _mixed(call: str, models: tuple[object, ...]) -> TTLError:
    return TTLError(
        f"{call}({_named(models)}): pass models of one kind: SQLAlchemy's (or a declarative base, "
        "MetaData or Table), Django's or Beanie's."
    )
