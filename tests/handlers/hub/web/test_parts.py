"""Parts of pages: their output, and that they write no foreign markup."""

import re
from types import SimpleNamespace

import pytest

from handlers.hub.web import charts, parts
from store.channels.uptime import Slot

EVIL = '"><script>alert(1)</script>'
WORDS = {"copy": "Copy {what}", "copy_short": "Copy"}


@pytest.fixture
def handler():
    return SimpleNamespace(
        words=WORDS, language="en", request=None, current_user=None, locale=None, ui=None
    )


@pytest.mark.parametrize(
    "module, args", [(parts.State, ("bad", EVIL, EVIL)), (parts.Copy, (EVIL,))]
)
def test_names_stay_text(handler, module, args):
    assert "<script" not in module(handler).render(*args)
    assert "<script" not in charts.UptimeRow(handler).render([Slot(0, 1, 1, 0)], 1, EVIL, EVIL)
    assert "<script" not in charts.Bars(handler).render(
        [charts.Column((1,), EVIL, EVIL, EVIL)], ("c2",), EVIL
    )


def test_a_sheet_has_the_icons_that_the_page_uses(handler):
    assert 'href="#i-wallet"' in parts.Icon(handler).render("wallet")
    sheet = parts.IconSheet(handler).render()
    assert 'id="i-wallet"' in sheet and 'id="i-home"' not in sheet
    with pytest.raises(KeyError):
        parts.Icon(handler).render("no such icon")


def test_a_moment_is_utc_until_a_script_changes_it(handler):
    text = parts.Moment(handler).render(1_763_904_727_412, "full")
    assert (
        'datetime="2025-11-23T13:32:07.412Z"' in text and ">23 Nov 2025, 13:32:07.412 UTC<" in text
    )
    assert parts.Moment(handler).render(None) == "–"


def test_settings_are_code_in_a_sentence_but_not_in_its_values(handler):
    text = parts.Sentence(handler).render('Set `a = {"b": 1}` for **{name}**.', name="`<i>`")
    code = "<code>a = {&quot;b&quot;: 1}</code>"
    assert text == f"Set {code} for <strong>`&lt;i&gt;`</strong>."


def test_a_level_warns_near_its_end(handler):
    classes = [
        re.search(r"level (\w+)", parts.Level(handler).render(used, 10))[1] for used in (7.9, 8, 10)
    ]
    assert classes == ["flow", "near", "near"]
    assert 'width="120.0"' in parts.Level(handler).render(99, 10)
    # scales end on round numbers, which are short
    values = (0, 1, 7, 315, 0.07, 1201, 95)
    assert [charts.nice_above(value) for value in values] == pytest.approx(
        [1, 1, 8, 400, 0.08, 1600, 100]
    )
    assert [charts.tidy(value) for value in (320, 1600, 0.5, 3.0)] == ["320", "1,600", "0.5", "3"]


def test_uptime_bars_say_the_share_by_height_and_colour(handler):
    counts = [(1, 0, 0), (995, 5, 0), (96, 4, 0), (2, 8, 0), (0, 0, 0), (0, 0, 1)]
    slots = [Slot(7, *numbers) for numbers in counts]
    drawn = re.findall(
        r'<path class="(\w+)" d="([^"]*)"',
        charts.UptimeRow(handler).render(slots, 9, "/usage", "x"),
    )
    assert drawn == [
        ("good", "M0 0h5v18h-5zM6 3.6h5v14.4h-5z"),
        ("warn", "M12 7.2h5v10.8h-5z"),
        ("bad", "M18 12.6h5v5.4h-5z"),
        ("foot", "M24 16h5v2h-5z"),
        ("probes", "M30.5 0.5h4v17h-4z"),
    ]


def test_a_margin_stands_about_its_zero_line_and_is_cut_beyond_its_ends(handler):
    drawn = {
        percent: re.findall(r'class="(gain|loss|cut)"', charts.MarginBar(handler).render(percent))
        for percent in (17.2, 100.0, 0.0, -5.3, -40.0, None)
    }
    assert drawn == {
        **{17.2: ["gain"], 100.0: ["gain", "cut"], 0.0: []},
        **{-5.3: ["loss"], -40.0: ["loss", "cut"], None: []},
    }


@pytest.mark.parametrize(
    ("parts_of_columns", "marks"),
    [
        ([1, 0], ["2", "1", "0"]),
        ([3], ["4", "2", "0"]),
        ([0.5], ["0.6", "0.3", "0"]),
        ([311], ["400", "200", "0"]),
        ([0.0001], ["0.001", "0.0005", "0"]),
    ],
)
def test_a_chart_of_counts_has_whole_marks(handler, parts_of_columns, marks):
    columns = [charts.Column((part,), "", "") for part in parts_of_columns]
    drawn = charts.Bars(handler).render(columns, ("c2",), "Calls")
    assert re.findall(r'text-anchor="end">([^<]+)<', drawn) == marks
