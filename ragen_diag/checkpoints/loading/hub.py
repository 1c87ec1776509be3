"""A Hub id -> the folder of its snapshot, and in words why there is none."""

from pathlib import Path

import huggingface_hub
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)

from ragen_diag.checkpoints.loading.libraries import quiet, told
from ragen_diag.errors import CheckpointError

DOWNLOADED = ("*.safetensors", "*.json", "*.model", "*.txt", "*.tiktoken", "*.jinja")
NOT_DOWNLOADED = ("*/*", "consolidated*")
"""Sub-folders and a second copy of the weights in another layout."""


def download(hub_id: str, revision: str | None) -> tuple[Path, str]:
    """The folder of a Hub snapshot, from the cache if it is there, and its commit.

    Raises:
        CheckpointError: it cannot be had; the message says why and what to do.
    """
    try:
        with quiet():
            path = huggingface_hub.snapshot_download(
                hub_id,
                revision=revision,
                allow_patterns=list(DOWNLOADED),
                ignore_patterns=list(NOT_DOWNLOADED),
            )
    # What the network raises depends on the HTTP library, which huggingface_hub has changed twice.
    except Exception as error:
        wanted = hub_id + (f" at {revision}" if revision else "")
        raise CheckpointError(f"{wanted}: {_hub_problem(error)}") from error
    return Path(path), Path(path).name


def _hub_problem(error: Exception) -> str:
    """What is wrong and what to do; the narrower error goes first."""
    if isinstance(error, HFValidationError):
        return f"no name of a Hub repository ({told(error)}); give org/name, or a folder"
    if isinstance(error, GatedRepoError):
        return "gated; accept its terms on its Hub page, then log in with `hf auth login`"
    if isinstance(error, RevisionNotFoundError):
        return "no such revision of this Hub repository; check --revision"
    if isinstance(error, RepositoryNotFoundError):
        return (
            "no such repository on the Hub, or a private one; check the name, or log in with "
            "`hf auth login`"
        )
    if isinstance(error, LocalEntryNotFoundError):
        why = "the Hub cannot be reached; fetch it where there is a network, or give a folder"
        if isinstance(error.__cause__, HfHubHTTPError):
            why = f"the Hub refused ({told(error.__cause__)}); log in with `hf auth login`"
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            why = "HF_HUB_OFFLINE forbids asking the Hub; unset it, or give a folder"
        return f"not in the local cache, and {why}"
    return (
        f"can't be had from the Hub ({told(error)}); try again, log in with `hf auth login`, or "
        "give a folder"
    )
