"""Default ttls that a database stores, so that they change without a deployment: `Stored`.

An extension. So far it holds what has no adapter; the adapters' own parts are still in their rooms,
which import these modules.

- `scopes`: rows by those values of a field that have default ttls of their own, in reports.
- `scope_walk`: how a sweep goes from one of these values to the next.
"""
