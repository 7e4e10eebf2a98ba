"""Ctrl-C and SIGTERM: one line that says what is kept, and the end of the process.

Compiled work can run for minutes before Python sees a signal, and an exception that Python raises inside a
callback of a compiler is lost. So a signal is not turned into an exception. A thread waits for it, prints the
line and ends the process. Files and stores are whole at every moment, as if the process had been killed.
"""

import contextlib
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator

INTERRUPTED = 130
NOTHING = "no results were written."
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_PATIENCE = 1.0  # seconds for the removal of drafts

_kept: Callable[[], str] = lambda: NOTHING  # noqa: E731
_status = INTERRUPTED
_signalled = threading.Event()


@contextlib.contextmanager
def keeping(kept: Callable[[], str], status: int = INTERRUPTED) -> Iterator[None]:
    """Let an interrupt inside this block print the sentence kept(), and end the process with `status`."""
    global _kept, _status
    earlier = _kept, _status
    _kept, _status = kept, status
    try:
        yield
    except KeyboardInterrupt:  # where nobody watches: a program that calls the command line itself
        print(_line().decode(), end="", file=sys.stderr)
        sys.exit(status)
    finally:
        _kept, _status = earlier


def watch() -> None:
    """From now on a thread ends this process at the first signal, whatever the main thread is doing."""
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # a shell's job in the background ignores Ctrl-C
            signal.signal(number, _stand_still)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    threading.Thread(target=_wait_and_end, args=(reader, writer), daemon=True).start()


def unwatch() -> None:
    """The work is done: a signal ends the process without a word."""
    signal.set_wakeup_fd(-1)
    for number in _SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def _stand_still(*_: object) -> None:
    """What a signal does in the main thread: wait for the end, and bring it about at the second signal."""
    if not _signalled.is_set():
        _signalled.set()
        time.sleep(2 * _PATIENCE)
    os._exit(_status)


def _wait_and_end(reader: socket.socket, _writer: socket.socket) -> None:
    while not set(reader.recv(64)) & set(_SIGNALS):
        pass
    _say(_line())
    tidying = threading.Thread(target=_discard_drafts, daemon=True)
    tidying.start()
    tidying.join(_PATIENCE)
    os._exit(_status)


def _line() -> bytes:
    return f"finitewidth: interrupted; {_kept()}\n".encode()


def _say(line: bytes) -> None:
    """Write the line past Python's streams, which another thread may hold, and silence all that follows."""
    with contextlib.suppress(OSError):  # nobody may be listening
        terminal = os.isatty(2)
        errors, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 2)
        # on a terminal a progress bar has the line and hides the cursor
        os.write(errors, b"\r\x1b[2K\x1b[?25h" * terminal + line)


def _discard_drafts() -> None:
    storage = sys.modules.get("finitewidth.core.storage.files")
    if storage is not None:
        storage.discard_drafts()
