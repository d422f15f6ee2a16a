"""Programs that tests start and that need not be installed: without one a test is skipped, with
CI=true it fails."""

import os
import shutil
from typing import NoReturn

import pytest

FOLDERS = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
"""Servers of Debian are in folders that the PATH of a user may lack."""


def program(*names: str, package: str = "") -> str:
    """Return the path of the first of these programs that is installed; `package`: of Debian, if it
    is called otherwise."""
    paths = filter(None, (shutil.which(name, path=FOLDERS) for name in names))
    return next(paths, None) or missing(f"{names[0]} is not installed", package or names[0])


def missing(reason: str, package: str = "") -> NoReturn:
    """Skip the test, or fail with CI=true."""
    text = f"{reason} (apt-get install {package})" if package else reason
    if os.environ.get("CI") == "true":
        pytest.fail(text)
    pytest.skip(text)
