"""All models of store/db/tables, for tests that go through the whole schema."""

import importlib
import pkgutil

import store.db.tables
from store.db.tables.fields import Row

for _module in pkgutil.iter_modules(store.db.tables.__path__, "store.db.tables."):
    importlib.import_module(_module.name)


def _leaves(model):
    subclasses = model.__subclasses__()
    return [leaf for one in subclasses for leaf in _leaves(one)] if subclasses else [model]


ALL = _leaves(Row)
