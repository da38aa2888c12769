"""An analysis of lengths as CSV: one line per sequence length, with all figures."""

from __future__ import annotations

import csv
import dataclasses
import io

from tokenmill.report.lengths.analysis import Analysis


def csv_lines(found: Analysis) -> str:
    """Rows and costs of each length, with margins of error; the rest is only in JSON."""
    text = io.StringIO()
    lines = []
    for rows, costs in zip(found.rows, found.costs, strict=True):
        line = dataclasses.asdict(rows) | dataclasses.asdict(costs)
        if found.margins is not None:
            line["cut_share_margin"] = found.margins.cut_shares[rows.sequence_length]
            line["sequences_margin"] = found.margins.sequences[rows.sequence_length]
        chosen = rows.sequence_length == found.recommendation.sequence_length
        lines.append(line | {"recommended": int(chosen)})
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
