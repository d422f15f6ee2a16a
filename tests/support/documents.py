"""Documents of `apply` for tests of handlers."""

from tests.support.dialects import SECRET

UPSTREAM_KEY = "sk-vendor-of-the-channel-42"
CREDIT = "1000000"  # enough that no test finds the wallet empty because of another one
PRICE = {"input": "3", "output": "15"}


def channel(name, family, url, models, **more):
    """Return a channel of the document, open to the group "all"."""
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
    """Return a document: models at the same price, channels, and one rich owner with one key."""
    return {
        "model": [{"name": name, "price": PRICE} for name in models],
        "group": [{"name": "all"}],
        "channel": channels,
        "user": [{"name": "owner", "balance": CREDIT}],
        "key": [{"user": "owner", "name": "main", "group": "all", "secret": SECRET}],
    }
