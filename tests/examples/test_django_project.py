"""The Django example, through its pages and its commands, as somebody would run it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

MANAGE = Path(__file__).parents[2] / "examples" / "django_project" / "manage.py"

PAGES = """
from django.test import Client
from pastes.models import Comment, Paste
from ttl_odm.django import include_expired, only_expired
from ttl_odm.testing import TTLClock

# As if the demo had just begun: one of its pastes lives for a minute.
clock = TTLClock().__enter__()
clock.freeze(include_expired(Paste.objects).get(slug="gone").expires_at)

page = Client()
told = page.get("/").content.decode()
assert "welcome" in told and "never" in told and "minute" in told, told
assert "gone" not in told
assert page.get("/p/gone/").status_code == 404
before = Paste.objects.get(slug="default").last_modified
assert b"an hour" in page.get("/p/default/").content
paste = Paste.objects.get(slug="default")
assert (paste.views, paste.last_modified) == (1, before)

# The name of an expired paste is free, that of a live one is not.
made = page.post("/", {"slug": "gone", "text": "again", "ttl": "86400"}, follow=True)
assert b"again" in made.content, made.content
taken = page.post("/", {"slug": "gone", "text": "once more", "ttl": ""})
assert b"already exists" in taken.content, taken.content

# It can be kept, as long as it is there.
assert page.post("/p/default/keep/").status_code == 302
assert Paste.objects.get(slug="default").last_modified > before
assert page.post("/p/nothing/keep/").status_code == 404
assert page.get("/p/default/keep/").status_code == 405

# An hour later, for one of them.
paste.expire_in(0)
paste.save()
assert page.get("/p/default/").status_code == 404
assert only_expired(Paste.objects).count() == 1

page.login(username="admin", password="admin")
shown = page.get("/admin/pastes/paste/").content.decode()
assert "welcome" in shown and ">default<" not in shown
assert ">default<" in page.get("/admin/pastes/paste/?ttl=expired").content.decode()
assert "welcome" in page.get("/admin/pastes/paste/?ttl=all").content.decode()
assert b'name="_save"' not in page.get(f"/admin/pastes/paste/{paste.pk}/change/").content
live = Paste.objects.get(slug="welcome")
change = f"/admin/pastes/paste/{live.pk}/change/"
assert b"Expires" in page.get(change).content
wrong = page.post(change, {"slug": "welcome", "text": "x", "ttl": "0"})
assert b"whole seconds" in wrong.content
assert page.post(change, {"slug": "welcome", "text": "x", "ttl": "5"}).status_code == 302
assert b"(expired)" in page.get("/admin/pastes/comment/").content
removed = page.post(f"/admin/pastes/paste/{live.pk}/delete/", {"post": "yes"})
assert removed.status_code == 302
assert not Paste.objects.filter(slug="welcome").exists()
assert Comment.objects.filter(paste__slug="welcome").count() == 0

# By the real time that minute may be over, or may not.
Paste.objects.filter(slug="minute").update(ttl=-1)
"""


@pytest.fixture
def manage(tmp_path: Path) -> Callable[..., str]:
    """A function that runs manage.py on a database of its own, and returns what it prints."""
    environment = {**os.environ, "PASTES_DATABASE": str(tmp_path / "pastes.sqlite3")}

    def run(*arguments: str, status: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-W", "error", str(MANAGE), *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == status, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.slow
def test_the_pages_and_the_commands(manage: Callable[..., str]) -> None:
    assert "http://127.0.0.1:8000/" in manage("demo", "--no-server")
    manage("shell", "--verbosity", "0", "-c", PAGES)
    (status,) = (json.loads(line) for line in manage("ttl_status", "--json").splitlines())
    due = {target["target"]: target["expired"] for target in status["targets"]}
    assert due == {"pastes_paste": 1, "django_session": 0}
    report = json.loads(manage("ttl_sweep", "--json"))
    assert (report["deleted"], report["error"]) == (1, None)
    manage("ttl_sweep", "--model", "pastes.Comment", status=2)
    manage("ttl_sweep", "--bogus", status=2)


@pytest.mark.slow
def test_its_migrations_are_up_to_date(manage: Callable[..., str]) -> None:
    manage("makemigrations", "--check", "--dry-run")
    manage("check", "--fail-level", "WARNING")
