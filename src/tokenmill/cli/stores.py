"""Options of every command that may read or write an object store."""

from __future__ import annotations

import argparse

from tokenmill.cloud.options import set_options


def add_store_arguments(parser: argparse.ArgumentParser, **options: object) -> None:
    """Which store is meant, and who asks; `options` go to all of them."""
    group = parser.add_argument_group("store", "another store than the cloud's own, public data")
    group.add_argument(
        "--endpoint",
        metavar="URL",
        help="address of the object store, if it is not the cloud's own",
        **options,  # type: ignore[arg-type]
    )
    group.add_argument(
        "--anonymous",
        action="store_true",
        help="read public buckets without credentials",
        **options,  # type: ignore[arg-type]
    )


def use_stores(options: argparse.Namespace) -> None:
    """Let this process and those that it starts use what these options say."""
    set_options(endpoint=options.endpoint, anonymous=options.anonymous)
