"""Numbers about events for monitoring systems, one module each, imported only when used.

- `numbers`: which there are;
- `prometheus`: collectors for prometheus-client;
- `opentelemetry`: instruments for OpenTelemetry.

What a worker delivers is counted as it does so (`on_delivered`), which costs no query. What
consumers haven't dealt with is asked of the database when a monitoring system asks.
docs/metrics.md says what each number means.
"""
