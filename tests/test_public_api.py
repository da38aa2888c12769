"""The public names: found by people, editors and type checkers, and loaded when they are used."""

from __future__ import annotations

import ast
import importlib.metadata
import pkgutil
import re
import subprocess
import sys
import types
import typing
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pytest

import tokenmill
from tokenmill.api import options
from tokenmill.cli import COMMANDS
from tokenmill.encode.words.splits import Digits
from tokenmill.load.columns import MaskedLM
from tokenmill.load.fill_in_middle import FillInMiddle
from tokenmill.load.steps.batch_size import Ramp
from tokenmill.packing.options import LongDocuments, Packing, PackOptions
from tokenmill.read.rendering.chat.conversations import Chat
from tokenmill.run.recipe.options import (
    ChatOptions,
    CountRecipe,
    EncodeOptions,
    LimitOptions,
    ReadOptions,
    ResourceOptions,
)
from tokenmill.store.exports import (
    Column,
    DocumentFormat,
    DocumentOptions,
    DocumentOrder,
    ExportOptions,
    Format,
    IdType,
    Layout,
    Order,
)
from tokenmill.store.selecting.options import SelectOptions
from tokenmill.vocabulary.training.options import (
    GroupOptions,
    Model,
    SpecialOptions,
    VocabularyOptions,
)

HEAVY = {"numba", "torch", "pyarrow", "transformers"}
ROOT = Path(__file__).parents[1]


LIGHT = (
    "build open verify estimate recipe check_tokenizer view_document train_tokenizer count_words"
)


def test_what_neither_packs_nor_loads_imports_no_compiler_and_no_framework() -> None:
    loaded = f"[getattr(tokenmill, name) for name in {[*LIGHT.split(), 'count_words']}]"
    code = f"import sys, tokenmill; {loaded}; print({HEAVY} & set(sys.modules))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert shown.stdout == "set()\n"


def test_every_listed_name_exists_and_can_be_imported() -> None:
    stub = ast.parse((ROOT / "src" / "tokenmill" / "__init__.pyi").read_text())
    imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    typed = [name.name for line in imports for name in line.names]
    assert dir(tokenmill) == sorted(typed)
    assert sorted(tokenmill.__all__) == sorted(typed)
    assert all(hasattr(tokenmill, name) for name in typed)
    everything: dict[str, Any] = {}
    exec("from tokenmill import *", everything)
    assert set(typed) <= everything.keys()


def test_no_public_name_is_that_of_a_submodule_which_an_import_would_put_in_its_place() -> None:
    submodules = {module.name for module in pkgutil.iter_modules(tokenmill.__path__)}
    assert "packing" in submodules
    assert not submodules & {*dir(tokenmill), "report"}


@pytest.mark.parametrize("name", ["build", "pack", "export", "estimate", "analyze", "verify"])
def test_a_command_has_its_name_in_python(name: str) -> None:
    assert name in COMMANDS
    assert callable(getattr(tokenmill, name))


def test_the_version_is_that_of_the_installed_package() -> None:
    assert tokenmill.__version__ == importlib.metadata.version("tokenmill")


def test_there_are_no_other_names() -> None:
    with pytest.raises(AttributeError, match="module 'tokenmill' has no attribute 'Source'"):
        _ = tokenmill.Source  # type: ignore[attr-defined]


