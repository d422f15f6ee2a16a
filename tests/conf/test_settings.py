"""The table of settings."""

import json

import msgspec
import pytest
from msgspec.structs import replace

from conf.configuration import load
from conf.settings import SETTINGS, HubSettings, Settings, from_plain, to_plain
from conf.values import checked

DEFAULTS = """{
"server": {"host": "127.0.0.1", "port": 8000, "workers": 1, "public_url": "", "trusted_proxies": [],
"cors_origins": [],
"max_body_bytes": 33554432, "body_memory_bytes": 268435456, "stream_buffer_bytes": 262144,
"max_upload_bytes": 104857600, "spool_dir": "", "spool_bytes": 4294967296,
"header_timeout_s": 30, "body_timeout_s": 60, "keepalive_timeout_s": 75, "drain_timeout_s": 600},
"upstream": {"connect_timeout_s": 10, "first_byte_timeout_s": 600, "idle_timeout_s": 300,
"heartbeat_s": 15, "commit_after_s": 30, "max_event_bytes": 4194304, "max_answer_bytes": 67108864,
"allow_private": true},
"routing": {"max_attempts": 3, "total_time_s": 60, "retry_timeouts": false,
"unknown_responses": "refuse"},
"hub": {"enabled": true, "host": "127.0.0.1", "port": 8001, "public_url": "",
"relay_networks": ["127.0.0.0/8", "::1/128"],
"oidc_issuer": "", "oidc_client_id": "", "oidc_client_secret": ""},
"ops": {"enabled": true, "host": "127.0.0.1", "port": 9000, "token": "", "hosts": []},
"money": {"currency": "USD", "unpriced": "refuse_dearer"},
"log": {"level": "info", "format": "json", "file": ""}}
"""


def test_defaults_are_those_of_the_interface():
    settings = json.loads(msgspec.json.encode(to_plain(load(None, (), {}).settings)))
    assert {section: settings[section] for section in json.loads(DEFAULTS)} == json.loads(DEFAULTS)
    journal = settings["journal"]
    assert (journal["sync_ms"], journal["refused_per_minute"]) == (20, 600)


def test_the_worker_gets_the_same_settings():
    chosen = ["log.level=error", 'server.trusted_proxies=["10.0.0.0/8"]']
    loaded = load(None, chosen, {}).settings
    wire = msgspec.json.encode(to_plain(loaded))
    assert from_plain(msgspec.json.decode(wire)) == loaded
    assert isinstance(from_plain({}), Settings)


def test_rows_are_complete():
    assert SETTINGS
    for row in SETTINGS.values():
        assert row.description.endswith("."), row.name
        suffix = row.name.rpartition("_")[2]
        if suffix in ("s", "ms", "bytes"):
            assert row.unit == suffix, row.name
        if row.kind is int:
            assert row.low is not None and row.high is not None, row.name
            assert row.low <= row.default <= row.high


def test_an_openid_provider_is_reached_by_tls_or_on_loopback():
    for bad in ("login.example.com", "http://login.example.com", "https://u:p@x.example"):
        with pytest.raises(ValueError, match="expected"):
            checked(SETTINGS["hub.oidc_issuer"], bad)
    for good in ("", "https://login.example.com/a", "http://127.0.0.1:8080"):
        assert checked(SETTINGS["hub.oidc_issuer"], good) == good


def test_the_secret_of_the_openid_client_is_one():
    assert SETTINGS["hub.oidc_client_secret"].secret
    secret = replace(HubSettings(), oidc_client_secret="of the hub")
    assert "of the hub" not in repr(secret) + repr(replace(Settings(), hub=secret))
