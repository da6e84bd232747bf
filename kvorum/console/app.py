"""The console's HTTP: pages, documents, events, and changes of a lab. Rules are in `guard`."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, cast
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request, cookie_parser
from starlette.responses import (
    FileResponse,
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kvorum import __version__
from kvorum.client.failures import EXIT_NOT_AUTHORIZED, EXIT_UNREACHABLE, CommandFailed
from kvorum.console import sign_in
from kvorum.console.core import guard
from kvorum.console.core.message_rows import DECODINGS
from kvorum.console.core.patch import Document, difference
from kvorum.console.core.views import BadParameter, NotThere, whole
from kvorum.console.desk import Desk
from kvorum.console.lab import ACTIONS, NO_LINKS
from kvorum.console.message_reader import question_of
from kvorum.console.sessions import Session, Sessions
from kvorum.console.sign_in import SignIn
from kvorum.console.static_files import StaticFiles
from kvorum.runtime.errors import KvorumError, invariant

#: The live view that each page shows first; "" for a page that asks for its content itself.
PAGES = {
    "/": "quorum",
    "/brokers": "brokers",
    "/topics": "topics",
    "/topic": "topic",
    "/replication": "replication",
    "/messages": "",
    "/groups": "groups",
    "/group": "group",
    "/configs": "",
    "/metadata": "",
    "/runs": "",
}
VIEWERS_MAX = 100
"""Pages that watch at once."""
BEAT_S = 15.0
"""Without news a watching page gets a comment this often, so that a dead connection shows."""
BODY_BYTES_MAX = 10_000

_SESSION = "kvorum.session"
_STATUS_OF = {EXIT_UNREACHABLE: 503, EXIT_NOT_AUTHORIZED: 403}
"""Exit code of a command to status of HTTP."""

Answer = Callable[[Request], Awaitable[Response]]


class Console:
    """The application.

    closing: set when the server stops, so that event streams end.
    failure: an error of the console itself, which ends it.
    """

    def __init__(self, desk: Desk | Sessions, rules: guard.Rules) -> None:
        """desk: one for all, or sessions, each of which has its own."""
        self._desk = desk
        self._rules = rules
        self._viewers = 0
        self._files = StaticFiles()
        self.closing = asyncio.Event()
        self.failure: BaseException | None = None
        self.stop: Callable[[], None] = self.closing.set
        routes = [
            *(Route(path, self._page) for path in PAGES),
            Route("/api/session", self._session),
            Route("/api/view/{name}", _in_sentences(self._view)),
            Route("/api/events/{name}", _in_sentences(self._events)),
            Route("/api/messages", _in_sentences(self._messages)),
            Route("/api/message", _in_sentences(self._message)),
            Route("/api/configs", _in_sentences(self._configs)),
            Route("/api/metadata", _in_sentences(self._tree)),
            Route("/api/metadata/diff", _in_sentences(self._tree_difference)),
            Route("/api/runs", _in_sentences(self._runs)),
            Route("/api/lab/{action}", _in_sentences(self._lab), methods=["POST"]),
            Route("/report/{file}", _in_sentences(self._report)),
            Route("/static/{version}/{name}", self._file),
        ]
        sessions = desk if isinstance(desk, Sessions) else None
        if sessions is not None:
            entrance = SignIn(sessions, rules, self._files)
            routes += [
                Route(sign_in.PATH, entrance.form),
                Route(sign_in.PATH, entrance.enter, methods=["POST"]),
                Route(sign_in.OUT_PATH, entrance.leave, methods=["POST"]),
            ]
        starlette = Starlette(routes=routes, lifespan=self._lifespan)
        self.app: ASGIApp = Guarded(starlette, rules, sessions)

    @contextlib.asynccontextmanager
    async def _lifespan(self, _: Starlette) -> AsyncIterator[None]:
        async with self._desk.running(self._fail):
            yield

    def _fail(self, error: BaseException) -> None:
        self.failure = error
        self.stop()

    def _desk_of(self, request: Request) -> Desk:
        """The desk for a request: that of its session, or the console's only one."""
        session = _session_in(request)
        if session is not None:
            return session.desk
        invariant(isinstance(self._desk, Desk), "only the signed in are let through")
        return cast("Desk", self._desk)

    async def _page(self, request: Request) -> Response:
        """The HTML, with the session document, and with the page's first view once the cluster has
        been read."""
        desk = self._desk_of(request)
        first: Document = {"session": self._session_document(request)}
        name = PAGES[request.url.path]
        if name and desk.cluster.value is not None:
            with contextlib.suppress(BadParameter, CommandFailed):  # the page asks, and hears why
                document = await desk.view(name, request.query_params)
                query = urlencode(list(request.query_params.multi_items()))
                first |= {"view": name, "query": query, "document": document}
        return HTMLResponse(self._files.page(first), headers={"cache-control": "no-store"})

    async def _file(self, request: Request) -> Response:
        found = self._files.files.get(request.path_params["name"])
        if found is None:
            return _problem(404, "there is no such file")
        is_current = request.path_params["version"] == self._files.version
        kept = "max-age=31536000, immutable" if is_current else "no-cache"
        data, media_type = found
        return Response(data, media_type=media_type, headers={"cache-control": kept})

    async def _session(self, request: Request) -> Response:
        return _json(self._session_document(request))

    def _session_document(self, request: Request) -> Document:
        """The abilities of this console, for the page's menu and buttons. user: "" without
        sign-in."""
        desk = self._desk_of(request)
        lab = desk.lab
        session = _session_in(request)
        return {
            "version": __version__,
            "user": "" if session is None else session.user,
            "has_runs": desk.runs is not None,
            "lab": None if lab is None else lab.data_dir,
            "allows_changes": self._rules.allows_changes,
            "has_links": lab is not None and lab.links is not None,
            "no_links": NO_LINKS,
        }

    async def _view(self, request: Request) -> Response:
        """The view. A refusal has the view's `meta` too: the cluster may be well nevertheless."""
        name, desk = request.path_params["name"], self._desk_of(request)
        try:
            document = await desk.view(name, request.query_params)
        except (NotThere, BadParameter, CommandFailed) as error:
            return _json({"error": str(error), "meta": desk.meta(name)}, _status_of(error))
        if "absent" in document:
            return _json({"error": document["absent"], **document}, 404)
        return _json(document)

    async def _events(self, request: Request) -> Response:
        name, parameters = request.path_params["name"], dict(request.query_params)
        if self._viewers >= VIEWERS_MAX:
            return _problem(503, f"{VIEWERS_MAX} pages watch already; close one of them")
        await self._desk_of(request).view(
            name, parameters
        )  # a wrong address is refused before the stream
        return StreamingResponse(
            self._stream(self._desk_of(request), name, parameters, _session_in(request)),
            media_type="text/event-stream",
            headers={"cache-control": "no-store", "x-accel-buffering": "no"},
        )

    async def _stream(
        self,
        desk: Desk,
        name: str,
        parameters: dict[str, str],
        session: Session | None = None,
    ) -> AsyncIterator[bytes]:
        """The whole view once, then a merge patch for each change. A topic or group may be deleted
        and created again meanwhile. "gone" tells that the view is refused from now on."""
        self._viewers += 1
        try:
            with desk.watching(name) as feeds:
                before: Document | None = None
                while not self.closing.is_set() and not (session and session.is_over):
                    if desk.is_user_refused:
                        return  # the page asks again, and is sent to the sign-in
                    versions = [feed.version for feed in feeds]
                    try:
                        now = desk.document(name, parameters)
                        if "absent" in now and "absent" not in (before or {}):
                            # Deleted, or the user has lost the right to see it.
                            await desk.check_access(name, parameters)
                    except (BadParameter, CommandFailed):
                        yield _event("gone", {})
                        return
                    if before is None:
                        yield _event("whole", now)
                    else:
                        patch = difference(before, now)
                        yield _event("patch", patch) if patch else b""
                    before = now
                    if not await self._next(feeds, versions):
                        yield b": still here\n\n"
        finally:
            self._viewers -= 1

    async def _next(self, feeds: list[Any], versions: list[int]) -> bool:
        """Wait until a reading is newer than its version, or the server stops. Returns False if
        BEAT_S went by."""
        waits = [asyncio.ensure_future(self.closing.wait())]
        for feed, version in zip(feeds, versions, strict=True):
            waits.append(asyncio.ensure_future(feed.next(version, BEAT_S)))
        try:
            done, _ = await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            return any(wait.result() for wait in done)
        finally:
            for wait in waits:
                wait.cancel()

    async def _messages(self, request: Request) -> Response:
        return _json(await self._desk_of(request).messages(question_of(request.query_params)))

    async def _message(self, request: Request) -> Response:
        given = request.query_params
        decoding = given.get("decode") or "auto"
        if decoding not in DECODINGS:
            raise BadParameter(f"decode={decoding[:40]} is none of {', '.join(DECODINGS)}")
        partition, offset = whole(given, "partition", 0), whole(given, "offset", 0)
        topic = given.get("topic", "")
        return _json(await self._desk_of(request).message(topic, partition, offset, decoding))

    async def _configs(self, request: Request) -> Response:
        kind, name = request.query_params.get("kind", ""), request.query_params.get("name", "")
        if kind not in ("topic", "broker"):
            raise BadParameter(f"kind={kind[:40]} is none of topic, broker")
        return _json(await self._desk_of(request).configs(kind, name))

    async def _tree(self, request: Request) -> Response:
        return _json(await self._desk_of(request).tree(request.query_params))

    async def _tree_difference(self, request: Request) -> Response:
        return _json(await self._desk_of(request).tree_difference(request.query_params))

    async def _runs(self, request: Request) -> Response:
        return _json(await self._desk_of(request).list_runs())

    async def _report(self, request: Request) -> Response:
        runs, file = self._desk_of(request).runs, request.path_params["file"]
        name = request.query_params.get("run", "")
        page = None if runs is None else await asyncio.to_thread(runs.page, name, file)
        if page is None:
            raise NotThere(f"there is no page {file} of a run {name!r}")
        headers = {"content-security-policy": guard.REPORT_POLICY, "cache-control": "no-cache"}
        return FileResponse(page, media_type="text/html", headers=headers)

    async def _lab(self, request: Request) -> Response:
        action = request.path_params["action"]
        if action not in ACTIONS:
            raise NotThere(f"there is no action {action!r}; there are {', '.join(ACTIONS)}")
        body = await _body(request)
        node = body.get("node") if isinstance(body, dict) else None
        if not isinstance(node, str):
            raise BadParameter('the body must be JSON like {"node": "broker-101"}')
        return _json({"text": await self._desk_of(request).act(action, node)})


