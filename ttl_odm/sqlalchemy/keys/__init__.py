"""The keys of expired rows are free.

The route of an INSERT over an expired key, through this room and the gate: the compiler
(`GatedCompiler.visit_insert`) sets `InsertedKeys` to free the INSERT's keys, mostly inside a
`Trial` of `ttl_odm.sqlalchemy.gate.execution`. `Trial.send` sends the INSERT first
(`_ExecuteOnInnoDB` on MariaDB and MySQL). If it meets a taken key, `InsertedKeys.prepare` finds the
keys in the parameters, and `KeyPurge` deletes the expired rows that hold them: by one DELETE
(`KeyPurge._run`), or by `KeyReclaimer.displace`, which handles referring rows, and leaves archives
and hooks to `Removal`. Then the INSERT is sent again. Without a trial, `GatedContext.pre_exec`
frees the keys before the INSERT.

Locks on the way, until the transaction ends:

- PostgreSQL: a trial locks no existing row; the DELETE locks the expired rows that it deletes.
- MariaDB, MySQL: a trial locks the row that holds the key, as an update would. The keys of expired
  rows are read without a lock and deleted by primary key (`must_select_first` says why), and with
  a locking read only if the INSERT still fails (`KeyReclaimer.current`).
- SQLite: the file's write lock, taken before the first read (`take_file`).
- Where rows are locked, a stored default is locked, shared, before rows are deleted by it
  (`lock_defaults`).

- `defaults`: the defaults of columns that a write leaves out.
- `displace`: deleting the expired rows that stand in the way of a write, in the write's
  transaction.
- `insert_conflicts`: the rows that an INSERT leaves out because of a conflict.
- `table_keys`: the keys of a table, the rows that may hold them, and their values as they are
  stored.
- `updates`: the rows that an UPDATE or DELETE is about to change, and the keys that an UPDATE gives
  them.
- `write_keys`: which keys a write takes, and the statement that frees them of expired rows.
"""
