"""The endpoints beside chat: embeddings, completions, moderations, rerank, images, audio.

Each is a row of ``table.py``. Bytes pass unchanged except for the model's name. Above the families,
which do not know this package. Imported by the entries, the relay and the commands.
"""
