"""tokenmill with units of 64 KiB, so that small corpora become many shards.

It does not wait for disks: tests kill processes, but no machine.
"""

from __future__ import annotations

import os
import sys

from tokenmill.cli import main
from tokenmill.read import units

units.MIN_UNIT_BYTES = 64 << 10
units.PIECE_BYTES = 4 << 10

if __name__ == "__main__":
    os.fsync = lambda descriptor: None
    sys.exit(main())
