"""Run the library's trainer in a separate process, because it may crash or be killed.

Started as `python -m tokenmill.vocabulary.sentencepiece.child FOLDER`. The folder contains
`arguments.json` and the files that it names. The child writes `model`, or `error` with the
library's message.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path


def main() -> None:
    """Train a model in the folder named on the command line."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(sys.argv[1])  # the model stores file names, so they must be the same everywhere
    arguments = json.loads(Path("arguments.json").read_bytes())
    import sentencepiece

    with open("model.part", "wb") as file:
        try:
            sentencepiece.SentencePieceTrainer.Train(model_writer=file, **arguments)
        except (RuntimeError, ValueError, OSError) as error:
            Path("error").write_text(str(error), "utf-8", "backslashreplace")
            return
    os.replace("model.part", "model")


def _end_with_parent() -> None:
    """Exit when standard input ends, because then the parent has ended."""
    os.read(sys.stdin.fileno(), 1)  # reading `sys.stdin` would hold its lock at exit
    os._exit(1)


if __name__ == "__main__":
    main()
