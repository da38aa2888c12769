"""Choose documents by a DuckDB expression over the documents table.

The expression is all that DuckDB runs: it cannot read files, load extensions or change settings.
Each shard is a query of its own, so the expression may only depend on the document. Subqueries,
aggregates and random numbers are refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from tokenmill.core.errors import UserError
from tokenmill.core.installed import install_command
from tokenmill.core.records import BoolArray, Int64Array
from tokenmill.core.values import shortened
from tokenmill.store.dataset import Dataset
from tokenmill.store.documents_table import number_array, table_schema
from tokenmill.store.selecting.places import Place

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

SETTINGS: dict[str, Any] = {
    "enable_external_access": "false",
    "autoload_known_extensions": "false",
    "autoinstall_known_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "1GB",
    "temp_directory": "",
}
ADDED = ("tokens", "document", "dataset")
"""Columns that the documents table does not have: length, number, number of the dataset."""
MOST_LINES, LONGEST_LINE = 2, 200
"""Of DuckDB's message. The last line of the error lists the columns."""
BY_PLACE = {"STAR", "POSITIONAL_REFERENCE"}
"""Kinds of expressions that stand for columns without naming them."""


class Where:
    """Keeps the documents for which an expression is true.

    Raises:
        UserError: DuckDB is not installed, or the expression is wrong for one of the datasets.
    """

    def __init__(self, expression: str, datasets: Sequence[Dataset]) -> None:
        self.question = f"where {expression}"
        self._expression = expression
        self._connection = _connected()
        for dataset in datasets:
            self._check(dataset)

    def mask(self, place: Place, _: BoolArray) -> BoolArray:
        """Return for which documents of a shard the expression is true, shape (num_documents,)."""
        import pyarrow as pa

        stored = columns_of(place.dataset)
        used = [name for name in stored if self._uses is None or name.lower() in self._uses]
        count, first = place.shard.entry.documents, place.first_document
        arrays = {
            "tokens": number_array(place.shard.lengths),
            "document": number_array(np.arange(first, first + count)),
            "dataset": number_array(np.full(count, place.dataset_number)),
        }
        if used:
            table = place.shard.documents([stored[name] for name in used])
            arrays = {name: table.column(stored[name]) for name in used} | arrays
        table = pa.table(arrays)
        chosen = self._chosen(table, place.dataset)
        mask = np.zeros(count, np.bool_)
        mask[chosen - first] = True
        return mask

    def finish(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _check(self, dataset: Dataset) -> None:
        """Refuse an expression that fits no table, and find out which columns it uses.

        Raises:
            UserError: the expression is wrong.
        """
        nodes = list(self._nodes(dataset))
        kinds = {node.get("class") for node in nodes}
        if "SUBQUERY" in kinds:
            why = "it contains a subquery, but may only look at one document"
            raise self._refused(why, dataset)
        functions = {str(node.get("function_name", "")).lower() for node in nodes}
        if changing := sorted(functions & self._changing_functions()):
            why = f"{changing[0]}() gives another result each time"
            raise self._refused(why, dataset, "take a random part with --sample")
        names = (name for node in nodes for name in node.get("column_names", ()))
        self._uses = None if kinds & BY_PLACE else {name.lower() for name in names}
        schema = table_schema(dataset.policies.read.keep, has_no_loss=dataset.policies.has_no_loss)
        shown = {stored: name for name, stored in columns_of(dataset).items()}
        table = schema.empty_table().rename_columns([shown[name] for name in schema.names])
        for name in ADDED:
            table = table.append_column(name, number_array(np.empty(0, np.int64)))
        self._chosen(table, dataset)
        kind = self._connection.table("documents").project(self._expression).types[0]
        if kind != "BOOLEAN":
            raise self._refused(f"its values are {kind}, not true or false", dataset)

    def _chosen(self, table: pa.Table, dataset: Dataset) -> Int64Array:
        """Return the numbers of the documents for which the expression is true.

        Raises:
            UserError: DuckDB refuses the expression.
        """
        import duckdb

        self._connection.register("documents", table)
        try:
            if not table.num_rows:  # the first table: only `filter` refuses all but one expression
                self._connection.table("documents").filter(self._expression)
            query = f"SELECT document FROM documents WHERE (\n{self._expression}\n)"  # noqa: S608
            numbers = self._connection.execute(query).fetchnumpy()["document"]
        except duckdb.Error as error:
            raise self._refused(str(error), dataset) from error
        return np.asarray(numbers, np.int64)

    def _nodes(self, dataset: Dataset) -> Iterator[dict[str, Any]]:
        """Yield the nodes of the expression as DuckDB parses it."""
        query = "SELECT json_serialize_sql(?::VARCHAR)"
        found = self._connection.execute(query, [f"SELECT (\n{self._expression}\n)"])
        parsed = msgspec.json.decode(found.fetchall()[0][0])
        if parsed["error"]:
            raise self._refused(parsed["error_message"], dataset)
        rest = [parsed]
        while rest:
            node = rest.pop()
            if isinstance(node, dict):
                yield node
                rest += node.values()
            elif isinstance(node, list):
                rest += node

    def _changing_functions(self) -> set[str]:
        query = "SELECT function_name FROM duckdb_functions() WHERE stability = 'VOLATILE'"
        return {name for (name,) in self._connection.execute(query).fetchall()}

    def _refused(self, why: str, dataset: Dataset, hint: str = "") -> UserError:
        lines = [line for line in why.partition("\nLINE ")[0].splitlines() if line.strip()]
        lines = [shortened(line.strip(), LONGEST_LINE) for line in lines[:MOST_LINES]]
        lines.append(f"the columns are {', '.join([*columns_of(dataset), *ADDED])}")
        return UserError(
            f"cannot choose documents where {shortened(self._expression, LONGEST_LINE)}",
            where=dataset.location,
            why="\n       ".join(lines),
            hint=hint,
        )


def columns_of(dataset: Dataset) -> dict[str, str]:
    """The columns of the documents tables by the names that expressions use.

    Kept columns have no prefix, unless another column has their name.
    """
    policies = dataset.policies
    own = ["source", "position", "id", "subset", *["no_loss"] * policies.has_no_loss]
    columns = {name: name for name in own}
    taken = {*own, *ADDED}
    for name in policies.read.keep:
        shown = f"column.{name}" if name.lower() in taken else name
        taken.add(shown.lower())
        columns[shown] = f"column.{name}"
    return columns


def _connected() -> duckdb.DuckDBPyConnection:
    """Return a connection to an empty database that can do nothing but compute."""
    try:
        import duckdb
    except ImportError as error:
        hint = install_command("select")
        raise UserError("--where needs DuckDB, which is not installed", hint=hint) from error
    connection = duckdb.connect(":memory:", config=SETTINGS)
    connection.execute("SET lock_configuration = true")
    return connection
