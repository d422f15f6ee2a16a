"""Whether a base URL is right: for each kind of client what it would ask for, and what to set.

The rules are those of the interface: clients of the OpenAI families are given {base_url}/v1, those
of messages and of generate-content {base_url}, and only what asks for a whole endpoint gets one.
Pure; for the Hub.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from adapters.base_urls import BASE_PATHS, end_of, given_path

MAX_CHARS = 2000
MODELS = "/v1beta/models/…"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of client: what its base URL ends with, what it appends itself, which rule holds."""

    name: str
    base_path: str
    appends: str
    rule: int


KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        Kind("openai", "/v1", "/chat/completions", 1),
        Kind("messages", "", "/v1/messages", 2),
        Kind("generate_content", "", MODELS, 2),
        Kind("full_messages", "/v1/messages", "", 3),
    )
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a kind of client would ask for: `given` is the path of the base URL, `appended` what the
    client adds. Wrong ones are wrong from there on. `use`: the base URL to set."""

    kind: str
    rule: int
    given: str
    appended: str
    right: bool
    use: str


@dataclass(frozen=True, slots=True)
class Check:
    """`problem`: what is wrong with the address whatever the client is: no_url, other_host,
    other_path (of a gateway that has one), hub_host, other_scheme; None when it is the gateway."""

    problem: str | None
    verdicts: tuple[Verdict, ...]


def check(pasted: str, base_url: str, hub_url: str = "") -> Check:
    """What a pasted base URL is for each kind of client; one without a scheme is read as if it had
    the gateway's."""
    base = urlsplit(base_url)
    text = pasted.strip()[:MAX_CHARS]
    if "://" not in text:
        text = f"{base.scheme}://{text}"
    address = _split(text)
    problem = _problem(address, base, _split(hub_url) if hub_url else None)
    given = "" if address is None else _path(address).rstrip("/").removeprefix(base.path)
    verdicts = (
        Verdict(
            kind=kind.name,
            rule=kind.rule,
            given=given,
            appended=kind.appends,
            right=problem is None and given == kind.base_path,
            use=base_url + kind.base_path,
        )
        for kind in KINDS.values()
    )
    return Check(problem, () if problem == "no_url" else tuple(verdicts))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Why a path does not exist. `given`: the path of the base URL that the client has, `appended`
    what it has added; `use`: the base URL to set instead, None when another one would not help or
    nothing is known about the client."""

    given: str
    appended: str
    use: str | None


def diagnose(path: str, base_url: str) -> Diagnosis:
    """What a client that asked for a path that does not exist has for a base URL."""
    given = given_path(path)
    family, _ = end_of(path)
    if given is None or family is None:
        return Diagnosis("", path, None)
    right = BASE_PATHS[family]
    use = None if given == right else base_url + right
    return Diagnosis(given, path[len(given) :], use)


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        known = parts.hostname is not None and parts.port != 0
    except ValueError:
        return None
    return parts if known else None


def _path(address: SplitResult) -> str:
    return address.path + (f"?{address.query}" if address.query else "")


def _problem(address: SplitResult | None, base: SplitResult, hub: SplitResult | None) -> str | None:
    if address is None or address.scheme not in ("http", "https"):
        return "no_url"
    if _place(address) == _place(base):
        return None if address.path.startswith(base.path) else "other_path"
    if hub is not None and _place(address) == _place(hub):
        return "hub_host"
    same = address.hostname == base.hostname and address.port == base.port
    return "other_scheme" if same else "other_host"


def _place(address: SplitResult) -> tuple[str | None, int]:
    """Host and port; the scheme tells the port that is not written."""
    return address.hostname, address.port or (443 if address.scheme == "https" else 80)
