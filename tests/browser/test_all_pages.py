"""Checks of every page in each language, at each width, in each theme: nothing wider than the
window, no text overlapping another or cut without a sign, neighbours in line, no field without a
label, no date in another form, no serious finding of axe, no dead link, nothing on the console
(see conftest.py). Names have their maximum length.

The pages are those of the table of routes (pages.py). SLUICE_SCREENSHOTS=folder saves a picture of
each.
"""

import re
from urllib.parse import quote, urlsplit

import pytest

from tests.browser import pages
from tests.browser.looks import (
    ALIGNED,
    CUT,
    DATES,
    FAULTS,
    GAPS,
    OVERLAPS,
    ROWS,
    THEMES,
    WIDTH,
    axe_faults,
)
from tests.browser.world import LONG, LongWorld

MEMBER, ADMIN = pages.paths(admin=False), pages.paths(admin=True)
USERS = {LONG["member"]: MEMBER, LONG["admin"]: ADMIN}
BY_ROLE = pytest.mark.parametrize("user", [*USERS], ids=["member", "admin"])
WIDTHS = {"phone": (360, 740), "tablet": (768, 1024), "laptop": (1280, 800), "desk": (1440, 900)}
LANGUAGES = {"en": "en-GB", "zh": "zh-CN"}
LOOKS = (WIDTH, OVERLAPS, ROWS, GAPS, ALIGNED, CUT)
MAX_LINKS = 150

LINKS = """() => [...document.querySelectorAll("a[href]")]
  .map((one) => new URL(one.getAttribute("href"), location).href)"""


@pytest.fixture(scope="module")
def world(tmp_path_factory, scripted_vendor):
    with LongWorld(tmp_path_factory.mktemp("world"), scripted_vendor) as world:
        yield world


@pytest.fixture(scope="module")
def names(world):
    """Return the identifiers of objects in the paths of pages, by their kind."""
    return {kind: quote(name, safe="") for kind, name in world.fill().items()}


@pytest.fixture(scope="module")
def links():
    """Collect links, by their path without the object's identifier."""
    return {}


def shown(page, user, names):
    """Yield each page of a user, one after the other; redirects are left out."""
    for template in USERS[user]:
        path = template.format(**names)
        answer = page.context.request.get(path, max_redirects=0)
        if answer.status != 303:
            assert answer.status == 200, f"{template}: status {answer.status}"
            page.goto(path)
            yield template


@BY_ROLE
@pytest.mark.parametrize("language", LANGUAGES)
def test_pages_are_whole(visit, world, names, picture, links, user, language):
    page = visit(user, "/account", locale=LANGUAGES[language])
    faults = []
    for template in shown(page, user, names):
        for width, (wide, high) in WIDTHS.items():
            page.set_viewport_size({"width": wide, "height": high})
            for theme in THEMES if width != "laptop" else ():
                page.emulate_media(color_scheme=theme)
                name = re.sub(r"\W+", "-", template).strip("-") or "home"
                picture(page, f"{name}-{width}-{language}-{theme}")
            looks = [line for script in LOOKS for line in page.evaluate(script)]
            faults += [f"{template} at {wide}: {fault}" for fault in looks]
        if page.locator("html").get_attribute("lang") != language:
            faults.append(f"{template}: not in {language}")
        wrong = [line for script in (FAULTS, DATES) for line in page.evaluate(script)]
        faults += [f"{template}: {fault}" for fault in wrong]
        for link in page.evaluate(LINKS):
            if link.startswith(world.hub_url):
                links.setdefault((user, _kind_of(link)), link)
    assert not faults, "\n".join(faults)


@BY_ROLE
def test_axe_finds_nothing_serious(visit, names, user):
    page, faults = visit(user, "/account"), []
    for template in shown(page, user, names):
        faults += [f"{template} {fault}" for fault in axe_faults(page)]
    assert not faults, "\n".join(faults)


def _kind_of(link):
    """Return a link's kind: links to objects of one kind, or with other values of a query, are
    alike."""
    parts = urlsplit(link)
    names = ",".join(sorted(pair.partition("=")[0] for pair in parts.query.split("&")))
    return re.sub(r"[0-9A-HJKMNP-TV-Z]{26}", "ID", parts.path), names


STYLES = """() => [...document.querySelectorAll("dialog.drawer *, dialog.ask *")].map((element) => {
  const style = getComputedStyle(element);
  const names = ["display", "color", "background-color", "font-size", "font-weight", "padding",
    "margin", "border-top-width", "text-align", "white-space", "gap"];
  const values = names.map((name) => `${name}: ${style.getPropertyValue(name)}`);
  return `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") || ""}"> `
    + values.join("; ");
})"""
SHEET_LINKS = """() => [...document.querySelectorAll("a[data-drawer], a[data-dialog]")]
  .map((link) => [link.getAttribute("href"), "drawer" in link.dataset])"""
OPEN_SHEET = """([href, isDrawer]) => {
  const link = document.createElement("a");
  link.href = href;
  link.dataset[isDrawer ? "drawer" : "dialog"] = "";
  document.body.append(link);
  link.click();
}"""


@BY_ROLE
def test_a_drawer_looks_the_same_from_every_page(visit, names, user):
    """On a page that links to it, and on its own page."""
    page = visit(user, "/account", reduced_motion="reduce")
    links = {}  # the page and the link, by the kind of both
    for _ in shown(page, user, names):
        path = urlsplit(page.url).path
        for href, is_drawer in page.evaluate(SHEET_LINKS):
            links.setdefault(_kind_of(href), (path, (href, is_drawer)))
    assert len(links) > 3
    different = []
    for path, link in links.values():
        expected = _styles_of_sheet(page, link[0], link)
        styles = _styles_of_sheet(page, path, link)
        assert len(expected) > 5
        different += [
            f"{link[0]} from {path}: {line}" for line in sorted(set(styles) ^ set(expected))
        ]
    assert not different, "\n".join(different)


def _styles_of_sheet(page, path, link):
    page.goto(path)
    page.evaluate(OPEN_SHEET, list(link))
    page.locator("dialog[open] article").wait_for()
    return page.evaluate(STYLES)


def test_no_link_leads_nowhere(visit, links):
    assert links, "the test before has found none"
    broken = []
    for user in USERS:
        page = visit(user, "/account")
        for whose, kind in list(links)[:MAX_LINKS]:
            if whose == user and "tail" not in kind[0]:
                answer = page.context.request.get(links[whose, kind])
                if answer.status >= 400:
                    broken.append(f"{links[whose, kind]}: {answer.status}")
    assert not broken, "\n".join(broken)
