"""tokenmill with units of 64 KiB, so that small corpora become many shards."""

from __future__ import annotations

import sys

from tokenmill.cli import main
from tokenmill.read import units

units.MIN_UNIT_BYTES = 64 << 10
units.PIECE_BYTES = 4 << 10

if __name__ == "__main__":
    sys.exit(main())
