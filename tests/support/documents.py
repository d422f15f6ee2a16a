"""Documents of `apply` for the tests of handlers."""

from tests.support.dialects import SECRET

UPSTREAM_KEY = "sk-vendor-of-the-channel-42"
CREDIT = "1000000"  # no test shall meet an empty wallet because of another one
PRICE = {"input": "3", "output": "15"}


def channel(name, family, url, models, **more):
    """One channel of the document, open to the group "all"."""
    return {
        "name": name,
        "vendor": "demo",
        "family": family,
        "base_url": url,
        "keys": [UPSTREAM_KEY],
        "groups": ["all"],
        "models": models,
        **more,
    }


def document(models, channels):
    """Models at the same price, channels, and one rich owner of one key."""
    return {
        "model": [{"name": name, "price": PRICE} for name in models],
        "group": [{"name": "all"}],
        "channel": channels,
        "user": [{"name": "owner", "balance": CREDIT}],
        "key": [{"user": "owner", "name": "main", "group": "all", "secret": SECRET}],
    }
