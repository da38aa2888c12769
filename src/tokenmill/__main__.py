"""Entry point of the program, as `tokenmill` and as `python -m tokenmill`."""

from __future__ import annotations

import gc
import os
import signal

# From here until `main` handles signals, SIGINT ends the process without a traceback.
if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# A start makes many objects that stay. Looking through them so often costs 5 % of its time.
gc.set_threshold(10_000)
# NumPy would start threads for linear algebra, which no command needs.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from tokenmill.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
