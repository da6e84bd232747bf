"""The front end: files of the package, read once, served from memory under a name that changes with
their content, so that browsers keep them for good."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "static"
PAGE = "index.html"
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
_FIRST = "<!-- first -->"


class StaticFiles:
    """files: name -> (bytes, media type).
    version: changes with any of them.
    """

    def __init__(self) -> None:
        names = sorted(path for path in FOLDER.iterdir() if path.suffix in MEDIA_TYPES)
        self.files = {path.name: (path.read_bytes(), MEDIA_TYPES[path.suffix]) for path in names}
        digest = hashlib.sha256()
        for name, (data, _) in self.files.items():
            digest.update(f"{name} {len(data)}\n".encode() + data)
        self.version = digest.hexdigest()[:16]
        page = self.files[PAGE][0].decode()
        self._page = page.replace("/static/", f"/static/{self.version}/")

    def page(self, first: Any) -> str:
        """The HTML of every page. first: a JSON document within it, which saves the browser its
        first questions."""
        text = json.dumps(first).replace("<", "\\u003c").replace(">", "\\u003e")
        # A block of JSON is data and not code, so the content security policy allows it.
        block = f'<script type="application/json" id="first">{text}</script>'
        return self._page.replace(_FIRST, block)
