"""Lists of prices: from a file, a package, and the network, only by https."""

import io
import sys
import threading
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer
from types import ModuleType, SimpleNamespace

import pytest

from operations import price_lists
from operations.price_lists import fetch, https_opener, load_list
from store.values.errors import Refused

LIST = b'{"data": [1.1]}'


class ListServer(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(302 if self.path == "/moved" else 404 if self.path == "/none" else 200)
        self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/list")
        self.end_headers()
        self.wfile.write(LIST if self.path == "/list" else b"")

    def log_message(self, *arguments):
        pass


@pytest.fixture
def url():
    with HTTPServer(("127.0.0.1", 0), ListServer) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.fixture
def plain():
    return urllib.request.build_opener(urllib.request.ProxyHandler({}))


def test_a_list_is_fetched_within_its_limits(url, plain, monkeypatch):
    assert fetch(f"{url}/list", plain) == LIST
    assert fetch(f"{url}/moved", plain) == LIST
    with pytest.raises(Refused, match="404"):
        fetch(f"{url}/none", plain)
    monkeypatch.setattr(price_lists, "MAX_LIST_BYTES", len(LIST) - 1)
    with pytest.raises(Refused, match="more than 14 bytes"):
        fetch(f"{url}/list", plain)
    monkeypatch.setattr(price_lists, "MAX_LIST_BYTES", len(LIST))
    monkeypatch.setattr(price_lists, "FETCH_TIMEOUT_S", 0.0000001)
    with pytest.raises(Refused):
        fetch(f"{url}/list", plain)


@pytest.mark.parametrize("address", ["{}/list", "ftp://127.0.0.1/x", "file:///etc/hostname"])
def test_the_network_is_https_alone(url, address):
    with pytest.raises(Refused, match="unknown url type"):
        fetch(address.format(url), https_opener())


def test_a_redirect_does_not_leave_https(url):
    opener = https_opener()
    request = urllib.request.Request("https://lists.example/x")
    request.timeout = 1
    [redirects] = opener.handle_error["http"][302]
    with pytest.raises(OSError, match="unknown url type: http"):
        redirects.http_error_302(request, io.BytesIO(), 302, "moved", {"location": f"{url}/list"})


def test_a_list_comes_from_a_file_the_network_or_the_package(tmp_path, monkeypatch):
    file = tmp_path / "list.json"
    file.write_bytes(LIST)
    assert str(load_list("litellm", file, fetched=False)) == "{'data': [Decimal('1.1')]}"
    file.write_bytes(b"{")
    with pytest.raises(Refused, match="not JSON"):
        load_list("litellm", file, fetched=False)
    with pytest.raises(Refused, match="cannot be read"):
        load_list("litellm", tmp_path / "none", fetched=False)
    with pytest.raises(Refused, match=r"--fetch from https://models\.dev/api\.json"):
        load_list("models.dev", None, fetched=False)
    monkeypatch.setattr(price_lists, "fetch", lambda url, opener: f'["{url}"]'.encode())
    [address] = load_list("openrouter", None, fetched=True)
    assert address == "https://openrouter.ai/api/v1/models"


def test_the_package_is_asked_for_its_list_when_it_is_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "genai_prices", None)
    monkeypatch.delitem(sys.modules, "genai_prices.data", raising=False)
    with pytest.raises(Refused, match="pip install genai-prices"):
        load_list("genai-prices", None, fetched=False)
    prices = type("ModelPrice", (), {})()
    prices.input_mtok, prices.output_mtok, prices._registry = 1, None, "x"
    data = ModuleType("genai_prices.data")
    data.providers = [SimpleNamespace(id="x", models=[prices])]
    monkeypatch.setitem(sys.modules, "genai_prices", ModuleType("genai_prices"))
    monkeypatch.setitem(sys.modules, "genai_prices.data", data)
    [provider] = load_list("genai-prices", None, fetched=False)
    assert provider is data.providers[0]  # not a data class: unchanged
    data.providers = [[prices]]
    assert load_list("genai-prices", None, fetched=False) == [[{"input_mtok": 1}]]
