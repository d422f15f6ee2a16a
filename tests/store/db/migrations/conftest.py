import pytest

from store.db import migrate, migrations


@pytest.fixture
def before(empty_database, monkeypatch, request):
    """A database of the version before the test module's `migration`."""
    name = request.module.migration.MIGRATION.name
    older = [one for one in migrations.ALL if one.name < name]
    monkeypatch.setattr(migrate, "ALL", tuple(older))
    migrate.up(empty_database)
    monkeypatch.setattr(migrate, "ALL", migrations.ALL)
    return empty_database
