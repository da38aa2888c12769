"""Entry point of the program, as `tokenmill` and as `python -m tokenmill`."""

from __future__ import annotations

import signal

# From here until `main` handles signals, SIGINT ends the process without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

from tokenmill.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
