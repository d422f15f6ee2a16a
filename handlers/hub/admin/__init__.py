"""Pages for administrators, one module per resource."""
