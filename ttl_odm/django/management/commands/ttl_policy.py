"""``manage.py ttl_policy``: show and change defaults that the database stores."""

from __future__ import annotations

import json
import shlex
import sys
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.management import CommandError
from django.db import router

from ttl_odm.core.policy import TTL
from ttl_odm.django.management.options import TTLCommand, add_database, add_option, model_named
from ttl_odm.django.purge.errors import store_errors
from ttl_odm.errors import TTLError
from ttl_odm.stored.approval import (
    ITS_TOKEN,
    NOTHING,
    TYPE_IT,
    UNCHANGED,
    change_lines,
    parse_stored,
    plain,
    stored_lines,
)
from ttl_odm.stored.django.lookup import APP
from ttl_odm.stored.django.source import stored_bindings
from ttl_odm.sweeper import StoreError
from ttl_odm.sweeper.command_line import Status, terminal_width, user_name
from ttl_odm.sweeper.text import aligned, visible, without_controls

if TYPE_CHECKING:
    from argparse import ArgumentParser
    from collections.abc import Sequence

    from ttl_odm.django.policy.bindings import Model


class Command(TTLCommand):
    """Show and change stored defaults."""

    help = "Show and change default ttls stored in the database (Stored)."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the actions and their options."""
        actions = parser.add_subparsers(dest="action", required=True)
        shown = {
            "show": "Show the stored defaults of all models, or of the given ones.",
            "history": "Show the changes of stored defaults, newest first.",
        }
        for name, text in shown.items():
            action = actions.add_parser(name, help=text, description=text)
            action.add_argument("models", metavar="app_label.Model", nargs="*")
            _add_common(action)
        text = (
            "Change a stored default: preview the effect, then apply the change once approved. "
            "TTL: seconds, or a duration such as 90d, 12h or 30m; -1 (rows never expire by "
            "default), or off. With FIELD=VALUE, such as tenant_id=42, it is the default of the "
            "rows with that value; TTL may then be the word default, which removes it. If the "
            "change would by then expire more rows than its preview showed, it is rejected."
        )
        change = actions.add_parser("set", help="Change a stored default.", description=text)
        change.add_argument("model", metavar="app_label.Model")
        change.add_argument("change", metavar="[FIELD=VALUE] TTL", nargs="+")
        change.add_argument(
            "--approve", metavar="TOKEN", help="Apply the change whose preview has this token."
        )
        change.add_argument(
            "--by", metavar="NAME", help="Who makes the change, for the history (default: you)."
        )
        change.add_argument("--reason", metavar="TEXT", help="The reason, for the history.")
        add_option(change, "deep", help="Count all rows, regardless of how many there are.")
        _add_common(change)

    def handle(self, **options: Any) -> None:
        """Carry out the action."""
        if not apps.is_installed(APP):
            message = f"add {APP!r}, which stores defaults, to INSTALLED_APPS."
            raise CommandError(message, returncode=Status.USAGE)
        try:
            with store_errors():
                if options["action"] == "set":
                    self._set(options)
                else:
                    self._show(options)
        except StoreError as error:
            message = f"{options['database']}: {visible(str(error))}"
            raise CommandError(message, returncode=Status.FAILED) from error
        except TTLError as error:
            raise CommandError(visible(str(error)), returncode=Status.USAGE) from error

    def _show(self, options: dict[str, Any]) -> None:
        from ttl_odm.stored.django.changes import policy_changes, stored_policies  # noqa: PLC0415

        models, using = [_model(name) for name in options["models"]], options["database"]
        models = models or [
            binding.model
            for binding in stored_bindings()
            if router.allow_migrate_model(using, binding.model)
        ]
        is_history = options["action"] == "history"
        rows: Sequence[Any] = ()
        if models:
            read: Any = policy_changes if is_history else stored_policies
            rows = read(*models, using=using)
        if options["as_json"]:
            self.stdout.write(json.dumps([plain(row) for row in rows], default=str))
            return
        lines = change_lines(rows) if is_history else stored_lines(rows)
        text = aligned(lines) if rows else NOTHING
        self.stdout.write(without_controls(text))

    def _set(self, options: dict[str, Any]) -> None:
        from ttl_odm.stored.django.previews import approve_policy, preview_policy  # noqa: PLC0415

        *named, text = options["change"]
        if len(named) > 1:
            message = f"{shlex.join(options['change'])}: give [FIELD=VALUE] TTL."
            raise CommandError(message, returncode=Status.USAGE)
        ttl = parse_stored(text, where=f"TTL {text!r}")
        model = _model(options["model"])
        target: dict[str, Any] = {"scope": _value(model, named), "using": options["database"]}
        user, token = options["by"], options["approve"]
        if token is None:
            preview = preview_policy(model, ttl, deep=bool(options["deep"]), **target)
            if options["as_json"]:
                self.stdout.write(json.dumps(preview.to_dict()))
                return
            paragraphs = preview.paragraphs(terminal_width(self.stdout), " --deep counts all.")
            self.stdout.write(without_controls("\n".join(map(str, paragraphs))))
            if not (sys.stdin.isatty() and sys.stdout.isatty()):
                self.stdout.write(
                    f"{UNCHANGED} To make the change, add:\n--approve {preview.token}"
                )
                return
            user = user or user_name()
            self.stdout.write(f"{ITS_TOKEN} {preview.token}")
            self.stdout.flush()
            try:
                token = input(f"{TYPE_IT}: ").strip()
            except (EOFError, KeyboardInterrupt):
                self.stdout.write("")
                raise CommandError(UNCHANGED) from None
            if token != preview.token:
                raise CommandError(f"That is not the token. {UNCHANGED}")
        user = user or user_name()
        approve_policy(model, ttl, token=token, by=user, reason=options["reason"], **target)
        change = {"model": options["model"], "ttl": ttl, "by": user, "reason": options["reason"]}
        message = f"Changed: {options['model']} {' '.join(options['change'])}."
        self.stdout.write(json.dumps(change) if options["as_json"] else message)


def _add_common(parser: ArgumentParser) -> None:
    add_database(parser)
    add_option(parser, "json", dest="as_json")


def _model(name: str) -> Model:
    models = [binding.model for binding in stored_bindings()]
    model = model_named(models, name)
    if model is not None:
        return model
    labels = ", ".join(sorted(model._meta.label for model in models)) or "none"
    message = f"{name!r} is not a model whose default is stored; these are: {labels}."
    raise CommandError(message, returncode=Status.USAGE)


def _value(model: Model, named: Sequence[str]) -> str | None:
    """Return the scope of ``FIELD=VALUE``; None if there is no such argument."""
    if not named:
        return None
    policy = next(binding.policy for binding in stored_bindings() if binding.model is model)
    by = policy.stored.by if isinstance(policy, TTL) and policy.stored is not None else None
    field, is_given, value = named[0].partition("=")
    if not is_given or field != by:
        fix = f"give {by}=VALUE" if by else "its rows have one default, so give TTL alone"
        raise CommandError(f"{named[0]!r}: {fix}.", returncode=Status.USAGE)
    return value
