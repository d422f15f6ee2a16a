"""Sources of texts, as answers and histories have them. Imported by the codecs of this family."""

from typing import Any

from adapters.ir.parts import Citation


def annotation(citation: Citation) -> dict[str, Any]:
    """A source of a text."""
    return {
        "type": "url_citation",
        "url": citation.url,
        "title": citation.title,
        "start_index": citation.start or 0,
        "end_index": citation.end or 0,
    }


def read_citation(annotation: object) -> Citation | None:
    """The source on the web that an annotation names; None for any other annotation."""
    if not isinstance(annotation, dict) or annotation.get("type") != "url_citation":
        return None
    url, title = annotation.get("url"), annotation.get("title")
    if not isinstance(url, str) or not url:
        return None
    start, end = annotation.get("start_index"), annotation.get("end_index")
    return Citation(
        url,
        title if isinstance(title, str) else "",
        start if type(start) is int else None,
        end if type(end) is int else None,
    )
