"""Entry point of `python -m tokenmill`."""

from __future__ import annotations

from tokenmill.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
