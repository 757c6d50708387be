"""Stored defaults as JSON, and as a page, for an application's operators: a blueprint.

The extension for stored defaults has it, and this module is the name that applications import.
"""

from ttl_odm.stored.flask.policies import policies

__all__ = ["policies"]
