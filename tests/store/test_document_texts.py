"""Checks of single strings."""

import pytest

from store import document_texts as texts


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
    for wrong in ("", "ä" * 513, "\ud800"):
        with pytest.raises(ValueError):
            texts.password(wrong)
    assert texts.upstream_name("accounts/x models/y") == "accounts/x models/y"
    for wrong in ("", "a\n", "x" * 257):
        with pytest.raises(ValueError):
            texts.upstream_name(wrong)


def test_the_nearest_name():
    assert texts.nearest("weigth", ["weight", "vendor"]) == '; did you mean "weight"?'
    assert texts.nearest("zzz", ["weight"]) == ""