class Guarded:
    """Refuses what `guard` refuses, before anything else; sets the security headers of answers."""

    def __init__(self, app: ASGIApp, rules: guard.Rules, sessions: Sessions | None = None) -> None:
        self._app = app
        self._rules = rules
        self._sessions = sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        answer = self._early_answer(scope)
        app = self._app if answer is None else answer

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in guard.SECURITY_HEADERS.items():
                    headers[name] = value
                headers.setdefault("content-security-policy", guard.PAGE_POLICY)
                headers.setdefault("cache-control", "no-cache")
            await send(message)

        await app(scope, receive, with_headers)

    def _early_answer(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        request = Request(scope)
        refused = guard.check_host(self._rules, headers.get("host"))
        if refused is None and self._sessions is not None:
            return self._unless_signed_in(self._sessions, scope, headers)
        if refused is None:
            given = request.query_params.get("token")
            if self._rules.token and scope["path"] == "/" and guard.is_token(self._rules, given):
                return self._signed_in()
            cookies = cookie_parser(headers.get("cookie", ""))
            refused = guard.check_token(self._rules, cookies, headers.get("authorization", ""))
        if refused is None and scope["method"] not in ("GET", "HEAD"):
            refused = guard.check_change(self._rules, dict(headers))
        return None if refused is None else _sentence(refused, scope["path"])

    def _unless_signed_in(
        self, sessions: Sessions, scope: Scope, headers: Headers
    ) -> Response | None:
        """The answer to a request that needs a session and has none; None lets a request through.
        A form is refused unless it comes from this console's page."""
        path = scope["path"]
        is_form = path in (sign_in.PATH, sign_in.OUT_PATH) and scope["method"] == "POST"
        if is_form:
            refused = guard.check_form(dict(headers))
            return None if refused is None else _sentence(refused, path)
        if scope["method"] not in ("GET", "HEAD"):
            refused = guard.check_change(self._rules, dict(headers))
            return None if refused is None else _sentence(refused, path)
        if path == sign_in.PATH or path.startswith("/static/"):
            return None
        cookies = cookie_parser(headers.get("cookie", ""))
        session = sessions.find(cookies.get(self._rules.cookie))
        if session is None:
            if path.startswith("/api/"):
                return _problem(401, "this console needs a user of the cluster: sign in first")
            return RedirectResponse(sign_in.PATH, status_code=303)
        scope[_SESSION] = session
        return None

    def _signed_in(self) -> Response:
        """Set the token as a cookie, and redirect to the address without the token, which would
        stay in the browser's history."""
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(
            self._rules.cookie, self._rules.token, httponly=True, samesite="strict", path="/"
        )
        return answer


def _session_in(request: Request) -> Session | None:
    """The session of a request; None without sign-in."""
    session: Session | None = request.scope.get(_SESSION)
    return session


def _in_sentences(answer: Answer) -> Answer:
    """Wrap a route: a failure of the cluster, or a wrong address or parameter, is answered with an
    HTTP status and a sentence."""

    async def answered(request: Request) -> Response:
        try:
            return await answer(request)
        except (CommandFailed, KvorumError, OSError) as error:
            return _problem(_status_of(error), str(error))

    return answered


def _status_of(error: Exception) -> int:
    """The HTTP status for a failure."""
    if isinstance(error, NotThere):
        return 404
    if isinstance(error, BadParameter):
        return 400
    if isinstance(error, CommandFailed):
        return _STATUS_OF.get(error.exit_code, 502)
    return 409


async def _body(request: Request) -> Any:
    """The JSON of a request. Raises BadParameter."""
    data = b""
    async for chunk in request.stream():
        data += chunk
        if len(data) > BODY_BYTES_MAX:
            raise BadParameter(f"the body has more than {BODY_BYTES_MAX} bytes")
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        raise BadParameter("the body is not JSON") from None


def _json(document: Any, status: int = 200) -> Response:
    headers = {"cache-control": "no-store"}
    return JSONResponse(document, status_code=status, headers=headers)


def _problem(status: int, reason: str) -> Response:
    return _json({"error": reason}, status)


def _sentence(refused: guard.Refused, path: str) -> Response:
    """A refusal: JSON for the page's own requests, words for a person who opened an address."""
    if path.startswith("/api/"):
        return _problem(refused.status, refused.reason)
    return PlainTextResponse(
        f"{refused.reason}\n", status_code=refused.status, headers={"cache-control": "no-store"}
    )


def _event(name: str, document: Document) -> bytes:
    return f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()
