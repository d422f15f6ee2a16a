"""The JSON API of administrators: the same functions that the commands use."""
