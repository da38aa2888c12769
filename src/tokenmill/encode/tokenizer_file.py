"""Load the tokenizer that the user names: its exact bytes, its kind and its configuration.

For a Python object without a file, the bytes are a description of the object.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.core.errors import UserError
from tokenmill.core.paths import local_path, read_bounded
from tokenmill.core.user_code import NAMED
from tokenmill.encode.encodings import (
    EXPLICIT,
    MAX_SPECIALS_BYTES,
    RANK_ENCODING_NAME,
    RankEncoding,
    parse_ranks,
)
from tokenmill.encode.kinds import KINDS
from tokenmill.encode.published_encodings import ENCODINGS
from tokenmill.encode.tokenizer import TokenizerFile, TokenizerKind
from tokenmill.encode.tokenizer_bounds import check_tokenizer_json
from tokenmill.encode.tokenizer_hub import (
    CHAT_TEMPLATE_NAME,
    CONFIG_NAME,
    fetch_tokenizer,
    is_hub_model,
)

FILE_NAMES = {kind.name: kind.file_name for kind in KINDS.values()}
SUFFIXES = {".json", ".tiktoken", ".model"}
CONFIG_NAMES = (CONFIG_NAME, "config.json")
LENGTH_KEYS = {CONFIG_NAME: "model_max_length", "config.json": "max_position_embeddings"}
MAX_OWN_LENGTH = 10_000_000
"""transformers writes 10^30 for "no limit"."""
MORE_TEMPLATES = "additional_chat_templates"
MAX_TOKENIZER_BYTES = 1 << 28


def load_tokenizer_file(
    spec: str | Path | object, encoding: str | RankEncoding = ""
) -> TokenizerFile:
    """Load a tokenizer by name, or accept a tokenizer object.

    A name is a file, a folder, or `python:module:name` for an object or factory in the user's own
    module. Any other name is a model on the Hub, [OWNER/]NAME[@REVISION], read through the local
    cache. Objects of `tokenizers`, and fast ones of `transformers`, are treated like their files,
    unless they encode some strings differently from the `tokenizers.Tokenizer` they wrap.
    `encoding` is for tiktoken rank files with unknown ranks.

    Raises:
        UserError: the tokenizer does not exist, or tokenmill cannot use it exactly.
    """
    if not isinstance(spec, (str, Path)):
        return _of_object(spec, encoding)
    spec = str(spec)
    if spec.startswith(NAMED):
        from tokenmill.encode.references.python_source import make_tokenizer

        return _of_object(make_tokenizer(spec), encoding, source=spec)
    path, commit = _locate(spec)
    load = _of_folder if path.is_dir() else _load
    return replace(load(path, encoding, origin=spec), commit=commit)


def own_length(tokenizer: object) -> tuple[int, str]:
    """Return the longest text in tokens that a tokenizer or its model takes, and where this is set.

    For a named tokenizer, this is the smaller of `model_max_length` and `max_position_embeddings`
    in the config.json beside it. An object has only the first. (0, "") if no limit is set.

    Raises:
        UserError: a named tokenizer does not exist, or its configuration cannot be read.
    """
    found = {"the tokenizer's model_max_length": getattr(tokenizer, "model_max_length", None)}
    if isinstance(tokenizer, (str, Path)) and not str(tokenizer).startswith(NAMED):
        path, _ = _locate(str(tokenizer))
        folder = path if path.is_dir() else path.parent
        for name, key in LENGTH_KEYS.items():
            found[f"{key} in {name}"] = _settings(folder / name).get(key)
    lengths = [
        (value, source)
        for source, value in found.items()
        if type(value) is int and 0 < value <= MAX_OWN_LENGTH
    ]
    return min(lengths, key=lambda each: each[0], default=(0, ""))


def _locate(spec: str) -> tuple[Path, str]:
    """Return the file or folder of a named tokenizer, and the commit if it is on the Hub."""
    path = local_path(os.path.expanduser(spec), "the tokenizer")  # noqa: PTH111 - never fails
    if path.is_dir() or path.is_file():
        return path, ""
    if is_hub_model(spec) and path.suffix not in SUFFIXES:
        return fetch_tokenizer(spec, MAX_TOKENIZER_BYTES)
    raise UserError(
        "cannot find the tokenizer",
        where=spec,
        why="no such file or folder, and it is not a valid model name on the Hub",
        hint="name a tokenizer.json, its folder, a .tiktoken or .model file, or a model on the Hub",
    )


def tokenizer_name(spec: str | Path | object) -> str:
    """Return the name of a tokenizer in a recipe; an object is named after its class."""
    if isinstance(spec, (str, Path)):
        return str(spec)
    return f"<object of {type(spec).__module__}.{type(spec).__qualname__}>"


def open_stored_tokenizer(folder: Path, kind: str, encoding: str) -> TokenizerFile:
    """Load the tokenizer in a dataset's `tokenizer/` folder."""
    path = folder / FILE_NAMES[kind]
    if encoding == EXPLICIT:
        return _load(path, _beside(path), origin=str(folder), kind=kind)
    if encoding and encoding not in ENCODINGS:
        hint = "use the version of tokenmill that built the dataset, or a newer one"
        what = f"{encoding!r} is not a known encoding"
        raise UserError(what, where=str(path), hint=hint)
    return _load(path, encoding, origin=str(folder), kind=kind)