STRUCTS: dict[type, list[type[msgspec.Struct]]] = {
    options.ReadingArguments: [ReadOptions, LimitOptions, ResourceOptions],
    options.BuildArguments: [
        *(ReadOptions, ChatOptions, EncodeOptions, LimitOptions, ResourceOptions, PackOptions),
    ],
    options.PackArguments: [PackOptions],
    options.ExportArguments: [ExportOptions],
    options.DocumentArguments: [DocumentOptions],
    options.SelectArguments: [SelectOptions],
    options.CountArguments: [CountRecipe, ReadOptions, LimitOptions, ResourceOptions],
    options.TrainArguments: [
        *(VocabularyOptions, SpecialOptions, GroupOptions),
        *(CountRecipe, ReadOptions, LimitOptions, ResourceOptions),
    ],
    options.RowArguments: [tokenmill.BatchOptions, tokenmill.Targets],
    options.LoaderArguments: [tokenmill.OrderOptions, tokenmill.BatchOptions, tokenmill.Targets],
    options.TextLoaderArguments: [tokenmill.TextStreamOptions, tokenmill.BatchOptions],
}
NAMES: dict[str, Any] = {
    "FillInMiddle": FillInMiddle,
    "Path": Path, "Column": Column, "Format": Format, "IdType": IdType, "MaskedLM": MaskedLM,
    "LongDocuments": LongDocuments, "Packing": Packing, "Model": Model, "Digits": Digits,
    "Chat": Chat, "DocumentFormat": DocumentFormat, "DocumentOrder": DocumentOrder, "Order": Order,
    "Layout": Layout,
}  # fmt: skip
FROM_STRINGS = (ReadOptions, LimitOptions, PackOptions)
"""A share may be text there, as on a command line: "0.1%"."""
MORE_TYPES: dict[tuple[type, str], Any] = {
    (ReadOptions, "transform"): options.Transform,
    (EncodeOptions, "eos"): int,
    (EncodeOptions, "pad"): int,
    (ReadOptions, "max_record"): str,
    (LimitOptions, "audit_share"): str,
    (ResourceOptions, "memory"): str,
    (ResourceOptions, "cache_dir"): Path,
    (ResourceOptions, "metrics"): Path,
    (tokenmill.OrderOptions, "metrics"): Path,
    (DocumentOptions, "file_size"): str,
    (ChatOptions, "chat_template"): Path,
    (EncodeOptions, "specials_from"): Path,
    (SpecialOptions, "chat_template"): Path,
    (GroupOptions, "parity_counts"): Path,
    (SelectOptions, "only"): Path,
    (SelectOptions, "without"): Path,
    (SelectOptions, "contains"): Path,
    (SelectOptions, "without_contained"): Path,
    (SelectOptions, "sample"): str,
}
OF_NO_WORDS = {"id_field", "keep", "no_loss", "validation", "max_tokens"}
OF_A_COMMAND = {"inputs", "out", "split", "digits", "read", "limits", "resources"}
LEFT_OUT: dict[tuple[type, type], set[str]] = {
    (options.ReadingArguments, ReadOptions): OF_NO_WORDS,
    (options.CountArguments, ReadOptions): OF_NO_WORDS,
    (options.CountArguments, CountRecipe): OF_A_COMMAND,
    (options.TrainArguments, ReadOptions): OF_NO_WORDS,
    (options.TrainArguments, CountRecipe): OF_A_COMMAND,
}
SPELLED_OUT = {"sequence_length", "global_batch_size"}
"""Arguments of `text_loader` itself."""


@pytest.mark.parametrize("arguments", STRUCTS)
def test_keyword_arguments_are_the_fields_of_the_options(arguments: type) -> None:
    fields = {
        name: expected_type(struct, name, hint)
        for struct in STRUCTS[arguments]
        for name, hint in typing.get_type_hints(struct, include_extras=True).items()
        if name not in LEFT_OUT.get((arguments, struct), ())
    }
    if arguments is options.TextLoaderArguments:
        fields = {name: kind for name, kind in fields.items() if name not in SPELLED_OUT}
    given = typing.get_type_hints(arguments, localns=NAMES)
    given.pop("export", None)  # a section of its own
    assert members(given) == members(fields)


def test_a_mixture_takes_the_arguments_of_a_loader_but_its_epochs() -> None:
    of_a_loader = set(typing.get_type_hints(options.LoaderArguments, localns=NAMES))
    of_a_mixture = set(typing.get_type_hints(options.MixtureArguments, localns=NAMES))
    assert of_a_loader - of_a_mixture == {"epochs"}


def expected_type(struct: type, name: str, hint: Any) -> Any:
    """The type of an argument for a field: whatever is read as the field's type."""
    kind = without_rules(hint)
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        given = [each for each in typing.get_args(kind) if each is not msgspec.UnsetType]
        given = [Sequence[str] if each == list[str] else each for each in given]
        given = [options.Ramp if each == Ramp else each for each in given]
        kind = typing.Union[tuple(given)]  # noqa: UP007
    if typing.get_origin(kind) in (list, tuple):
        return Sequence[without_rules(typing.get_args(kind)[0])]  # type: ignore[misc]
    if kind is float and struct in FROM_STRINGS:
        return float | str
    more = MORE_TYPES.get((struct, name))
    return kind if more is None else kind | more


