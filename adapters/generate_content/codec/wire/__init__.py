"""Pieces of requests and answers that more than one codec of the family reads or writes: fields in
either spelling, schemas, media, names of tools, calls, signatures. Imported by ``codec``."""
