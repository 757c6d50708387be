"""``manage.py ttl_plan``: which rows expire when, and what another policy would change."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.core.management import CommandError

from ttl_odm.django.management.options import TTLCommand, add_database, add_option, model_named
from ttl_odm.django.policy.bindings import binding_of, bindings
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.forecast import Forecast, planned_policy
from ttl_odm.forecast.django import measure
from ttl_odm.forecast.parser import HELP, OPTION, POLICY_HELP, POLICY_OPTION
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.sweeper import StoreError
from ttl_odm.sweeper.command_line import Status, terminal_width
from ttl_odm.sweeper.text import visible, without_controls

if TYPE_CHECKING:
    from argparse import ArgumentParser

    from ttl_odm.django.policy.bindings import Model


class Command(TTLCommand):
    """Forecast which rows of a model expire."""

    help = (
        "Forecast which rows of a model expire in the next 30 days. With --default-ttl or "
        "--policy it also shows the effect of that change: which rows would expire at once, and "
        "which expired rows would become visible again. It changes nothing. Tables of more than "
        "100,000 rows are sampled, and the sampling error (95 %%) is shown."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        parser.add_argument(
            "model",
            metavar="app_label.Model",
            help="A model with a policy, or its table; with --policy, any model.",
        )
        add_database(parser)
        parser.add_argument(OPTION, dest="default_ttl", metavar="SECONDS", help=HELP)
        parser.add_argument(POLICY_OPTION, dest="policy", metavar="POLICY", help=POLICY_HELP)
        add_option(parser, "deep", help="Count all rows, regardless of how many there are.")
        add_option(parser, "json", dest="as_json")

    def handle(self, **options: Any) -> None:
        """Count, and print."""
        model, alias = _model(options["model"]), options["database"]
        binding = binding_of(model)
        current = None if binding is None else binding.policy
        most = math.inf if options["deep"] else SMALL
        try:
            planned = planned_policy(
                model._meta.label, current, options["default_ttl"], options["policy"]
            )
            measured = measure(model, planned, alias, most)
        except (InvalidTTL, TTLConfigurationError) as error:
            raise CommandError(str(error), returncode=Status.USAGE) from error
        except StoreError as error:
            raise CommandError(f"{alias}: {visible(str(error))}") from error
        meta = model._meta if binding is None else binding.model._meta
        forecast = Forecast(meta.db_table, meta.label, current, planned, measured)
        if options["as_json"]:
            self.stdout.write(json.dumps({"database": alias, **forecast.to_dict()}))
            return
        paragraphs = forecast.paragraphs(terminal_width(self.stdout), " --deep counts all.")
        self.stdout.write(without_controls("\n".join(map(str, paragraphs))))


def _model(name: str) -> Model:
    model = model_named(apps.get_models(include_auto_created=True), name)
    if model is not None:
        return model
    labels = ", ".join(sorted(binding.model._meta.label for binding in bindings())) or "none"
    message = f"there is no model {name!r}; those with a policy are: {labels}."
    raise CommandError(message, returncode=Status.USAGE)
