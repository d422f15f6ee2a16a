"""Responses that vendors keep: whose they are, and which channel and upstream key made them."""
