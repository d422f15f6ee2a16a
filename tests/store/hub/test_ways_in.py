"""Other ways to sign in to the Hub: first-run links, one-time codes, OpenID links, and the stored
address."""

import pytest

from store.db.base_url import set_base_url, stored_base_url
from store.db.changes import current_version
from store.db.database import transaction
from store.db.tables.users import User
from store.hub import one_time, openid_links
from store.hub.membership import user_id_of
from store.values.cipher import Cipher, Unreadable
from store.values.errors import Conflict, NotFound, Refused

pytestmark = pytest.mark.databases("sqlite")

CIPHER = Cipher(["cipher key of the tests"])
ISSUER = "https://login.example.com"


@pytest.fixture
def alice(database, applied):
    return user_id_of(database, "alice")


def update(database, **fields):
    """Change a row of users without the store's own functions."""
    query = User.update(**fields).where(User.name == "alice")
    transaction(database, lambda: query.execute(database))


@pytest.mark.databases("sqlite", "mariadb")
def test_a_period_and_a_recovery_code_count_once(database, alice):
    one_time.begin(database, CIPHER, alice, "JBSWY3DPEHPK3PXP")
    assert not one_time.is_on(database, alice)
    one_time.begin(database, CIPHER, alice, "JBSWY3DPEHPK3PXQ")
    recovery = one_time.confirm(database, alice, "alice", 10)
    found = one_time.find(database, CIPHER, alice)
    assert (found.secret, found.confirmed, found.recovery) == ("JBSWY3DPEHPK3PXQ", True, 10)
    assert [one_time.count(database, alice, step) for step in (10, 9, 11, 11)] == [
        *(False, False, True, False)
    ]
    used = [one_time.count_recovery(database, alice, "alice", recovery[3]) for _ in range(2)]
    assert used == [True, False] and one_time.find(database, CIPHER, alice).recovery == 9
    assert not one_time.count_recovery(database, "nobody", "nobody", recovery[4])
    for again in (
        lambda: one_time.begin(database, CIPHER, alice, "X"),
        lambda: one_time.confirm(database, alice, "alice", 12),
    ):
        with pytest.raises(Refused):
            again()
    with pytest.raises(Unreadable):
        one_time.find(database, Cipher(["another"]), alice)
    assert one_time.end(database, "alice", "tester") and not one_time.end(
        database, "alice", "tester"
    )
    assert one_time.find(database, CIPHER, alice) is None


def test_a_link_is_of_one_user_and_one_provider(database, alice):
    link_id = openid_links.link(database, "alice", ISSUER, "s-1", "tester")
    with pytest.raises(Conflict):
        openid_links.link(database, "alice", ISSUER, "s-1", "tester")
    with pytest.raises(NotFound):
        openid_links.link(database, "nobody", ISSUER, "s-2", "tester")
    with pytest.raises(Refused):
        openid_links.link(database, "alice", ISSUER, "s" * 256, "tester")
    assert openid_links.of_user(database, alice)[0].used_ms is None
    assert openid_links.find(database, ISSUER, "s-1").id == alice
    assert openid_links.find(database, ISSUER + "s", "-1") is None
    for disabled in (True, False):
        update(database, disabled=disabled)
        assert (openid_links.find(database, ISSUER, "s-1") is None) is disabled
    assert openid_links.find(database, "https://elsewhere.example.com", "s-1") is None
    [link] = openid_links.of_user(database, alice)
    assert (link.id, link.issuer, link.subject) == (link_id, ISSUER, "s-1") and link.used_ms
    with pytest.raises(NotFound):
        openid_links.unlink(database, "somebody-else", "bob", link_id, "bob")
    openid_links.unlink(database, alice, "alice", link_id, "alice")
    assert openid_links.find(database, ISSUER, "s-1") is None
    assert openid_links.unlink_all(database, "alice", "tester") == 0


def test_the_base_url_is_kept_and_gateways_are_told(database, applied):
    assert stored_base_url(database) == ""
    before = current_version(database)
    for written in ("https://gate.example.com/", "https://gate.example.com"):
        assert set_base_url(database, written, "tester") == "https://gate.example.com"
        assert stored_base_url(database) == "https://gate.example.com"
        assert current_version(database) == before + 1
    for wrong in ("gate.example.com", "https://gate.example.com/v1", "javascript:alert(1)"):
        with pytest.raises(Refused):
            set_base_url(database, wrong, "tester")
    set_base_url(database, "", "tester")
    assert stored_base_url(database) == ""
