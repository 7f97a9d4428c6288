"""The guard of the page: authentication of requests, and security headers of answers.

The browser of the user also opens untrusted pages, which can send requests to this server. So every
request is checked first:

- ``Host`` is the address that the server is bound to. A foreign name that resolves to this
  machine (DNS rebinding) is rejected.
- A token, which only the printed address has. The browser keeps it as a cookie.
- ``Origin`` of a request that changes state is the page itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from secrets import compare_digest, token_urlsafe
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from parcost.language.diagnostics import Diagnostic
from parcost_formats.rendering.diagnostics import as_data

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_READS = frozenset({"GET", "HEAD"})
_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_POLICY = "Content-Security-Policy"
_ENTRANCE = "open the address that `parcost serve` printed last, with its token"
_NOTHING = "default-src 'none'; frame-ancestors 'none'"


@frozen(kw_only=True)
class Address:
    """An address of the page: *hosts* are the accepted ``Host`` values; the first is printed."""

    hosts: Sequence[str]
    port: int
    token: str = field(factory=lambda: token_urlsafe(32), repr=False)

    @property
    def url(self) -> str:
        """The address to open, including its token."""
        return f"http://{self.hosts[0]}/?token={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie. It contains the port, because browsers share cookies between
        ports.
        """
        return f"parcost_{self.port}"

    def admits(self, token: str | None) -> bool:
        """Return whether *token* is valid, by a comparison in constant time."""
        return token is not None and compare_digest(token.encode(), self.token.encode())


def answer_problems(status: int, diagnostics: Sequence[Diagnostic]) -> JSONResponse:
    """Return a JSON response with diagnostics."""
    found = [as_data(diagnostic) for diagnostic in diagnostics]
    return JSONResponse({"diagnostics": found}, status)


def error_response(status: int, id: str, message: str, help: str | None = None) -> JSONResponse:
    """Return an error response with one diagnostic."""
    return answer_problems(status, [Diagnostic(id, message, place="request", help=help)])


@frozen
class Guard:
    """Middleware that rejects requests that are not from the page of this server."""

    app: ASGIApp
    address: Address

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or reject it; every answer gets the security headers."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault(_POLICY, _NOTHING)
                headers.update(_HEADERS)
            await send(message)

        answer: Any = self._rejection(Request(scope)) or self.app
        await answer(scope, receive, send_with_headers)

    def _rejection(self, request: Request) -> Response | None:
        host = request.headers.get("host", "")
        if host.lower() not in self.address.hosts:
            help = f"open http://{self.address.hosts[0]}/"
            return error_response(403, "foreign-host", "the request is for another host", help)
        given = request.query_params.get("token")
        if given is not None and request.method in _READS:
            return self._enter(given)
        bearer = request.headers.get("authorization", "").partition("Bearer ")[2] or None
        if not (
            self.address.admits(request.cookies.get(self.address.cookie))
            or self.address.admits(bearer)
        ):
            return error_response(401, "no-token", "the request has no valid token", _ENTRANCE)
        if request.method not in _READS:
            origin = request.headers.get("origin", "")
            if origin.lower() != f"http://{host.lower()}":
                help = f"a program sends `Origin: http://{host}`"
                return error_response(
                    403, "foreign-origin", "the request is from another page", help
                )
        return None

    def _enter(self, given: str) -> Response:
        """Return a redirect that stores a valid token as a cookie, so that the address bar hides
        it.
        """
        if not self.address.admits(given):
            return error_response(401, "no-token", "the token belongs to another server", _ENTRANCE)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(self.address.cookie, given, httponly=True, samesite="lax", path="/")
        return answer
