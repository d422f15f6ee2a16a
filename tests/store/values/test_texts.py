"""Checks of single strings."""

import pytest

from adapters.registry import VENDORS
from store.values import texts
from tests.support.certificates import Authority


@pytest.mark.parametrize("name", ["a", "gpt-4.1", "org/model:latest", "A_b@c", "x" * 128, "a/b/c"])
def test_model_names(name):
    assert texts.model_name(name) == name
    assert texts.model_or_all(name) == name


@pytest.mark.parametrize(
    "name", ["", "x" * 129, "a b", "ä", "a..b", "a//b", "/a", "a/", "a\n", "*", "a?b", "a%2fb"]
)
def test_what_is_no_model_name(name):
    with pytest.raises(ValueError, match="1 to 128"):
        texts.model_name(name)


def test_a_star_stands_for_all_models():
    assert texts.model_or_all("*") == "*"


@pytest.mark.parametrize("name", ["a", "Zoë Müller", "a@example.com", "日本", "x" * 128])
def test_names(name):
    assert texts.name(name) == name


@pytest.mark.parametrize("name", ["", " a", "a ", "a\tb", "a\x00", "x" * 129, "\ud800", "a\u2028b"])
def test_what_is_no_name(name):
    with pytest.raises(ValueError, match="printable"):
        texts.name(name)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://api.openai.com", "https://api.openai.com"),
        ("https://api.openai.com/", "https://api.openai.com"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://[::1]:8080", "http://[::1]:8080"),
        ("https://host/openai", "https://host/openai"),
        ("https://host/v1/account/openai/", "https://host/v1/account/openai"),
        ("https://host/v1x", "https://host/v1x"),
    ],
)
def test_base_urls(url, kept):
    assert texts.base_url(url) == kept


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("api.openai.com", "like https://"),
        ("ftp://host", "like https://"),
        ("https://", "like https://"),
        ("https://host:99999", "like https://"),
        ("https://host:0", "like https://"),
        ("https://ho\nst", "like https://"),
        ("https://höst", "like https://"),
        ("https://ho st", "spaces"),
        ("https://user:hunter2@host", "user or password"),
        ("https://host?key=1", "without"),
        ("https://host/#x", "without"),
        ("https://host?", "without"),
        ("https://api.openai.com/v1", 'write "https://api.openai.com"'),
        ("https://api.openai.com/v1/", 'write "https://api.openai.com"'),
        ("https://g.example/v1beta", 'write "https://g.example"'),
        ("https://host/x/v2beta1", 'write "https://host/x"'),
        ("https://host/v1/chat/completions", "/chat/completions"),
        ("https://host/v1/messages", "/messages"),
        ("https://host/" + "x" * 1024, "like https://"),
    ],
)
def test_what_is_no_base_url(url, hint):
    with pytest.raises(ValueError) as caught:
        texts.base_url(url)
    assert hint in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize("key", ["", "a b", "a\r\nX-Evil: 1", "ä", "x" * 4097])
def test_upstream_keys_that_would_break_a_header(key):
    with pytest.raises(ValueError) as caught:
        texts.upstream_key(key)
    assert not key or key not in str(caught.value)


def test_networks_are_canonical():
    assert texts.network("10.0.0.0/8") == "10.0.0.0/8"
    assert texts.network("192.0.2.1") == "192.0.2.1/32"
    assert texts.network("2001:DB8::/32") == "2001:db8::/32"
    for wrong in ("10.0.0.1/8", "example.com", "", "1.2.3.4/33"):
        with pytest.raises(ValueError, match="network"):
            texts.network(wrong)


def test_passwords_and_upstream_names():
    assert texts.password("ä" * 512) == "ä" * 512
    for wrong in ("ä" * 513, "\ud800"):
        with pytest.raises(ValueError):
            texts.password(wrong)
    assert texts.upstream_name("accounts/x models/y") == "accounts/x models/y"
    for wrong in ("", "a\n", "x" * 257):
        with pytest.raises(ValueError):
            texts.upstream_name(wrong)


def test_the_nearest_name():
    assert texts.nearest("weigth", ["weight", "vendor"]) == '; did you mean "weight"?'
    assert texts.nearest("zzz", ["weight"]) == ""


