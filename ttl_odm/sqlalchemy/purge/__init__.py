"""Removing rows inside a transaction.

- `removal`: removing expired rows as their model declares it, and reporting them to its hooks.
- `archive`: copying expired rows to another table, in the transaction that deletes them.
- `ties`: removing rows together that refer to one another.
- `statements`: the sweepers' own statements, and the conditions that pick rows by their keys.
- `errors`: what SQLAlchemy's errors say of a database; `ExpiredError`.
"""
