"""Numbers about sweeps for monitoring systems, one module each, imported only when used.

- `ttl_odm.metrics.prometheus`: collectors for prometheus-client.

A module takes what a sweeper tells anyway (`on_progress`, `on_report`): no query is made for a
metric, and none is made when somebody scrapes. docs/metrics.md says what each number means.
"""
