"""PyMySQL without `cryptography`, which takes 7 MiB in a process that seals nothing (ADR 0047).

The import of this module has that effect if peewee, which imports PyMySQL, was not imported before.
Only the Hub's process imports it: a worker opens the sealed keys of channels as soon as it starts.

PyMySQL needs the library only to encrypt passwords in logins by `sha256_password` and
`caching_sha2_password` without TLS. It takes an ImportError for the library's absence, and raises
RuntimeError in such a login. `store/db/mysql.py` then loads the library for PyMySQL and tries
again. `store/values/cipher.py` loads it with the first value that is sealed or opened.
"""

import importlib
import sys

LIBRARY = "cryptography"


def import_driver() -> None:
    """Import PyMySQL as if the library were not installed. No effect if the library is loaded."""
    if LIBRARY in sys.modules:
        return
    # None makes the import system raise ModuleNotFoundError.
    sys.modules[LIBRARY] = None  # type: ignore[assignment]
    try:
        importlib.import_module("pymysql")
    finally:
        del sys.modules[LIBRARY]


import_driver()
