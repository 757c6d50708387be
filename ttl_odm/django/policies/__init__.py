"""Defaults that the database stores, as an app of its own.

    INSTALLED_APPS = ["ttl_odm.django", "ttl_odm.django.policies", ...]

For models that are declared with `Stored`; who has none needs neither the app nor its tables.

- `models`: the two tables, which are those of `ttl_odm.sqlalchemy`
- `apps`: makes the rows that defaults begin with, after ``migrate``
- `changes`: reading and changing stored defaults
- `admin`: the same for people, by the application's own permissions
- `fields`: text of which all databases tell upper from lower case
"""
