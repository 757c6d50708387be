"""Draw what an operator sees: `.venv/bin/python tools/pictures.py`.

The pictures are in docs/_static: how a stored default is changed at a prompt, in Django's admin
and on Flask's page; a sweep in a terminal; the page that `plan --html` writes; and the dashboard
of deploy/, which dashboard.py draws. The programs are real; a pseudo-terminal and a browser show
them. A picture of pages has them in light and dark colors, and chooses by itself, like those of
`ttl_odm.cli.output`. tests/docs/test_pictures.py draws them again and compares the words, which a
picture of pages has in its `<desc>`.
"""

from __future__ import annotations

import base64
import html
import os
import re
import shlex
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from io import BytesIO, StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.request import urlopen

from PIL import Image
from rich.console import Console
from rich.text import Text

from programs import BROWSER, PROMTOOL

ROOT: Final = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.browsers import launched  # noqa: E402 (after the path, as what follows)
from tests.guard import GUARD  # noqa: E402
from tests.terminals import at_a_terminal  # noqa: E402
from ttl_odm.cli.output import picture  # noqa: E402

from dashboard import dashboard  # isort: skip # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from playwright.sync_api import Browser, Page

FOLDER: Final = ROOT / "docs" / "_static"
MODES: Final = ("light", "dark")
COLUMNS: Final = 80
SCALE: Final = 2
COLORS: Final = 24
"""Of a screenshot, so that its file is small."""

LAPTOP: Final = 720
PHONE: Final = 390
"""Widths of the two drawings of one page, in CSS pixels."""

GAP: Final = 16
"""CSS pixels between two pages of a picture."""

_FIXED_WIDTH: Final = 'pre, code { font-family: "DejaVu Sans Mono", monospace !important }'
"""The browser may have no font of this kind by its generic name."""

REASON: Final = "the audit of May"

NOW: Final = "CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)"

# Carts of up to two weeks, a fifth of them older than one. No age is close to the end of an hour,
# so that the numbers are the same on the slowest machine.
AGES: Final = "[int(336 * (n / 10_000) ** 3) * 3600 + 1800 for n in range(10_000)]"

SHOP: Final = """\
from flask import Flask
from sqlalchemy import create_engine, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm import Stored
from ttl_odm.integrations.flask.policies import policies
from ttl_odm.sqlalchemy import TTLMixin

DAY = 86_400
engine = create_engine("sqlite:///shop.sqlite3")


class Base(DeclarativeBase):
    pass


class Cart(TTLMixin, Base):
    __tablename__ = "carts"
    __ttl__ = Stored(14 * DAY, least=DAY)

    id: Mapped[int] = mapped_column(primary_key=True)


def application():
    return engine, Base


def create_app():
    app = Flask("shop")
    app.secret_key = "a secret of nobody's"
    blueprint = policies(engine, [Cart], allowed=lambda: True, who=lambda: "ann", page=True)
    app.register_blueprint(blueprint, url_prefix="/operators/ttl")
    return app


def fill():
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO carts (_ts) VALUES (NOW - :age * 1000)"),
            [{"age": age} for age in AGES],
        )
"""
SETTINGS: Final = '[tool.ttl_odm]\napp = "shop:application"\n'

