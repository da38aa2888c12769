"""The tokenizer as the user gives it: exact bytes, kind, and the configuration beside it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.encode.encodings import ENCODINGS, nearest_encoding
from tokenmill.errors import UserError

FILE_NAMES = {
    "huggingface": "tokenizer.json",
    "tiktoken": "tokenizer.tiktoken",
    "sentencepiece": "tokenizer.model",
}
SUFFIXES = {".json", ".tiktoken", ".model"}
CONFIG_NAME = "tokenizer_config.json"
MAX_TOKENIZER_BYTES = 1 << 28


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A tokenizer's bytes and what they are."""

    kind: str
    """huggingface, tiktoken or sentencepiece."""
    data: bytes
    encoding: str = ""
    """tiktoken only: the name in the table that gives pattern and special tokens."""
    config_data: bytes = b""
    origin: str = ""
    """Where it came from, for people."""
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def sha256(self) -> str:
        """Digest of the tokenizer's bytes and, for rank files, of the encoding's name."""
        return hashlib.sha256(self.data + self.encoding.encode()).hexdigest()


def load_tokenizer_file(spec: str, encoding: str = "") -> TokenizerFile:
    """Load a file, a folder, or the name of a model on the Hub (through its local cache).

    Raises:
        UserError: there is no such tokenizer, or it is of a kind that cannot be used exactly.
    """
    path = Path(spec).expanduser()
    if path.is_dir():
        path = _file_in(path)
    if path.is_file():
        return _load(path, encoding, origin=spec)
    if (
        spec.count("/") == 1
        and not spec.startswith((".", "/", "~"))
        and path.suffix not in SUFFIXES
    ):
        return _load(_from_hub(spec), encoding, origin=spec)
    hint = "give tokenizer.json, its folder, a .tiktoken or .model file, or a Hub name"
    raise UserError("there is no such tokenizer", where=spec, hint=hint)


def open_stored_tokenizer(folder: Path, kind: str, encoding: str) -> TokenizerFile:
    """The tokenizer that a dataset carries in its `tokenizer/` folder."""
    path = folder / FILE_NAMES[kind]
    return _load(path, encoding, origin=str(folder), kind=kind)


def _file_in(folder: Path) -> Path:
    names = [*FILE_NAMES.values(), "spiece.model", "sentencepiece.bpe.model"]
    found = [folder / name for name in names if (folder / name).is_file()]
    found = found or sorted([*folder.glob("*.tiktoken"), *folder.glob("*.model")])
    if found:
        return found[0]
    if (folder / CONFIG_NAME).is_file() and b"auto_map" in (folder / CONFIG_NAME).read_bytes():
        raise UserError(
            "the tokenizer is Python code of its own, which is never run",
            where=str(folder),
            hint="convert it to tokenizer.json in an environment that you trust",
        )
    raise UserError("the folder holds no tokenizer", where=str(folder), why="no tokenizer.json")


def _from_hub(name: str) -> Path:
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        path = Path(hf_hub_download(name, FILE_NAMES["huggingface"]))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError) as error:
        why = str(error).splitlines()[0]
        hint = "check the name and the network, or download tokenizer.json and give its path"
        raise UserError("cannot get the tokenizer", where=name, why=why, hint=hint) from error
    for extra in (CONFIG_NAME, "special_tokens_map.json"):
        try:
            hf_hub_download(name, extra, revision=path.parent.name)
        except (HfHubHTTPError, LocalEntryNotFoundError, OSError, ValueError):
            continue  # optional: many models have only one of them
    return path


def _load(path: Path, encoding: str, origin: str, kind: str = "") -> TokenizerFile:
    if path.stat().st_size > MAX_TOKENIZER_BYTES:
        why = f"it has {path.stat().st_size} bytes; the limit is {MAX_TOKENIZER_BYTES}"
        raise UserError("the tokenizer file is too large", where=str(path), why=why)
    data = path.read_bytes()
    kind = kind or _kind(path, data)
    if kind == "tiktoken":
        encoding = _known_encoding(path, encoding, data)
    elif encoding:
        raise UserError("--encoding is for tiktoken rank files only", where=str(path))
    config_path = path.with_name(CONFIG_NAME)
    config_data = config_path.read_bytes() if config_path.is_file() else b""
    config: dict[str, Any] = {}
    for file in (path.with_name("special_tokens_map.json"), config_path):
        if file.is_file():
            config |= _json_object(file)
    return TokenizerFile(kind, data, encoding, config_data, origin, config)


def _kind(path: Path, data: bytes) -> str:
    first_line = data.split(b"\n", 1)[0].split()
    if data.lstrip()[:1] == b"{":
        if isinstance(_json_object(path).get("model"), dict):
            return "huggingface"
    elif len(first_line) == 2 and first_line[1].isdigit():  # Llama 3's is called tokenizer.model
        return "tiktoken"
    elif path.suffix == ".model" or data[:1] == b"\n":
        return "sentencepiece"
    why = "it is no tokenizer.json, no tiktoken rank file and no SentencePiece model"
    raise UserError("the tokenizer's kind is unknown", where=str(path), why=why)


def _json_object(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError("the file is not a JSON object", where=str(path), why=str(error)) from error


def _known_encoding(path: Path, encoding: str, data: bytes) -> str:
    name = encoding or path.stem
    if name not in ENCODINGS:
        raise UserError(
            f"{name!r} is not a known encoding",
            where=str(path),
            why="a rank file holds neither its split pattern nor its special tokens",
            hint=f"say --encoding, one of {', '.join(ENCODINGS)}{nearest_encoding(name)}",
        )
    num_ranks = sum(1 for line in data.split(b"\n") if line.strip())
    if num_ranks != ENCODINGS[name].num_ranks:
        why = f"it has {num_ranks} ranks; {name} has {ENCODINGS[name].num_ranks}"
        raise UserError(f"the rank file is not {name}", where=str(path), why=why)
    return name