def _of_object(
    tokenizer: Any, encoding: str | RankEncoding, source: str = "", origin: str = ""
) -> TokenizerFile:
    from tokenmill.encode.references.python_object import ROLES, TokenizerObject
    from tokenmill.encode.references.python_source import (
        backend_of,
        describe,
        file_of,
        objection_to_backend,
    )

    origin = origin or source or tokenizer_name(tokenizer)
    _refuse_encoding(encoding, origin)
    backend = backend_of(tokenizer)
    reason = "" if backend is None else objection_to_backend(tokenizer, backend)
    if backend is not None and not reason:
        data = file_of(backend)
        check_tokenizer_json(data, origin)
        tokens = {f"{role}_token": getattr(tokenizer, f"{role}_token", None) for role in ROLES}
        config: dict[str, Any] = {key: str(token) for key, token in tokens.items() if token}
        if template := getattr(tokenizer, "chat_template", None):
            config["chat_template"] = template
        return TokenizerFile("huggingface", data, origin=origin, config=config)
    asked = TokenizerObject(tokenizer)
    return TokenizerFile(
        "python",
        describe(asked),
        origin=origin,
        config=asked.names(),
        tokenizer=tokenizer,
        source=source,
        reason=reason,
    )


def _of_folder(folder: Path, encoding: str | RankEncoding, origin: str) -> TokenizerFile:
    if found := _file_in(folder):
        return _load(found, encoding, origin)
    from tokenmill.encode.references.python_source import folder_source, make_tokenizer

    source = folder_source(folder)
    return _of_object(make_tokenizer(source), encoding, source, origin)


def _file_in(folder: Path) -> Path | None:
    """Return the tokenizer's file; None if transformers may build one from several files."""
    names = [*FILE_NAMES.values(), "spiece.model", "sentencepiece.bpe.model"]
    found = [folder / name for name in names if (folder / name).is_file()]
    found = found or sorted([*folder.glob("*.tiktoken"), *folder.glob("*.model")])
    if found:
        return found[0]
    _refuse_code(folder)
    if not any((folder / name).is_file() for name in CONFIG_NAMES):
        raise UserError(
            "the folder contains no tokenizer",
            where=str(folder),
            why=f"no tokenizer.json, *.tiktoken, *.model or {CONFIG_NAME}",
        )
    return None


def _refuse_code(folder: Path) -> None:
    for name in CONFIG_NAMES:
        if (folder / name).is_file() and b"auto_map" in _config_bytes(folder / name):
            raise UserError(
                "the tokenizer needs custom Python code, which tokenmill never runs",
                where=str(folder),
                hint="convert it to tokenizer.json in an isolated environment",
            )


def _load(path: Path, encoding: str | RankEncoding, origin: str, kind: str = "") -> TokenizerFile:
    data = read_bounded(path, MAX_TOKENIZER_BYTES, "the tokenizer file")
    found = KINDS[kind] if kind else _kind(path, data)
    found.check(data, str(path))
    explicit: RankEncoding | None = None
    if found.encoding_of is None:
        _refuse_encoding(encoding, str(path))
    elif not encoding and path.with_name(RANK_ENCODING_NAME).is_file():
        encoding = _beside(path)
    if isinstance(encoding, RankEncoding):
        encoding.check(parse_ranks(data, str(path)), len(data), str(path))
        explicit, encoding = encoding, EXPLICIT
    elif found.encoding_of and not kind:
        encoding = found.encoding_of(path, encoding, data)
    config_path = path.with_name(CONFIG_NAME)
    config_data = _config_bytes(config_path) if config_path.is_file() else b""
    config: dict[str, Any] = {}
    for file in (path.with_name("special_tokens_map.json"), config_path):
        config |= _settings(file)
    config |= _chat_templates(path.parent)
    given = explicit.data() if explicit else b""
    return TokenizerFile(
        found.name, data, encoding, config_data, origin, config, rank_encoding=given
    )


def _beside(path: Path) -> RankEncoding:
    """Read the encoding stored next to a rank file."""
    path = path.with_name(RANK_ENCODING_NAME)
    return RankEncoding.read(read_bounded(path, MAX_SPECIALS_BYTES, "the encoding"), str(path))


def _refuse_encoding(encoding: str | RankEncoding, origin: str) -> None:
    if encoding:
        option = "--pattern" if isinstance(encoding, RankEncoding) else "--encoding"
        raise UserError(f"{option} works only with tiktoken rank files", where=origin)


def _chat_templates(folder: Path) -> dict[str, Any]:
    """Return the chat templates stored as files; they override those in the configuration."""
    files = {"default": folder / CHAT_TEMPLATE_NAME}
    if not files["default"].is_file():
        return {}
    files |= {path.stem: path for path in sorted((folder / MORE_TEMPLATES).glob("*.jinja"))}
    texts = {name: _config_bytes(file).decode(errors="replace") for name, file in files.items()}
    return {"chat_template": texts}


def _settings(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file next to a tokenizer, which may be missing."""
    return _json_object(_config_bytes(path), path) if path.is_file() else {}


def _config_bytes(path: Path) -> bytes:
    return read_bounded(path, MAX_TOKENIZER_BYTES, "a tokenizer's configuration")


def _kind(path: Path, data: bytes) -> TokenizerKind:
    found = next((kind for kind in KINDS.values() if kind.is_file(path, data)), None)
    if found is None:
        if data.lstrip()[:1] == b"{":
            _json_object(data, path)
        why = "it is not a tokenizer.json, a tiktoken rank file or a SentencePiece model"
        raise UserError("unknown tokenizer format", where=str(path), why=why)
    if found.is_described:
        hint = "name the tokenizer itself: python:module:name"
        why = "it is only the description of a Python object"
        raise UserError("not a tokenizer", where=str(path), why=why, hint=hint)
    return found


def _json_object(data: bytes, path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(data, type=dict)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError("the file is not a JSON object", where=str(path), why=str(error)) from error
