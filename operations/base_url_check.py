"""Check of a base URL: for each kind of client the URL that it would request, and the one to set.

The rules are the interface's. Clients of the OpenAI families get {base_url}/v1, those of messages
and generate-content {base_url}, and only clients that need a whole endpoint get one. Pure; for the
Hub.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from adapters.base_urls import BASE_PATHS, end_of, given_path

MAX_CHARS = 2000
MODELS = "/v1beta/models/…"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of client: the path of its base URL, the path that it appends, and its rule."""

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
    """The verdict on a base URL for a kind of client: its `path`, the path that the client
    `appended`, and the URL to `use`."""

    kind: str
    rule: int
    path: str
    appended: str
    right: bool
    use: str


@dataclass(frozen=True, slots=True)
class Check:
    """The check of a base URL. `problem` is the address's, for every client: no_url, other_host,
    other_path (the gateway is below a path), hub_host, other_scheme. None: the address is right."""

    problem: str | None
    verdicts: tuple[Verdict, ...]


def check(pasted: str, base_url: str, hub_url: str = "") -> Check:
    """Check a pasted base URL for each kind of client. Without a scheme it gets the gateway's."""
    base = urlsplit(base_url)
    text = pasted.strip()[:MAX_CHARS]
    if "://" not in text:
        text = f"{base.scheme}://{text}"
    address = _split(text)
    problem = _problem(address, base, _split(hub_url) if hub_url else None)
    path = "" if address is None else _path(address).rstrip("/").removeprefix(base.path)
    verdicts = (
        Verdict(
            kind=kind.name,
            rule=kind.rule,
            path=path,
            appended=kind.appends,
            right=problem is None and path == kind.base_path,
            use=base_url + kind.base_path,
        )
        for kind in KINDS.values()
    )
    return Check(problem, () if problem == "no_url" else tuple(verdicts))


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The cause of a request for an unknown path. `base_path`: the client's base URL; `appended`:
    the path that the client added; `use`: the base URL to set, None if another one would not help
    or the client is unknown."""

    base_path: str
    appended: str
    use: str | None


def diagnose(path: str, base_url: str) -> Diagnosis:
    """Find the wrong base URL that led to a request for an unknown path."""
    base_path = given_path(path)
    family, _ = end_of(path)
    if base_path is None or family is None:
        return Diagnosis("", path, None)
    right = BASE_PATHS[family]
    use = None if base_path == right else base_url + right
    return Diagnosis(base_path, path[len(base_path) :], use)


def _split(text: str) -> SplitResult | None:
    try:
        parts = urlsplit(text)
        complete = parts.hostname is not None and parts.port != 0 and len(text.split()) == 1
    except ValueError:
        return None
    return parts if complete else None


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
    """Return host and port; the port defaults to the scheme's."""
    return address.hostname, address.port or (443 if address.scheme == "https" else 80)
