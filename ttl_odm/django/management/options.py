"""`TTLCommand`; common options of the commands, and the databases and models that they select."""

from __future__ import annotations

import shlex
from argparse import BooleanOptionalAction
from typing import TYPE_CHECKING, Any, Final

from django.core.management import BaseCommand, CommandError
from django.db import DEFAULT_DB_ALIAS, connections, router

from ttl_odm.django.policy.bindings import bindings
from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.command_line import COMMAND_OPTIONS, Status, escape_unencodable
from ttl_odm.sweeper.options import LEASE_NAME

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Iterable, Mapping, Sequence

    from ttl_odm.django.policy.bindings import Model
    from ttl_odm.sweeper.command_line import Program

NO_MODELS: Final = "These databases contain no model with a policy."


class TTLCommand(BaseCommand):
    """A command that runs without system checks, and prints names in any encoding."""

    requires_system_checks = ()  # ttl_check reports ttl_odm's own checks

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from a command line."""
        escape_unencodable()
        super().run_from_argv(argv)


def add_option(parser: ArgumentParser, name: str, **own: object) -> None:
    """Add an option of `COMMAND_OPTIONS`, whose value is None unless it is specified.

    Args:
        parser: The command's parser.
        name: The option.
        own: The command's own settings for it.
    """
    option = COMMAND_OPTIONS[name]
    settings: dict[str, Any] = {"type": option.type, "metavar": option.metavar}
    if option.is_negatable:
        settings = {"action": BooleanOptionalAction}
    elif option.type is bool:
        settings = {"action": "store_true", "default": None}
    elif option.type is list:
        settings = {"action": "append", "default": [], "metavar": option.metavar}
    flags = [f"--{name.replace('_', '-')}", *([f"-{option.letter}"] if option.letter else [])]
    parser.add_argument(*flags, **{"help": option.help, **settings, **own})


def add_databases(parser: ArgumentParser) -> None:
    """Add the option that selects databases."""
    parser.add_argument(
        "--database",
        action="append",
        choices=tuple(connections),
        metavar="ALIAS",
        help=f"Only this database; may be repeated (default: {DEFAULT_DB_ALIAS}).",
    )


def add_database(parser: ArgumentParser) -> None:
    """Add the option that selects a single database."""
    parser.add_argument(
        "--database",
        default=DEFAULT_DB_ALIAS,
        choices=tuple(connections),
        metavar="ALIAS",
        help=f"The database (default: {DEFAULT_DB_ALIAS}).",
    )


def add_selection(parser: ArgumentParser) -> None:
    """Add the options that select databases and models."""
    add_databases(parser)
    add_option(parser, "model", help="Only this model (app_label.Model) or table; may be repeated.")
    add_option(parser, "except", dest="excepted")
    add_option(parser, "json", dest="as_json")


def aliases(options: Mapping[str, Any]) -> list[str]:
    """Return the databases that the options select."""
    chosen: list[str] = options["database"] or [DEFAULT_DB_ALIAS]
    return chosen


def program(alias: str, options: Mapping[str, Any]) -> Program:
    """Return how another command for the same database is typed; see `Program`."""
    words = [] if alias == DEFAULT_DB_ALIAS else ["--database", alias]
    if options["lease_name"] != LEASE_NAME:
        words += ["--lease-name", options["lease_name"]]

    def typed(name: str) -> str:
        command = ["ttl_sweep", "--every", "60"] if name == "run" else [f"ttl_{name}"]
        return shlex.join(["python", "manage.py", *command, *words])

    return typed


def model_named(models: Iterable[Model], name: str) -> Model | None:
    """Return the model with a label or table of this name, in upper or lower case; None if none."""
    return next((model for model in models if name.lower() in _names_of(model)), None)


def _names_of(model: Model) -> tuple[str, str]:
    return model._meta.label_lower, model._meta.db_table.lower()


def labels(store: DjangoStore) -> dict[str, str]:
    """Return the tables of a store, with the labels of their models."""
    return {model._meta.db_table: model._meta.label for model in store.models()}


def stores(options: Mapping[str, Any], *, deletes: bool = False) -> dict[str, DjangoStore]:
    """Return the stores that the options select, by alias.

    Args:
        options: The options.
        deletes: Whether rows are to be deleted, for which archives have to fit.

    Raises:
        CommandError: A name is unknown, the routers keep a model of ``--model`` out of all selected
            databases, an archive doesn't fit, or a database isn't supported.
    """
    by_name = {name: binding.model for binding in bindings() for name in _names_of(binding.model)}
    excepted = _named(by_name, options["excepted"])
    named = _named(by_name, options["model"])
    chosen, missing = (named or set(by_name.values())) - excepted, named - excepted
    selected = {}
    for alias in aliases(options):
        candidates = [binding.model for binding in bindings() if binding.model in chosen]
        models = [model for model in candidates if router.allow_migrate_model(alias, model)]
        missing.difference_update(models)
        if not models:
            continue
        try:
            selected[alias] = DjangoStore(alias, models, deletes=deletes)
        except TTLConfigurationError as error:
            raise CommandError(str(error), returncode=Status.USAGE) from error
    if missing:
        model = min(missing, key=_names_of)
        raise CommandError(_elsewhere(model, aliases(options)), returncode=Status.USAGE)
    return selected


def _elsewhere(model: Model, selected: Sequence[str]) -> str:
    """Return the message for a model that isn't in any of the selected databases."""
    others = [alias for alias in connections if router.allow_migrate_model(alias, model)]
    fix = f"Give --database {others[0]}" if others else "They keep it out of every database"
    where = " or ".join(map(repr, selected))
    return f"{model._meta.label} is not in the database {where}, by DATABASE_ROUTERS. {fix}."


def _named(by_name: Mapping[str, Model], names: Sequence[str]) -> set[Model]:
    """Return the models of these names; one with a rule needs its root among them, and is ignored.

    Raises:
        CommandError: A name is unknown.
    """
    named = {by_name[name.lower()] for name in names if name.lower() in by_name}
    for name in names:
        if name.lower() not in by_name and not any(_is_below(root, name.lower()) for root in named):
            raise CommandError(_unknown(by_name.values(), name), returncode=Status.USAGE)
    return named


def _is_below(root: Model, name: str) -> bool:
    return any(name in _names_of(rule.model) for rule in all_rules_below(root))


def _unknown(models: Iterable[Model], name: str) -> str:
    for root in models:
        if _is_below(root, name.lower()):
            parent = root._meta.label
            return (
                f"The rows of {name!r} follow those of {parent} and are deleted with them. Give "
                f"{parent} instead."
            )
    labels = ", ".join(sorted({model._meta.label for model in models})) or "none"
    return f"{name!r} is not a model with a policy; these are: {labels}."
