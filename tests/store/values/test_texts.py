"""Checks of single strings."""

import pytest

from adapters.registry import VENDORS
from store.values import texts
from tests.support.certificates import Authority

KEPT = [  # (check, texts that it accepts unchanged)
    (texts.model_name, ["a", "gpt-4.1", "org/model:latest", "A_b@c", "x" * 128, "a/b/c"]),
    (texts.model_or_all, ["a", "gpt-4.1", "org/model:latest", "A_b@c", "x" * 128, "a/b/c", "*"]),
    (texts.name, ["a", "Zoë Müller", "a@example.com", "日本", "x" * 128]),
    (texts.network, ["10.0.0.0/8"]),
    (texts.password, ["ä" * 512]),
    (texts.upstream_name, ["accounts/x models/y"]),
    (texts.header_value, ["a", 'a b; c="d"', "x" * 4096]),
    (texts.base_url, ["https://api.openai.com", "http://127.0.0.1:8080", "http://[::1]:8080"]),
    (texts.base_url, ["https://host/openai", "https://host/v1x"]),
    (texts.proxy, ["http://proxy.test:3128", "http://user@proxy.test:1"]),
    (texts.proxy, ["socks5://user:p%40ss@[::1]:1080"]),
]
MADE_CANONICAL = [
    (texts.base_url, "https://api.openai.com/", "https://api.openai.com"),
    (texts.base_url, "https://host/v1/account/openai/", "https://host/v1/account/openai"),
    (texts.network, "192.0.2.1", "192.0.2.1/32"),
    (texts.network, "2001:DB8::/32", "2001:db8::/32"),
    (texts.proxy, "https://10.0.0.1:443/", "https://10.0.0.1:443"),
    *((texts.segment, name, path) for name, path in (("new", "%6Eew"), (".", "%2E"))),
    *(
        (texts.segment, name, path)
        for name, path in (("a", "a"), ("..", "%2E."), ("ä/b", "%C3%A4%2Fb"))
    ),
    *((texts.header_name, name, name.lower()) for name in ("X-Title", "Anthropic-Beta", "a")),
]
REFUSED = [  # (check, its message, texts)
    (texts.model_name, "1 to 128", ["", "x" * 129, "a b", "ä", "a..b", "a//b", "/a", "a/", "a\n"]),
    (texts.name, "printable", ["", " a", "a ", "a\tb", "a\x00", "x" * 129, "\ud800", "a\u2028b"]),
    (texts.base_url, "like https://", ["api.openai.com", "ftp://host", "https://"]),
    (texts.base_url, "like https://", ["https://host:99999", "https://host:0", "https://ho\nst"]),
    (texts.base_url, "like https://", ["https://höst", "https://host/" + "x" * 1024]),
    (texts.base_url, "spaces", ["https://ho st"]),
    (texts.base_url, "user or password", ["https://user:hunter2@host"]),
    (texts.base_url, "without", ["https://host?key=1", "https://host/#x", "https://host?"]),
    (texts.base_url, 'write "https://api.openai.com"', ["https://api.openai.com/v1"]),
    (texts.base_url, 'write "https://api.openai.com"', ["https://api.openai.com/v1/"]),
    (texts.base_url, 'write "https://host/x"', ["https://host/x/v2beta1"]),
    (texts.base_url, "/chat/completions", ["https://host/v1/chat/completions"]),
    (texts.upstream_key, "", ["", "a b", "a\r\nX-Evil: 1", "ä", "x" * 4097]),
    (texts.network, "network", ["10.0.0.1/8", "example.com", "", "1.2.3.4/33"]),
    (texts.network, "the network is 10.0.0.0/8, the address alone 10.0.0.1", ["10.0.0.1/8"]),
    (
        *(texts.network, "write an address, as 192.0.2.7, or a network, as 192.0.2.0/24"),
        ["10.0.0", "10.0.0.0/33"],
    ),
    (texts.password, "", ["ä" * 513, "\ud800"]),
    (texts.upstream_name, "", ["", "a\n", "x" * 257]),
    (texts.header_name, "is not a header name", ["", "a b", "a:", "X-\r\nEvil", "ä", "x" * 129]),
    (texts.header_value, "must have 1 to 4096 printable", ["", " a", "a ", "a\0", "ä", "x" * 4097]),
    (texts.header_value, "must have 1 to 4096 printable", ["a\r\nX-Evil: 1"]),
    (texts.proxy, "like http://", ["proxy.test:3128", "http://hunter2@:80"]),
    (texts.proxy, "http, https, socks5", ["ftp://proxy.test:21"]),
    (texts.proxy, "with the port", ["http://proxy.test", "http://proxy.test:0"]),
    (texts.proxy, "with the port", ["http://user:hunter2@proxy.test:80?a=b"]),
    (texts.proxy, "no path", ["http://user:hunter2@proxy.test:80/path"]),
    (texts.proxy, "no path", ["http://user:hun ter2@proxy.test:80"]),
    (texts.proxy, "percent-encoded", ["http://user:hunter2@x@proxy.test:80"]),
    (texts.proxy, "percent-encoded", ["http://user:hunter2%0a@proxy.test:80"]),
    (texts.proxy, "ASCII", ["http://pröxy.test:80"]),
    (texts.proxy, "1024", ["http://proxy.test:80" + "/" * 1100]),
]


def rows(table):
    """Return one case for each text of a table."""
    cases = [(*row[:-1], text) for row in table for text in row[-1]]
    return [pytest.param(*case, id=f"{case[0].__name__}-{case[-1][:40]!a}") for case in cases]


@pytest.mark.parametrize(("check", "text"), rows(KEPT))
def test_what_is_taken_as_it_is(check, text):
    assert check(text) == text


@pytest.mark.parametrize(("check", "text", "canonical"), MADE_CANONICAL)
def test_what_is_made_canonical(check, text, canonical):
    assert check(text) == canonical


@pytest.mark.parametrize(("check", "message", "text"), rows(REFUSED))
def test_what_is_refused_and_no_password_or_key_in_the_message(check, message, text):
    with pytest.raises(ValueError) as caught:
        check(text)
    assert message in str(caught.value) and "hun" not in str(caught.value)
    if check is texts.upstream_key and text:
        assert text not in str(caught.value)


def test_the_nearest_name():
    assert texts.nearest("weigth", ["weight", "vendor"]) == '; did you mean "weight"?'
    assert texts.nearest("zzz", ["weight"]) == ""


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *((name, "keys") for name in ("Authorization", "x-api-key")),
        *((name, "leave it out") for name in ("Host", "Content-Length", "Transfer-Encoding")),
        ("Accept-Encoding", "leave it out"),
    ],
)
def test_headers_that_the_gateway_keeps_for_itself(name, remedy):
    with pytest.raises(ValueError, match=f"set by the gateway itself; .*{remedy}"):
        texts.header_name(name)


def test_no_credential_of_a_vendor_can_be_set_as_a_header():
    schemes = {vendor.auth for vendor in VENDORS.values()} - {"bearer"}
    assert schemes | {"authorization"} <= texts.KEPT_HEADERS


def test_ca_files(tmp_path):
    ca_file = Authority(tmp_path).ca_file
    ca_file.write_bytes("# Zürich\n".encode() + ca_file.read_bytes())
    assert texts.ca_file(str(ca_file)) == str(ca_file)
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for path, hint in (
        ("authority.pem", "absolute path"),
        (str(tmp_path / "none.pem"), "cannot be read: No such file"),
        (str(tmp_path), "cannot be read"),
        (str(empty), "contains no certificates"),
    ):
        with pytest.raises(ValueError, match=hint):
            texts.ca_file(path)
