"""``manage.py demo``: make everything that there is to see, and serve it."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.core.management import BaseCommand, call_command

from pastes.models import Comment, Paste


class Command(BaseCommand):
    """Make the database, some pastes and an administrator, and run the server."""

    help = __doc__

    def add_arguments(self, parser: Any) -> None:
        """Add the options."""
        parser.add_argument("--port", default="8000")
        parser.add_argument("--no-server", action="store_false", dest="serve")

    def handle(self, *, port: str, serve: bool, **_: Any) -> None:
        """Do it; may be run again."""
        call_command("migrate", verbosity=0)
        if not User.objects.filter(username="admin").exists():
            User.objects.create_superuser("admin", password="admin")  # noqa: S106 (an example's)
        for slug, text, ttl in (
            ("welcome", "This one stays.", -1),
            ("default", "This one lives for an hour after its last change.", None),
            ("minute", "This one is gone a minute after the demo began.", 60),
        ):
            paste, _made = Paste.objects.update_or_create(
                slug=slug, defaults={"text": text, "ttl": ttl}
            )
            Comment.objects.get_or_create(paste=paste, text="first!")
        # One that has expired, as if it had been written two hours ago: it is not there.
        gone = Paste.objects.create(slug="gone", text="Nobody sees this.")
        gone.expire_in(0)
        gone.save()
        self.stdout.write(f"http://127.0.0.1:{port}/ and /admin/ (admin, admin)")
        if serve:
            call_command("runserver", f"127.0.0.1:{port}", "--noreload")
