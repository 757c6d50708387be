"""The commands of ``manage.py``.

- `commands.ttl_sweep`: delete expired rows, once or repeatedly
- `commands.ttl_status`: how many rows are to be deleted, and which sweeper deletes them
- `commands.ttl_check`: whether a database agrees with the models, and is swept; see `findings`
- `commands.ttl_pause`, `commands.ttl_resume`: for all sweepers of a lease
- `commands.ttl_plan`: which rows expire when, and what another policy would change
- `commands.ttl_policy`: show and change stored defaults
- `units`: fields whose values are in another unit than the policy reads
- `options`: the base class of the commands; common options, and the databases and models that they
  select

The texts come from `ttl_odm.sweeper.snapshot`, `ttl_odm.sweeper.findings` and the forecast, as with
``ttl-odm`` and ``flask ttl``.
"""
