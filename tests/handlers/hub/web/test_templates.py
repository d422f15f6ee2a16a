"""Templates are compiled once, and the text of their code is not kept."""

from handlers.hub.app import LeanLoader


def test_the_text_of_the_code_is_not_kept(tmp_path):
    (tmp_path / "base.html").write_text("<p>{% block content %}{% end %}</p>")
    (tmp_path / "page.html").write_text(
        '{% extends "base.html" %}{% block content %}{{ name }}{% end %}'
    )
    loader = LeanLoader(str(tmp_path))
    page = loader.load("page.html")
    assert page.generate(name="a < b") == b"<p>a &lt; b</p>"
    assert loader.load("page.html") is page
    assert not any(one.code for one in loader.templates.values())
