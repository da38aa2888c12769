"""A setup of a worker for tests."""

from __future__ import annotations

from pathlib import Path

from tokenmill.read.fields import Fields
from tokenmill.run.job import Encode, Job, Setup, TokenizerSpec
from tokenmill.run.machine import Resources
from tokenmill.store.policies import EncodePolicies, Policies, ReadPolicies


def setup_for(stored: Path, sha256: str = "") -> Setup:
    """A setup whose tokenizer is stored in a folder."""
    spec = TokenizerSpec(
        kind="huggingface",
        encoding="",
        sha256=sha256,
        control_tokens=False,
        largest_id=1,
        unk_id=None,
        special_tokens=[],
        prefix_ids=[],
    )
    encode = EncodePolicies(special_tokens="text")
    policies = Policies(read=ReadPolicies(), encode=encode)
    task = Encode(tokenizer=spec, eos_id=0, pad_id=None, policies=policies, engine="auto")
    return Setup(
        job=Job(task=task, fields=Fields(), engines=("reference",)),
        engine="reference",
        resources=Resources(2, "", 6 << 20, 2),
        growth_bytes=1 << 28,
        audit_share=0.0,
        scratch="",
        out="",
        tokenizer_dir=str(stored),
    )
