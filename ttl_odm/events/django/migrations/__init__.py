"""The migrations of this app."""
