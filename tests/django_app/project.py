"""Django, set up once for all of these tests, and pointed at one database after the other.

PyMySQL stands in for mysqlclient, which needs a compiler, where that isn't installed; Django knows
no difference.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import django
import pymysql
from django.conf import settings
from django.core.management import call_command
from django.db import connections

import ttl_odm
from tests.backends import is_installed
from ttl_odm import ExpireAfter, ExpireAt

if TYPE_CHECKING:
    from tests.backends import Backend

_PACKAGE = Path(ttl_odm.__file__).parent
_ENGINES = {"sqlite": "sqlite3", "postgres": "postgresql", "mariadb": "mysql", "mysql": "mysql"}

REFRESH_TOKENS: Final = 86_400
"""Seconds for which django-oauth-toolkit's refresh tokens outlive their access tokens."""


def set_up() -> None:
    """Configure Django, unless that has been done."""
    if settings.configured:
        return
    if not is_installed("mysqlclient"):
        pymysql.version_info = (2, 2, 7, "final", 0)  # what Django asks of mysqlclient
        pymysql.install_as_MySQLdb()
    settings.configure(
        USE_TZ=True,
        SECRET_KEY="tests",
        ROOT_URLCONF="tests.django_app.urls",
        ALLOWED_HOSTS=["*"],
        DATABASES={
            "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
            "other": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"},
        },
        DEFAULT_AUTO_FIELD="django.db.models.BigAutoField",
        INSTALLED_APPS=[
            "ttl_odm.integrations.django",
            *_apps_of_extensions(),
            "django.contrib.admin",
            "django.contrib.auth",
            "django.contrib.contenttypes",
            "django.contrib.messages",
            "django.contrib.sessions",
            "oauth2_provider",
            "tests.django_app.shop",
            "tests.django_app.family",
        ],
        MIDDLEWARE=[
            "django.contrib.sessions.middleware.SessionMiddleware",
            "django.contrib.auth.middleware.AuthenticationMiddleware",
            "django.contrib.messages.middleware.MessageMiddleware",
        ],
        TEMPLATES=[
            {
                "BACKEND": "django.template.backends.django.DjangoTemplates",
                "APP_DIRS": True,
                "OPTIONS": {
                    "context_processors": [
                        "django.template.context_processors.request",
                        "django.contrib.auth.context_processors.auth",
                        "django.contrib.messages.context_processors.messages",
                    ]
                },
            }
        ],
        # Tables at once, without a history; test_migrations.py has migrations of its own.
        MIGRATION_MODULES=dict.fromkeys(
            ["admin", "auth", "contenttypes", "sessions", "oauth2_provider", "shop", "family"]
        ),
        TTL_ODM_POLICIES={
            "sessions.Session": ExpireAt("expire_date"),
            "oauth2_provider.AccessToken": ExpireAfter("expires", REFRESH_TOKENS),
        },
        OAUTH2_PROVIDER={"REFRESH_TOKEN_EXPIRE_SECONDS": REFRESH_TOKENS},
    )
    django.setup()


def _apps_of_extensions() -> list[str]:
    """Those of extensions that are there: see tools/suite/without.py."""
    apps = {"stored": "ttl_odm.django.policies", "events": "ttl_odm.events.django"}
    return [app for extension, app in apps.items() if (_PACKAGE / extension).is_dir()]


def database_settings(backend: Backend) -> dict[str, Any]:
    """Django's settings for a database."""
    assert backend.sync_url is not None
    address = urlsplit(backend.sync_url)
    name = address.path[1:]
    # Nothing here has to outlive a power cut, and PyMySQL would read all certificates each time.
    mysql = {} if is_installed("mysqlclient") else {"ssl_disabled": True}
    options = {
        "sqlite": {"init_command": "PRAGMA synchronous = OFF"},
        "postgres": {},
        "mariadb": mysql,
        "mysql": mysql,
    }
    return {
        "ENGINE": f"django.db.backends.{_ENGINES[backend.database]}",
        "NAME": name,
        "HOST": address.hostname or "",
        "PORT": str(address.port or ""),
        "USER": address.username or "",
        "PASSWORD": address.password or "",
        "OPTIONS": options[backend.database],
    }


def point_at(alias: str, given: dict[str, Any]) -> None:
    """Let an alias mean a database, in every thread from now on."""
    connections[alias].close()
    databases = {**connections.settings, alias: dict(given)}
    connections.settings = connections.configure_settings(databases)
    del connections[alias]


def migrate(alias: str = "default") -> None:
    """Make all tables."""
    call_command("migrate", database=alias, verbosity=0, interactive=False, run_syncdb=True)
