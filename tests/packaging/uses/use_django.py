"""A project with the app: migrations, system checks and a sweep."""

import pkgutil
from importlib import import_module

import django
from django.conf import settings
from django.core.management import call_command

settings.configure(
    INSTALLED_APPS=["ttl_odm.integrations.django", "ttl_odm.django.policies"],
    DATABASES={"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": "django.sqlite3"}},
    USE_TZ=True,
)
django.setup()
call_command("migrate", verbosity=0)
call_command("makemigrations", "--check", "--dry-run", verbosity=0)
call_command("check", "--fail-level", "WARNING")
call_command("ttl_sweep")

package = import_module("ttl_odm.django")
for module in pkgutil.walk_packages(package.__path__, "ttl_odm.django."):
    if not module.name.endswith(".admin"):  # needs Django's own app for the admin
        import_module(module.name)
assert package.TTLModel._meta.abstract
