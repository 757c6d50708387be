"""Private database servers for tests: found, started, made ready, stopped, forgotten.

Nothing here imports anything but the standard library, so it runs before any virtual environment
exists. Nothing here is shipped with `ttl_odm`, and nothing here knows `ttl_odm`.
"""
