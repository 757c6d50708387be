"""Tables that are partitioned by time, whose partitions are dropped whole: `Partitions`.

An extension. So far it holds what has no adapter; SQLAlchemy's part is still in that adapter's
rooms, which import these modules.

- `facts`: what reports say of a table's partitions, and the part of a sweep that handles them.
"""
