"""PyMySQL without `cryptography`, which takes 7 MiB of a process that seals nothing (ADR 0047).

Its import has that effect, if it comes before that of peewee, which imports PyMySQL. Imported by
the Hub's process alone: a worker opens the sealed keys of channels as soon as it starts.

Why it can be done without: PyMySQL encrypts passwords with it in logins by `sha256_password` and
`caching_sha2_password` without TLS, and none else; it takes an ImportError for its absence, and
raises RuntimeError in such a login. `store/db/mysql.py` lets PyMySQL have the library then, and
tries again. `store/values/cipher.py` loads it with the first value that is sealed or opened.
"""

import importlib
import sys

LIBRARY = "cryptography"


def import_driver() -> None:
    """Import PyMySQL as if the library were not installed; nothing where it is loaded already."""
    if LIBRARY in sys.modules:
        return
    # What the import system takes for the absence of a module.
    sys.modules[LIBRARY] = None  # type: ignore[assignment]
    try:
        importlib.import_module("pymysql")
    finally:
        del sys.modules[LIBRARY]


import_driver()
