"""The provider of OpenID Connect as the pages know it. What speaks to it is loaded when there is
one and it is first needed: it brings 3 MB of libraries, which most installations never use."""

import importlib
from dataclasses import dataclass, field
from typing import Protocol, cast
from urllib.parse import urlsplit

from handlers.hub.web.site import Site

BACK = "/sign-in/openid/back"
OPENID = "handlers.hub.access.openid"


class ProviderError(Exception):
    """The provider cannot be used, or did not say what it has to; the log may have the message."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What a sign-in at the provider begins with: where to, and what has to fit afterwards."""

    url: str
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


class Provider(Protocol):
    """Says who somebody is."""

    issuer: str

    async def ask(self) -> Ask:
        """A new sign-in. Raises ProviderError."""
        ...

    async def subject(self, code: str, nonce: str, verifier: str) -> str:
        """For whom a code stands: the provider's name of the user. Raises ProviderError."""
        ...


def provider_of(site: Site) -> Provider | None:
    """The provider of the settings; None: there is none."""
    hub = site.settings.hub
    if hub.oidc_issuer and site.provider is None:
        site.provider = importlib.import_module(OPENID).OpenIdProvider(hub)
    return cast("Provider | None", site.provider)


def provider_name(site: Site) -> str:
    """How people know it; empty: there is none."""
    issuer = site.settings.hub.oidc_issuer
    return urlsplit(issuer).hostname or issuer
