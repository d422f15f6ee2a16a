"""The tables as peewee models, a module for each subject. They are the only description of the
schema.

No model is bound to a database: pass one to every query (`Model.select().bind(db)`,
`Model.insert(...).execute(db)`), since a process may have several and threads share the classes.
schema.py makes the schema from them. Ids are ULIDs made by the application, money is in nano-units,
times are in milliseconds, lists and maps are JSON text.
"""