PROJECT: Final = {
    "project/__init__.py": "",
    "project/formats/__init__.py": "",
    "project/formats/en/__init__.py": "",
    "project/formats/en/formats.py": 'DATETIME_FORMAT = "Y-m-d H:i"',
    "store/__init__.py": "",
    "store/models.py": """\
from ttl_odm import Stored
from ttl_odm.django import TTLModel


class Cart(TTLModel):
    __ttl__ = Stored(14 * 86_400, least=86_400)

    class Meta:
        db_table = "carts"
""",
    "store/admin.py": """\
from django.contrib import admin

from store.models import Cart
from ttl_odm.django.admin import ExpiryFilter, TTLAdminMixin


@admin.register(Cart)
class CartAdmin(TTLAdminMixin, admin.ModelAdmin):
    list_display = ("id", "expires")
    list_filter = (ExpiryFilter,)
    list_per_page = 6
""",
    "project/settings.py": """\
INSTALLED_APPS = [
    "ttl_odm.django", "ttl_odm.django.policies", "store", "django.contrib.admin",
    "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.messages",
    "django.contrib.sessions", "django.contrib.staticfiles",
]
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.sqlite3"}}
DEBUG, SECRET_KEY, ALLOWED_HOSTS = True, "a secret of nobody's", ["127.0.0.1"]
ROOT_URLCONF, STATIC_URL = "project.urls", "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ, TIME_ZONE, FORMAT_MODULE_PATH = True, "UTC", "project.formats"
MIDDLEWARE = [
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [{
    "BACKEND": "django.template.backends.django.DjangoTemplates",
    "APP_DIRS": True,
    "OPTIONS": {"context_processors": [
        "django.template.context_processors.request",
        "django.contrib.auth.context_processors.auth",
        "django.contrib.messages.context_processors.messages",
    ]},
}]
""",
    "project/urls.py": """\
from django.contrib import admin
from django.urls import path

urlpatterns = [path("admin/", admin.site.urls)]
""",
    "fill.py": """\
import django

django.setup()
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection

call_command("migrate", verbosity=0, run_syncdb=True)
User.objects.create_superuser("ann", password="ann")
with connection.cursor() as cursor:
    cursor.executemany(
        "INSERT INTO carts (_ts) VALUES (NOW - %s * 1000)", [(age,) for age in AGES]
    )
""",
}


class Shot(NamedTuple):
    """A page of a walk: its pictures by their modes, and its text."""

    images: dict[str, bytes]
    text: str


# --- in a terminal


def terminal() -> dict[str, str]:
    """Draw how a default is changed at a prompt, and then a sweep of what that expires."""
    change = f"ttl-odm policy set Cart 7d --by ann --reason '{REASON}'"
    with _shop() as folder, _inside(folder):
        return {
            "policy-prompt.svg": _session("ttl-odm policy", change, "ttl-odm policy history"),
            "sweep.svg": _session(
                "ttl-odm sweep", "ttl-odm status", "ttl-odm sweep", "ttl-odm status"
            ),
        }


def _session(title: str, *lines: str) -> str:
    """Draw commands, and what the terminal shows after each."""
    screen = "".join(f"$ {line}\n{_typed(line)}" for line in lines)
    console = Console(
        record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor"
    )
    console.print(Text.from_ansi(screen.rstrip()), soft_wrap=True)
    return picture(console, title)


def _typed(line: str) -> str:
    """Run a command of the shop, confirm what it asks, and return what is left on the screen."""
    environment = {
        **_environment(),
        "TERM": "xterm",  # 16 colors, which the picture has for light and for dark
        "COLUMNS": str(COLUMNS),
        "PYTHONPATH": f"{Path.cwd()}{os.pathsep}{ROOT}",
    }
    status, screen = at_a_terminal(
        [sys.executable, "-m", "ttl_odm.cli", "--config", "pyproject.toml", *shlex.split(line)[1:]],
        environment,
        r"type its token: |\[y/N\]: ",
        _confirmation,
    )
    if status:
        sys.exit(screen)
    # A bar is drawn over and over in one line, with the cursor hidden.
    drawn_over = re.compile(r"^.*\r\x1b\[2K|\x1b\[\?25[lh]", re.MULTILINE)
    return drawn_over.sub("", screen)


def _confirmation(screen: str) -> str:
    tokens = re.findall(r"The token of this change: (\S+)", screen)
    return f"{tokens[0]}\n" if tokens else "y\n"


# --- in a browser


def plan_page(browser: Browser) -> str:
    """Draw the page that a forecast writes, on a laptop and on a phone."""
    with _shop() as folder:
        words = ["plan", "Cart", "--default-ttl", "7d", "--html", "plan.html"]
        command = [sys.executable, "-m", "ttl_odm.cli", "--config", "pyproject.toml", *words]
        _run(command, folder, stdout=subprocess.DEVNULL)

        def walk(page: Page) -> Iterator[None]:
            page.goto((folder / "plan.html").as_uri())
            yield

        shots = [
            shot
            for width in (LAPTOP, PHONE)
            for shot in _walked(browser, walk, "body > :last-child", width=width)
        ]
        return _composed(shots, beside=True)


