"""Who may ask the ops port: names that are ours, and whoever has the token."""

from http import HTTPStatus

import pytest

from commands.process.ops_server import Guard

TOKEN = "s3cret-token"


def status(guard, *fields, path="/status", came_to="127.0.0.1"):
    refusal = guard.refusal(path, fields, came_to)
    return None if refusal is None else refusal[0]


@pytest.mark.parametrize(
    "host",
    [
        *("localhost", "LOCALHOST:9000", "localhost.", "127.0.0.1", "127.0.0.1:9000", "127.8.8.8"),
        *("[::1]", "[::1]:9000", "gateway.internal", "Gateway.Internal:9000", "gateway.internal."),
    ],
)
def test_names_of_ours_are_answered(host):
    assert status(Guard(frozenset({"gateway.internal"})), f"Host: {host}") is None


@pytest.mark.parametrize(
    "fields",
    [
        *([], ["Host:"], ["Host: evil.example"], ["Host: evil.example:9000"], ["host: [::2]"]),
        *(["Host: localhost.evil.example"], ["Host: 127.0.0.1.evil.example"], ["Host: 10.0.0.7"]),
        ["Host: localhost", "Host: evil.example"],
        ["Host: localhost", "host: localhost"],
    ],
)
def test_other_names_are_not(fields):
    guard = Guard(frozenset({"gateway.internal"}))
    assert status(guard, *fields) == HTTPStatus.FORBIDDEN
    for path in ("/livez", "/readyz"):
        assert status(guard, *fields, path=path) is None


def test_the_address_that_was_asked_is_its_own():
    guard = Guard(frozenset({"0.0.0.0"}), TOKEN)
    bearer = f"Authorization: Bearer {TOKEN}"
    assert status(guard, "Host: 10.0.0.7:9000", bearer, came_to="10.0.0.7") is None
    assert status(guard, "Host: 10.0.0.7:9000", bearer, came_to="::ffff:10.0.0.7") is None
    assert status(guard, "Host: 10.0.0.8", bearer, came_to="10.0.0.7") == HTTPStatus.FORBIDDEN


@pytest.mark.parametrize(
    "fields",
    [
        [],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization: Bearer wrong"],
        [f"Authorization: {TOKEN}"],
        [f"Authorization: Basic {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}x"],
        ["Authorization: Bearer \xff\xfe"],
        [f"Authorization: Bearer {TOKEN}", "authorization: Bearer x"],
    ],
)
def test_a_token_is_wanted(fields):
    guard = Guard(frozenset(), TOKEN)
    for path in ("/status", "/drain", "/metrics", "/nothing"):
        assert status(guard, "Host: localhost", *fields, path=path) == HTTPStatus.UNAUTHORIZED
    for path in ("/livez", "/readyz"):
        assert status(guard, "Host: localhost", *fields, path=path) is None


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
def test_the_token_opens(scheme):
    guard = Guard(frozenset(), TOKEN)
    assert status(guard, "Host: localhost", f"Authorization: {scheme} {TOKEN}") is None
