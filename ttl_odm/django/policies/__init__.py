"""Defaults that the database stores, as an app of its own.

    INSTALLED_APPS = ["ttl_odm.django", "ttl_odm.django.policies", ...]

For models that are declared with `Stored`; who has none needs neither the app nor its tables.

Here is what Django looks for under the app's name: migrations, templates, and modules that show
what is in `ttl_odm.stored.django`.
"""
