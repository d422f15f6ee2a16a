"""Programs that tests start and that may not be installed. If one is missing, the test is skipped;
with CI=true it fails."""

import os
import shutil
from typing import NoReturn

import pytest

FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
"""The folders searched: servers of Debian are in folders that a user's PATH may lack."""


def program(*names: str, package: str = "") -> str:
    """Return the path of the first of these programs that is installed; `package`: its Debian
    package if the name differs."""
    paths = filter(None, (shutil.which(name, path=FOLDERS) for name in names))
    return next(paths, None) or missing(f"{names[0]} is not installed", package or names[0])


def missing(reason: str, package: str = "") -> NoReturn:
    """Skip the test, or fail it with CI=true."""
    text = f"{reason} (apt-get install {package})" if package else reason
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)
