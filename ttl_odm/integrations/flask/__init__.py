"""Flask: ``flask ttl ...``, and a background sweeper in the processes that serve requests.

A thread doesn't survive a fork, and many processes create the application without serving
requests: a server that loads it before forking, ``flask shell``, migrations, the reloader's
parent. So the thread starts with a process's first request, or when a server hook calls
`AppTTL.start`. It is safe in any number of processes: one holds the lease, the others stand by.

- `extension`: `TTL`, which sets up an application;
- `commands`: ``flask ttl sweep | run | status | check | pause | resume | plan``;
- `policy`: ``flask ttl policy``, which is imported when it is asked for;
- `databases`: the databases of the application that a command is for;
- `policies`: the blueprint of `ttl_odm.stored.flask`, which is imported by itself;
- `sweepers`: `AppTTL`: which databases an application has, and a thread for each.

This package must not know any other integration.
"""

from ttl_odm.integrations.flask.extension import TTL
from ttl_odm.integrations.flask.sweepers import AppTTL, FlaskSQLAlchemy

__all__ = ["TTL", "AppTTL", "FlaskSQLAlchemy"]
