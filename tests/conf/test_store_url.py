"""The store's URL is parsed and checked before anything is created with it."""

import pytest

from conf.store_url import checked, place
from store.db.database import discard, open_database


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("mysql://u:a@b@h/d", 'the password holds "@": write it as %40'),
        ("mysql://u:a/b@h/d", 'the password holds "/": write it as %2F'),
        ("mysql://u:a?b@h/d", 'the password holds "?": write it as %3F'),
        ("mysql://u:a#b@h/d", 'the password holds "#": write it as %23'),
        ("mysql://u:a%b@h/d", 'the password holds "%", which begins no escape: write it as %25'),
        ("mysql://u:ü@h/d", 'the password holds "ü": write it as %C3%BC'),
        ("mysql://u/v:p@h/d", 'the user holds "/": write it as %2F'),
        ("mysql://u%ff:p@h/d", "the user is not text in UTF-8"),
        ("mysql://u:p@h/d?charset=utf8", '"charset" is no option'),
        ("mysql://u:p@h/d?ssl_ca=ca.pem", "ssl_ca expected, the whole path"),
        ("mysql://u:p@h/d?ssl_verify_identity=true", "ssl_ca expected"),
        ("mysql://u:p@h/d?ssl_ca=/ca&ssl_verify_identity=1", "true or false"),
        ("mysql://u:p@h1,h2:0/d", "the port is a number"),
        ("mysql://u:p@h1,/d", "a host like"),
        ("mysql://u:p@h1,h2,H1:3306/d", "named twice"),
        ("mysql://u:p@h/d/e", 'the name of the database holds "/"'),
        ("mysql://u:p@h/%00", "the name of the database is not text"),
        ("mysql://u:p@h/" + "d" * 65, "more than 64 characters"),
        ("mysql://u:p@h:0/d", "the port is a number from 1 to 65535"),
        ("mysql://u:p@h:65536/d", "the port is a number"),
        ("mysql://u:p@h:/d", "the port is a number"),
        ("mysql://u:p@a b/d", "a host like"),
        ("mysql://u:p@::1/d", "an IPv6 address in brackets"),
        ("mysql://u:p@[::1/d", "in brackets"),
        ("mysql://u:p@[h]/d", "in brackets"),
        ("mysql://u:p@/d", "mysql://host:port/database"),
        ("mysql://h/", "mysql://host:port/database"),
        ("mariadb://h/d", "mysql://host:port/database"),
    ],
)
def test_what_is_wrong_is_named(url, message):
    with pytest.raises(ValueError) as refused:
        checked(url)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("url", "want"),
    [
        ("mysql://h/d", ("h", 3306, "", b"", "d")),
        ("mysql://u@h/d", ("h", 3306, "u", b"", "d")),
        ("mysql://u:p%40ss%2F1@db.example:3307/d", ("db.example", 3307, "u", b"p@ss/1", "d")),
        ("mysql://u:a:b@10.0.0.1/d", ("10.0.0.1", 3306, "u", b"a:b", "d")),
        ("mysql://u:%F0%9F%94%91@[::1]:1/d-1", ("::1", 1, "u", "🔑".encode(), "d-1")),
        ("mysql://u:%ff@h/d%20e", ("h", 3306, "u", b"\xff", "d e")),
    ],
)
def test_what_passes_is_opened_as_it_is_meant(url, want):
    db = open_database(checked(url))
    given, [host] = db.connect_params, db.hosts.all
    assert want == (host.address, host.port, given["user"], given["password"], db.database)
    discard(db)


def test_hosts_and_encryption():
    url = "mysql://u:p@h1,[::1]:1,h3:2/d?ssl_ca=/etc/my%20ca.pem&ssl_verify_identity=true"
    db = open_database(checked(url))
    assert [host.name for host in db.hosts.all] == ["h1:3306", "[::1]:1", "h3:2"]
    assert place(url) == "h1:3306,[::1]:1,h3:2/d"
    given = db.connect_params
    assert (given["ssl_ca"], given["ssl_verify_identity"]) == ("/etc/my ca.pem", True)
