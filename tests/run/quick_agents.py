"""tokenmill with small units and a fast heart: what takes a minute takes two seconds.

Every claim that this process wins is added as a line to the file that CLAIM_LOG names.
"""

from __future__ import annotations

import os
import sys

import small_units  # noqa: F401 - makes units small

from tokenmill.cli import main
from tokenmill.run import work
from tokenmill.run.journal import agents
from tokenmill.run.journal.claims import Claims

agents.LEAST_BEAT_SECONDS = agents.MOST_BEAT_SECONDS = 0.5
work.REFRESH_SECONDS = 0.2
take = Claims.take


def logged_take(claims: Claims, *arguments: object) -> str | None:
    item = take(claims, *arguments)  # type: ignore[arg-type]
    if item and "CLAIM_LOG" in os.environ:
        with open(os.environ["CLAIM_LOG"], "a") as log:
            log.write(item + "\n")
    return item


if __name__ == "__main__":
    Claims.take = logged_take  # type: ignore[method-assign, assignment]
    sys.exit(main())
