"""A project of Django's with django-oauth-toolkit, for `ttl-odm inspect --models`."""

SECRET_KEY = "tests"
USE_TZ = True
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
INSTALLED_APPS = ["django.contrib.auth", "django.contrib.contenttypes", "oauth2_provider"]
