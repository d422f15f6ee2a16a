"""Sealing: what opens with which keys."""

import pytest

from store.values.cipher import Cipher, Unreadable


def test_what_is_sealed_opens_again_and_looks_different_each_time():
    cipher = Cipher(["one"])
    tokens = {cipher.encrypt("sk-secret-ü") for _ in range(3)}
    assert len(tokens) == 3
    assert {cipher.decrypt(token) for token in tokens} == {"sk-secret-ü"}
    assert not any("sk-secret" in token for token in tokens)


def test_another_key_or_an_altered_token_opens_nothing():
    token = Cipher(["one"]).encrypt("secret")
    for cipher, wrong in ((Cipher(["two"]), token), (Cipher(["one"]), token[:-4] + "AAA=")):
        with pytest.raises(Unreadable):
            cipher.decrypt(wrong)
        with pytest.raises(Unreadable):
            cipher.rotate(wrong)


def test_keys_are_exchanged_step_by_step():
    old, both, new = Cipher(["old"]), Cipher(["new", "old"]), Cipher(["new"])
    token = old.encrypt("secret")
    assert both.decrypt(token) == "secret"
    rotated = both.rotate(token)
    assert new.decrypt(rotated) == "secret"
    with pytest.raises(Unreadable):
        old.decrypt(rotated)


def test_fingerprints_tell_texts_apart():
    old, both = Cipher(["old"]), Cipher(["new", "old"])
    mark = old.fingerprint("secret")
    assert mark == old.fingerprint("secret") and "secret" not in mark
    assert both.recognises(mark, "secret")
    assert not both.recognises(mark, "Secret")
    assert both.fingerprint("secret") != mark
    assert not Cipher(["other"]).recognises(mark, "secret")


def test_a_cipher_needs_a_key():
    with pytest.raises(ValueError):
        Cipher([])
