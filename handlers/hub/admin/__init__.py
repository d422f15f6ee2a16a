"""Pages of administrators, a module a resource."""
