"""What ttl_odm costs, as ratios that are measured side by side. See README.md.

Nothing is imported here: one of the processes that are measured must never see ttl_odm.
"""
