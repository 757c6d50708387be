"""Numbers about sweeps for monitoring systems, one module each, imported only when used.

- `numbers`: which there are, and what a sweeper's events say of each;
- `prometheus`: collectors for prometheus-client;
- `opentelemetry`: instruments and spans for OpenTelemetry.

They take what a sweeper reports anyway (`on_progress`, `on_report`). One query a sweep is made for
the server that answers (`on_server`), and none when somebody scrapes. docs/metrics.md says what
each number means.
"""
