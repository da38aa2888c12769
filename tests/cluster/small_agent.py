"""tokenmill for faults: small units, and a delay of DELAY seconds for each document."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "run"))

import small_units
from python_tokenizers import ByteTokenizer

DELAY = float(os.environ.get("DELAY", "0"))
small_units.units.MIN_UNIT_BYTES = 16 << 10


class DelayedBytes(ByteTokenizer):
    """A token a byte; documents as long as those of a corpus take their time."""

    def encode(self, text: str) -> list[int]:
        if text.count(" ") > 20:
            time.sleep(DELAY)
        return super().encode(text)


if __name__ == "__main__":
    sys.exit(small_units.main())
