"""An export of rows as a dataset repository on the Hugging Face Hub.

The rows are written to a folder on this machine, then uploaded. The Hub keeps uploaded files, but
shows none before one commit names them all, with the card: readers see the whole export or what was
there before, and a later attempt sends only what is missing.
"""

from __future__ import annotations

import logging
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from tokenmill.core.errors import OutputConflictError, StorageError, TokenmillError, UserError
from tokenmill.core.records import Advance
from tokenmill.load.export.folder import difference
from tokenmill.load.export.hub.card import card_text
from tokenmill.load.export.rows.exporting import ExportReport, export, prepared
from tokenmill.read.places.hub import client as hub
from tokenmill.read.places.hub.names import DEFAULT_REVISION, PREFIX, HubName, parse_hub_name
from tokenmill.store.canonical import MAX_JSON_BYTES, canonical_json, sealed, unseal
from tokenmill.store.cloud.reach import require_reachable
from tokenmill.store.dataset import Dataset
from tokenmill.store.digests import file_digest
from tokenmill.store.exports import EXPORT_NAME, ExportManifest, ExportOptions
from tokenmill.store.files import locked_folder, storage_errors
from tokenmill.store.plan import Plan

LOGGER = logging.getLogger(__name__)
CARD_NAME = "README.md"
OF_THE_HUB = ".gitattributes"
"""The file that the Hub puts into a new repository."""
FILES_AT_ONCE = 5
_SEND: dict[str, Any] = {
    "num_threads": FILES_AT_ONCE,
    "free_memory": False,
    "gitignore_content": "# A .gitignore in the repository leaves out nothing.",
}
"""How files are sent before the commit that names them."""
ANSWER_SECONDS = 300.0
"""The longest silence of a server; the library's own limit is none in some versions."""


def publish(
    dataset: Dataset,
    plan: Plan,
    out: str,
    options: ExportOptions | None = None,
    *,
    overwrite: bool = False,
    advance: Advance = lambda stage, done, total: None,
) -> ExportReport:
    """Write the rows of a plan to hf://datasets/OWNER/NAME[@BRANCH]. The same call resumes.

    A new repository is private. `advance` is called with bytes. The report names the folder where
    the rows were before they were uploaded.

    Raises:
        UserError: as for `export`; there is no token, or it may not write to the repository.
        OutputConflictError: the repository holds something else; with `overwrite`, something that
            is not an export.
        StorageError: the Hub does not answer for a long time, or the rows cannot be stored.
    """
    hub.require_library()
    from huggingface_hub import cached_assets_path, constants

    name = _output_name(out)
    *_, wanted = prepared(dataset, plan, options or ExportOptions())
    with storage_errors("create a folder for the rows", Path(constants.HF_ASSETS_CACHE)):
        # Where libraries keep files beside the Hub's cache: the same from any current folder.
        folder = Path(cached_assets_path("tokenmill", "exports", f"{name.repo}@{name.revision}"))
    with _session(), storage_errors("write the rows", folder), locked_folder(folder) as is_free:
        if not is_free:
            hint = "wait until it has finished, or stop it"
            raise OutputConflictError("another process publishes it", where=str(name), hint=hint)
        branch = _Branch(name)
        if branch.holds(wanted) and not overwrite:
            report = ExportReport(folder, branch.manifest or wanted, True, 0, {})
        else:
            branch.check(wanted, overwrite=overwrite)
            write = partial(export, dataset, plan, folder / "rows", options, advance=advance)
            try:
                report = write()
            except OutputConflictError:  # of another export, which was not uploaded
                if not overwrite:
                    raise
                report = write(overwrite=True)
            if report.already_there and _is_damaged(report):
                report = write(overwrite=True)
            branch.replace(report, card_text(name, dataset, plan, report.manifest), advance)
        shutil.rmtree(folder, ignore_errors=True)
    return report


def _is_damaged(report: ExportReport) -> bool:
    """Whether a file changed after it was written by an attempt that did not upload it."""
    files = report.manifest.files
    return any(file_digest(report.folder / entry.name) != entry.xxh3_128 for entry in files)


