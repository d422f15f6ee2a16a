"""The Hub does not load `cryptography` until something is sealed, or a login needs it."""

import subprocess
import sys

import pymysql

from commands.process.lean_driver import LIBRARY
from store.db.mysql import open_mysql

START = f"""
import sys
import commands.process.hub
from store.values.cipher import Cipher
cipher = Cipher(["a key"])
assert {LIBRARY!r} not in sys.modules
assert cipher.decrypt(cipher.encrypt("a text")) == "a text"
"""


def test_the_hub_loads_it_with_the_first_value_that_is_sealed():
    subprocess.run([sys.executable, "-c", START], check=True, timeout=60)


def test_a_login_that_encrypts_the_password_gets_it(monkeypatch):
    def connect(**options):
        if not pymysql._auth._have_cryptography:
            raise RuntimeError("'cryptography' package is required")
        return ConnectionOfTest()

    class ConnectionOfTest:
        pass

    monkeypatch.setattr(pymysql._auth, "_have_cryptography", False)
    monkeypatch.setattr(pymysql, "connect", connect)
    db = open_mysql("mysql://root@127.0.0.1:3306/sluice", 1, 1)
    assert isinstance(db._connect_to(db.hosts.all[0]), ConnectionOfTest)
