"""The keys of expired rows are free.

The route of an INSERT over an expired key, through this room and the two around it: the compiler
(`GatedCompiler.visit_insert`) sets `InsertedKeys` to free the INSERT's keys, mostly inside a
`Trial`. `Trial.send` sends the INSERT. If it meets a taken key, `InsertedKeys.prepare` finds the
keys in the parameters, and `KeyPurge` deletes the expired rows that hold them: by one DELETE
(`KeyPurge._run`), or by `KeyReclaimer.displace`, which sees to referring rows, and leaves archives
and hooks to `Removal`. Then `Trial.send` sends the INSERT again.

- `defaults`: the defaults of columns that a write leaves out.
- `displace`: deleting the expired rows that stand in the way of a write, in the write's
  transaction.
- `insert_conflicts`: the rows that an INSERT leaves out because of a conflict.
- `table_keys`: the keys of a table, and the values that rows have in them, as they are stored.
- `updates`: the rows that an UPDATE or DELETE is about to change, and the keys that an UPDATE gives
  them.
- `write_keys`: which keys a write takes, and the statement that frees them of expired rows.
"""
