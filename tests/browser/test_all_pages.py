"""Every page in each language, at each width, in each theme: nothing wider than the window, no
field without a label, no link that leads nowhere, nothing on the console (see conftest.py).

SLUICE_SCREENSHOTS=folder keeps a picture of each.
"""

import re
from urllib.parse import urlsplit

import pytest

MEMBER = (
    *("/", "/keys", "/keys/new", "/status", "/usage", "/usage?by=model", "/wallet"),
    *("/setup?url=x", "/account"),
    *("/try", "/try?with=*"),
)
KEY = ("", "/edit", "/rotate", "/revoke")  # pages of a key
ADMIN = tuple(
    f"/admin/{name}"
    for name in (
        *(
            "users",
            "users/alice",
            "keys",
            "invites",
            "users/alice/edit",
            "users/alice/statement",
            "groups",
            "models",
            "models?new=1",
            "prices",
            "channels",
        ),
        *("channels/openai-main", "plans", "codes", "usage", "audit", "system"),
    )
)
LOOKS = (  # both themes at each width, both languages at each width
    *(("desk", "en", "light"), ("desk", "zh", "dark"), ("tablet", "en", "dark")),
    *(("tablet", "zh", "light"), ("phone", "en", "light"), ("phone", "zh", "dark")),
)
LANGUAGES = {"en": "en-GB", "zh": "zh-CN"}
MAX_LINKS = 150

FAULTS = """() => {
  const faults = [];
  const wide = document.documentElement.scrollWidth - innerWidth;
  if (wide > 0) faults.push(`wider than the window by ${wide} px`);
  const said = (one) => one.outerHTML.slice(0, 120);
  const named = (one) => one.getAttribute("aria-label") || one.getAttribute("aria-labelledby")
    || one.title || one.textContent.trim() || one.querySelector("[aria-label], img[alt], title");
  for (const one of document.querySelectorAll("input:not([type=hidden]), select, textarea"))
    if (!one.labels.length && !one.getAttribute("aria-label")
      && !one.getAttribute("aria-labelledby") && !one.title) faults.push(`no label: ${said(one)}`);
  for (const one of document.querySelectorAll("button, a[href], summary"))
    if (!named(one) && one.getAttribute("tabindex") !== "-1") faults.push(`no name: ${said(one)}`);
  for (const one of document.querySelectorAll("img:not([alt])"))
    faults.push(`no alt: ${said(one)}`);
  const ids = [...document.querySelectorAll("[id]")].map((one) => one.id);
  for (const id of new Set(ids.filter((one, place) => ids.indexOf(one) !== place)))
    faults.push(`id twice: ${id}`);
  if (document.querySelectorAll("h1").length !== 1) faults.push("not one h1");
  if (document.querySelector("[style]:not(.uplot, .uplot *)")) faults.push("a style attribute");
  return faults;
}"""
LINKS = """() => [...document.querySelectorAll("a[href]")]
  .map((one) => new URL(one.getAttribute("href"), location).href)"""


@pytest.fixture(scope="module", autouse=True)
def calls(world):
    """Some calls, one of which fails, so that lists have rows."""
    for number in range(3):
        assert world.call(prompt=f"hello {number}") == 200
    world.call(model="no-such-model")


@pytest.fixture(scope="module")
def found():
    """Links, by the path that they lead to without what identifies one of many."""
    return {}


@pytest.mark.parametrize(("width", "language", "theme"), LOOKS)
@pytest.mark.parametrize("user", ["alice", "boss"])
def test_pages_are_whole(visit, world, picture, found, user, width, language, theme):
    options = {"locale": LANGUAGES[language], "color_scheme": theme}
    page = visit(user, "/account", width, **options)
    faults = []
    page.goto("/keys")
    key = page.locator("td.k-name a").first.get_attribute("href") if user == "alice" else ""
    for path in (*MEMBER, *(key + end for end in KEY)) if user == "alice" else ("/", *ADMIN):
        answer = page.goto(path)
        if answer.status != 200:
            faults.append(f"{path}: status {answer.status}")
            continue
        if page.locator("html").get_attribute("lang") != language:
            faults.append(f"{path}: not in {language}")
        faults += [f"{path}: {fault}" for fault in page.evaluate(FAULTS)]
        name = re.sub(r"\W+", "-", path).strip("-") or "home"
        picture(page, f"{name}-{width}-{language}-{theme}")
        for link in page.evaluate(LINKS):
            if link.startswith(world.hub_url):
                found.setdefault((user, _kind_of(link)), link)
    assert not faults, "\n".join(faults)


def _kind_of(link):
    """Links to one of many, or with other values of a query, are of one kind."""
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


@pytest.mark.parametrize("user", ["alice", "boss"])
def test_a_drawer_looks_the_same_from_every_page(visit, user):
    """From a page that links to it, and from its own page."""
    page = visit(user, "/account", reduced_motion="reduce")
    links = {}  # the page and the link, by the kind of both
    for path in MEMBER if user == "alice" else ADMIN:
        page.goto(path)
        for href, is_drawer in page.evaluate(SHEET_LINKS):
            links.setdefault((path, _kind_of(href)), (href, is_drawer))
    assert ("/usage" if user == "alice" else "/admin/usage") in {path for path, _ in links}
    different, on_own_page = [], {}
    for (path, kind), link in links.items():
        if kind not in on_own_page:
            on_own_page[kind] = _styles_of_sheet(page, link[0], link)
        expected = on_own_page[kind]
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


def test_no_link_leads_nowhere(visit, found):
    assert found, "the test before has found none"
    broken = []
    for user in ("alice", "boss"):
        page = visit(user, "/account")
        for whose, kind in list(found)[:MAX_LINKS]:
            if whose == user and "tail" not in kind[0]:
                answer = page.context.request.get(found[whose, kind])
                if answer.status >= 400:
                    broken.append(f"{user}: {found[whose, kind]}: {answer.status}")
    assert not broken, "\n".join(broken)
