"""A blueprint for operators, with stored defaults as JSON and as a page.

Applications import it from here. It belongs to the extension for stored defaults.
"""

from ttl_odm.stored.flask.policies import policies

__all__ = ["policies"]
