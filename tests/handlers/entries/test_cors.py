"""Pages of other origins in a browser: preflights, and the headers of answers, errors, streams."""

import pytest

from tests.handlers.entries.test_models import bearer
from tests.handlers.entries.test_stream_check import PATH as STREAM
from tests.handlers.entries.test_stream_check import site
from tests.support.served import serving

APP, OTHER = "https://app.example", "https://other.example"
ASKED = {"Access-Control-Request-Method": "POST"}
ALLOWED, ANY = ["https://dev.example", APP], ["*"]
OF_APP = {
    "access-control-allow-origin": APP,
    "access-control-expose-headers": "*",
    "vary": "Origin",
}
OF_ANY = {"access-control-allow-origin": "*", "access-control-expose-headers": "*"}
PREFLIGHT = {
    "access-control-allow-methods": "GET, HEAD, POST, DELETE",
    "access-control-max-age": "7200",
}


def cors_of(answer):
    return {
        name: value
        for name, value in answer.headers.items()
        if name.startswith("access-control-") or name == "vary"
    }


@pytest.mark.parametrize(
    ("origins", "origin", "expected"),
    [
        (ALLOWED, APP, OF_APP),
        (ANY, OTHER, OF_ANY),
        (ANY, "null", OF_ANY),
        ([], APP, None),
        (ALLOWED, OTHER, None),
        (ALLOWED, APP + ".evil", None),
        (ALLOWED, "null", None),
    ],
)
async def test_a_preflight_needs_no_key(origins, origin, expected):
    asked = {"Access-Control-Request-Headers": "authorization,content-type,x-stainless-os"}
    named = {"access-control-allow-headers": "authorization,content-type,x-stainless-os"}
    async with serving(cors_origins=origins) as served:
        for path in ("/v1/chat/completions", "/v1beta/models/m:generateContent", "/nowhere"):
            for more, headers in (({}, {}), (asked, named)):
                answer = await served.ask("OPTIONS", path, {"Origin": origin, **ASKED, **more})
                if expected is None:
                    assert answer.status in (404, 405) and cors_of(answer) == {}
                else:
                    assert (answer.status, answer.body) == (200, b"")
                    assert cors_of(answer) == {**expected, **PREFLIGHT, **headers}


async def test_options_that_is_no_preflight_is_refused_as_ever():
    async with serving(cors_origins=ANY) as served:
        for headers in ({"Origin": APP}, ASKED, {}):
            assert (await served.ask("OPTIONS", "/v1/messages", headers)).status == 405


@pytest.mark.parametrize(
    ("origins", "headers", "expected"),
    [
        (ALLOWED, {"Origin": APP}, OF_APP),
        (ALLOWED, {"Origin": OTHER}, {}),
        (ALLOWED, {}, {}),
        (ANY, {"Origin": OTHER}, OF_ANY),
        ([], {"Origin": APP}, {}),
    ],
)
async def test_answers_errors_and_streams_have_the_headers(origins, headers, expected):
    async with site(cors_origins=origins) as served:
        for method, path, more, status in (
            ("GET", "/livez", {}, 200),
            ("GET", "/nowhere", {}, 404),
            ("POST", "/v1/messages", {}, 401),
            ("GET", "/livez", {"Transfer-Encoding": "gzip"}, 400),  # not valid HTTP
        ):
            answer = await served.ask(method, path, {**headers, **more})
            assert (answer.status, cors_of(answer)) == (status, expected)
        peer = await served.peer()
        await peer.request("GET", STREAM, {**bearer(), **headers})
        answer = await peer.head()
        assert (answer.status, cors_of(answer)) == (200, expected)
