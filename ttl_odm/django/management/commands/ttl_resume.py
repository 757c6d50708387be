"""``manage.py ttl_resume``: let sweepers continue that ``ttl_pause`` has stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.core.management import CommandError

from ttl_odm.django.management.options import TTLCommand, add_databases, add_option, aliases
from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.errors import TTLError
from ttl_odm.sweeper import Sweeper
from ttl_odm.sweeper.options import LEASE_NAME
from ttl_odm.sweeper.snapshot import RESUMED
from ttl_odm.sweeper.text import visible

if TYPE_CHECKING:
    from argparse import ArgumentParser


class Command(TTLCommand):
    """Resume the sweepers of a lease."""

    help = "Resume the sweepers that ttl_pause has stopped."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the options."""
        add_databases(parser)
        add_option(parser, "lease_name", default=LEASE_NAME)

    def handle(self, **options: Any) -> None:
        """Resume the sweepers of one database after the other."""
        for alias in aliases(options):
            try:
                Sweeper(DjangoStore(alias, []), lease_name=options["lease_name"]).resume()
            except TTLError as error:
                raise CommandError(f"{alias}: {visible(str(error))}") from error
            self.stdout.write(f"{alias}: {RESUMED}")
