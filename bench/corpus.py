"""Make the text for benchmarks: at least 1 GB of distinct, real documents in every format.

The text is a Debian source package (Linux by default): one file is one document. Files that are
not UTF-8, empty, or larger than 2 MB are skipped, links are not followed, and the order is shuffled
with a fixed seed, so two people with the same package version get the same bytes.

    python bench/corpus.py --out DATA                            # needs apt-get, dpkg-deb, zstd
    python bench/corpus.py --out DATA --from some/folder         # any folder of text files
    python bench/corpus.py --out DATA --from-jsonl a.jsonl.zst   # formats of an existing corpus

Under DATA: `jsonl/`, `parquet/`, `zst/` and `gz/` with the same documents in 8 files each, and
`small/` with the same documents in 200 JSONL files.
"""

from __future__ import annotations

import argparse
import contextlib
import gzip
import itertools
import json
import os
import random
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

LARGEST_FILE = 2_000_000
FILES = 8
SMALL_FILES = 200
SEED = 0
VARIANTS = ("parquet", "zst", "gz", "small")
ROWS_PER_GROUP = 4096


def unpack_debian_source(package: str, folder: Path) -> Path:
    """Download a source package that ships a tar archive and unpack it; returns the tree."""
    subprocess.run(["apt-get", "download", package], cwd=folder, check=True)
    archive = next(folder.glob("*.deb"))
    subprocess.run(["dpkg-deb", "-x", str(archive), str(folder / "package")], check=True)
    tarball = next((folder / "package").rglob("*.tar.*"))
    tree = folder / "tree"
    tree.mkdir()
    subprocess.run(["tar", "-xf", str(tarball), "-C", str(tree)], check=True)
    return tree


def documents_of_tree(tree: Path) -> Iterator[dict[str, str]]:
    """One document per text file below `tree`, in an order that depends on the names alone."""
    paths = sorted(
        Path(folder, name).relative_to(tree).as_posix()
        for folder, _, names in os.walk(tree)
        for name in names
    )
    random.Random(SEED).shuffle(paths)
    for path in paths:
        file = tree / path
        if file.is_symlink() or not file.is_file() or not 0 < file.stat().st_size <= LARGEST_FILE:
            continue
        try:
            yield {"id": path, "text": file.read_bytes().decode("utf-8")}
        except UnicodeDecodeError:
            continue


def documents_of_jsonl(paths: Iterable[Path]) -> Iterator[dict[str, str]]:
    for path in paths:
        with pa.input_stream(str(path), compression="detect") as stream:
            rest = b""
            while block := stream.read(1 << 24):
                *lines, rest = (rest + block).split(b"\n")
                yield from map(json.loads, filter(None, lines))
            if rest:
                yield json.loads(rest)


def write_jsonl(documents: Iterable[dict[str, str]], folder: Path, files: int, limit: int) -> None:
    """Deal documents over `files` JSONL files until `limit` bytes of text are written."""
    folder.mkdir(parents=True, exist_ok=True)
    total = count = 0
    with contextlib.ExitStack() as stack:
        streams = [
            stack.enter_context(open(folder / f"part-{n:03d}.jsonl", "wb")) for n in range(files)
        ]
        for stream, document in zip(itertools.cycle(streams), documents, strict=False):
            line = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
            stream.write(line.encode() + b"\n")
            total += len(document["text"].encode())
            count += 1
            if total >= limit:
                break
    print(f"{folder}: {count} documents, {total / 1e6:.0f} MB of text")


def write_parquet(source: Path, target: Path) -> None:
    """Row groups of 4,096 documents, Snappy: what most published data sets look like."""
    schema = pa.schema([("id", pa.string()), ("text", pa.string())])
    documents = documents_of_jsonl([source])
    with pq.ParquetWriter(target, schema, compression="snappy") as writer:
        while group := list(itertools.islice(documents, ROWS_PER_GROUP)):
            columns = {name: [document[name] for document in group] for name in schema.names}
            writer.write_table(pa.table(columns, schema=schema))


def write_zst(source: Path, target: Path) -> None:
    """One frame at the `zstd` program's default level, as people compress by hand."""
    subprocess.run(["zstd", "-q", "-f", "-3", str(source), "-o", str(target)], check=True)


def write_gz(source: Path, target: Path) -> None:
    with open(source, "rb") as reader, gzip.GzipFile(target, "wb", 6, mtime=0) as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)


def write_variant(name: str, out: Path) -> None:
    sources = sorted((out / "jsonl").glob("*.jsonl"))
    if name == "small":
        unlimited = 1 << 62
        write_jsonl(documents_of_jsonl(sources), out / "small", SMALL_FILES, unlimited)
        return
    write, suffix = {
        "parquet": (write_parquet, ".parquet"),
        "zst": (write_zst, ".jsonl.zst"),
        "gz": (write_gz, ".jsonl.gz"),
    }[name]
    (out / name).mkdir(exist_ok=True)
    for source in sources:
        write(source, out / name / (source.stem + suffix))
    size = sum(path.stat().st_size for path in (out / name).iterdir())
    print(f"{out / name}: {size / 1e6:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True)
    origin = parser.add_mutually_exclusive_group()
    origin.add_argument("--from", dest="tree", type=Path, help="folder of text files")
    origin.add_argument("--from-jsonl", type=Path, nargs="+", help="JSONL with `id` and `text`")
    parser.add_argument("--package", default="linux-source-6.1", help="Debian source package")
    parser.add_argument("--bytes", type=int, default=1_050_000_000, help="text to take")
    parser.add_argument("--variants", nargs="*", choices=VARIANTS, default=list(VARIANTS))
    options = parser.parse_args()

    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as work:
        if options.from_jsonl:
            documents = documents_of_jsonl(options.from_jsonl)
        else:
            tree = options.tree or unpack_debian_source(options.package, Path(work))
            documents = documents_of_tree(tree)
        write_jsonl(documents, options.out / "jsonl", FILES, options.bytes)
    for name in options.variants:
        write_variant(name, options.out)


if __name__ == "__main__":
    main()
