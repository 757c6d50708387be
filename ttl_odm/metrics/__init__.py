"""Numbers about sweeps for monitoring systems, one module each, imported only when used.

- `numbers`: which there are, and what a sweeper's events say of each;
- `prometheus`: collectors for prometheus-client;
- `opentelemetry`: instruments and spans for OpenTelemetry.

They take what a sweeper reports anyway (`on_progress`, `on_report`): no query is made for a
metric, and none is made when somebody scrapes. docs/metrics.md says what each number means.
"""
