"""Windows of quotas and spend limits: UTC days, weeks from Monday, calendar months. Pure."""

import datetime

NEVER = "never"
DAY = "day"
WEEK = "week"
MONTH = "month"
WINDOWS = (DAY, WEEK, MONTH)

_MS = 1000


def window_at(window: str, at_ms: int) -> tuple[int, int | None]:
    """The window that a moment lies in: its first day (YYYYMMDD) and when it ends, in ms.

    A window of `never` has the day 0 and no end. ValueError: no such window.
    """
    if window == NEVER:
        return 0, None
    day = datetime.datetime.fromtimestamp(at_ms // _MS, datetime.UTC).date()
    if window == DAY:
        first, following = day, day + datetime.timedelta(1)
    elif window == WEEK:
        first = day - datetime.timedelta(day.weekday())
        following = first + datetime.timedelta(7)
    elif window == MONTH:
        first = day.replace(day=1)
        following = (first + datetime.timedelta(31)).replace(day=1)
    else:
        raise ValueError(f"there is no window {window!r}")
    return int(first.strftime("%Y%m%d")), _ms_of(following)


def _ms_of(day: datetime.date) -> int:
    moment = datetime.datetime.combine(day, datetime.time(), datetime.UTC)
    return int(moment.timestamp()) * _MS
