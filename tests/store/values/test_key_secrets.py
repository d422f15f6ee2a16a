"""Secrets of keys: creation, validation, storage as digests, display in part."""

import string

import pytest

from store.values import key_secrets


def test_a_made_secret_has_160_random_bits_and_a_checksum():
    secret = key_secrets.make_secret(bytes(range(20)))
    assert secret == key_secrets.make_secret(bytes(range(20)))
    assert secret.startswith("sk-slc-") and len(secret) == 7 + 32 + 7
    assert len({key_secrets.make_secret() for _ in range(100)}) == 100
    for taken in (secret, "x" * 16, "A-z_0.9" * 20, "x" * 200):
        key_secrets.check_given(taken)


def test_every_typo_of_one_character_shows():
    secret = key_secrets.make_secret()
    for place in range(len("sk-slc-"), len(secret)):
        for char in string.ascii_lowercase + "234567":
            typo = secret[:place] + char + secret[place + 1 :]
            assert key_secrets.checksum_ok(typo) == (typo == secret)
    assert not key_secrets.checksum_ok(secret[:-1])
    assert not key_secrets.checksum_ok("sk-slc-")
    assert key_secrets.checksum_ok("sk-other-form")


@pytest.mark.parametrize(
    "secret", ["x" * 15, "x" * 201, "x" * 16 + " ", "ä" * 20, "x" * 16 + "\n", "sk-slc-" + "a" * 39]
)
def test_given_secrets_that_are_refused_without_being_repeated(secret):
    with pytest.raises(ValueError) as caught:
        key_secrets.check_given(secret)
    assert secret not in str(caught.value)


def test_digests_depend_on_secret_and_pepper():
    marks = {key_secrets.digest(s, p) for s in ("a", "b") for p in ("a", "b")}
    assert len(marks) == 4 and all(len(mark) == 32 for mark in marks)
    assert key_secrets.digests("a", ["p", "q"]) == [
        key_secrets.digest("a", "p"),
        key_secrets.digest("a", "q"),
    ]
    assert len({key_secrets.pepper_id("p"), key_secrets.pepper_id("q"), "p"}) == 3


def test_what_is_shown_of_a_secret():
    assert key_secrets.shown_parts("sk-slc-abcdefghijkl") == {
        "prefix": "sk-slc-abc",
        "last_four": "ijkl",
    }
    assert key_secrets.shown_parts("0123456789abcdef") == {"prefix": "0123", "last_four": "cdef"}
