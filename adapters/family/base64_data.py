"""Base64 and data URLs in requests, as the codecs of all families read them.

``adapters.ir`` has media in the standard alphabet with padding. Clients also send URL-safe base64,
with or without padding and parameters. Imported by the codecs.
"""

import base64
import binascii
import re

from adapters.faults import wrong_value

_DATA_URL = re.compile(r"data:([^;,]*)((?:;[^;,]*)*),", re.IGNORECASE)
_ALPHABET = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_TO_STANDARD = str.maketrans("-_", "+/", " \t\r\n")


def standard_base64(text: str, path: str) -> str:
    """Return ``text`` in the standard alphabet, padded. Raises INVALID_FIELD if it is no base64."""
    plain = text.translate(_TO_STANDARD).rstrip("=")
    if not _ALPHABET.fullmatch(plain) or len(plain) % 4 == 1:
        raise wrong_value(path, "expected base64")
    return plain + "=" * (-len(plain) % 4)


def split_data_url(url: str, path: str) -> tuple[str, str] | None:
    """Return the MIME type (lower case) and the base64 of a data URL; None if ``url`` is no data
    URL. Raises Fault INVALID_FIELD for ``path`` if its data is no base64."""
    if url[:5].lower() != "data:":
        return None
    match = _DATA_URL.match(url)
    if match is None or not match[2].lower().endswith(";base64"):
        raise wrong_value(path, "expected a data URL with base64")
    return match[1].strip().lower(), standard_base64(url[match.end() :], path)


def text_of(data: str, path: str) -> str:
    """Return the text of a base64 document. Raises Fault INVALID_FIELD if it is not UTF-8."""
    try:
        return base64.b64decode(data).decode("utf-8-sig")
    except (binascii.Error, UnicodeDecodeError):
        raise wrong_value(path, "expected text in UTF-8") from None


def base64_of(text: str) -> str:
    """Return a text in UTF-8 as base64."""
    return base64.b64encode(text.encode(errors="replace")).decode()
