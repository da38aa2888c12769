"""Read sizes and shares such as 2GB and 0.1%."""

from __future__ import annotations


def parse_bytes(value: str) -> int:
    """Return a size such as "2GB", "512 MiB" or "1000" in bytes.

    Raises:
        ValueError: the text is not a size.
    """
    units = {"": 1, "K": 1000, "M": 1000**2, "G": 1000**3, "T": 1000**4}
    text = value.strip().upper().removesuffix("B")
    binary = text.endswith("I")
    text = text.removesuffix("I")
    number, unit = (text[:-1], text[-1]) if text[-1:] in units and text[-1:] else (text, "")
    scale = 1024 ** list(units).index(unit) if binary else units[unit]
    try:
        return int(float(number) * scale)
    except (ValueError, OverflowError) as error:  # "inf" overflows
        raise ValueError("must be a size such as 2GB or 512MiB") from error


def parse_length(value: str) -> int:
    """Return the number of tokens that a text names: "4096", or "4k" for 4,096.

    Raises:
        ValueError: the text is neither.
    """
    text = value.strip().lower()
    try:
        return int(text.removesuffix("k")) * (1024 if text.endswith("k") else 1)
    except ValueError as error:
        raise ValueError(f"must be a whole number such as 4096 or 4k, got {value!r}") from error


def parse_share(value: str) -> float:
    """Return a share such as "0.1%" or "0.001" as a number.

    Raises:
        ValueError: the text is not a number.
    """
    text = value.strip()
    try:
        return float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError as error:
        raise ValueError("must be a number such as 0.001 or 0.1%") from error
