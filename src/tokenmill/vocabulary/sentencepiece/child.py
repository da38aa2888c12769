"""The process that runs the library's trainer, because that may crash or be killed."""

from __future__ import annotations

import os
from typing import Any

import msgspec

from tokenmill.core.child import Parent


class Train(msgspec.Struct):
    """To the process: train a model from files in a folder."""

    folder: str
    arguments: dict[str, Any]


class Trained(msgspec.Struct, tag="trained"):
    """From the process: the folder has a file `model`."""


class Refused(msgspec.Struct, tag="refused"):
    """From the process: what the library says."""

    message: str


Reply = Trained | Refused


def main() -> None:
    """Train one model. The library writes its progress to standard error."""
    parent = Parent(Train)
    order, _ = parent.receive()
    os.chdir(order.folder)  # the model stores file names, so they must be the same everywhere
    import sentencepiece

    with open("model", "wb") as file:
        try:
            sentencepiece.SentencePieceTrainer.Train(model_writer=file, **order.arguments)
        except (RuntimeError, ValueError, OSError) as error:
            parent.send(Refused(str(error).encode(errors="backslashreplace").decode()))
            return
    parent.send(Trained())
