"""`migrate copy` as a command."""

from commands.process import node
from tests.commands.conftest import document, record


def test_a_store_is_moved(installation, mariadb):
    installation.apply(document())
    installation.write_records(*(record(number) for number in range(5)))
    url = mariadb.fresh_url()
    said = installation.json("migrate", "copy", url)
    assert said["rows"]["usage_records"] == 5 and said["rows"]["users"] == 1
    exported = installation.ok("usage", "export", "--format", "ndjson")
    moved = installation.config.read_text().replace(installation.store_url, url)
    installation.config.write_text(moved)
    assert installation.ok("usage", "export", "--format", "ndjson") == exported
    installation.ok("books", "verify")
    assert "holds something already" in installation.refused("migrate", "copy", url)


def test_a_gateway_that_runs_is_in_the_way(installation, tmp_path):
    lock = node.claim(installation.folder / "journal")
    try:
        said = installation.refused("migrate", "copy", f"sqlite:///{tmp_path}/other.db")
        assert "is in use by another gateway" in said
    finally:
        node.os.close(lock)


def test_a_bad_address_is_refused(installation):
    assert "URL: " in installation.refused("migrate", "copy", "postgres://x")
