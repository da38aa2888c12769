"""Public alias of `tokenmill.load.masks` and its submodules."""

from __future__ import annotations

import sys
from types import ModuleType

from tokenmill.load import masks
from tokenmill.load.masks import *  # noqa: F403 - for type checkers and editors

# An alias, not a copy: rules that are registered in one must also exist in the other.
for _name in masks.__all__:
    if isinstance(_module := getattr(masks, _name), ModuleType):
        sys.modules[f"{__name__}.{_name}"] = _module
sys.modules[__name__] = masks
