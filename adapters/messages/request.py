"""Requests of the messages family: what is read, edited and sent along.

Two versions of the interface are alive; the client's version and betas travel with the body they
belong to. Imported by this folder's ``client`` and ``upstream``.
"""

from collections.abc import Mapping

from adapters.family import Operation, Peek, Vendor
from adapters.family.conversation import given_name, object_field, opening
from adapters.family.fields import count, flag, model_name, required_array
from adapters.family.headers import base_lines, is_safe
from adapters.faults import Condition, Fault
from adapters.json.jsonio import Spans

KNOWN_VERSIONS = ("2023-06-01", "2026-10-21")  # oldest first
# Fields with which a later request may name the message that answers this one.
_KEEPING = frozenset({"thread", "diagnostics"})
_VERSION_OF_NO_HEADER = KNOWN_VERSIONS[0]


def peek(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read the few fields; raises Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING with the
    field's name.

    A request to count tokens needs no ``max_tokens``.
    """
    model = model_name(spans)
    required_array(spans, "messages")
    if "max_tokens" in spans:
        bound = count(spans, "max_tokens")
    elif operation.job == "count":
        bound = None
    else:
        raise Fault(Condition.FIELD_MISSING, param="max_tokens")
    return Peek(
        model=model,
        stream=flag(spans, "stream"),
        max_output_tokens=bound or None,
        choices=1,
        include_usage=True,  # streams of the family always show it
        stored=not _KEEPING.isdisjoint(spans.places),
    )


def conversation(spans: Spans) -> bytes:
    """What names the conversation. Claude Code puts its session into ``metadata.user_id``, and
    something else into ``system`` in each call."""
    given = given_name(object_field(spans, "metadata", "user_id"))
    return given or opening(spans, ("system",), "messages")


def headers(client: Mapping[str, str], vendor: Vendor, key: str) -> list[str]:
    """Header lines for the upstream: our credential, the client's version and betas."""
    lines = base_lines(client, vendor, key)
    lines.append(f"anthropic-version: {version(client)}")
    betas = [beta.strip() for beta in client.get("anthropic-beta", "").split(",")]
    joined = ",".join(beta for beta in betas if beta)
    if is_safe(joined):
        lines.append(f"anthropic-beta: {joined}")
    return lines


def version(client: Mapping[str, str]) -> str:
    """The version to ask the upstream for: the client's if it is known, else the newest known."""
    asked = client.get("anthropic-version") or client.get("compat-version")
    if not asked:
        return _VERSION_OF_NO_HEADER
    asked = asked.strip()
    return asked if asked in KNOWN_VERSIONS else KNOWN_VERSIONS[-1]
