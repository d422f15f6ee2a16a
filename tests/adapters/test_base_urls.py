"""Detection of the base URL that a client was given, by the path that it requests."""

import pytest

from adapters.base_urls import given_path


@pytest.mark.parametrize(
    ("path", "given"),
    [
        ("/v1/messages/v1/messages", "/v1/messages"),
        ("/v1/v1/messages/count_tokens", "/v1"),
        ("/v1/v1/chat/completions", "/v1/v1"),
        ("/chat/completions", ""),
        ("/v1/messages/chat/completions", "/v1/messages"),
        ("/v1/messages/v1beta/models/m:generateContent", "/v1/messages"),
        ("/v1beta/models/m:embedContent", ""),
        ("/v1/responses/", "/v1"),
        ("/v1/files", None),
        ("/nothing", None),
    ],
)
def test_given_path(path, given):
    assert given_path(path) == given
