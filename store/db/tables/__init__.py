"""The tables as peewee models, a module a subject: the schema's one description.

No model is bound to a database: give one to every query (`Model.select().bind(db)`,
`Model.insert(...).execute(db)`), since a process may hold several and threads share the classes.
The schema is made from them by schema.py. Ids are ULIDs made by the application; money is in
nano-units, times in milliseconds; lists and maps are JSON text.
"""
