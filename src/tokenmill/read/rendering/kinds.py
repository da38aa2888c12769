"""The union of all renderings."""

from __future__ import annotations

from tokenmill.read.rendering.chat.conversations import Conversations
from tokenmill.read.rendering.template import TextTemplate
from tokenmill.read.rendering.transform import Transform

AnyRendering = TextTemplate | Transform | Conversations
