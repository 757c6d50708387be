"""The sweeper's SQL: finding expired rows, deleting them batch by batch, and the right to do so.

`ttl_odm.sqlalchemy.store` is the way in. Nothing of the gate depends on this package, except that
a write which displaces expired rows lets `removing` archive them and tell the model's hooks.
"""
