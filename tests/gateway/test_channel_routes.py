"""Channels with headers, a proxy and certificates of their own, through a real gateway."""

import contextlib
import json

import pytest

from tests.support.certificates import Authority
from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, MESSAGES, PATHS, ask, credentials
from tests.support.documents import UPSTREAM_KEY, channel, document
from tests.support.echo import Echo, answer_of
from tests.support.proxy import Proxy

LOGIN = "sluice:proxy-hunter2"
SECRET = "org-secret-4711"
OURS = {"X-Org": SECRET, "Anthropic-Version": "2029-01-01"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def plain():
    with contextlib.closing(Echo()) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def tls(authority):
    with contextlib.closing(Echo(authority.server_context())) as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(tls):
    with Proxy(tls.port, LOGIN) as running:
        yield running


@pytest.fixture(scope="module")
def gateway(launch, plain, tls, proxy, authority):
    through = f"http://{LOGIN}@127.0.0.1:{proxy.port}"
    behind = f"https://upstream.test:{tls.port}"
    ca_file = str(authority.ca_file)
    channels = [
        channel("headers", CHAT, plain.url, {"headers": "up"}, extra_headers=OURS),
        channel("replaced", MESSAGES, plain.url, {"replaced": "up"}, extra_headers=OURS,
                vendor="anthropic"),
        channel("tunnel", CHAT, behind, {"tunnel": "up"}, proxy=through, ca_file=ca_file),
        channel("direct", CHAT, f"https://127.0.0.1:{tls.port}", {"direct": "up"}, ca_file=ca_file),
        channel("no login", CHAT, behind, {"no-login": "up"}, ca_file=ca_file,
                proxy=f"http://127.0.0.1:{proxy.port}"),
    ]  # fmt: skip
    models = [name for one in channels for name in one["models"]]
    return launch(document(models, channels))


def call(gateway, model, family=CHAT, headers=None):
    sent = {**credentials(family), **(headers or {})}
    return exchange(gateway.port, "POST", PATHS[family], sent, ask(family, model))


def lines_of(request):
    head = request.partition("\r\n\r\n")[0].split("\r\n")[1:]
    return [(name.lower(), value) for name, _, value in (line.partition(": ") for line in head)]


def test_headers_of_a_channel_are_sent_and_take_the_place_of_others(gateway, plain):
    assert call(gateway, "headers").status == 200
    lines = lines_of(plain.requests[-1])
    assert ("x-org", SECRET) in lines
    assert ("authorization", f"Bearer {UPSTREAM_KEY}") in lines
    call(gateway, "replaced", MESSAGES, {"anthropic-version": "2023-06-01"})
    versions = [value for name, value in lines_of(plain.requests[-1]) if name.endswith("version")]
    assert versions == [OURS["Anthropic-Version"]]
    # A client does not see these secrets, even if the upstream repeats them.
    good, plain.answer = plain.answer, answer_of(400, {"error": {"message": f"bad {SECRET}"}})
    refused = call(gateway, "headers")
    plain.answer = good
    assert refused.status == 400
    assert SECRET.encode() not in refused.body and b"bad ***" in refused.body


def test_an_upstream_behind_a_proxy_with_a_private_authority(gateway, tls, proxy):
    asked = len(proxy.asked)
    assert call(gateway, "tunnel").status == 200
    assert proxy.asked[asked:] == [f"CONNECT upstream.test:{tls.port}"]
    assert call(gateway, "direct").status == 200
    assert len(proxy.asked) == asked + 1


def test_channel_test_goes_the_same_way(gateway, proxy, plain):
    asked = len(proxy.asked)
    assert json.loads(gateway.run("channel", "test", "tunnel", "--json"))["ok"] is True
    assert len(proxy.asked) == asked + 1
    assert json.loads(gateway.run("channel", "test", "headers", "--json"))["ok"] is True
    assert ("x-org", SECRET) in lines_of(plain.requests[-1])
    said = json.loads(gateway.run("channel", "test", "no login", "--json", code=1))
    assert said["error"].startswith("connect: ")


def test_nothing_of_it_is_printed_or_logged(gateway):
    shown = [gateway.run(*args) for args in (("channel", "list", "--json"), ("export",))]
    shown += [gateway.run("channel", "show", name) for name in ("tunnel", "headers")]
    text = "\n".join([*shown, gateway.log()])
    assert "http://***@127.0.0.1" in text and "x-org" in text
    for secret in (SECRET, "hunter2"):
        assert secret not in text


def test_a_refused_key_is_checked_by_the_channels_own_way(gateway, tls, proxy):
    """This test is the last one, because it suspends the key."""
    before, asked = len(tls.requests), len(proxy.asked)
    tls.answer = answer_of(401, {"error": {"message": "Incorrect API key provided"}})
    assert call(gateway, "tunnel").status == 502
    assert wait_until(lambda: "channel=tunnel upstream_key=1/1" in gateway.log())
    post, check = tls.requests[before:]
    assert post.startswith("POST ") and check.startswith("GET /v1/models ")
    assert ("authorization", f"Bearer {UPSTREAM_KEY}") in lines_of(check)
    assert set(proxy.asked[asked:]) == {f"CONNECT upstream.test:{tls.port}"}
    assert len(proxy.asked) == asked + 2
