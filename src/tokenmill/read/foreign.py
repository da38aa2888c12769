"""Detection of files in formats that tokenmill cannot read.

The kind is detected from the first bytes, then from the suffix, then from the shape of the text.
Suffixes that are also language codes (.br, .pt, .so) are ignored.
"""

from __future__ import annotations

import codecs
import re
import shlex
from collections.abc import Iterable
from pathlib import Path

from tokenmill.core.errors import UserError, one_line

_TEXT = "extract the text first, for example with "
ADVICE = {
    "Arrow or Parquet by name only": "get the files again: their content does not match the "
    "format that their names promise",
    "Git LFS pointers": "fetch the real files: git lfs pull",
    "HTML": _TEXT + "trafilatura",
    "NumPy arrays": "write the texts to Parquet or JSON Lines",
    "ORC, Avro, HDF5 or TFRecord": "convert them to Parquet",
    "PDF": _TEXT + "pdftotext",
    "SQLite databases": "write the table to Parquet or JSON Lines, for example with duckdb",
    "UTF-16 text": "convert it: iconv -f UTF-16 -t UTF-8 {name}",
    "WARC": _TEXT + "trafilatura or resiliparse; if the records already are text, --format wet",
    "XML": _TEXT + "xmllint --xpath or your own script",
    "archives": "unpack them first",
    "audio or video": "omit them",
    "binary data": "omit them; if they are UTF-16, convert them: iconv -f UTF-16LE -t UTF-8",
    "compressed in another way": "decompress them, or compress them with gzip, zstd, bzip2 or xz",
    "compressed more than once": "decompress them once",
    "compressed Parquet or Arrow": "decompress them: both formats compress their own content",
    "encrypted Parquet": "decrypt them first",
    "executables": "omit them",
    "images": "omit them",
    "notebooks": "convert them: jupyter nbconvert --to markdown {name}",
    "office documents or e-books": _TEXT + "pandoc",
    "pickles or model weights": "omit them: tokenmill never loads pickles or weights",
}
"""Advice for each kind of file; {name} is the name of its first file."""

_KIND_BY_SUFFIX = {
    suffix: kind
    for kind, suffixes in {
        "Arrow or Parquet by name only": ".parquet .arrow .feather",
        "HTML": ".html .htm .xhtml .mhtml",
        "NumPy arrays": ".npy .npz",
        "ORC, Avro, HDF5 or TFRecord": ".orc .avro .h5 .hdf5 .tfrecord .tfrecords",
        "PDF": ".pdf",
        "SQLite databases": ".sqlite .sqlite3",
        "WARC": ".warc .wet .wat",
        "XML": ".xml .svg .rss",
        "archives": ".zip .tar .tgz .tbz2 .txz .7z .rar",
        "audio or video": ".mp3 .wav .flac .ogg .opus .m4a .mp4 .mov .avi .mkv .webm",
        "compressed in another way": ".lz4 .lzma",
        "executables": ".exe .dll .dylib .pyc",
        "images": ".png .jpg .jpeg .gif .bmp .tif .tiff .webp .ico .heic .avif",
        "notebooks": ".ipynb",
        "office documents or e-books": ".docx .xlsx .pptx .xls .ppt .odt .ods .odp .rtf .epub",
        "pickles or model weights": ".pkl .pickle .joblib .pth .ckpt .safetensors .gguf",
    }.items()
    for suffix in suffixes.split()
}

