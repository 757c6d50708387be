"""``manage.py ttl_pause``: keep all sweepers, in any process, from beginning another batch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management import CommandError

from ttl_odm.django.management.options import (
    TTLCommand,
    add_databases,
    add_option,
    aliases,
    program,
)
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.options import LEASE_NAME
from ttl_odm.sweeper.snapshot import paused_text
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(TTLCommand):
    """Pause the sweepers of a lease."""

    help = (
        "Stop all sweepers after their current batch, until ttl_resume. Applies to every sweeper "
        "that shares the lease, in any process, and survives their restart. Expired rows stay "
        "hidden meanwhile."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        add_databases(parser)
        add_option(parser, "lease_name", default=LEASE_NAME)

    def handle(self, **options: Any) -> None:
        """Pause the sweepers of one database after the other."""
        for alias in aliases(options):
            try:
                sweeper = Sweeper(DjangoStore(alias, []), lease_name=options["lease_name"])
                sweeper.pause()
                state = sweeper.status()
            except TTLError as error:
                raise CommandError(f"{alias}: {visible(str(error))}") from error
            self.stdout.write(f"{alias}: {paused_text(state, program(alias, options))}")
