"""A pytest plugin for django-oauth-toolkit's own tests: a project with ttl_odm, and a database.

The source distribution brings the tests, but not the modules that they share. What the chosen
tests need of these stands here, and so does what pytest-django would do for them. The environment
says whether access tokens have a policy (``TTL_ODM_POLICY=hour``) or not (``none``).
"""

from __future__ import annotations

import base64
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import django
import pytest
from django.conf import settings
from django.test import TestCase, override_settings
from django.test.utils import setup_databases, setup_test_environment
from jwcrypto import jwk

from ttl_odm import ExpireAfter

if TYPE_CHECKING:
    from collections.abc import Iterator

HOUR = 3_600
"""For which the tests' refresh tokens outlive their access tokens."""

settings.configure(
    USE_TZ=True,
    SECRET_KEY="tests",
    ALLOWED_HOSTS=["*"],
    ROOT_URLCONF="tests.urls",
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}},
    INSTALLED_APPS=[
        "ttl_odm.django",
        *(f"django.contrib.{app}" for app in ("auth", "contenttypes", "sessions", "messages")),
        "oauth2_provider",
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
            "OPTIONS": {"context_processors": ["django.contrib.auth.context_processors.auth"]},
        }
    ],
    MIGRATION_MODULES=dict.fromkeys(["auth", "contenttypes", "sessions", "oauth2_provider"]),
    PASSWORD_HASHERS=["django.contrib.auth.hashers.MD5PasswordHasher"],  # a fast one
    # The tests set what they need, and rely on these.
    PKCE_REQUIRED=False,
    CLEAR_EXPIRED_TOKENS_BATCH_SIZE=1,
    CLEAR_EXPIRED_TOKENS_BATCH_INTERVAL=0,
    TTL_ODM_POLICIES=(
        {"oauth2_provider.AccessToken": ExpireAfter("expires", HOUR)}
        if os.environ["TTL_ODM_POLICY"] == "hour"
        else {}
    ),
)
django.setup()

from django.urls import include, path  # noqa: E402 (Django is set up now)
from oauth2_provider.settings import oauth2_settings as provider  # noqa: E402


def _basic_auth_header(user: str, password: str) -> dict[str, str]:
    words = base64.b64encode(f"{user}:{password}".encode()).decode()
    return {"HTTP_AUTHORIZATION": f"Basic {words}"}


def _shared(name: str, **content: Any) -> None:
    """Let the tests find a module that they share."""
    module = ModuleType(f"tests.{name}")
    vars(module).update(content)
    sys.modules[module.__name__] = module


_KEY = jwk.JWK.generate(kty="RSA", size=2048).export_to_pem(private_key=True, password=None)
_shared("common_testing", OAuth2ProviderTestCase=TestCase)
_shared("models", CustomPkAccessToken=None, CustomPkRefreshToken=None)  # of tests not chosen
_shared("urls", urlpatterns=[path("o/", include("oauth2_provider.urls"))])
_shared("utils", get_basic_auth_header=_basic_auth_header)
_shared(
    "presets",
    ALLOWED_SCHEMES_DEFAULT={},
    ALLOWED_SCHEMES_HTTP={},
    DEFAULT_SCOPES_RO={"DEFAULT_SCOPES": ["read"]},
    DEFAULT_SCOPES_RW={"DEFAULT_SCOPES": ["read", "write"]},
    INTROSPECTION_SETTINGS={
        "SCOPES": dict.fromkeys(["read", "write", "introspection", "dolphin"], "a scope"),
        "RESOURCE_SERVER_INTROSPECTION_URL": "http://example.org/introspection",
        "READ_SCOPE": "read",
        "WRITE_SCOPE": "write",
    },
    OIDC_SETTINGS_RW={
        "OIDC_ENABLED": True,
        "OIDC_ISS_ENDPOINT": "http://localhost/o",
        "OIDC_RSA_PRIVATE_KEY": _KEY.decode(),
        "SCOPES": dict.fromkeys(["read", "write", "openid"], "a scope"),
        "DEFAULT_SCOPES": ["read", "write"],
        "PKCE_REQUIRED": False,
        "REFRESH_TOKEN_EXPIRE_SECONDS": HOUR,
    },
)


@pytest.fixture(scope="session", autouse=True)
def _database() -> None:
    setup_test_environment()
    setup_databases(verbosity=0, interactive=False)


@pytest.fixture
def oauth2_settings(request: pytest.FixtureRequest) -> Iterator[None]:
    """Give a test class the settings of its marker, which the test may change."""
    marker = request.node.get_closest_marker("oauth2_settings")
    with override_settings(OAUTH2_PROVIDER=marker.args[0] if marker else {}):
        provider.reload()
        test: Any = request.instance
        test.oauth2_settings = _Settings()
        test.oauth2_settings.ALWAYS_RELOAD_OAUTHLIB_CORE = True
        yield
    provider.reload()


class _Settings:
    """The package's settings, such that reloading them forgets what a test has set."""

    def __getattr__(self, name: str) -> Any:
        return getattr(provider, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(provider, name, value)
        provider._cached_attrs.add(name)
