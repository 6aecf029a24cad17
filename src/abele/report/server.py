"""A report in the browser: a server on this computer's own address, for whoever has the token of its address.

It answers ``/`` (the page), ``/data/<name>`` (what ``docs/report_store.md`` names) and, of a run that goes on,
``/events`` and ``/metrics``. The token stands in the address that is opened and in the page; every question brings it
along, as ``X-Abele-Token``, as a bearer or as ``?token=``. There are no cookies, so no other page can ask in the
reader's name; and no name but this computer's is answered to, so none that is made to point here can either. Files are
never looked up by the paths that are asked for.
"""

from __future__ import annotations

import errno
import secrets
import sys
import zlib
from collections.abc import Callable, Iterator
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

from abele.errors import AbeleError, BadReport, InvalidOption
from abele.report.page import page, policy

ADDRESS = "127.0.0.1"
NAMES = ("127.0.0.1", "localhost")
"""Names of this computer that a question may be addressed to; the port is free, for tunnels."""

LONGEST = 2048
"""Characters of an address; names of a report have some tens."""

_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Source(Protocol):
    """What is shown: content and type by name, and compressed by zlib; another ``version`` makes an open page load
    again."""

    @property
    def version(self) -> str: ...

    def resource(self, name: str) -> tuple[bytes, str]: ...

    def compressed(self, name: str) -> tuple[bytes, str]: ...


class Live(Protocol):
    """A run that goes on."""

    def events(self, after: str) -> Iterator[bytes]:
        """Server-sent events after the one of that id, each as its lines; now and then a comment, so that a reader who
        has left is noticed."""
        ...

    def metrics(self) -> str:
        """The newest figures in Prometheus' text format."""
        ...


class Server(ThreadingHTTPServer):
    """Listens as soon as it is made; ``serve_forever`` answers, each question in a thread of its own.

    Raises:
        InvalidOption: the port is taken, or not allowed.
    """

    daemon_threads = True

    def __init__(self, source: Source, port: int = 0, live: Live | None = None, *, token: str | None = None) -> None:
        self.source, self.live = source, live
        self.token = token or secrets.token_urlsafe(24)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            taken = error.errno == errno.EADDRINUSE
            what = f"Port {port} is taken" if taken else f"Port {port} cannot be listened on: {error.strerror}"
            raise InvalidOption(what, remedy="Choose another with --port; 0 takes a free one.") from error

    @property
    def port(self) -> int:
        return self.server_address[1]

    @property
    def url(self) -> str:
        """The address to open; it holds the token."""
        return f"http://{ADDRESS}:{self.port}/?token={self.token}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that has left is no error."""
        if not isinstance(sys.exception(), ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: Server  # type: ignore[assignment]
    protocol_version = "HTTP/1.1"
    server_version = "Abele"
    sys_version = ""
    timeout = 60
    disable_nagle_algorithm = True
    """Content would wait some 40 ms for the reader's word that the head has come."""

    def do_GET(self) -> None:
        try:
            self._answer()
        except _Refused as refused:
            self._send(refused.status, str(refused).encode(), "text/plain; charset=utf-8")

    do_HEAD = do_GET

    def _answer(self) -> None:
        if len(self.path) > LONGEST:
            raise _Refused(HTTPStatus.REQUEST_URI_TOO_LONG, "The address is too long.")
        if "Content-Length" in self.headers or "Transfer-Encoding" in self.headers:
            self.close_connection = True
            raise _Refused(HTTPStatus.BAD_REQUEST, "A question has no content.")
        if self.headers.get("Host", "").lower().rsplit(":", 1)[0] not in NAMES:
            raise _Refused(HTTPStatus.FORBIDDEN, f"This server answers to the names {' and '.join(NAMES)} alone.")
        try:
            asked = urlsplit(self.path)
        except ValueError as error:
            raise _Refused(HTTPStatus.BAD_REQUEST, f"This is no address: {error}.") from error
        query = parse_qs(asked.query)
        if not self._allowed(query.get("token", [""])[0]):
            raise _Refused(HTTPStatus.FORBIDDEN, "Open the address that `abele view` said: it holds the token.")
        live, source = self.server.live, self.server.source
        if asked.path == "/":
            html, packed = page("Abele", token=self.server.token).encode(), self._may_pack()
            content = zlib.compress(html) if packed else html
            self._send(HTTPStatus.OK, content, "text/html; charset=utf-8", packed)
        elif asked.path.startswith("/data/"):
            packed = self._may_pack()
            get = source.compressed if packed else source.resource
            self._send(HTTPStatus.OK, *_resource(get, unquote(asked.path.removeprefix("/data/"))), packed)
        elif asked.path == "/events" and live is not None:
            after = self.headers.get("Last-Event-ID") or query.get("after", [""])[0]
            self._stream(live.events(after))
        elif asked.path == "/metrics" and live is not None:
            self._send(
                HTTPStatus.OK, live.metrics().encode("utf-8", "replace"), "text/plain; version=0.0.4; charset=utf-8"
            )
        else:
            raise _Refused(HTTPStatus.NOT_FOUND, "There is nothing at this address.")

    def _allowed(self, token: str) -> bool:
        bearer = self.headers.get("Authorization", "").removeprefix("Bearer ")
        given = self.headers.get("X-Abele-Token") or token or bearer
        return secrets.compare_digest(given.encode("utf-8", "replace"), self.server.token.encode())

    def _may_pack(self) -> bool:
        """Whether content may be compressed as it is in a report."""
        return "deflate" in self.headers.get("Accept-Encoding", "")

    def _send(self, status: int, content: bytes, kind: str, packed: bool = False) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(content)))
        if packed:
            self.send_header("Content-Encoding", "deflate")
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self._end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def _stream(self, events: Iterator[bytes]) -> None:
        """Events until there are no more of them, or the reader leaves."""
        self.close_connection = True
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self._end_headers()
        if self.command != "HEAD":
            for event in events:
                self.wfile.write(event)

    def _end_headers(self) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Security-Policy", policy("self") + "; frame-ancestors 'none'")
        self.send_header("X-Abele-Report", self.server.source.version)
        self.end_headers()

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses, in the manner of the others."""
        self.close_connection = True
        if not hasattr(self, "headers"):  # it was refused before they were read
            self.headers = Message()
        if code == HTTPStatus.NOT_IMPLEMENTED:
            code, message = HTTPStatus.METHOD_NOT_ALLOWED, "Only GET and HEAD are answered."
        self._send(code, (message or HTTPStatus(code).phrase).encode(), "text/plain; charset=utf-8")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is said of questions."""


class _Refused(Exception):
    def __init__(self, status: HTTPStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


def _resource(get: Callable[[str], tuple[bytes, str]], name: str) -> tuple[bytes, str]:
    try:
        return get(name)
    except AbeleError as error:
        status = HTTPStatus.INTERNAL_SERVER_ERROR if isinstance(error, BadReport) else HTTPStatus.NOT_FOUND
        raise _Refused(status, str(error)) from error
