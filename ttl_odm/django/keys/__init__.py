"""The keys of expired rows are free: a write that takes one deletes the row that holds it.

- `writes`: INSERT and UPDATE, and what they do if a key is taken
- `conversions`: what a column stores for a value, where that differs from the value
- `conditions`: which rows may conflict with a write
"""
