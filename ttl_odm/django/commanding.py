"""What ``ttl_sweep`` and ``ttl_status`` share: which databases and models."""

from __future__ import annotations

from typing import Any

from django.core.management import CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from ttl_odm.django.policy.binding import bindings
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.sweeper.statuses import Status


def add_selection(parser: Any) -> None:
    """Add the options that say what to look at."""
    parser.add_argument(
        "--database",
        action="append",
        choices=tuple(connections),
        metavar="ALIAS",
        help="This database; may be repeated (default).",
    )
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="NAME",
        help="This model (app_label.Model) or table only; may be repeated.",
    )
    parser.add_argument(
        "--except",
        action="append",
        default=[],
        dest="excepted",
        metavar="NAME",
        help="Leave this model or table out; may be repeated.",
    )
    parser.add_argument("--json", action="store_true", dest="as_json", help="Print JSON.")


def stores(options: dict[str, Any]) -> dict[str, DjangoStore]:
    """The stores that the options ask for, by alias.

    Raises:
        CommandError: A model has no policy.
    """
    wanted, excepted = options["model"], options["excepted"]
    known = {name: each.model for each in bindings() for name in _names(each.model)}
    for name in (*wanted, *excepted):
        if name.lower() not in known:
            labels = ", ".join(sorted(each.model._meta.label for each in bindings())) or "none"
            message = f"{name!r} is no model with a policy; these are: {labels}."
            raise CommandError(message, returncode=Status.USAGE)
    left_out = {known[name.lower()] for name in excepted}
    chosen = [known[name.lower()] for name in wanted] or None
    found = {}
    for alias in options["database"] or [DEFAULT_DB_ALIAS]:
        store = DjangoStore(alias)
        models = [each for each in store.models() if each not in left_out]
        if chosen is not None:
            models = [each for each in models if each in chosen]
        if models:
            found[alias] = DjangoStore(alias, models)
    return found


def _names(model: Any) -> tuple[str, str]:
    return model._meta.label_lower, model._meta.db_table.lower()
