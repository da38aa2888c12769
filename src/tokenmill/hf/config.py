"""Read the configuration of `CausalLMTokenizer`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from tokenmill.run.recipe.tokenizer_section import (
    SECTION,
    CausalLMConfig,
    check_section,
    load_section,
)


def make_config(config: CausalLMConfig | Mapping[str, Any] | str | Path) -> CausalLMConfig:
    """Make a configuration from a YAML file, a mapping, or the struct itself.

    The options are under `tokenizer`, and other sections of such a file are not read. A mapping
    without that section holds the options themselves.

    Raises:
        UserError: one or several options are wrong; the message holds all of them.
    """
    if isinstance(config, CausalLMConfig):
        options: Any = msgspec.to_builtins(config)  # msgspec does not check values in constructors
    elif isinstance(config, Mapping):
        options = config.get(SECTION, config)
    else:
        options = load_section(config)
    return check_section(options, str(config) if isinstance(config, (str, Path)) else "")
