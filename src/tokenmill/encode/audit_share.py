"""The share of audited documents."""

from __future__ import annotations

AUDIT_SHARE = 5e-4
"""With fastokens and 37,092 documents of 4 kB, audits took 0.9 % of a build's CPU time for GPT-2,
and 0.3 % for Llama 2."""
AUDIT_BYTES = 4_000_000
"""How much of small inputs is audited, at least: 1,000 documents of 4 kB. GPT-2's and
Llama 2's references, with 1.3 and 1.7 MB/s on a busy machine, take about 3 s."""
SLOW_AUDIT_BYTES = 1_000_000
"""The same for slow tokenizers; one with 0.2 MB/s takes 5 s."""


def audit_share(wanted: float | None, num_bytes: int, is_slow: bool) -> float:
    """Return the share of documents to audit: `wanted`, or a share that suits inputs of a size."""
    if wanted is not None:
        return wanted
    least = SLOW_AUDIT_BYTES if is_slow else AUDIT_BYTES
    return min(max(AUDIT_SHARE, least / max(num_bytes, 1)), 1.0)
