"""Times in the viewer's zone, in each language and form."""

from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from handlers.hub.web.zones import moment_text, weekday_text, with_day_texts, zone_name, zone_of

BERLIN = ZoneInfo("Europe/Berlin")
AT = datetime(2026, 11, 13, 14, 5, 9, 42_000, BERLIN)
NOW = datetime(2026, 11, 27, 9, 0, tzinfo=BERLIN)


@pytest.mark.parametrize(
    "name", [None, "", "UTC", "Etc/UTC", "Mars/Olympus", "../etc/passwd", "a" * 500, "Europe/\0"]
)
def test_what_is_no_zone_is_utc(name):
    assert zone_of(name) is UTC and zone_name(zone_of(name)) == "UTC"


@pytest.mark.parametrize(
    ("form", "english", "chinese"),
    [
        ("auto", "13 Nov, 14:05", "11月13日 14:05"),
        ("date", "13 Nov", "11月13日"),
        ("time", "14:05:09", "14:05:09"),
        ("clock", "14:05", "14:05"),
        ("weekday", "Friday 13 November, 14:05", "11月13日星期五 14:05"),
        ("full", "13 Nov 2026, 14:05:09.042", "2026年11月13日 14:05:09.042"),
    ],
)
def test_each_form_in_each_language(form, english, chinese):
    assert zone_of("Europe/Berlin").key == "Europe/Berlin"
    assert moment_text(AT, form, "en", NOW) == english
    assert moment_text(AT, form, "zh", NOW) == chinese


def test_days_of_sums_and_of_stored_texts():
    day = datetime(2026, 11, 13, tzinfo=UTC)
    assert weekday_text(day, "en", short=True) == "Fri 13 Nov"
    assert weekday_text(day, "zh", short=True) == "11月13日周五"
    assert with_day_texts("list 1 of 2020-11-13 (a)", "en") == "list 1 of 13 Nov 2020 (a)"
    assert with_day_texts("2020-12-31, 2020-02-30", "en") == "31 Dec 2020, 2020-02-30"


def test_today_has_no_date_and_another_year_has_no_time():
    assert moment_text(AT, "auto", "en", AT) == "14:05:09"
    later = NOW.replace(year=2028)
    assert moment_text(AT, "auto", "en", later) == "13 Nov 2026"
    assert moment_text(AT, "date", "zh", later) == "2026年11月13日"
