"""Static assets of the pages, and compression of responses.

Assets are read once. The files of static/css are joined into one style sheet, sluice.css. Each
asset is kept both plain and compressed. Its URL has the digest of its content, so that browsers can
cache it indefinitely. Responses larger than COMPRESSED_FROM_BYTES are compressed as they are sent,
except event streams, whose events must not wait until a block is full.
"""

import functools
import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tornado.web import GZipContentEncoding, HTTPError

from handlers.hub.web.base import POLICY, Logged

SHEET = "sluice.css"
SHEET_FOLDER = "css"
SHEET_FIRST = ("tokens.css", "frame.css", "parts.css", "charts.css", "controls.css")
COMPRESSED_FROM_BYTES = 1024
DIGEST_CHARS = 16
TYPES: Mapping[str, str] = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
"""By suffix. The system's list of all types would take half a MiB."""
FOREVER = "public, max-age=31536000, immutable"
AGAIN = "no-cache"  # cached but revalidated: imports between modules have no digest


@dataclass(frozen=True, slots=True)
class Asset:
    """A static file: its type, its plain and compressed bytes, the digest of the plain ones."""

    content_type: str
    plain: bytes
    compressed: bytes
    digest: str


def make_asset(name: str, content: bytes) -> Asset:
    """Return the asset for a file's name and content."""
    content_type = TYPES.get(Path(name).suffix, "application/octet-stream")
    digest = hashlib.sha256(content).hexdigest()[:DIGEST_CHARS]
    return Asset(content_type, content, gzip.compress(content, mtime=0), digest)


@functools.cache
def read_assets(folder: str) -> Mapping[str, Asset]:
    """Return the assets of a folder by relative path. The style sheet's source files appear only as
    one asset."""
    root = Path(folder)
    contents = {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.parent.name != SHEET_FOLDER
    }
    contents[SHEET] = _read_sheet(root / SHEET_FOLDER)
    return {name: make_asset(name, content) for name, content in contents.items()}


def _read_sheet(folder: Path) -> bytes:
    """Return the joined source files of the style sheet: SHEET_FIRST in this order, then the others
    by name."""
    names = sorted(path.name for path in folder.glob("*.css"))
    later = [name for name in names if name not in SHEET_FIRST]
    return b"\n".join((folder / name).read_bytes() for name in (*SHEET_FIRST, *later))


class StaticAsset(Logged):
    """A static file under /static/."""

    def initialize(self, path: str) -> None:
        self._assets = read_assets(path)
        self._digest = ""

    def set_default_headers(self) -> None:
        self.set_header("Content-Security-Policy", POLICY)
        self.set_header("X-Content-Type-Options", "nosniff")
        self.clear_header("Server")

    @classmethod
    def make_static_url(
        cls, settings: dict[str, Any], path: str, include_version: bool = True
    ) -> str:
        """Return the URL of an asset with its digest."""
        address = f"/static/{path}"
        if not include_version:
            return address
        return f"{address}?v={read_assets(settings['static_path'])[path].digest}"

    async def get(self, path: str) -> None:
        asset = self._assets.get(path)
        if asset is None:
            raise HTTPError(HTTPStatus.NOT_FOUND)
        current = self.get_query_argument("v", "") == asset.digest
        self.set_header("Cache-Control", FOREVER if current else AGAIN)
        self.set_header("Content-Type", asset.content_type)
        self._digest = asset.digest
        if "gzip" in self.request.headers.get("Accept-Encoding", ""):
            self.set_header("Content-Encoding", "gzip")
            self.finish(asset.compressed)
        else:
            self.finish(asset.plain)

    head = get

    def compute_etag(self) -> str | None:
        """Return the asset's ETag. It is weak because plain and compressed bytes share it."""
        return f'W/"{self._digest}"'


class Compression(GZipContentEncoding):
    """Compression of responses for clients that accept it."""

    MIN_LENGTH = COMPRESSED_FROM_BYTES

    def _compressible_type(self, ctype: str) -> bool:
        return ctype != "text/event-stream" and super()._compressible_type(ctype)
