"""Sessions with a MariaDB must be encrypted if `store.url` names certificates; otherwise no
session is opened."""

import os
import shutil
import tempfile
from pathlib import Path

import pytest

from store.db.database import discard, open_database
from store.values.errors import StoreUnavailable
from tests.support import leash
from tests.support.certificates import Authority
from tests.support.mariadb import MariaDb
from tests.support.stores import select


@pytest.fixture(scope="module")
def folder():
    """Yield a folder that the server's user may read."""
    path = Path(tempfile.mkdtemp(prefix="sluice-tls-"))
    leash.drop(str(path))
    os.chmod(path, 0o755)
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def authority(folder):
    return Authority(folder)


@pytest.fixture(scope="module")
def server(folder, authority):
    """Yield a server whose certificate is for localhost and 127.0.0.1, not for 127.0.0.2."""
    authority.server_context()
    both = folder / "authority.server.pem"
    made = MariaDb(f"--ssl-cert={both}", f"--ssl-key={both}", "--bind-address=0.0.0.0")
    yield made
    made.close()


def cipher(url):
    db = open_database(url)
    try:
        return select(db, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")[0][1]
    finally:
        discard(db)


def test_a_session_is_encrypted_and_the_server_is_who_it_should_be(server, authority, folder):
    plain = server.fresh_url()
    trusting = f"{plain}?ssl_ca={authority.ca_file}"
    verifying = f"{trusting}&ssl_verify_identity=true"
    assert cipher(trusting) and cipher(verifying)
    elsewhere = verifying.replace("127.0.0.1", "127.0.0.2")
    assert cipher(elsewhere.partition("&")[0])
    with pytest.raises(StoreUnavailable, match="certificate is not valid for"):
        cipher(elsewhere)
    stranger = Authority(folder, "stranger")
    with pytest.raises(StoreUnavailable, match="certificate verify failed"):
        cipher(f"{plain}?ssl_ca={stranger.ca_file}")
    with pytest.raises(StoreUnavailable, match="ssl_ca"):
        cipher(f"{plain}?ssl_ca={folder}/none.pem")


def test_nothing_is_sent_to_a_server_without_encryption(authority):
    server = MariaDb("--skip-ssl")
    try:
        with pytest.raises(StoreUnavailable, match="SSL is required"):
            cipher(f"{server.fresh_url()}?ssl_ca={authority.ca_file}")
    finally:
        server.close()
