"""The address that clients are given; what they are told with it: test_client_config.py."""

import pytest

from conf.settings import ServerSettings
from operations import client_settings


@pytest.mark.parametrize(
    ("host", "base"),
    [
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://127.0.0.1:8000"),
        ("::1", "http://[::1]:8000"),
        ("10.1.2.3", "http://10.1.2.3:8000"),
    ],
)
def test_base_url(host, base):
    assert client_settings.base_url(ServerSettings(host=host)) == base
