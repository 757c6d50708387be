"""The leak matrix on MongoDB: every way of reading and writing documents through Beanie."""
