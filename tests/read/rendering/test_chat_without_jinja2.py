"""A build without conversations needs no template engine."""

from __future__ import annotations

import subprocess
import sys

WITHOUT = (
    "import sys; sys.modules['jinja2'] = None; import tokenmill.cli.build, tokenmill.run.pipeline"
)


def test_commands_are_imported_without_jinja2() -> None:
    subprocess.run([sys.executable, "-c", WITHOUT], check=True)
