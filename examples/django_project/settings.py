"""Settings of the example; what is not Django's own is the first app and the policies."""

from __future__ import annotations

import os
from pathlib import Path

from ttl_odm import ExpireAt

HERE = Path(__file__).parent

INSTALLED_APPS = [
    "ttl_odm.django",
    "pastes",
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.messages",
    "django.contrib.sessions",
    "django.contrib.staticfiles",
]

# Django's own session rows end when they say so: hidden at once, swept like the pastes.
TTL_ODM_POLICIES = {"sessions.Session": ExpireAt("expire_date")}

DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("PASTES_DATABASE", HERE / "pastes.sqlite3"),
        # Writers queue up instead of failing.
        "OPTIONS": {"transaction_mode": "IMMEDIATE"},
    }
}

DEBUG = True
SECRET_KEY = "an example has no secrets"  # noqa: S105 (as it says)
ALLOWED_HOSTS = ["127.0.0.1", "localhost", "testserver"]
ROOT_URLCONF = "urls"
STATIC_URL = "static/"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
USE_TZ = True
TIME_ZONE = "UTC"
MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
TEMPLATES = [
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
]
