"""The keys of expired rows are free.

The route of an INSERT over an expired key, through this room and the two around it: the compiler
(`GatedCompiler.visit_insert`) notes `InsertedKeys` as what frees the INSERT's keys, mostly inside a
`Trial`. `Trial.send` sends the INSERT. Where that meets a taken key, `InsertedKeys.prepare` finds
the keys in the parameters, and `KeyPurge` deletes the expired rows that hold them: by one DELETE
(`KeyPurge._run`), or by `KeyReclaimer.displace`, which sees to referring rows, and leaves archives
and hooks to `Removal`. Then `Trial.send` sends the INSERT again.

- `conversions`: what the database stores for a value, where that is another one.
- `defaults`: what the database makes of a key: defaults, generated columns.
- `displace`: deleting the expired rows that stand in the way of a write, in the write's
  transaction.
- `ignored`: rows that an INSERT leaves out for a conflict.
- `ruled`: the rows that may hold a key of a table with a rule.
- `table_keys`: the keys of a table, and which of them a row has.
- `taken`: which keys a write takes, and the statement that frees them of expired rows.
- `upserts`: the rows that an upsert meets, which its update half may move onto a key.
"""
