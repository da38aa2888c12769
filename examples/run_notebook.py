"""Run a notebook from its first cell to its last, and write its outputs into it.

    python examples/run_notebook.py                  # examples/walkthrough.ipynb
    python examples/run_notebook.py copy.ipynb

What differs from run to run and from machine to machine is left out, so that a change in the file
is a change in what it shows. The outputs themselves must not name places: the cells see to that.
"""

from __future__ import annotations

import sys
from pathlib import Path

try:
    import ipykernel  # noqa: F401 - what runs the cells
    import matplotlib  # noqa: F401 - what draws their pictures
    import nbformat
    from nbclient import NotebookClient
except ImportError as error:
    raise SystemExit(f"{error}\nnext: pip install '.[all,examples]'") from error

HERE = Path(__file__).resolve().parent
METADATA = {
    "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
    "language_info": {"name": "python"},
}


def main() -> None:
    """Run the notebook that is named, or the walkthrough."""
    path = Path(sys.argv[1]) if sys.argv[1:] else HERE / "walkthrough.ipynb"
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=300,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(HERE)}},  # where the kernel starts
    ).execute()
    notebook.metadata = nbformat.from_dict(METADATA)
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict({})
    nbformat.write(notebook, path)


if __name__ == "__main__":
    main()
