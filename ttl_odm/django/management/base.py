"""`TTLCommand`: the base class of the commands."""

from __future__ import annotations

from django.core.management import BaseCommand

from ttl_odm.sweeper.command_line import escape_unencodable


class TTLCommand(BaseCommand):
    """A command that runs without system checks, and prints names in any encoding."""

    requires_system_checks = ()  # ttl_check reports ttl_odm's own checks

    def run_from_argv(self, argv: list[str]) -> None:
        """Run from a command line."""
        escape_unencodable()
        super().run_from_argv(argv)