def without_rules(hint: Any) -> Any:
    """A type without the rules on its values."""
    if typing.get_origin(hint) is Annotated:
        return without_rules(typing.get_args(hint)[0])
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return typing.Union[tuple(map(without_rules, typing.get_args(hint)))]  # noqa: UP007
    return hint


def members(fields: dict[str, Any]) -> dict[str, set[Any]]:
    """Types as sets of what they are unions of."""
    unions = (typing.Union, types.UnionType)
    return {
        name: set(typing.get_args(kind)) if typing.get_origin(kind) in unions else {kind}
        for name, kind in fields.items()
    }


CALLS = """
import tokenmill

report = tokenmill.build("data/", "t.json", "out/", workers=2, validation="0.1%", memory="2GB")
report.dataset.batches("plan", batch_size=8, columns=["input_ids"])
tokenmill.build("data/", "t.json", "out/", workrs=2)  # call-arg
tokenmill.build("data/", "t.json", "out/", workers="many")  # arg-type
tokenmill.estimate("data/", "t.json", format="jsonl", max_documents=10)
tokenmill.estimate("data/", "t.json", format=3)  # arg-type
tokenmill.recipe(["a", "b"], "t.json", "out/", keep=("url",), eos=2)
tokenmill.recipe("a", "t.json", "out/", keep=3)  # arg-type
tokenmill.pack("out/", sequence_length=4096, packing="best-fit")
tokenmill.pack("out/", sequence_length=4096, packing="bestfit")  # arg-type
tokenmill.pack("out/", seq_len=4096)  # call-arg
tokenmill.compare_plans("out/", sequence_length=4096)
tokenmill.compare_plans("out/", length=4096)  # call-arg
tokenmill.export("out/", "rows/", plan="plan", format="npy", columns=["labels"])
tokenmill.export("out/", "rows/", format="csv")  # arg-type
dataset = tokenmill.open("out/")
dataset.loader(batch_size=8, shuffle="blocks", epochs=None, labels="next")
dataset.loader(batchsize=8)  # call-arg
dataset.batches(shuffle=True)  # arg-type
source = tokenmill.MixtureSource.of("out/", "plan", share=0.5)
tokenmill.mix([source], batch_size=8, when_one_ends="go on")
tokenmill.mix([source], epochs=2)  # call-arg
tokenmill.mix_batches([source], when_one_ends="never")  # arg-type
tokenmill.train_tokenizer("data/", "T/", vocabulary=8000, digits="single", weight=["th=3"])
tokenmill.train_tokenizer("data/", "T/", vocab_size=8000)  # call-arg
tokenmill.count_words("data/", "counts/", split="gpt2", by="input", workers=2, max_bad="1%")
tokenmill.count_words("data/", "counts/", split="gpt2", validation=0.1)  # call-arg
tokenmill.text_loader("data/", "t.json", sequence_length=64, batch_size=8, dropout=0.1)
tokenmill.text_loader("data/", "t.json", batch_size=8)  # call-arg
"""


OWN_TYPES = """
[mypy]
strict = True
follow_imports = skip
[mypy-tokenmill.*]
follow_imports = silent
"""
"""Types of other packages would take half a minute to read, and no argument of CALLS needs them."""


def test_a_type_checker_knows_every_argument(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    cache = pytestconfig.cache.mkdir("mypy")  # the next run reads only changed files
    program, config = tmp_path / "calls.py", tmp_path / "mypy.ini"
    program.write_text(CALLS)
    config.write_text(OWN_TYPES)
    options = ["--config-file", str(config), "--cache-dir", str(cache)]
    command = [sys.executable, "-m", "mypy", *options, str(program)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    found = re.findall(r"calls\.py:(\d+):.*\[([a-z-]+)\]", shown.stdout)
    lines = enumerate(CALLS.splitlines(), 1)
    expected = [(str(number), line.split("# ")[1]) for number, line in lines if "# " in line]
    assert found == expected, shown.stdout
