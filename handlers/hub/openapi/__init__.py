"""The machine-readable description of the JSON API: a table, and the OpenAPI document built from
it."""
