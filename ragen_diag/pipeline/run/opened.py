"""What steps of a run share: the loaded checkpoint, fingerprints, and the reasoning tags.

What is found out once is noted in the store, so that a second post-mortem loads no model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ragen_diag.checkpoints.layouts import inspect
from ragen_diag.checkpoints.locate import Located
from ragen_diag.errors import CheckpointError
from ragen_diag.pipeline.flow import look_at, open_located
from ragen_diag.pipeline.observer import Silent
from ragen_diag.pipeline.run.store import Store, digest, rows_digest
from ragen_diag.pipeline.stages import choose_run_tags, retold
from ragen_diag.pipeline.step import has_ids
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Settings
from ragen_diag.spans import Prefill, TagChoice, Tags

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint


@dataclass
class Opened:
    """The checkpoint that is loaded at the moment: one at a time, for neighbouring steps share."""

    settings: Settings
    path: str = ""
    checkpoint: "Checkpoint | None" = None

    def of(self, located: Located) -> "Checkpoint":
        path = str(located.path or located.hub_id)
        if self.checkpoint is None or path != self.path:
            self.checkpoint = None
            self.checkpoint = open_located(located, self.settings, Silent())
            self.path = path
        # The same weights, found by another way for another step.
        return replace(self.checkpoint, found=located.how)


class Fingerprints:
    """Fingerprints of checkpoints, read once as long as their files are untouched."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store, self._settings = store, settings
        self._known = dict(store.noted("fingerprints"))

    def of(self, located: Located | None) -> str | None:
        """What identifies the weights; None without any, or where they cannot be read."""
        if located is None:
            return None
        if located.path is None:
            return f"{located.hub_id}@{self._settings.revision}"
        seen = _touched(located.path)
        if seen not in self._known:
            try:
                files = inspect(
                    located.path,
                    tokenizer=self._settings.tokenizer,
                    base_model=self._settings.base_model,
                )
            except CheckpointError as error:
                return f"unusable: {error}"
            self._known[seen] = files.fingerprint
            self._store.note("fingerprints", self._known)
        return str(self._known[seen])


def _touched(path: Path) -> str:
    files = [path] if path.is_file() else sorted(p for p in path.iterdir() if p.is_file())
    stats = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return digest(str(path.absolute()), stats)


def tags_of_run(
    run: Rollouts,
    first: Rollouts,
    located: Located | None,
    prints: Fingerprints,
    store: Store,
    opened: Opened,
) -> TagChoice:
    """The reasoning tags of the whole run, of which `first` is a step, scored by `located`.

    The texts of token ids, in which alone they may be seen, take a tokenizer.
    """
    settings = opened.settings
    key = digest(rows_digest(run.table), prints.of(located), settings.as_json())
    noted = store.noted("tags")
    if noted.get("key") == key:
        return _choice(noted)
    if located is not None and has_ids(first.table):
        try:
            look_at(located, settings)
            first = retold(first, opened.of(located))
        except CheckpointError:
            # Told where the step is measured, for which it is tried again.
            pass
    choice = choose_run_tags(run, first, settings, None)
    store.note("tags", {"key": key, **told(choice)})
    return choice


def told(choice: TagChoice) -> dict[str, str | None]:
    tags = choice.tags
    return {
        "open": None if tags is None else tags.open,
        "close": None if tags is None else tags.close,
        "prefilled": choice.prefilled.value,
        "reason": choice.reason,
    }


def _choice(noted: Mapping[str, Any]) -> TagChoice:
    tags = None if noted["open"] is None else Tags(noted["open"], noted["close"])
    return TagChoice(tags, Prefill(noted["prefilled"]), noted["reason"])
