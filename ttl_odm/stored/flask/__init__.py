"""Stored defaults for the operators of a Flask application.

- `policies`: the blueprint, which answers with JSON;
- `policies_page`: its HTML pages;
- `stored_defaults`: the defaults that both read and change.

Applications import it as `ttl_odm.integrations.flask.policies`.
"""
