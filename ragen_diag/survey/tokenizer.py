"""Numbers of tokens by the tokenizers library alone: neither torch nor transformers is imported."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ragen_diag.errors import CheckpointError

_FILE = "tokenizer.json"


class TokenCounter:
    """Counts the tokens of texts with the tokenizer of a `tokenizer.json`.

    Raises:
        CheckpointError: there is no such file, or it cannot be read.
    """

    def __init__(self, source: str) -> None:
        # Costs a tenth of a second that most calls do not need.
        from tokenizers import Tokenizer

        path = _find(source)
        try:
            self._tokenizer: Any = Tokenizer.from_file(str(path))
        # The library raises bare `Exception`.
        except Exception as error:
            told = " ".join(str(error).split())[:200]
            raise CheckpointError(
                f"{path}: cannot be read as a tokenizer ({told}); copy it again, or name another"
                " with --tokenizer"
            ) from error
        self.source = source

    @property
    def largest_id(self) -> int:
        """The largest id of any token, added ones included."""
        return max(self._tokenizer.get_vocab(with_added_tokens=True).values(), default=0)

    def ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The ids of each text without special tokens around it."""
        encoded = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        return [encoding.ids for encoding in encoded]


def _find(source: str) -> Path:
    """The file in a folder, the file itself, or the one of a Hub id in the local cache."""
    given = Path(source).expanduser()
    for path in (given / _FILE, given):
        if path.is_file():
            return path
    if given.exists():
        raise CheckpointError(
            f"{source}: no {_FILE}; tokens are not counted here, but an analysis may open it"
        )
    from huggingface_hub import try_to_load_from_cache
    from huggingface_hub.errors import HFValidationError

    try:
        cached = try_to_load_from_cache(source, _FILE)
    except HFValidationError:
        cached = None
    if isinstance(cached, str):
        return Path(cached)
    raise CheckpointError(
        f"tokenizer {source}: neither a folder nor in the local cache of the Hub, and nothing is"
        " downloaded here; give its folder"
    )
