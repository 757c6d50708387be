"""The tests of ttl_odm, as a package so that they can share `tests.backends`."""
