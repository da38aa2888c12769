"""A wire to a server, run as a script: prints its port; SIGSTOP cuts it, SIGCONT mends it."""

from __future__ import annotations

import socket
import sys
from threading import Thread


def pump(source: socket.socket, target: socket.socket) -> None:
    """Carry bytes one way."""
    try:
        while data := source.recv(1 << 16):
            target.sendall(data)
    except OSError:
        pass
    finally:
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def main(port: int) -> None:
    """Carry all connections to a port of this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            near, _ = listener.accept()
            far = socket.create_connection(("127.0.0.1", port))
            for ends in ((near, far), (far, near)):
                Thread(target=pump, args=ends, daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
