"""Events of rows that have expired."""
