"""What the sweeper does on MongoDB; `ttl_odm.beanie.store` puts it behind the sweeper's Protocols.

All of it goes past the gate, by database commands that PyMongo's asynchronous driver and Motor
share.
"""
