"""Secrets of a channel besides its keys, as the store has them: headers and the proxy's login.

Values of headers are sealed one by one, so that their names can be shown. A proxy's URL is stored
with the sealed login in place of the login, so that the address can be shown; a token has only
characters that are valid there. No database here.
"""

from collections.abc import Mapping

from store.values.cipher import Cipher, Unreadable
from store.values.fields import Sealed


def seal_headers(cipher: Cipher, headers: Mapping[str, str | Sealed]) -> dict[str, str]:
    """Return name -> token. Values that are already sealed stay as they are."""
    return {
        name: value.token if isinstance(value, Sealed) else cipher.encrypt(value)
        for name, value in headers.items()
    }


def open_headers(cipher: Cipher, tokens: Mapping[str, str]) -> dict[str, str]:
    """Return name -> value. Raises Unreadable."""
    return {name: cipher.decrypt(token) for name, token in tokens.items()}


def same_headers(
    cipher: Cipher, stored: Mapping[str, Sealed], given: Mapping[str, str | Sealed]
) -> bool:
    """Return whether given headers equal the stored ones. A value that cannot be opened differs."""
    if stored.keys() != given.keys():
        return False
    return all(
        value == stored[name] or _opened(cipher, stored[name].token) == value
        for name, value in given.items()
    )


def seal_proxy(cipher: Cipher, url: str | None) -> str | None:
    """Return the URL with its login, if there is one, as a token."""
    scheme, login, address = _parts(url)
    return f"{scheme}://{cipher.encrypt(login)}@{address}" if login else url


def open_proxy(cipher: Cipher, kept: str | None) -> str | None:
    """Return the URL of a proxy as it was given. Raises Unreadable."""
    scheme, token, address = _parts(kept)
    return f"{scheme}://{cipher.decrypt(token)}@{address}" if token else kept


def same_proxy(cipher: Cipher, kept: str | None, given: str | None) -> bool:
    """Return whether a given URL equals the stored one. One that cannot be opened differs."""
    scheme, token, address = _parts(kept)
    return (scheme, _opened(cipher, token) if token else "", address) == _parts(given)


def proxy_token(kept: str | None) -> str:
    """Return the sealed login in a proxy's URL, empty without one."""
    return _parts(kept)[1]


def with_proxy_token(kept: str | None, token: str) -> str:
    """Return the URL with another token for the same login."""
    scheme, _, address = _parts(kept)
    return f"{scheme}://{token}@{address}"


def _parts(url: str | None) -> tuple[str, str, str]:
    """Return scheme, login ("": none) and address."""
    scheme, _, rest = (url or "").partition("://")
    login, _, address = rest.rpartition("@")
    return scheme, login, address


def _opened(cipher: Cipher, token: str) -> str | None:
    try:
        return cipher.decrypt(token)
    except Unreadable:
        return None
