"""SQLAlchemy's private names, and the differences between its versions 2.0 and 2.1.

- `core`: statements, their elements, types and engines; `SQLTemplate`, for SQL that SQLAlchemy
  can't express.
- `batches`: INSERTs of several parameter sets.
- `orm`: the functions of the ORM that are replaced; mappers, sessions, flushes and loads.

A gate inside SQLAlchemy can't do without internals. All of them are here, each under a name that
says what it is for, so that a release of SQLAlchemy which changes one is answered in one place.
(Methods that a subclass overrides stay in the subclass: of the compiler, the execution context,
results, SQL elements.) Whatever every statement needs at run time is an `operator.attrgetter` or
a name for ``getattr()``: neither adds a call in Python.

This package must not know what a policy is, and imports nothing else of ours.
"""

from ttl_odm.sqlalchemy.compat.batches import *  # noqa: F403
from ttl_odm.sqlalchemy.compat.core import *  # noqa: F403 (one door for all private names)
from ttl_odm.sqlalchemy.compat.orm import *  # noqa: F403