_KIND_BY_MAGIC = {
    magic: kind
    for kind, magics in {
        "compressed Parquet or Arrow": (b"PAR1", b"ARROW1\x00\x00", b"\xff\xff\xff\xff"),
        "Git LFS pointers": (b"version https://git-lfs.github.com/spec/",),
        "NumPy arrays": (b"\x93NUMPY",),
        "ORC, Avro, HDF5 or TFRecord": (b"Obj\x01", b"\x89HDF\r\n\x1a\n"),
        "PDF": (b"%PDF-",),
        "SQLite databases": (b"SQLite format 3\x00",),
        "UTF-16 text": (b"\xff\xfe", b"\xfe\xff"),
        "WARC": (b"WARC/",),
        "archives": (
            b"PK\x03\x04",
            b"PK\x05\x06",
            b"7z\xbc\xaf\x27\x1c",
            b"Rar!\x1a\x07",
            b"!<arch>\n",
        ),
        "audio or video": (
            b"ID3\x02",
            b"ID3\x03",
            b"ID3\x04",
            b"\xff\xfb",
            b"OggS\x00",
            b"fLaC\x00",
            b"\x1aE\xdf\xa3",
        ),
        "compressed in another way": (b"\x04\x22\x4d\x18", b"\xff\x06\x00\x00sNaPpY", b"\x1f\x9d"),
        "encrypted Parquet": (b"PARE",),
        "executables": (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe"),
        "images": (
            b"\x89PNG\r\n\x1a\n",
            b"\xff\xd8\xff",
            b"GIF87a",
            b"GIF89a",
            b"II*\x00",
            b"MM\x00*",
        ),
        "office documents or e-books": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", rb"{\rtf"),
        "pickles or model weights": (
            *(bytes([0x80, protocol]) for protocol in range(2, 6)),
            b"GGUF",
        ),
    }.items()
    for magic in magics
}
_MAGIC_INSIDE = (
    (4, b"ftyp", "audio or video"),
    (8, b'{"', "pickles or model weights"),  # safetensors: header length, header
    (8, b"WAVE", "audio or video"),
    (8, b"AVI ", "audio or video"),
    (8, b"WEBP", "images"),
    (257, b"ustar", "archives"),
)
"""Magic numbers after other bytes. Text can contain them, so they only count with a zero byte."""
_ZIP_MARKS = {
    b"[Content_Types].xml": "office documents or e-books",
    b"mimetypeapplication/": "office documents or e-books",
    b"/data.pkl": "pickles or model weights",
    b".npy": "NumPy arrays",
}

_PLAIN = """
    .txt .text .md .markdown .rst .tex .org .adoc .log .c .cc .cpp .cs .css .cu .dart .el .ex
    .go .h .hpp .hs .java .jl .js .jsx .kt .lua .m .ml .php .pl .pm .proto .py .pyi .r .rb .rs
    .scala .scss .sh .sql .swift .tcl .toml .ts .tsx .vue .yaml .yml .zig
"""
PLAIN_SUFFIXES = frozenset(_PLAIN.split())
"""Suffixes of plain text; for these files, the shape of the text is ignored."""
COMPRESSION_SUFFIXES = (".gz", ".zst", ".zstd", ".bz2", ".xz")
LINE_SUFFIXES = (".jsonl", ".ndjson")
DELIMITED_SUFFIXES = (".csv", ".tsv")
RECORD_SUFFIXES = (".json", *LINE_SUFFIXES, *DELIMITED_SUFFIXES)
"""Suffixes of files with text records; every record is checked separately."""
_SHAPED = {*PLAIN_SUFFIXES, *DELIMITED_SUFFIXES}
_CONVERSION = re.compile(rb"\nwarc-type[ \t]*:[ \t]*conversion[ \t]*\r?\n", re.IGNORECASE)
_MARKUP = re.compile(rb"<(?:(!doctype html|html)|\?xml)[\s>]", re.IGNORECASE)

MAX_SHOWN = 3


def holds_wet(head: bytes, suffix: str) -> bool:
    """Return whether a file contains WARC records of plain text, by the types of the first ones."""
    is_wet = suffix == ".wet" or bool(_CONVERSION.search(head))
    return is_wet and head.startswith(b"WARC/")


def foreign_kind(head: bytes, name: Path) -> str:
    """Return the kind in ADVICE of a file that cannot be read, "" for all others.

    `head` are the first bytes of the decompressed file; `name` has no compression suffix.
    """
    suffix = name.suffix.lower()
    if not head or holds_wet(head, suffix):
        return ""
    return (
        _kind_by_magic(head, suffix)
        or _KIND_BY_SUFFIX.get(suffix, "")
        or ("" if suffix in _SHAPED else _kind_by_shape(head))
        or ("binary data" if b"\x00" in head and suffix not in RECORD_SUFFIXES else "")
    )


def _kind_by_magic(head: bytes, suffix: str) -> str:
    found = next((pair for pair in _KIND_BY_MAGIC.items() if head.startswith(pair[0])), (b"", ""))
    magic, kind = found
    if suffix in PLAIN_SUFFIXES and magic.isascii() and _is_text(head):
        return ""  # prose may begin with "GIF89a"
    if head.startswith(b"PK\x03\x04"):
        return next((kind for mark, kind in _ZIP_MARKS.items() if mark in head), kind)
    if not kind and b"\x00" in head:
        inside = (kind for at, magic, kind in _MAGIC_INSIDE if head.startswith(magic, at))
        return next(inside, "")
    return kind


def _is_text(head: bytes) -> bool:
    """Return whether a file that starts with `head` can be text: UTF-8 without zero bytes."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # the last character may be cut off
    except UnicodeDecodeError:
        return False
    return b"\x00" not in head


def _kind_by_shape(head: bytes) -> str:
    found = _MARKUP.match(head.removeprefix(b"\xef\xbb\xbf").lstrip())
    return ("HTML" if found[1] else "XML") if found else ""


def refuse_foreign(found: Iterable[tuple[str, str]]) -> None:
    """Raise one UserError for all of the (path, format) pairs whose format is a kind in ADVICE."""
    kinds: dict[str, list[str]] = {}
    others: set[str] = set()
    for path, kind in found:
        if kind in ADVICE:
            kinds.setdefault(kind, []).append(path)
        else:
            others.add(kind)
    if not kinds:
        return
    paths = [path for of_kind in kinds.values() for path in of_kind]
    what, where = f"cannot read {len(paths):,} inputs: unsupported formats", ""
    if len(paths) == 1:
        what, where = "cannot read an input: unsupported format", paths[0]
    lines = []
    for kind in sorted(kinds):
        lines.append(kind if where else f"{kind} ({len(kinds[kind]):,}): {_shown(kinds[kind])}")
        if len(kinds) > 1:
            lines.append(f"  {_advice(kind, kinds[kind][0])}")
    todo = "convert these files or omit them" if len(kinds) > 1 else _advice(kind, paths[0])
    raise UserError(
        what,
        where=where,
        why="\n       ".join(lines),
        hint=f"{todo}; or {_instead(others)}",
    )


def _instead(others: set[str]) -> str:
    """Return an alternative. Files with records are not offered as plain text."""
    if others - {"text"}:
        return "name only the other inputs"
    return "read all inputs as plain text with --format text"


def _shown(paths: list[str]) -> str:
    more = f" and {len(paths) - MAX_SHOWN:,} more" if len(paths) > MAX_SHOWN else ""
    return ", ".join(map(one_line, paths[:MAX_SHOWN])) + more


def _advice(kind: str, path: str) -> str:
    plain = plain_name(path)
    advice = ADVICE[kind].format(name=shlex.quote(plain.name))
    advice = one_line(advice)
    return advice if plain.name == Path(path).name else f"decompress it, then {advice}"


def plain_name(name: str) -> Path:
    """Return a file name without its compression suffix."""
    path = Path(name)
    return path.with_suffix("") if path.suffix.lower() in COMPRESSION_SUFFIXES else path