def flask_page(browser: Browser) -> str:
    """Draw how a default is changed on Flask's page: the preview, and what the page shows then."""
    with _shop() as folder:
        words = ["flask", "--app", "shop:create_app", "run", "--port"]
        with _serving(words, folder, "/operators/ttl/page/") as address:

            def walk(page: Page) -> Iterator[None]:
                page.goto(address)
                page.get_by_role("link", name="Change a stored default").click()
                page.get_by_label("Default ttl").fill("7d")
                page.get_by_label("Reason").fill(REASON)
                page.get_by_role("button", name="Show what it would do").click()
                page.get_by_role("heading", name="carts: 14d → 7d").wait_for()
                yield
                page.get_by_role("button", name="Make this change").click()
                page.get_by_role("status").wait_for()
                yield

            return _composed(_walked(browser, walk, "main", width=430), beside=True)


def django_admin(browser: Browser) -> str:
    """Draw the same in Django's admin."""
    with tempfile.TemporaryDirectory(prefix="ttl-odm-pictures-") as name:
        folder = Path(name)
        for file, source in PROJECT.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(_with_ages(source))
        _run([sys.executable, "fill.py"], folder)
        words = ["django", "runserver", "--noreload", "--verbosity", "0"]
        with _serving(words, folder, "/admin/login/") as address:

            def walk(page: Page) -> Iterator[None]:
                page.goto(address)
                page.get_by_label("Username").fill("ann")
                page.get_by_label("Password").fill("ann")
                page.get_by_role("button", name="Log in").click()
                page.get_by_role("link", name="Stored defaults and their changes").click()
                page.get_by_role("link", name="Change a stored default").click()
                page.get_by_label("Model").select_option("store.Cart")
                page.get_by_label("Default ttl").fill("7d")
                page.get_by_label("Reason").fill(REASON)
                page.get_by_role("button", name="Show what it would do").click()
                page.get_by_role("button", name="Make this change").wait_for()
                page.locator("#toggle-nav-sidebar").click()
                yield
                page.get_by_role("button", name="Make this change").click()
                page.get_by_text("The default was changed.").wait_for()
                yield
                page.get_by_role("link", name="Home", exact=True).click()
                page.get_by_role("link", name="Carts", exact=True).click()
                page.get_by_role("link", name="Expired, not purged yet").click()
                yield

            return _composed(
                _walked(browser, walk, ".submit-row, #changelist-filter", width=1030), beside=False
            )


