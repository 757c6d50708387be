"""``manage.py ttl_status``: how much there is to sweep, which sweeper does it, the last sweep."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from ttl_odm.django.management.options import (
    NO_MODELS,
    TTLCommand,
    add_option,
    add_selection,
    labels,
    program,
    stores,
)
from ttl_odm.sweeper import StoreError, Sweeper
from ttl_odm.sweeper.command_line import Status, terminal_width
from ttl_odm.sweeper.options import LEASE_NAME
from ttl_odm.sweeper.snapshot import format_snapshot, look
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(TTLCommand):
    """Show each table's rows, and the lease."""

    help = (
        "Show live and expired rows, who holds the sweepers' lease, and the last sweep. Exit "
        "status: 0 done, 1 a database or a table didn't answer, 2 usage error."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        add_selection(parser)
        add_option(parser, "lease_name", default=LEASE_NAME)

    def handle(self, **options: Any) -> None:
        """Show one database after the other."""
        failed, selected = False, stores(options)
        if not selected:
            self.stderr.write(NO_MODELS)
        for alias, store in selected.items():
            sweeper = Sweeper(store, lease_name=options["lease_name"])
            try:
                snapshot = sweeper.carry_out(look(labels(store), sweeper.lease_name, alias))
            except StoreError as error:
                self.stderr.write(f"{alias}: {visible(str(error))}")
                failed = True
                continue
            failed = failed or snapshot.has_problems
            if options["as_json"]:
                self.stdout.write(json.dumps(snapshot.to_dict()))
            else:
                width = terminal_width(self.stdout)
                self.stdout.write(format_snapshot(snapshot, program(alias, options), width))
        if failed:
            raise SystemExit(Status.FAILED)
