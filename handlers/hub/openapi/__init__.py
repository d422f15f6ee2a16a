"""What the JSON API offers, for machines: one table, the OpenAPI document made from it, and the
endpoint that answers it."""
