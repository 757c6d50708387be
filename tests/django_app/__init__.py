"""Tests of ttl_odm.django (not named ``django``, which would hide it)."""
