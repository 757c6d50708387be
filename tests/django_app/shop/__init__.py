"""The app that the tests look after."""
