"""The codec of the family's clients: requests in, answers out."""
