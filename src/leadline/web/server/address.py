"""Where the lab is served: a port of 127.0.0.1 that is free, and the token that opens it."""

from __future__ import annotations

import errno
import os
import secrets
import socket
from dataclasses import dataclass, field

from leadline.errors import InputError

__all__ = ["DEFAULT_PORT", "HOST", "LabAddress", "take_port"]

HOST = "127.0.0.1"
"""The server is bound to this address alone, so that no other machine can reach it."""
DEFAULT_PORT = 8710
TRIES = 20
"""So many ports are tried, from the one that was asked for on."""
_IN_USE = {errno.EADDRINUSE, getattr(errno, "WSAEADDRINUSE", errno.EADDRINUSE)}
_NOT_ALLOWED = {errno.EACCES, errno.EPERM}


@dataclass(frozen=True)
class LabAddress:
    """A port and a token. Whoever knows the address may use the lab; nobody else may."""

    port: int
    token: str = field(default_factory=lambda: secrets.token_urlsafe(24), repr=False)

    @property
    def url(self) -> str:
        """The address to open; the page takes the token out of it."""
        return f"{self.origin}/?token={self.token}#/"

    @property
    def origin(self) -> str:
        """The address without the token."""
        return f"http://{HOST}:{self.port}"

    @property
    def hosts(self) -> frozenset[str]:
        """What the header Host may say: any other name was made to lead here by a foreign page."""
        return frozenset({f"{HOST}:{self.port}", f"localhost:{self.port}"})

    @property
    def origins(self) -> frozenset[str]:
        """What the header Origin may say."""
        return frozenset(f"http://{host}" for host in self.hosts)


def take_port(port: int = DEFAULT_PORT) -> socket.socket:
    """Return a socket that listens on this port, or on the next one that is free.

    It listens at once: two sockets that are merely bound can share a port, and the second would fail
    later. Port 0 takes any that is free.
    """
    if not 0 <= port < 2**16:
        raise InputError(f"The port is {port}; give a whole number from 0 to 65535.")
    ports = [0] if port == 0 else range(port, min(port + TRIES, 2**16))
    for candidate in ports:
        one = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if os.name == "posix":  # elsewhere the option would let two programs share a port
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind((HOST, candidate))
            one.listen(128)
        except OSError as error:
            one.close()
            if error.errno in _NOT_ALLOWED:
                raise InputError(
                    f"This account may not listen on port {candidate}; choose one above 1023."
                ) from error
            if error.errno not in _IN_USE:
                raise
        else:
            one.set_inheritable(False)
            return one
    raise InputError(
        f"The ports {port} to {ports[-1]} are in use; name another one with --port, or 0 for any "
        "that is free."
    )
