"""Stored defaults for the operators of a Flask application.

- `policies`: the blueprint, and its JSON;
- `policies_page`: the same as a page;
- `stored_defaults`: what both read and change.

Applications import it as `ttl_odm.integrations.flask.policies`.
"""
