"""Templates of the Hub's pages, as little of them kept in memory as pages need."""

from tornado.template import Loader, Template


class LeanLoader(Loader):
    """Templates without the text of the code that they were compiled from: megabytes in all, which
    nothing but the lines of a traceback would show."""

    def load(self, name: str, parent_path: str | None = None) -> Template:
        """A template, compiled when it is first asked for."""
        found = super().load(name, parent_path)
        found.code = ""
        return found
