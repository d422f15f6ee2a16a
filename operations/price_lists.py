"""The sources of a list of prices: a file, the package genai-prices, or, if requested, the
network.
"""

import dataclasses
import importlib
import json
import time
import urllib.request
from decimal import Decimal
from pathlib import Path
from typing import Any

from operations.price_sources import SOURCES
from store.values.errors import Refused
from store.values.texts import read_regular

MAX_LIST_BYTES = 16 * 1024 * 1024
FETCH_TIMEOUT_S = 30.0
PACKAGE = "genai-prices"
_CHUNK_BYTES = 64 * 1024


def load_list(source: str, file: Path | None, *, fetched: bool) -> object:
    """Return the content of a list: of the file if one is given, over the network if that is
    requested, else of the installed package. Raises Refused."""
    if file is not None:
        try:
            return _parsed(read_regular(file, MAX_LIST_BYTES))
        except (OSError, ValueError) as error:
            raise Refused([f"{file}: {error}"]) from None
    if fetched:
        return _parsed(fetch(SOURCES[source].url, https_opener()))
    if source != PACKAGE:
        raise Refused([f"where is the list? --file FILE, or --fetch from {SOURCES[source].url}"])
    return installed_list()


def installed_list() -> object:
    """Return the list of the package genai-prices. Raises Refused if it is not installed."""
    try:
        return _plain(importlib.import_module("genai_prices.data").providers)
    except ImportError as error:
        remedy = ".venv/bin/python -m pip install genai-prices, or --file FILE, or --fetch"
        raise Refused([f"the package {PACKAGE} cannot be used ({error}): {remedy}"]) from None


def https_opener() -> urllib.request.OpenerDirector:
    """Return an opener that uses only https, also for redirects."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler,
        urllib.request.UnknownHandler,
        urllib.request.HTTPSHandler,
        urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPDefaultErrorHandler,
        urllib.request.HTTPErrorProcessor,
    ):
        opener.add_handler(handler())
    return opener


def fetch(url: str, opener: urllib.request.OpenerDirector) -> bytes:
    """Return the answer of an address, at most MAX_LIST_BYTES within FETCH_TIMEOUT_S. Raises
    Refused."""
    last_s, content = time.monotonic() + FETCH_TIMEOUT_S, b""
    request = urllib.request.Request(url, headers={"User-Agent": "sluice"})
    try:
        with opener.open(request, timeout=FETCH_TIMEOUT_S) as answer:
            while chunk := answer.read1(_CHUNK_BYTES):
                content += chunk
                if len(content) > MAX_LIST_BYTES:
                    raise Refused([f"{url}: more than {MAX_LIST_BYTES} bytes"])
                if time.monotonic() > last_s:
                    raise TimeoutError(f"took longer than {FETCH_TIMEOUT_S:g} s")
    except (OSError, ValueError) as error:  # URLError is an OSError
        raise Refused([f"{url}: {error}"]) from None
    return content


def _parsed(content: bytes) -> object:
    try:
        parsed: object = json.loads(content, parse_float=Decimal)
    except (ValueError, RecursionError) as error:
        raise Refused([f"the list is not JSON: {error}"]) from None
    return parsed


def _plain(value: Any) -> Any:
    """Return objects of the package as the JSON of its list."""
    if isinstance(value, list):
        return [_plain(element) for element in value]
    if dataclasses.is_dataclass(value) or type(value).__name__ == "ModelPrice":
        fields = {n: v for n, v in vars(value).items() if v is not None and not n.startswith("_")}
        return {name.rstrip("_"): _plain(field) for name, field in fields.items()}
    return value
