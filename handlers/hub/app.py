"""The Hub's application: its paths, static files and templates. Imported by the Hub's process."""

import logging
import re
import time
from http import HTTPStatus
from pathlib import Path
from types import CodeType
from typing import Any

from tornado.escape import utf8, xhtml_escape
from tornado.template import Loader, Template
from tornado.web import Application, RequestHandler

from adapters.registry import FAMILIES
from handlers.hub.routes import ROUTES
from handlers.hub.web import charts, parts
from handlers.hub.web.assets import Compression, StaticAsset
from handlers.hub.web.base import LOGGED_PATH_CHARS, Failure, HubHandler, Page
from handlers.hub.web.site import Site

HERE = Path(__file__).parent
TEMPLATES = str(HERE / "templates")
MS_PER_S = 1000
log = logging.getLogger("sluice.hub")


def _raw(value: object) -> bytes:
    return utf8(value if isinstance(value, (str, bytes)) else str(value))


def _escaped(value: object) -> bytes:
    return utf8(xhtml_escape(_raw(value)))


class LeanTemplate(Template):
    """A template whose generated code calls a function for each value instead of repeating the same
    four lines. This halves the code, which then compiles faster and with a quarter of the memory.
    Its function removes itself from the namespace, which would otherwise keep all values of a page
    alive in a reference cycle (ADR 0047)."""

    def _generate_python(self, loader: Any) -> str:
        code = _VALUE.sub(_call_for, super()._generate_python(loader))
        return code.replace(_BEGIN, f"del globals()['_tt_execute']; {_BEGIN}", 1)


_BEGIN = "_tt_buffer = []"
_VALUE = re.compile(
    r"^(?P<indent> *)_tt_tmp = (?P<value>.*?)  # \S+:\d+(?: \(via [^\n]*)?\n"
    r" *if isinstance\(_tt_tmp[^\n]*\n"
    r" *else: _tt_tmp[^\n]*\n"
    r"(?P<escapes> *_tt_tmp = _tt_utf8\(xhtml_escape[^\n]*\n)?"
    r" *_tt_append\(_tt_tmp\)[^\n]*$",
    re.MULTILINE | re.DOTALL,
)


def _call_for(lines: re.Match[str]) -> str:
    function = "_escaped" if lines["escapes"] else "_raw"
    return f"{lines['indent']}_tt_append({function}({lines['value']}))"


class LeanLoader(Loader):
    """A loader that keeps the compiled code of pages and the parsed trees of included templates,
    without their source text. Equal chunks of text, such as the frame of each page, are stored
    once."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder, namespace={"_raw": _raw, "_escaped": _escaped})
        self._parts: dict[str, Template] = {}
        self._pieces: dict[bytes, bytes] = {}

    def load(self, name: str, parent_path: str | None = None) -> Template:
        """Return a template, compiled at its first use. With `parent_path` (included by another
        template) return its tree."""
        path = self.resolve_path(name, parent_path)
        loaded = self.templates if parent_path is None else self._parts
        if path not in loaded:
            template = loaded[path] = self._create_template(path)
            template.code = ""
            if parent_path is None:
                template.compiled = self._lean(template.compiled)
                del template.file
            else:
                del template.compiled
        return loaded[path]

    def _create_template(self, name: str) -> Template:
        return LeanTemplate((Path(self.root) / name).read_bytes(), name=name, loader=self)

    def _lean(self, code: CodeType) -> CodeType:
        return code.replace(co_consts=tuple(map(self._lean_const, code.co_consts)))

    def _lean_const(self, value: Any) -> Any:
        if isinstance(value, CodeType):
            return self._lean(value)
        return self._pieces.setdefault(value, value) if type(value) is bytes else value


class UnknownPage(Page):
    """The answer for paths without a handler."""

    public = True

    async def prepare(self) -> None:
        await self.find_session()
        raise Failure(404, "not_found", "not_found")


class RelayPath(HubHandler):
    """A path of the relay. Answers that the Hub takes no API requests."""

    def check_xsrf_cookie(self) -> None:
        """Skip the check: clients of the relay have no form token."""

    async def prepare(self) -> None:
        await self.site.read_base_url(time.monotonic())
        self.set_status(404)
        self.set_header("Content-Type", "application/json; charset=utf-8")
        message = (
            f"This is the API Hub, which takes no API requests."
            f" Set the base URL to {self.site.base_url}."
        )
        error = {"code": "not_found", "type": "not_found_error", "message": message, "param": None}
        self.finish({"error": error})


def log_request(handler: RequestHandler) -> None:
    """Log a request without its query, which may contain tokens or codes."""
    status, request = handler.get_status(), handler.request
    level = logging.WARNING if status >= HTTPStatus.INTERNAL_SERVER_ERROR else logging.DEBUG
    duration_ms = request.request_time() * MS_PER_S
    path = getattr(handler, "logged_path", (request.path or "")[:LOGGED_PATH_CHARS])
    log.log(level, "%s %s %d in %.1f ms", request.method, path, status, duration_ms)


def make_app(site: Site) -> Application:
    """Return the application, whose handlers share `site`."""
    with_site: dict[str, Any] = {"site": site}
    relay_paths = {
        operation.endpoint.partition("{")[0]
        for family in FAMILIES.values()
        for operation in family.client.operations.values()
    }
    handlers: list[Any] = [(path, handler, with_site) for path, handler in ROUTES]
    handlers += [(f"{path}.*", RelayPath, with_site) for path in sorted(relay_paths)]
    handlers += [("/v1(?:beta)?(?:/.*)?", RelayPath, with_site)]
    return Application(
        handlers,
        default_handler_class=UnknownPage,
        default_handler_args=with_site,
        template_path=TEMPLATES,
        template_loader=LeanLoader(TEMPLATES),
        static_path=str(HERE / "static"),
        static_handler_class=StaticAsset,
        transforms=[Compression],
        ui_modules={**parts.MODULES, **charts.MODULES},
        log_function=log_request,
        xsrf_cookies=True,
    )
