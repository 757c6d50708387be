"""How a class gets its policy.

- `declaration`: what happens when a model is declared: its policy is put on its table, or refused.
- `mixin`: `TTLModel`: the two contract fields, and what one does with a row's lifetime.
- `operations`: `AddTTL`: the contract's fields and indexes on a large table that is in use.
"""
