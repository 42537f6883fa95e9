"""Start the server, say where it is, and end it with everything that it has started."""

from __future__ import annotations

import os
import sys
import threading
import webbrowser
from collections.abc import Callable
from contextlib import suppress
from socket import socket
from typing import TYPE_CHECKING, Any

from leadline.errors import MachineError, require
from leadline.web.server.address import DEFAULT_PORT, LabAddress, take_port
from leadline.web.server.settings import LabSettings

if TYPE_CHECKING:
    from leadline.web.server.app import Lab

__all__ = ["LabServer", "open_browser"]

GRACE = 1
"""Seconds that answers under way have when the server ends."""
MOST_CONNECTIONS = 400
START = 30.0
END = 20.0


class LabServer:
    """A server of the lab that has its port and has not begun to answer.

    `run` answers in this thread until Ctrl-C, `start` in another one until `stop`.
    """

    def __init__(self, settings: LabSettings, *, port: int = DEFAULT_PORT) -> None:
        require("starlette", extra="lab")
        require("uvicorn", extra="lab")
        self._socket = take_port(port)
        self.address = LabAddress(self._socket.getsockname()[1])
        self.moved = port not in (0, self.address.port)
        """Whether the port that was asked for is in use."""
        self._settings = settings
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._server: Any = None

    def run(self, begun: Callable[[], object] = lambda: None) -> None:
        """Answer until Ctrl-C; call `begun` when the first request can be answered."""
        from leadline.web.server.app import Lab

        self._server = _server(Lab(self._settings, self.address), begun)
        with suppress(KeyboardInterrupt):  # uvicorn raises it again when all has ended
            self._server.run(sockets=[self._socket])
        _close(self._socket)
        if not self._server.started:
            raise MachineError("The server of the lab could not start.")

    def start(self) -> None:
        """Answer in a thread of its own; return when the first request can be answered."""
        failed: list[Exception] = []

        def run() -> None:
            try:
                self.run(self._started.set)
            except Exception as error:
                failed.append(error)
                self._started.set()

        self._thread = threading.Thread(target=run, name="leadline lab", daemon=True)
        self._thread.start()
        if not self._started.wait(START):
            raise MachineError(f"The server of the lab did not start within {START:.0f} s.")
        if failed:
            raise failed[0]

    def stop(self) -> None:
        """End a server that was started in a thread, with all of its processes."""
        if self._thread is None:
            _close(self._socket)
            return
        if self._server is not None:
            self._server.should_exit = True
        self._thread.join(END)
        if self._thread.is_alive():
            raise MachineError(f"The server of the lab did not end within {END:.0f} s.")


def _server(lab: Lab, begun: Callable[[], object]) -> Any:
    """Return the HTTP server, which writes no log: addresses in it would hold the token."""
    import uvicorn

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket] | None = None) -> None:
            await super().startup(sockets)
            if self.started:
                begun()

        async def shutdown(self, sockets: list[socket] | None = None) -> None:
            lab.hang_up()
            await super().shutdown(sockets)

    return Server(
        uvicorn.Config(
            lab.app,
            interface="asgi3",
            loop="asyncio",
            http="h11",
            ws="none",
            lifespan="on",
            access_log=False,
            log_level="critical",
            proxy_headers=False,
            server_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=30,
            timeout_graceful_shutdown=GRACE,
        )
    )


def open_browser(address: str) -> bool:
    """Open the address in a browser with windows; False where there is none.

    A browser that draws into the terminal would take the terminal away from the server.
    """
    windows = ("DISPLAY", "WAYLAND_DISPLAY", "WSL_DISTRO_NAME", "BROWSER")
    if sys.platform.startswith("linux") and not any(os.environ.get(name) for name in windows):
        return False
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False


def _close(one: socket) -> None:
    with suppress(OSError):
        one.close()
