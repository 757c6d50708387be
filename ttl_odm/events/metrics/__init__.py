"""Metrics of events, with one module for each monitoring system, imported only when used.

- `numbers`: the metrics;
- `prometheus`: collectors for prometheus-client;
- `opentelemetry`: instruments for OpenTelemetry.

A worker counts deliveries as it makes them (`on_delivered`), which costs no query. The numbers of
events that consumers haven't dealt with are read from the database when a monitoring system asks.
docs/metrics.md explains each metric.
"""
