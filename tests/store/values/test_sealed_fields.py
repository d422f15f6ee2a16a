"""Headers and proxies of channels: sealed, compared and opened."""

import pytest

from store.values import sealed_fields
from store.values.cipher import Cipher, Unreadable
from store.values.fields import Sealed

LOGIN = "http://user:p%40ss@proxy.test:3128"
OTHER = Cipher(["another cipher key"])


def test_headers_are_sealed_one_by_one(cipher):
    kept = sealed_fields.seal_headers(cipher, {"x-a": "secret-a", "x-b": "secret-b"})
    assert kept.keys() == {"x-a", "x-b"} and "secret" not in repr(kept)
    assert sealed_fields.open_headers(cipher, kept) == {"x-a": "secret-a", "x-b": "secret-b"}
    again = sealed_fields.seal_headers(cipher, {"x-a": Sealed(kept["x-a"]), "x-b": "new"})
    assert again["x-a"] == kept["x-a"]
    assert sealed_fields.open_headers(cipher, again)["x-b"] == "new"
    with pytest.raises(Unreadable):
        sealed_fields.open_headers(OTHER, kept)


def test_given_headers_are_compared_with_stored_ones(cipher):
    stored = {"x-a": Sealed(cipher.encrypt("a"))}
    for headers in ({"x-a": "a"}, dict(stored)):
        assert sealed_fields.same_headers(cipher, stored, headers)
    for headers in ({"x-a": "b"}, {"x-a": "a", "x-b": "b"}, {}):
        assert not sealed_fields.same_headers(cipher, stored, headers)
    assert not sealed_fields.same_headers(OTHER, stored, {"x-a": "a"})


@pytest.mark.parametrize("url", [None, "http://proxy.test:3128"])
def test_a_proxy_without_a_login_is_kept_as_it_is(cipher, url):
    assert sealed_fields.seal_proxy(cipher, url) == url == sealed_fields.open_proxy(cipher, url)
    assert sealed_fields.same_proxy(cipher, url, url)
    assert not sealed_fields.same_proxy(cipher, url, LOGIN)
    assert not sealed_fields.same_proxy(cipher, sealed_fields.seal_proxy(cipher, LOGIN), url)


def test_the_login_of_a_proxy_is_sealed_in_its_place(cipher):
    kept = sealed_fields.seal_proxy(cipher, LOGIN)
    assert kept.startswith("http://") and kept.endswith("@proxy.test:3128")
    assert "user" not in kept and "p%40ss" not in kept
    assert sealed_fields.open_proxy(cipher, kept) == LOGIN
    assert sealed_fields.same_proxy(cipher, kept, LOGIN)
    assert not sealed_fields.same_proxy(cipher, kept, LOGIN.replace("user", "other"))
    assert not sealed_fields.same_proxy(cipher, kept, LOGIN.replace("http", "socks5"))
    assert not sealed_fields.same_proxy(OTHER, kept, LOGIN)
    with pytest.raises(Unreadable):
        sealed_fields.open_proxy(OTHER, kept)
