"""Citations of texts: sources on the web, in both directions. Places in a client's own documents
have no word in other families. Imported by the codec."""

from typing import Any

from adapters.ir.answer import MAX_CITATIONS
from adapters.ir.parts import Citation

# Stands where a vendor's signature or index would: no vendor of this family has made what it is on.
# It is how all wrapped state begins (``client.foreign`` finds them by it), and nothing behind that.
UNSIGNED = "gw1."

_KINDS = ("web_search_result_location", "search_result_location")


def decode_citations(value: object) -> tuple[Citation, ...]:
    """Those of a text block that are on the web."""
    if not isinstance(value, list):
        return ()
    read = map(decode_citation, value[:MAX_CITATIONS])
    return tuple(citation for citation in read if citation is not None)


def decode_citation(value: object) -> Citation | None:
    """One citation; None when it names no place on the web."""
    if not isinstance(value, dict) or value.get("type") not in _KINDS:
        return None
    url = value.get("url") or value.get("source")
    if not isinstance(url, str):
        return None
    title, quoted = value.get("title"), value.get("cited_text")
    return Citation(
        url,
        title if isinstance(title, str) else "",
        quoted=quoted if isinstance(quoted, str) else "",
    )


def encode_citation(citation: Citation) -> dict[str, Any]:
    """A citation for a client; in place of the vendor's index it says that there is none."""
    return {
        "type": "web_search_result_location",
        "url": citation.url,
        "title": citation.title or None,
        "cited_text": citation.quoted,
        "encrypted_index": UNSIGNED,
    }