class _Branch:
    """A branch of a dataset repository, which is created if it is missing, and what it holds.

    Raises:
        UserError: the user may not write to it.
    """

    def __init__(self, name: HubName) -> None:
        from huggingface_hub import CommitOperationAdd, HfApi

        self.name = name
        self._api: Any = HfApi(endpoint=hub.endpoint(), library_name="tokenmill")
        repo = {"repo_id": name.repo, "repo_type": "dataset"}
        self._place: dict[str, Any] = {**repo, "revision": name.revision}
        self._ask(self._api.create_repo, **repo, private=True, exist_ok=True)
        if name.revision != DEFAULT_REVISION:
            self._ask(self._api.create_branch, **repo, branch=name.revision, exist_ok=True)
        probe = [CommitOperationAdd(EXPORT_NAME, b"{}")]  # so small that only a commit sends it
        self._ask(self._api.preupload_lfs_files, **self._place, additions=probe)
        if not self._ask(self._api.repo_info, **repo).private:
            LOGGER.warning("%s is public: everyone will be able to read the rows", name)
        self.commit, files = hub.commit_of(name), {}
        with suppress(hub.MissingEntryError):  # an empty repository
            listed = hub.files_in(name, self.commit, "", recursive=True)
            files = {file.path: file for file in listed}
        self.sizes = {path: file.num_bytes for path, file in files.items()}
        self.manifest: ExportManifest | None = None
        if EXPORT_NAME in files and files[EXPORT_NAME].num_bytes <= MAX_JSON_BYTES:
            try:
                data = hub.RemoteFile(files[EXPORT_NAME]).read()
                self.manifest = unseal(data, ExportManifest, files[EXPORT_NAME].origin)
            except TokenmillError as error:
                LOGGER.warning("%s", error)

    def holds(self, wanted: ExportManifest) -> bool:
        """Whether the branch holds the whole wanted export; by sizes, as for folders."""
        if self.manifest is None or difference(self.manifest, wanted):
            return False
        return all(self.sizes.get(entry.name) == entry.bytes for entry in self.manifest.files)

    def check(self, wanted: ExportManifest, *, overwrite: bool) -> None:
        """Raise an OutputConflictError if the branch holds something that must not be replaced."""
        name, others = self.name, self.sizes.keys() - {OF_THE_HUB}
        is_main = name.revision == DEFAULT_REVISION
        if not others or (not is_main and self.commit == hub.commit_of(HubName(name.repo))):
            return  # a branch with no commit of its own was created by us, or for us
        files = self.manifest.files if self.manifest else []
        strangers = sorted(others - {CARD_NAME, EXPORT_NAME, *(entry.name for entry in files)})
        if overwrite and not strangers:
            return
        why = f"it holds {strangers[0]!r}" if strangers else "it holds only a card"
        if self.manifest and not strangers:
            why = difference(self.manifest, wanted) or "its files are not complete"
        hint = "choose another repository or branch" + ", or add --overwrite" * (not strangers)
        raise OutputConflictError(
            "the repository holds something else", where=str(name), why=why, hint=hint
        )

    def replace(self, report: ExportReport, card: str, advance: Advance) -> None:
        """Upload an export, then commit it in place of what the branch holds.

        It does not say where on this machine the dataset is.
        """
        from huggingface_hub import CommitOperationAdd, CommitOperationDelete

        files, done = report.manifest.files, 0
        total = sum(entry.bytes for entry in files)
        operations: list[Any] = []
        for start in range(0, len(files), FILES_AT_ONCE):
            some = files[start : start + FILES_AT_ONCE]
            added = [CommitOperationAdd(entry.name, report.folder / entry.name) for entry in some]
            self._ask(self._api.preupload_lfs_files, **self._place, **_SEND, additions=added)
            operations += added
            done += sum(entry.bytes for entry in some)
            advance("uploading", done, total)
        manifest = replace(report.manifest, dataset_place=UNSET, plan_place=UNSET)
        own = {CARD_NAME: card.encode(), EXPORT_NAME: canonical_json(sealed(manifest))}
        added = [CommitOperationAdd(path, data) for path, data in own.items()]
        self._ask(self._api.preupload_lfs_files, **self._place, **_SEND, additions=added)
        operations += added
        sizes = {operation.path_in_repo: operation.upload_info.size for operation in operations}
        others = self.sizes.keys() - {OF_THE_HUB, *sizes}
        operations += [CommitOperationDelete(path) for path in sorted(others)]
        message = {"commit_message": f"Rows of plan {report.manifest.plan_id}"}
        parent = {"parent_commit": self.commit, "operations": operations}
        self._ask(self._api.create_commit, **self._place, **message, **parent)
        listed = hub.files_in(self.name, hub.commit_of(self.name), "", recursive=True)
        if not sizes.items() <= {file.path: file.num_bytes for file in listed}.items():
            raise _refused("it does not list all files after the commit", str(self.name))

    def _ask(self, request: Callable[..., Any], **arguments: Any) -> Any:
        """Return the answer to a request, which is repeated while the Hub is busy."""
        from huggingface_hub.errors import HTTPError  # type: ignore[attr-defined]

        known = (OSError, HTTPError, TokenmillError)

        def work() -> Any:
            try:
                return request(**arguments)
            except known:
                raise
            except Exception as error:  # of a thread, of Xet, or of an answer of another form
                if isinstance(error.__cause__, known):
                    raise error.__cause__ from None
                raise _refused(f"{type(error).__name__}: {error}", str(self.name)) from error

        return hub.tried(work, str(self.name), lambda: None, refusal=_refusal)


