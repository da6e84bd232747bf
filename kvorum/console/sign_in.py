"""The form with which a user of the cluster signs in, and the cookie that a session is."""

from __future__ import annotations

import html
from urllib.parse import parse_qs

from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from kvorum.console.core.guard import Rules
from kvorum.console.sessions import Sessions, SignInRefused
from kvorum.console.static_files import StaticFiles

PATH, OUT_PATH = "/sign-in", "/sign-out"
FORM_BYTES_MAX = 4_096
_PAGE = "sign-in.html"
_PROBLEM = "<!-- problem -->"
_NO_STORE = {"cache-control": "no-store"}


class SignIn:
    """The routes /sign-in and /sign-out."""

    def __init__(self, sessions: Sessions, rules: Rules, files: StaticFiles) -> None:
        self._sessions = sessions
        self._rules = rules
        self._page = files.files[_PAGE][0].decode().replace("/static/", f"/static/{files.version}/")

    async def form(self, _: Request) -> Response:
        """The page with the form."""
        return self._form("", 200)

    async def enter(self, request: Request) -> Response:
        """A form that was sent: to the first page with a new session, or the form once more."""
        data = b""
        async for chunk in request.stream():
            data += chunk
            if len(data) > FORM_BYTES_MAX:
                return self._form(f"the form has more than {FORM_BYTES_MAX} bytes", 413)
        try:
            fields = parse_qs(data.decode(), strict_parsing=True, max_num_fields=4)
        except ValueError:
            return self._form("a user and a password are needed", 400)
        user, password = (fields.get(name, [""])[0] for name in ("user", "password"))
        address = "" if request.client is None else request.client.host
        try:
            token = await self._sessions.sign_in(user, password, address)
        except SignInRefused as refused:
            return self._form(str(refused), refused.status)
        # The browser's previous session ends: its cookie is replaced, so nobody can use it.
        await self._sessions.sign_out(request.cookies.get(self._rules.cookie))
        answer = RedirectResponse("/", status_code=303, headers=_NO_STORE)
        answer.set_cookie(
            self._rules.cookie,
            token,
            httponly=True,
            samesite="strict",
            secure=self._rules.is_https,
            path="/",
        )
        return answer

    async def leave(self, request: Request) -> Response:
        """End the session."""
        await self._sessions.sign_out(request.cookies.get(self._rules.cookie))
        answer = RedirectResponse(PATH, status_code=303, headers=_NO_STORE)
        answer.delete_cookie(
            self._rules.cookie, httponly=True, samesite="strict", secure=self._rules.is_https
        )
        return answer

    def _form(self, problem: str, status: int) -> Response:
        text = f'<p class="banner" role="alert">{html.escape(problem)}</p>' if problem else ""
        return HTMLResponse(self._page.replace(_PROBLEM, text), status, headers=_NO_STORE)
