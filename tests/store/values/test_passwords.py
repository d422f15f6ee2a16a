"""Password hashes."""

import importlib.util

import pytest

from store.values import passwords


def test_only_the_right_password_fits():
    first, second = passwords.hash_password("pässword"), passwords.hash_password("pässword")
    assert first.startswith("$argon2id$") and first != second
    assert passwords.verify_password(first, "pässword")
    assert not passwords.verify_password(first, "Pässword")
    assert not passwords.verify_password(first, "x" * (passwords.MAX_PASSWORD_BYTES + 1))


def test_a_hash_costs_64_mib_and_three_passes():
    spec = importlib.util.spec_from_file_location("as_operators_have_it", passwords.__file__)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "$m=65536,t=3,p=4$" in module.hash_password("a password")


@pytest.mark.parametrize("broken", [None, "", "plain", "$argon2id$v=19$broken"])
def test_no_password_fits_a_missing_or_broken_hash(broken):
    assert not passwords.verify_password(broken, "")
    assert not passwords.verify_password(broken, "plain")


@pytest.mark.parametrize("password", ["", "x" * (passwords.MAX_PASSWORD_BYTES + 1)])
def test_lengths_that_are_refused(password):
    with pytest.raises(ValueError, match="1024"):
        passwords.hash_password(password)


@pytest.mark.parametrize(
    ("password", "fault"),
    [
        ("", "short"),
        ("elevenchars", "short"),
        ("twelve-chars", None),
        ("zwölf-zeiche", None),
        ("a user of long name", "name"),
        ("A USER OF LONG NAME", "name"),
        ("a user of long name.", None),
        ("xxxxxxxxxxxx", "repeated"),
        ("xXxXxXxXxXxX", "repeated"),
        ("qwertyuiop12", "common"),
        ("PasswordPassword", "common"),
        ("password2024", "common"),
        ("\ud800" * 3 + "a long one", None),
    ],
)
def test_which_passwords_may_be_chosen(password, fault):
    assert passwords.fault_of(password, "A user of long name") == fault


def test_the_list_is_of_passwords_that_the_rest_of_the_rule_lets_pass():
    assert 500 < len(passwords.common()) <= 1000
    for password in passwords.common():
        assert len(password) >= passwords.MIN_PASSWORD_CHARS and password == password.casefold()
        assert len(set(password)) > 1
