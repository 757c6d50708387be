"""What of SQLAlchemy has no public name, and what differs between its versions 2.0 and 2.1.

- `core`: statements, elements of them, types and engines; `SQLTemplate`, for SQL that
  SQLAlchemy has no words for.
- `batches`: INSERTs of several parameter sets.
- `orm`: what is replaced of the ORM; mappers, sessions, flushes and loads.

A gate inside SQLAlchemy can't do without internals. All of them are here, each under a name that
says what it is for, so that a release of SQLAlchemy which changes one is answered in one place.
(What a subclass overrides stays in the subclass: of the compiler, of the execution context, of
results, of elements of SQL.) What is asked whenever a statement runs is an `operator.attrgetter` or
a name for ``getattr()``: neither adds a call in Python.

This package must not know what a policy is, and imports nothing else of ours.
"""

from ttl_odm.sqlalchemy.compat.batches import *  # noqa: F403
from ttl_odm.sqlalchemy.compat.core import *  # noqa: F403 - one door for whatever is private
from ttl_odm.sqlalchemy.compat.orm import *  # noqa: F403
