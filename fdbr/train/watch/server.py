"""The server of the live page: it reads, and answers this machine alone."""

import json
from collections.abc import Callable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from fdbr.core.devices import optional
from fdbr.train.watch.runs import Runs

__all__ = ["application", "serve"]

_PAGE = Path(__file__).parent / "page"
_HOSTS = ("127.0.0.1", "localhost", "[::1]")
_HEADERS = {
    # Nothing from elsewhere is loaded, and no other page reads this one.
    "Content-Security-Policy": "default-src 'self'; style-src 'self' 'unsafe-inline'",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
}


def application(folder: str | Path) -> Any:
    """The page of a folder, as a WSGI application of `Bottle <https://bottlepy.org>`_.

    Parameters
    ----------
    folder
        The folder in which, or below which, runs have their logs.

    Raises
    ------
    ImportError
        If ``bottle`` is not installed.
    FileNotFoundError
        If there is no such folder.
    """
    bottle = optional("train.watch", "bottle", "watch")
    if not Path(folder).is_dir():
        raise FileNotFoundError(f"fdbr.train.watch: there is no folder {folder}")
    runs = Runs(Path(folder))
    app = bottle.Bottle()

    def answer(found: Callable[[], Any]) -> Any:
        try:
            return found()
        except FileNotFoundError as error:
            return bottle.HTTPResponse(str(error), 404, {"Content-Type": "text/plain"})

    def data(found: Callable[[], Any]) -> Any:
        bottle.response.content_type = "application/json"
        return answer(lambda: json.dumps(found()))

    def file(path: Path) -> Any:
        return bottle.static_file(path.name, root=str(path.parent))

    @app.hook("before_request")
    def check_host() -> None:
        """Refuse names of this machine that another site has made up (DNS rebinding)."""
        host = bottle.request.get_header("Host", "")
        if host.removesuffix(f":{host.rpartition(':')[2]}") not in _HOSTS:
            raise bottle.HTTPError(403, f"this page answers on {', '.join(_HOSTS)} alone")

    @app.hook("after_request")
    def add_headers() -> None:
        for name, value in _HEADERS.items():
            bottle.response.set_header(name, value)

    app.get("/", callback=lambda: file(_PAGE / "index.html"))
    app.get("/page/<name:re:[a-z]+[.](js|css)>", callback=lambda name: file(_PAGE / name))
    app.get("/api/runs", callback=lambda: data(lambda: [runs.summary(n) for n in runs.names()]))

    @app.get("/api/curves")
    def curves() -> Any:
        return data(lambda: runs.curves(bottle.request.query.getunicode("run", "")))

    @app.get("/api/file")
    def sample() -> Any:
        names = [bottle.request.query.getunicode(name, "") for name in ("run", "name")]
        return answer(lambda: file(runs.file(*names)))

    return app


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _Quiet(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not worth a line."""


def serve(folder: str | Path, port: int = 8000) -> WSGIServer:
    """A server of the page, on this machine alone; call its ``serve_forever()``.

    Parameters
    ----------
    folder
        That of the runs.
    port
        Where it listens; 0 for any that is free, ``server_port`` of the server tells which.

    Raises
    ------
    OSError
        If something else listens there.
    """
    handler = application(folder)
    return make_server("127.0.0.1", port, handler, server_class=_Server, handler_class=_Quiet)
