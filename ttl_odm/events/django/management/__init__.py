"""What ``manage.py`` has of events: `commands.ttl_events`."""
