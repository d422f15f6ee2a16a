"""A provider of OpenID Connect: its discovery document, its keys, and the user's identity (subject)
for an authorization code.

The flow is authorization code with PKCE, state and nonce. All responses of the provider are bounded
in size and time, and its certificate is verified. ID tokens must be signed with RS256 or ES256.
"""

import base64
import hashlib
import importlib
import json
import secrets
import time
from dataclasses import dataclass, field
from typing import Any, cast
from urllib.parse import quote, urlencode, urlsplit

from tornado.httpclient import HTTPClientError, HTTPError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from conf.settings import HubSettings
from handlers.hub.web.site import Site
from operations.client_settings import hub_url

CALLBACK_PATH = "/sign-in/openid/back"
ALGORITHMS = ("RS256", "ES256")
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 262_144
MAX_KEYS = 64
CACHE_S = 3600.0  # of the discovery document and the keys
KEYS_AGAIN_S = 60.0  # minimum age of the keys before an unknown key id causes another fetch
CLOCK_LEEWAY_S = 60
RANDOM_BYTES = 32
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


class ProviderError(Exception):
    """The provider is unusable or its response is not valid. The message may be logged."""


@dataclass(frozen=True, slots=True)
class AuthorizationRequest:
    """The request that starts a sign-in at the provider: its URL, and the values that the callback
    must match."""

    url: str
    state: str
    nonce: str = field(repr=False)
    verifier: str = field(repr=False)


@dataclass(slots=True)
class _CachedAnswer:
    """A response of the provider, with the time at which it was received."""

    content: dict[str, Any]
    at_s: float


class OpenIdProvider:
    """The provider in the settings."""

    def __init__(self, hub: HubSettings) -> None:
        self.issuer = hub.oidc_issuer
        self._client_id, self._client_secret = hub.oidc_client_id, hub.oidc_client_secret
        self._callback_url = hub_url(hub) + CALLBACK_PATH
        self._discovery: _CachedAnswer | None = None
        self._keys: _CachedAnswer | None = None
        # Imported by name, so that its 3 MB are loaded only when somebody signs in by OpenID.
        self._jwt: Any = importlib.import_module("jwt")

    async def authorization_request(self) -> AuthorizationRequest:
        """Return a new authorization request. Raises ProviderError."""
        discovery = await self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(RANDOM_BYTES) for _ in range(3))
        challenge = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._callback_url,
            "scope": "openid",
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        endpoint = discovery["authorization_endpoint"]
        url = f"{endpoint}{'&' if urlsplit(endpoint).query else '?'}{urlencode(query)}"
        return AuthorizationRequest(url, state, nonce, verifier)

    async def subject(self, code: str, nonce: str, verifier: str) -> str:
        """Exchange an authorization code and return the provider's id of the user. Raises
        ProviderError."""
        discovery = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._callback_url,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        basic = "client_secret_basic"
        if self._client_secret and basic in discovery.get(
            "token_endpoint_auth_methods_supported", [basic]
        ):
            pair = f"{quote(self._client_id, safe='')}:{quote(self._client_secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_id"] = self._client_id
            if self._client_secret:
                form["client_secret"] = self._client_secret
        answer = await self._fetch(discovery["token_endpoint"], urlencode(form), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise ProviderError("the provider sent no ID token")
        return await self._subject_of(token, nonce)

    async def _subject_of(self, token: str, nonce: str) -> str:
        """Return the subject of an ID token, after verifying that it is for this sign-in."""
        try:
            header = self._jwt.get_unverified_header(token)
            algorithm = header.get("alg")
            if algorithm not in ALGORITHMS:
                raise ProviderError(f"the ID token is signed with {algorithm}")
            claims: dict[str, Any] = self._jwt.decode(
                token,
                await self._key(header.get("kid"), algorithm),
                algorithms=[algorithm],
                audience=self._client_id,
                issuer=self.issuer,
                leeway=CLOCK_LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub", "nonce"]},
            )
        except self._jwt.PyJWTError as error:
            raise ProviderError(f"the ID token is not valid: {error}") from None
        if not secrets.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise ProviderError("the ID token is of another sign-in")
        if claims.get("azp", self._client_id) != self._client_id:
            raise ProviderError("the ID token is for another client")
        return str(claims["sub"])

    async def _key(self, key_id: str | None, algorithm: str) -> Any:
        """Return the key that verifies a signature. If the key is unknown, fetch the provider's
        keys again."""
        now_s = time.monotonic()
        for max_age_s in (CACHE_S, KEYS_AGAIN_S):
            if self._keys is None or now_s - self._keys.at_s >= max_age_s:
                discovery = await self._discover()
                self._keys = _CachedAnswer(await self._fetch(discovery["jwks_uri"]), now_s)
            keys = self._keys.content.get("keys")
            for key in keys[:MAX_KEYS] if isinstance(keys, list) else ():
                if isinstance(key, dict) and _may_have_signed(key, key_id, algorithm):
                    return self._jwt.PyJWK(key, algorithm)
        raise ProviderError("the provider has no key that fits the ID token")

    async def _discover(self) -> dict[str, Any]:
        """Return the discovery document, fetched at most once per CACHE_S."""
        now_s = time.monotonic()
        if self._discovery is None or now_s - self._discovery.at_s >= CACHE_S:
            url = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
            document = await self._fetch(url)
            if document.get("issuer") != self.issuer:
                raise ProviderError("the discovery document is of another issuer")
            for name in ENDPOINTS:
                if not self._is_safe(document.get(name)):
                    raise ProviderError(f"the discovery document has no safe {name}")
            self._discovery = _CachedAnswer(document, now_s)
        return self._discovery.content

    def _is_safe(self, url: object) -> bool:
        """Return whether a URL uses TLS. Only a provider on loopback may do without."""
        schemes = {"https", urlsplit(self.issuer).scheme}
        return isinstance(url, str) and urlsplit(url).scheme in schemes

    async def _fetch(
        self, url: str, form: str | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        """Return the JSON object at a URL. Raises ProviderError."""
        client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=MAX_ANSWER_BYTES)
        request = HTTPRequest(
            url,
            method="GET" if form is None else "POST",
            headers={"Accept": "application/json", **(headers or {})},
            body=form,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=ANSWER_TIMEOUT_S,
            follow_redirects=False,
            validate_cert=True,
        )
        try:
            response: HTTPResponse = await client.fetch(request)
            content = json.loads(response.body)
        except (HTTPClientError, HTTPError, OSError, ValueError) as error:
            raise ProviderError(f"{urlsplit(url).netloc} did not answer: {error}") from None
        finally:
            client.close()
        if not isinstance(content, dict):
            raise ProviderError(f"{urlsplit(url).netloc} sent no JSON object")
        return content


def _may_have_signed(key: dict[str, Any], key_id: str | None, algorithm: str) -> bool:
    """Return whether a key may have made a signature with this key id and algorithm."""
    kind = "RSA" if algorithm == "RS256" else "EC"
    return (
        key.get("kty") == kind
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (key_id is None or key.get("kid") == key_id)
    )


def provider_of(site: Site) -> OpenIdProvider | None:
    """Return the provider in the settings, or None if there is none."""
    hub = site.settings.hub
    if hub.oidc_issuer and site.provider is None:
        site.provider = OpenIdProvider(hub)
    return cast("OpenIdProvider | None", site.provider)


def provider_name(site: Site) -> str:
    """Return the provider's host name for display, or "" if there is none."""
    issuer = site.settings.hub.oidc_issuer
    return urlsplit(issuer).hostname or issuer
