"""`finitewidth page`: serves the local page. The server is imported when the command runs."""

import ipaddress
import socket
from typing import Annotated

import typer

from finitewidth.interface.cli.conventions import AsJson, Debug, complain, plain_errors
from finitewidth.interface.cli.interrupts import keeping

INSTALL = "the page needs starlette and uvicorn; install them with: pip install 'finitewidth[page]'"


def page(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 chooses a free one.")] = 0,
    host: Annotated[
        str, typer.Option(help="Address to listen at; the default serves this machine only.")
    ] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Serve a local page with controls and plots: criticality, signals, fluctuations, trained networks.

    Prints its address, opens a browser, and runs until it is interrupted.

    Example: finitewidth page --port 8080 --no-browser
    """
    # Ctrl-C is the usual end, so its status is that of success
    with plain_errors(debug), keeping(lambda: "the page keeps no results.", status=0):
        _serve(port, host, no_browser, as_json, debug)


def _serve(port: int, host: str, no_browser: bool, as_json: bool, debug: bool) -> None:
    try:
        import starlette  # noqa: F401
        import uvicorn
    except ImportError:
        raise ValueError(INSTALL) from None
    listening = _listen(host, port)
    address = f"http://{host if host != '0.0.0.0' else '127.0.0.1'}:{listening.getsockname()[1]}/"
    if not _is_loopback(host):
        complain(
            f"warning: --host {host} lets other machines use this page and this machine's processor; "
            "it has no password."
        )
    from finitewidth.interface.page.server import Desk, application

    app = application(Desk(quiet=not debug), hosts=_allowed_hosts(host))
    config = uvicorn.Config(
        app, log_level="info" if debug else "error", limit_concurrency=200, timeout_graceful_shutdown=1
    )
    _announce(address, as_json)
    if not no_browser:
        _open_when_ready(address)
    with listening:
        uvicorn.Server(config).run(sockets=[listening])


def _announce(address: str, as_json: bool) -> None:
    import json

    import finitewidth

    document = {"finitewidth": finitewidth.__version__, "command": "page", "address": address}
    print(json.dumps(document) if as_json else f"finitewidth page: {address}  (Ctrl-C stops it)", flush=True)


def _listen(host: str, port: int) -> socket.socket:
    """The socket, opened here so that a port in use gives one sentence."""
    try:
        listening = socket.create_server((host, port), backlog=128)
    except (OSError, UnicodeError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ValueError(
            f"cannot listen at --host {host!r} --port {port}: {reason}; choose another port, or 0 "
            "for a free one."
        ) from None
    return listening


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _allowed_hosts(host: str) -> tuple[str, ...]:
    if host == "0.0.0.0":
        return ("*",)
    return tuple(dict.fromkeys(("127.0.0.1", "localhost", host)))


def _open_when_ready(address: str) -> None:
    import threading
    import webbrowser

    threading.Timer(0.5, webbrowser.open, (address,)).start()
