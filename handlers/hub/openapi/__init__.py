"""The description of the JSON API for machines: a table, and the OpenAPI document made from it."""
