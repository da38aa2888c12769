"""tokenmill with Hugging Face libraries: tokenize datasets, collate rows, resize embeddings."""

from tokenmill.hf.collating import PackedRowsCollator, collator
from tokenmill.hf.embeddings import resize_embeddings
from tokenmill.hf.tokenizer import CausalLMTokenizer
from tokenmill.run.recipe.tokenizer_section import CausalLMConfig

__all__ = [
    "CausalLMConfig",
    "CausalLMTokenizer",
    "PackedRowsCollator",
    "collator",
    "resize_embeddings",
]
