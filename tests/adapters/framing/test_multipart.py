"""Forms in any chunks: the places of their parts, and what is not a form."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.framing.multipart import FormError, FormReader, boundary_of

BODY = (
    b"preamble\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n"
    b"--b\r\ncontent-disposition:form-data;name=file; filename=\"a\\\"b\"\r\nx: y\r\n\r\n"
    b"\r\n--bogus\r\n-\r\n--b\r\ncontent-disposition: form-data; name=\"e\"\r\n\r\n\r\n--b--\r\nend"
)  # fmt: skip


def parts_of(*pieces, boundary=b"b"):
    reader = FormReader(boundary)
    for piece in pieces:
        reader.feed(piece)
    return reader.close()


@given(st.lists(st.integers(0, len(BODY)), max_size=8))
def test_any_split(cuts):
    edges = [0, *sorted(cuts), len(BODY)]
    parts = parts_of(*(BODY[a:b] for a, b in itertools.pairwise(edges)), b"more")
    assert [(part.name, part.text) for part in parts] == [
        ("model", b"m"),
        ("file", None),
        ("e", b""),
    ]
    assert [BODY[part.start : part.end] for part in parts] == [b"m", b"\r\n--bogus\r\n-", b""]


def head(disposition):
    return b"--b\r\n%b\r\n\r\n" % disposition


NAMED = b'content-disposition: form-data; name="a"'


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "the form has no end"),
        (head(NAMED) + b"a", "the form has no end"),
        (head(b"x: y") + b"a\r\n--b--", "a part has no name"),
        (b"--b\r\n" + b"x" * 9000, "the head of a part is too long"),
        (head(NAMED) + b"x" * 70_000, "the part 'a' is too long for a text"),
        ((head(NAMED) + b"\r\n") * 1001, "there are more than 1000 parts"),
    ],
)
def test_no_form(body, message):
    with pytest.raises(FormError, match=message):
        parts_of(body)


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        ("multipart/form-data; boundary=abc", b"abc"),
        ('Multipart/Form-Data; charset=x; boundary="a b"', b"a b"),
        ("multipart/form-data", None),
        ("multipart/mixed; boundary=abc", None),
        ("application/json", None),
    ],
)
def test_boundaries(content_type, boundary):
    assert boundary_of(content_type) == boundary
