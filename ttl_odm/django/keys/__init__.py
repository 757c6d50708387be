"""The keys of expired rows are free: writes that take them delete the rows that hold them.

- `writes`: INSERT and UPDATE, and what they do where a key is taken
- `conversions`: what a column stores for a value, where that differs from the value
- `conditions`: which rows may hold the keys that a write takes
"""
