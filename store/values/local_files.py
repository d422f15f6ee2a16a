"""Files of this machine that the text of an administrator names.

A path may lead to a FIFO, a device or a terminal, which would hold whoever opens or reads it. Only
regular files are read, and only so much of them. Blocking as disks are. For texts.py and the
document.
"""

import os
import stat


def read_regular(path: str | os.PathLike[str], most_bytes: int) -> bytes:
    """The content of a regular file. ValueError with the fact for anything else, and for a file of
    more than `most_bytes`."""
    try:
        with open(path, "rb", opener=_open) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError(f"{path} is not a regular file")
            content = file.read(most_bytes + 1)
    except OSError as error:
        raise ValueError(f"the file {path} cannot be read: {error.strerror}") from None
    if len(content) > most_bytes:
        raise ValueError(f"the file {path} has more than {most_bytes} bytes")
    return content


def _open(path: str, flags: int) -> int:
    # To open a FIFO waits for its writer otherwise, and a terminal may become the process's own.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
