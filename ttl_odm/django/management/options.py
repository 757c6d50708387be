"""The options of ``ttl_sweep`` and ``ttl_status``, and the databases and models they select."""

from __future__ import annotations

from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING, Any, Final

from django.core.management import CommandError
from django.db import DEFAULT_DB_ALIAS, connections

from ttl_odm.django.policy.binding import bindings
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.sweeper.command_line import COMMAND_OPTIONS, Status

if TYPE_CHECKING:
    from argparse import ArgumentParser

NO_MODELS: Final = "No model with a policy is in these databases."


def add_option(parser: ArgumentParser, name: str, **settings: Any) -> None:
    """Add an option of `COMMAND_OPTIONS`, whose value is None unless it is given."""
    option = COMMAND_OPTIONS[name]
    if option.is_negatable:
        settings["action"] = BooleanOptionalAction
    elif option.type is bool:
        settings.update(action="store_true", default=None)
    elif option.type is list:
        settings.update(action="append", default=[], metavar=option.metavar)
    else:
        settings.update(type=option.type, metavar=option.metavar)
    parser.add_argument(f"--{name.replace('_', '-')}", **{"help": option.help, **settings})


def add_selection(parser: ArgumentParser) -> None:
    """Add the options that say what to look at."""
    parser.add_argument(
        "--database",
        action="append",
        choices=tuple(connections),
        metavar="ALIAS",
        help=f"This database only; may be repeated (default: {DEFAULT_DB_ALIAS}).",
    )
    add_option(parser, "model", help="This model (app_label.Model) or table only; may be repeated.")
    add_option(parser, "except", dest="excepted")
    add_option(parser, "json", dest="as_json")


def stores(options: dict[str, Any]) -> dict[str, DjangoStore]:
    """The stores that the options ask for, by alias."""
    models = [binding.model for binding in bindings()]
    by_name = {
        name: model
        for model in models
        for name in (model._meta.label_lower, model._meta.db_table.lower())
    }
    for name in (*options["model"], *options["excepted"]):
        if name.lower() not in by_name:
            labels = ", ".join(sorted(model._meta.label for model in models)) or "none"
            message = f"{name!r} is no model with a policy; these are: {labels}."
            raise CommandError(message, returncode=Status.USAGE)
    left_out = {by_name[name.lower()] for name in options["excepted"]}
    chosen = {by_name[name.lower()] for name in options["model"]} or set(models)
    selected = {}
    for alias in options["database"] or [DEFAULT_DB_ALIAS]:
        here = [model for model in DjangoStore(alias).models() if model in chosen - left_out]
        if here:
            selected[alias] = DjangoStore(alias, here)
    return selected