def _walked(
    browser: Browser, walk: Callable[[Page], Iterator[None]], content: str, *, width: int
) -> list[Shot]:
    """Take a picture of the page at each stop of a walk, in each mode.

    Args:
        browser: The browser.
        walk: Yields at each stop.
        content: A selector of the element below which nothing is left to show.
        width: The window's, in CSS pixels.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, device_scale_factor=SCALE, bypass_csp=True
    )
    context.set_default_timeout(GUARD * 1000)
    shots = []
    try:
        page = context.new_page()
        for _ in walk(page):
            page.wait_for_load_state()
            page.add_style_tag(content=_FIXED_WIDTH)
            end = page.locator(content).evaluate("(box) => box.getBoundingClientRect().bottom")
            page.set_viewport_size({"width": width, "height": int(end) + GAP})
            images = {}
            for mode in MODES:
                page.emulate_media(color_scheme=mode, reduced_motion="reduce")
                images[mode] = page.screenshot(animations="disabled")
            shots.append(Shot(images, page.inner_text("body")))
    finally:
        context.close()
    return shots


def _composed(shots: Sequence[Shot], *, beside: bool) -> str:
    """Return the shots as one picture, beside or below each other."""
    sizes = [_size(shot.images[MODES[0]]) for shot in shots]
    places, at = [], 0
    for width, height in sizes:
        places.append((at, 0) if beside else (0, at))
        at += (width if beside else height) + GAP
    widest, highest = (max(size) for size in zip(*sizes, strict=True))
    total = (at - GAP, highest) if beside else (widest, at - GAP)
    groups = []
    for mode in MODES:
        drawn = []
        for shot, (x, y), (width, height) in zip(shots, places, sizes, strict=True):
            source = base64.b64encode(_small(shot.images[mode])).decode()
            drawn.append(
                f'<image x="{x}" y="{y}" width="{width}" height="{height}" '
                f'href="data:image/png;base64,{source}"/>'
                f'<rect class="frame" x="{x + 0.5}" y="{y + 0.5}" width="{width - 1}" '
                f'height="{height - 1}"/>'
            )
        groups.append(f'<g class="{mode}">{"".join(drawn)}</g>')
    said = html.escape("\n\n".join(shot.text for shot in shots))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {total[0]} {total[1]}" '
        f'width="{total[0]}" height="{total[1]}">\n<desc>{said}</desc>\n<style>\n'
        ".frame { fill: none; stroke: #8c959f }\n.dark { display: none }\n"
        "@media (prefers-color-scheme: dark) {\n"
        ".light { display: none }\n.dark { display: inline }\n}\n</style>\n"
        + "\n".join(groups)
        + "\n</svg>\n"
    )


def _size(png: bytes) -> tuple[int, int]:
    width, height = Image.open(BytesIO(png)).size
    return width // SCALE, height // SCALE


def _small(png: bytes) -> bytes:
    written = BytesIO()
    image = Image.open(BytesIO(png)).convert("RGB")
    image.quantize(COLORS, dither=Image.Dither.NONE).save(written, "PNG", optimize=True)
    return written.getvalue()


# --- programs


def _with_ages(source: str) -> str:
    return source.replace("AGES", AGES).replace("NOW", NOW)


@contextmanager
def _shop() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="ttl-odm-pictures-") as name:
        folder = Path(name)
        (folder / "shop.py").write_text(_with_ages(SHOP))
        (folder / "pyproject.toml").write_text(SETTINGS)
        _run([sys.executable, "-c", "import shop; shop.fill()"], folder)
        yield folder


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _environment() -> dict[str, str]:
    """Nothing of the developer's own settings."""
    own = ("TTL_ODM_", "FLASK_", "DJANGO_", "NO_COLOR", "FORCE_COLOR", "LINES")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(own)}
    return {**kept, "DJANGO_SETTINGS_MODULE": "project.settings", "TZ": "UTC"}


def _run(command: Sequence[str], folder: Path, stdout: int | None = None) -> None:
    environment = {**_environment(), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    subprocess.run(command, cwd=folder, env=environment, stdout=stdout, check=True)


@contextmanager
def _serving(words: Sequence[str], folder: Path, path: str) -> Iterator[str]:
    """Start a program's server on a free port; give the address of a page."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    environment = {**_environment(), "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", *words, str(port)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=log,
        )
    address = f"http://127.0.0.1:{port}{path}"
    try:
        while not _answers(address):
            if process.poll() is not None:
                sys.exit((folder / "server.log").read_text())
            time.sleep(0.1)
        yield address
    finally:
        process.terminate()
        process.wait(GUARD)


def _answers(address: str) -> bool:
    try:
        urlopen(address).close()  # noqa: S310 (ours)
    except OSError:
        return False
    return True


def drawn(browser_path: str) -> dict[str, str]:
    """Draw the pictures of commands and pages; return them by the names of their files."""
    with launched(browser_path) as browser:
        return {
            **terminal(),
            "plan.svg": plan_page(browser),
            "policy-admin.svg": django_admin(browser),
            "policy-flask.svg": flask_page(browser),
        }


def main() -> None:
    """Write the pictures."""
    sources = {**drawn(BROWSER.path()), "dashboard.svg": dashboard(PROMTOOL.path())}
    for name, source in sources.items():
        (FOLDER / name).write_text(source, encoding="utf-8")


if __name__ == "__main__":
    main()
