"""Protection of the server against pages of other sites and against oversized requests."""

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

MOST_BODY = 4000  # bytes
PAGE_HEADER = "X-Finitewidth"  # a page of another site cannot send it unless this server allows it

_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; "
        "frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class SafetyHeaders:
    """Adds the same headers to every answer."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers[name] = value
            await send(message)

        await self._app(scope, receive, send_with_headers)


def is_from_the_page(request: Request) -> bool:
    """Whether the page itself sent a request that changes something."""
    return request.headers.get(PAGE_HEADER) == "page"


async def bounded_body(request: Request) -> str | None:
    """The text of a short request; None if it is too long."""
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BODY:
            return None
    return body.decode("utf-8", errors="replace")
