"""Headers and proxies of channels: sealed, compared and opened."""

import pytest

from store.values.cipher import Cipher, Unreadable
from store.values.fields import Sealed
from store.values.sealed_fields import (
    open_headers,
    open_proxy,
    same_headers,
    same_proxy,
    seal_headers,
    seal_proxy,
)

LOGIN = "http://user:p%40ss@proxy.test:3128"
OTHER = Cipher(["another cipher key"])


def test_headers_are_sealed_one_by_one(cipher):
    kept = seal_headers(cipher, {"x-a": "secret-a", "x-b": "secret-b"})
    assert kept.keys() == {"x-a", "x-b"} and "secret" not in repr(kept)
    assert open_headers(cipher, kept) == {"x-a": "secret-a", "x-b": "secret-b"}
    again = seal_headers(cipher, {"x-a": Sealed(kept["x-a"]), "x-b": "new"})
    assert again["x-a"] == kept["x-a"]
    assert open_headers(cipher, again)["x-b"] == "new"
    with pytest.raises(Unreadable):
        open_headers(OTHER, kept)


def test_given_headers_are_compared_with_stored_ones(cipher):
    stored = {"x-a": Sealed(cipher.encrypt("a"))}
    for headers in ({"x-a": "a"}, dict(stored)):
        assert same_headers(cipher, stored, headers)
    for headers in ({"x-a": "b"}, {"x-a": "a", "x-b": "b"}, {}):
        assert not same_headers(cipher, stored, headers)
    assert not same_headers(OTHER, stored, {"x-a": "a"})


@pytest.mark.parametrize("url", [None, "http://proxy.test:3128"])
def test_a_proxy_without_a_login_is_kept_as_it_is(cipher, url):
    assert seal_proxy(cipher, url) == url == open_proxy(cipher, url)
    assert same_proxy(cipher, url, url)
    assert not same_proxy(cipher, url, LOGIN)
    assert not same_proxy(cipher, seal_proxy(cipher, LOGIN), url)


def test_the_login_of_a_proxy_is_sealed_in_its_place(cipher):
    kept = seal_proxy(cipher, LOGIN)
    assert kept.startswith("http://") and kept.endswith("@proxy.test:3128")
    assert "user" not in kept and "p%40ss" not in kept
    assert open_proxy(cipher, kept) == LOGIN
    assert same_proxy(cipher, kept, LOGIN)
    assert not same_proxy(cipher, kept, LOGIN.replace("user", "other"))
    assert not same_proxy(cipher, kept, LOGIN.replace("http", "socks5"))
    assert not same_proxy(OTHER, kept, LOGIN)
    with pytest.raises(Unreadable):
        open_proxy(OTHER, kept)
