"""The secrets file: created once with mode 0600, refused if it is weak, readable by others or
missing."""

import base64
import os
import stat

import msgspec
import pytest

from conf import secrets
from conf.configuration import ConfigError

STRONG = base64.urlsafe_b64encode(bytes(range(32))).decode()
OTHER = base64.urlsafe_b64encode(bytes(range(1, 33))).decode()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "secrets.toml"


def refused(path) -> str:
    with pytest.raises(ConfigError) as caught:
        secrets.load(path)
    return str(caught.value)


def write(path, **lists):
    every = {name: [STRONG] for name in secrets.KINDS.values()} | lists
    path.write_text("".join(f"{name} = {values!r}\n" for name, values in every.items()))
    path.chmod(0o600)


def test_a_made_file_is_private_and_never_replaced(path, tmp_path):
    old = os.umask(0)
    try:
        secrets.create(path)
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    made = secrets.load(path)
    every = [*made.peppers, *made.cipher_keys, *made.cookie_secrets, *made.translation_secrets]
    assert len(set(every)) == 4
    assert not any(secret in repr(made) for secret in every)
    before = path.read_bytes()
    with pytest.raises(FileExistsError):
        secrets.create(path)
    assert path.read_bytes() == before
    secrets.create(tmp_path / "other.toml")
    assert made.peppers != secrets.load(tmp_path / "other.toml").peppers
    path.chmod(0o644)
    assert f"chmod 600 {path}" in refused(path)


def test_a_missing_file_comes_with_a_cure(path, monkeypatch):
    assert "./sluice init" in refused(path)
    monkeypatch.setenv("SLUICE_SECRETS_FILE", str(path))
    assert "correct SLUICE_SECRETS_FILE" in refused(path) and "init" not in refused(path)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ({"peppers": []}, "peppers is empty"),
        ({"cipher_keys": ["short"]}, "cipher_keys: 32 bytes"),
        ({"cookie_secrets": ["é" * 40]}, "cookie_secrets: 32 bytes"),
        ({"translation_secrets": []}, "translation_secrets is empty"),
        ({"translation_secrets": ["short"]}, "translation_secrets: 32 bytes"),
        ({"cipher_keys": ["A" * 43 + "="]}, "cipher_keys: a placeholder"),
        ({"pepers": [STRONG]}, "unknown field"),
        ({"peppers": "x"}, "Expected `array`"),
    ],
)
def test_bad_contents(path, lists, message):
    write(path, **lists)
    assert message in refused(path)
    assert STRONG not in refused(path)


def test_a_file_of_an_older_version_is_refused_with_the_version_to_pass_through(path):
    write(path)
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(line for line in lines if "translation_secrets" not in line))
    assert "rotate translation of Sluice 0.1.0 at schema 23" in refused(path)


def test_an_upcoming_secret_is_accepted_and_comes_last(path):
    write(path)
    raw = secrets.read(path)
    changed = msgspec.structs.replace(raw, upcoming={"pepper": OTHER})
    secrets.replace(path, changed)
    assert secrets.read(path) == changed
    loaded = secrets.load(path)
    assert loaded.peppers == [STRONG, OTHER] and loaded.cipher_keys == [STRONG]
    assert loaded.mark != raw.mark
    path.write_text(path.read_text().replace("pepper =", "salt ="))
    assert "upcoming: unknown salt" in refused(path)


def test_a_replaced_file_keeps_its_mode_and_its_links(path, tmp_path):
    write(path)
    path.chmod(0o640)
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    secrets.replace(link, secrets.read(link))
    assert link.is_symlink() and stat.S_IMODE(path.stat().st_mode) == 0o640


def test_broken_toml_quotes_nothing(path):
    write(path)
    path.write_text(path.read_text() + f'x = "{STRONG}\n')
    assert refused(path).startswith(f"{path}: not a TOML file; restore")
