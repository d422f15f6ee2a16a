"""Usage records: journal, writer, adoption, queries, roll-ups."""
