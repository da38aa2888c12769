"""The share of audited documents."""

from __future__ import annotations

AUDIT_SHARE = 5e-4
"""With fastokens and 37,092 documents of 4 kB, audits took 0.9 % of a build's CPU time for GPT-2,
and 0.3 % for Llama 2."""
WHOLE_BYTES = 3_000_000
"""Inputs of up to this size are audited whole, such as 1,000 documents of 3 kB. GPT-2's reference,
with 2.6 MB/s, takes a second."""
AUDIT_BYTES = 1_000_000
"""How much of larger inputs is audited, at least: 250 documents of 4 kB, in less than half a
second. Inputs of slow tokenizers are audited whole up to this size; one with 0.2 MB/s takes 5 s."""


def audit_share(wanted: float | None, num_bytes: int, is_slow: bool) -> float:
    """Return the share of documents to audit: `wanted`, or a share that suits inputs of a size."""
    if wanted is not None:
        return wanted
    if num_bytes <= (AUDIT_BYTES if is_slow else WHOLE_BYTES):
        return 1.0
    return max(AUDIT_SHARE, AUDIT_BYTES / num_bytes)
