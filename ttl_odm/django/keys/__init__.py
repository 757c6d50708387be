"""The keys of expired rows are free: writes that take them delete the rows that hold them.

- `writes`: INSERT and UPDATE, and what they do where a key is taken
- `trials`: whether a table lets an INSERT be tried, and what then stands behind its VALUES
- `conversions`: what the database stores for a value, where that is another one
- `conditions`: which rows may hold the keys that a write takes
"""
