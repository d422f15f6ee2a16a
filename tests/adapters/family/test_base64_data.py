"""Base64 and data URLs as clients write them."""

import base64

import pytest

from adapters.family.base64_data import base64_of, split_data_url, standard_base64, text_of
from adapters.faults import Condition, Fault


@pytest.mark.parametrize(
    ("sent", "kept"),
    [("-_-_", "+/+/"), ("aGk", "aGk="), ("aGk=", "aGk="), ("aG\nk=", "aGk="), ("", "")],
)
def test_base64_is_brought_to_the_standard_alphabet_with_padding(sent, kept):
    assert standard_base64(sent, "x") == kept


@pytest.mark.parametrize("sent", ["a", "aGk!", "é", "aG=k"])
def test_what_is_no_base64_is_refused(sent):
    with pytest.raises(Fault) as caught:
        standard_base64(sent, "input[0]")
    assert (caught.value.condition, caught.value.param) == (Condition.INVALID_FIELD, "input[0]")


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("data:image/png;base64,aGk=", ("image/png", "aGk=")),
        ("DATA:Image/PNG;name=a.png;BASE64,aGk", ("image/png", "aGk=")),
        ("data:;base64,aGk=", ("", "aGk=")),
        ("https://example.org/a.png", None),
    ],
)
def test_data_urls(url, parts):
    assert split_data_url(url, "x") == parts


@pytest.mark.parametrize("url", ["data:text/plain,hello", "data:image/png;base64", "data:"])
def test_a_data_url_without_base64_is_refused(url):
    with pytest.raises(Fault):
        split_data_url(url, "x")


def test_text_documents():
    assert text_of(base64_of("grüß"), "x") == "grüß"
    with pytest.raises(Fault):
        text_of(base64.b64encode(b"\xff\xfe\xfa").decode(), "x")
