"""The endpoints beside chat: embeddings, completions, moderations, rerank, images, audio.

A row of ``table.py`` each; bytes pass but for the model's name. Above the families, which know
nothing of it. Imported by the entries, the relay and the commands.
"""
