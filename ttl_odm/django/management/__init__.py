"""What ``manage.py`` has of ttl_odm.

- `commands.ttl_sweep`: delete what has expired, once or for ever
- `commands.ttl_status`: what there is to delete, and who does it
- `options`: the options of both, and the databases and models that they select
"""
