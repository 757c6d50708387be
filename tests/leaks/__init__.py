"""The leak matrix: every way of reading, held against a database without expired rows."""
