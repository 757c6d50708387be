"""Numbers about sweeps for monitoring systems, one module each, imported only when used.

- `numbers`: the list of them, and how a sweeper's events change each;
- `prometheus`: collectors for prometheus-client;
- `opentelemetry`: instruments and spans for OpenTelemetry.

They use a sweeper's reports (`on_progress`, `on_report`), which cost no query. Each sweep makes one
query for the server that answers (`on_server`), and a scrape makes none. docs/metrics.md explains
each number.
"""
