"""Errors of upstreams about unknown fields, and which of these fields may be left out."""

import json
from pathlib import Path

import pytest

from adapters.upstream_errors.read import read_upstream_error
from adapters.upstream_errors.refused_fields import REFUSED_FIELDS

FORBIDDEN = "Extra inputs are not permitted"


@pytest.mark.parametrize(
    ("message", "names"),
    [
        (f"context_management: {FORBIDDEN}", ("context_management",)),
        (f"output_config: {FORBIDDEN}", ("output_config.effort",)),
        (f"tools.3.custom.defer_loading: {FORBIDDEN}", ("tools.*.defer_loading",)),
        (f"system.0.cache_control.ephemeral.ttl: {FORBIDDEN}", ("cache_control.ttl",)),
        (f"tools.0.cache_control: {FORBIDDEN}", ("cache_control",)),
        (f"system.2.cache_control.ephemeral.scope: {FORBIDDEN}", ("cache_control.scope",)),
        ("This model does not support the effort parameter.", None),
        ("Unrecognized request argument supplied: prompt_cache_key", ("prompt_cache_key",)),
        ("Unknown parameter: 'safety_identifier'.", ("safety_identifier",)),
        ('json: unknown field "verbosity"', ("verbosity", "text.verbosity")),
        ("property 'prompt_cache_key' is unsupported", ("prompt_cache_key",)),
        (
            "Invalid JSON payload received. Unknown name \"thinkingLevel\" at"
            " 'generation_config.thinking_config': Cannot find field.",
            ("generationConfig.thinkingConfig.thinkingLevel",),
        ),
        (f"messages.0.content: {FORBIDDEN}", ()),
        (f"temperature: {FORBIDDEN}", ()),
        ("context_management: the trigger must be above 0", ()),
        ("verbosity must be one of low, medium, high", ()),
    ],
)  # fmt: skip
def test_what_an_error_speaks_of(message, names):
    body = json.dumps({"error": {"type": "invalid_request_error", "message": message}}).encode()
    for status in (400, 422):
        what = read_upstream_error(status, {}, body).retry_without
        if names is None:
            assert "output_config.effort" in what
        else:
            assert what == (names or None)
    assert read_upstream_error(500, {}, body).retry_without is None


def test_the_list_of_fastapi():
    detail = [
        {"type": "extra_forbidden", "loc": ["body", name], "msg": FORBIDDEN, "input": 1}
        for name in ("context_management", "verbosity", "top_a")
    ]
    read = read_upstream_error(422, {}, json.dumps({"detail": detail}).encode())
    assert read.retry_without == ("context_management", "verbosity", "text.verbosity")
    assert read.fault.operator_message.startswith("body.context_management: Extra inputs")


def test_the_page_about_channels_lists_them():
    page = (Path(__file__).parents[3] / "docs" / "channels.md").read_text()
    table = page.partition("### Fields that a server does not know")[2].partition("\n## ")[0]
    listed = [line.split("`")[1] for line in table.splitlines() if line.startswith("| `")]
    assert listed == list(REFUSED_FIELDS)
