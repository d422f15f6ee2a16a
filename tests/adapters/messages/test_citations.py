"""Citations of texts, in both directions."""

from adapters.ir.parts import Citation
from adapters.messages.parts import decode_citations, encode_citation


def test_a_source_on_the_web_comes_back():
    citation = Citation("https://example.com", "T", quoted="q")
    assert decode_citations([encode_citation(citation)]) == (citation,)


def test_what_is_no_source_on_the_web_is_not_carried():
    odd = [
        7,
        {"type": "page_location", "url": "u"},
        {"type": "web_search_result_location", "url": 7},
        {"type": "web_search_result_location", "url": "u", "title": 7, "cited_text": None},
        {"type": "search_result_location", "source": "s"},
    ]
    assert decode_citations(odd) == (Citation("u"), Citation("s"))
    assert decode_citations("x") == ()
