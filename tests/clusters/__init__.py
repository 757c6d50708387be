"""Servers that fail, hang and take over from each other while rows expire."""
