"""The pages of administrators: lists, forms, what is watched."""