def _refusal(answer: Any, where: str) -> TokenmillError:
    """Return the error for an answer that a retry would not change."""
    message = answer.headers.get("X-Error-Message", "")[:200]
    why = f"status {answer.status_code} {message}".rstrip()
    if answer.status_code in (401, 403, 404):
        hint = f"check the owner, and use a token that may write there: {hub.TOKEN_HINT}"
        return UserError("the Hub does not let you write", where=where, why=why, hint=hint)
    return _refused(why, where)


def _refused(why: str, where: str) -> StorageError:
    hint = "run the same command again later; it resumes where it stopped"
    return StorageError("the Hub refused the rows", where=where, why=why, hint=hint)


def _output_name(out: str) -> HubName:
    """Return the branch that an output names.

    Raises:
        UserError: it names none.
    """
    form = re.compile(rf"{PREFIX}datasets/[^/@]+/[^/@]+(@(?!refs/|[0-9a-f]{{40}}$)[^/]+)?")
    if form.fullmatch(out):
        return parse_hub_name(out)
    why = f"expected {PREFIX}datasets/OWNER/NAME[@BRANCH]"
    raise UserError("the output does not name a dataset on the Hub", where=out, why=why)


@contextmanager
def _session() -> Iterator[None]:
    """Make the library wait for no answer for ever, print no bars, and send the token only home.

    The Hub can answer with addresses on other hosts, and the library gives the token to some.

    Raises:
        UserError: there is no token, or offline mode is on.
        StorageError: the Hub cannot be reached.
    """
    from huggingface_hub import constants, get_token, set_client_factory
    from huggingface_hub.utils import _http, disable_progress_bars  # type: ignore[attr-defined]

    if constants.HF_HUB_OFFLINE or get_token() is None:
        why = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else "there is no token"
        hint = "unset it" if constants.HF_HUB_OFFLINE else hub.TOKEN_HINT
        raise UserError("cannot write to the Hub", why=why, hint=hint)
    require_reachable(hub.endpoint(), hub.endpoint(), hub.NETWORK_HINT)
    usual = _http._GLOBAL_CLIENT_FACTORY

    def client() -> Any:
        new = usual()
        new.timeout = ANSWER_SECONDS
        new.event_hooks["request"].append(_refuse_other_servers)
        return new

    disable_progress_bars()
    set_client_factory(client)
    try:
        yield
    finally:
        set_client_factory(usual)


def _refuse_other_servers(request: Any) -> None:
    """Raise a StorageError before a token is sent to a server that is not the Hub."""
    asked, home = request.url, type(request.url)(hub.endpoint())
    is_home = (asked.scheme, asked.host, asked.port) == (home.scheme, home.host, home.port)
    if "authorization" in request.headers and not is_home:
        why = f"an answer of {home.host} asks for it"
        where = f"{asked.scheme}://{asked.netloc.decode()}"
        raise StorageError("the token is not sent to another server", where=where, why=why)
