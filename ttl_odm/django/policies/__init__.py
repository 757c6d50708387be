"""Defaults that the database stores, as an app of its own.

    INSTALLED_APPS = ["ttl_odm.django", "ttl_odm.django.policies", ...]

For models that are declared with `Stored`; other projects need neither the app nor its tables.

This package has what Django looks for under the app's name: migrations, templates, and modules that
re-export those of `ttl_odm.stored.django`.
"""
