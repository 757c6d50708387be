"""Flask: ``flask ttl ...``, and a sweeper in the background of those processes that serve requests.

A thread does not survive a fork, and an application is made by many processes that serve nobody: a
server that loads it before it forks, ``flask shell``, migrations, the parent of the reloader. So
the thread starts with the first request of a process, or where a server's own hook calls
`AppTTL.start`. It is safe in any number of processes: one holds the lease, the others stand by.

- `extension`: `TTL`, with which an application is set up;
- `commands`: ``flask ttl sweep | run | status | check | pause | resume | plan``;
- `policies`: stored defaults as JSON, a blueprint that is imported by itself;
- `sweepers`: `AppTTL`: which databases an application has, and a thread for each.

This package must not know any other integration.
"""

from ttl_odm.integrations.flask.extension import TTL
from ttl_odm.integrations.flask.sweepers import AppTTL, FlaskSQLAlchemy

__all__ = ["TTL", "AppTTL", "FlaskSQLAlchemy"]
