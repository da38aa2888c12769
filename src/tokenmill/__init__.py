"""tokenmill: raw text to training batches.

    import tokenmill

    report = tokenmill.build(inputs=["data/"], tokenizer="tokenizer.json", out="corpus/")
    dataset = tokenmill.open("corpus/")
"""

from __future__ import annotations