@pytest.mark.parametrize("name", ["X-Title", "openai-organization", "Anthropic-Beta", "a"])
def test_headers_of_a_channel(name):
    assert texts.header_name(name) == name.lower()


@pytest.mark.parametrize("name", ["", "a b", "a:", "X-\r\nEvil", "ä", "x" * 129, "a;", '"a"'])
def test_what_is_no_name_of_a_header(name):
    with pytest.raises(ValueError, match="no name of a header"):
        texts.header_name(name)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("Authorization", "keys"),
        ("x-api-key", "keys"),
        ("Host", "leave it out"),
        ("Content-Length", "leave it out"),
        ("Transfer-Encoding", "leave it out"),
        ("Accept-Encoding", "leave it out"),
    ],
)
def test_headers_that_the_gateway_keeps_for_itself(name, remedy):
    with pytest.raises(ValueError, match=f"set by the gateway itself; .*{remedy}"):
        texts.header_name(name)


def test_no_credential_of_a_vendor_can_be_set_as_a_header():
    schemes = {vendor.auth for vendor in VENDORS.values()} - {"bearer"}
    assert schemes | {"authorization"} <= texts.KEPT_HEADERS


def test_values_of_headers():
    for value in ("a", 'a b; c="d"', "x" * 4096):
        assert texts.header_value(value) == value
    for value in ("", " a", "a ", "a\r\nX-Evil: 1", "a\0", "ä", "x" * 4097):
        with pytest.raises(ValueError, match="must have 1 to 4096 printable"):
            texts.header_value(value)


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("http://proxy.test:3128", "http://proxy.test:3128"),
        ("https://10.0.0.1:443/", "https://10.0.0.1:443"),
        ("socks5://user:p%40ss@[::1]:1080", "socks5://user:p%40ss@[::1]:1080"),
        ("http://user@proxy.test:1", "http://user@proxy.test:1"),
    ],
)
def test_proxies(url, kept):
    assert texts.proxy(url) == kept


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("proxy.test:3128", "like http://"),
        ("ftp://proxy.test:21", "http, https, socks5"),
        ("http://proxy.test", "with the port"),
        ("http://proxy.test:0", "with the port"),
        ("http://proxy.test:99999", "with the port"),
        ("http://hunter2@:80", "like http://"),
        ("http://user:hunter2@proxy.test:80/path", "no path"),
        ("http://user:hunter2@proxy.test:80?a=b", "with the port"),
        ("http://user:hun ter2@proxy.test:80", "no path"),
        ("http://user:hunter2@x@proxy.test:80", "percent-encoded"),
        ("http://user:hunter2%0a@proxy.test:80", "percent-encoded"),
        ("http://pröxy.test:80", "ASCII"),
        ("http://proxy.test:80" + "/" * 1100, "1024"),
    ],
)
def test_what_is_no_proxy_and_no_password_in_the_message(url, hint):
    with pytest.raises(ValueError) as caught:
        texts.proxy(url)
    assert hint in str(caught.value)
    assert "hunter2" not in str(caught.value) and "hun" not in str(caught.value)


def test_ca_files(tmp_path):
    authority = Authority(tmp_path)
    assert texts.ca_file(str(authority.ca_file)) == str(authority.ca_file)
    empty = tmp_path / "empty.pem"
    empty.write_text("nothing")
    for path, hint in (
        ("authority.pem", "absolute path"),
        (str(tmp_path / "none.pem"), "cannot be read: No such file"),
        (str(tmp_path), "cannot be read"),
        (str(empty), "holds no certificates"),
    ):
        with pytest.raises(ValueError, match=hint):
            texts.ca_file(path)


@pytest.mark.parametrize(("value", "message"), [
    ("10.0.0.1/8", "the network is 10.0.0.0/8, the address alone 10.0.0.1"),
    ("10.0.0", "write an address, as 192.0.2.7, or a network, as 192.0.2.0/24"),
    ("10.0.0.0/33", "write an address"),
])  # fmt: skip
def test_what_is_wrong_with_a_network(value, message):
    with pytest.raises(ValueError, match=r"192|prefix") as caught:
        texts.network(value)
    assert message in str(caught.value)
