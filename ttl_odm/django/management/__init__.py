"""What ``manage.py`` has of ttl_odm.

- `commands.ttl_sweep`: delete what has expired, once or for ever
- `commands.ttl_status`: what there is to delete, and who does it
- `commands.ttl_check`: whether a database is as the models say, and swept; `findings` looks
- `commands.ttl_pause`, `commands.ttl_resume`: for every sweeper of a lease
- `commands.ttl_plan`: what expires when, and what another policy would change
- `units`: fields that the policy reads in another unit than they were written in
- `options`: what they have in common: options, and the databases and models that these select

What they say is the sweeper's (`ttl_odm.sweeper.snapshot`, `ttl_odm.sweeper.findings`) and the
forecast's, as with ``ttl-odm`` and ``flask ttl``.
"""
