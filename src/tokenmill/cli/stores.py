"""Options of every command that can read or write an object store."""

from __future__ import annotations

import argparse

from tokenmill.store.cloud.stores import set_options


def add_store_arguments(parser: argparse.ArgumentParser, **options: object) -> None:
    """Add the address of the store and the credentials; `options` are passed to each argument."""
    group = parser.add_argument_group("store", "S3-compatible stores, public buckets")
    group.add_argument(
        "--endpoint",
        metavar="URL",
        help="address of an S3-compatible store (default: that of the cloud)",
        **options,  # type: ignore[arg-type]
    )
    group.add_argument(
        "--anonymous",
        action="store_true",
        help="read public buckets without credentials",
        **options,  # type: ignore[arg-type]
    )


def use_stores(options: argparse.Namespace) -> None:
    """Apply the store options to this process and its child processes."""
    set_options(endpoint=options.endpoint, anonymous=options.anonymous)
