"""What clients call: one module a family, and the table of routes."""
