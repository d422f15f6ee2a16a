"""Sealing: which keys can open what."""

import pytest

from store.values.cipher import Cipher, Unreadable


def test_what_is_sealed_opens_again_and_looks_different_each_time():
    cipher = Cipher(["one"])
    tokens = {cipher.encrypt("sk-secret-ü") for _ in range(3)}
    assert len(tokens) == 3
    assert {cipher.decrypt(token) for token in tokens} == {"sk-secret-ü"}
    assert not any("sk-secret" in token for token in tokens)


def test_no_key_another_key_or_an_altered_token_opens_nothing():
    with pytest.raises(ValueError):
        Cipher([])
    token = Cipher(["one"]).encrypt("secret")
    for cipher, wrong in ((Cipher(["two"]), token), (Cipher(["one"]), token[:-4] + "AAA=")):
        with pytest.raises(Unreadable):
            cipher.decrypt(wrong)
        assert not cipher.opens(wrong) and cipher.renewed(wrong) is None
        assert not cipher.holds(wrong, "secret")


def test_keys_are_exchanged_step_by_step():
    old, both, new = Cipher(["old"]), Cipher(["new", "old"]), Cipher(["new"])
    token = old.encrypt("secret")
    assert both.decrypt(token) == "secret"
    assert both.holds(token, "secret") and not both.holds(token, "Secret")
    assert not both.by_newest(token)
    renewed = both.renewed(token)
    assert renewed is not None and both.by_newest(renewed) and both.renewed(renewed) is None
    assert new.decrypt(renewed) == "secret"
    with pytest.raises(Unreadable):
        old.decrypt(renewed)


def test_fingerprints_tell_texts_apart():
    old, both = Cipher(["old"]), Cipher(["new", "old"])
    mark = old.fingerprint("secret")
    assert mark == old.fingerprint("secret") and "secret" not in mark
    assert old.fingerprint("Secret") != mark != both.fingerprint("secret")
