"""How a class gets its policy.

- `declaration`: puts the policy of each declared model on its table, or rejects it.
- `mixin`: `TTLModel`: the two contract fields, and methods for a row's lifetime.
- `operations`: `AddTTL`: adds the contract's fields and indexes to a large table in use.
"""
