"""Small parts of pages that are written by a function: `{% module Name(…) %}` in a template."""

import datetime

from tornado.web import UIModule


class Moment(UIModule):
    """A time, in UTC; the page's script shows it in the browser's zone."""

    def render(self, at_ms: int) -> str:
        at = datetime.datetime.fromtimestamp(at_ms / 1000, datetime.UTC)
        return f'<time datetime="{at.isoformat()}">{at:%Y-%m-%d %H:%M} UTC</time>'
