"""Run the library's trainer in a separate process, which a crash or a signal can end.

Started as `python -m tokenmill.vocabulary.sentencepiece.child FOLDER`. The folder holds
`arguments.json` and the files that it names; `model` is written there, or `error` with what the
library says.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path


def main() -> None:
    """Train."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    os.chdir(sys.argv[1])  # names of files get into a model: they must be the same everywhere
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
    """Standard input ends when the parent does; the library lets other threads run."""
    os.read(sys.stdin.fileno(), 1)  # `sys.stdin` would be locked when this process ends
    os._exit(1)


if __name__ == "__main__":
    main()
