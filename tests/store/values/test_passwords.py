"""Password hashes."""

import pytest

from store.values.passwords import MAX_PASSWORD_BYTES, hash_password, verify_password


def test_only_the_right_password_fits():
    first, second = hash_password("pässword"), hash_password("pässword")
    assert first.startswith("$argon2id$") and first != second
    assert verify_password(first, "pässword")
    assert not verify_password(first, "Pässword")
    assert not verify_password(first, "x" * (MAX_PASSWORD_BYTES + 1))


@pytest.mark.parametrize("broken", [None, "", "plain", "$argon2id$v=19$broken"])
def test_no_password_fits_a_missing_or_broken_hash(broken):
    assert not verify_password(broken, "")
    assert not verify_password(broken, "plain")


@pytest.mark.parametrize("password", ["", "x" * (MAX_PASSWORD_BYTES + 1)])
def test_lengths_that_are_refused(password):
    with pytest.raises(ValueError, match="1024"):
        hash_password(password)
