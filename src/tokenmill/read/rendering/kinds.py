"""The kinds of renderings."""

from __future__ import annotations

from tokenmill.read.rendering.template import TextTemplate

AnyRendering = TextTemplate
