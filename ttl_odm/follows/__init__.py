"""Rows that live as long as the row that they follow: `Follows`.

An extension. So far it holds what has no adapter; the adapters' own parts are still in their rooms,
which import these modules.

- `reported`: what dry runs say of followers, and the part of a sweep that handles orphans.
"""
