"""NeMo-RL's `train_data_step{N}.jsonl` and `val_data_step{N}.jsonl`, once unwrapped.

`content` holds the texts of a trajectory in turn, without roles: prompt, answer, environment,
answer, ... Token arrays cover the whole of it, are padded on the right, and `token_loss_mask` is 1
where the model wrote. A validation's `content` holds messages with roles. With dynamic sampling
`rewards` are those of all that was sampled, in another order than the rows; `filtered_rewards` are
the rows' own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from ragen_diag.dumps.dialect import PLACE, Dialect, Draft, draft_by_names
from ragen_diag.dumps.dialects.episodes import number, only, rows, without
from ragen_diag.dumps.raw import RawTable, Record
from ragen_diag.dumps.turns import is_conversation, turns

PER_TOKEN = ("token_ids", "token_loss_mask", "generation_logprobs", "prev_logprobs", "advantages")
NAMES = {
    name: name
    for name in (
        "trajectory_id",
        "turn",
        "prompt",
        "messages",
        "response",
        "advantage",
        "finish_reason",
        "prompt_ids",
        "response_ids",
        "rollout_logprobs",
    )
}


@dataclass(frozen=True)
class _Tokens:
    """The token arrays of one trajectory without padding, and where the model's runs are in it."""

    arrays: Mapping[str, Sequence[Any]]
    runs: Sequence[tuple[int, int]]
    ends_in_answer: bool

    def cells(self, turn: int) -> Record:
        """What the arrays say of one answer; its advantage, where that is one for all tokens."""
        start, end = self.runs[turn]
        mine = {name: list(array[start:end]) for name, array in self.arrays.items()}
        return {
            "prompt_ids": list(self.arrays["token_ids"][:start]),
            "response_ids": mine["token_ids"],
            "rollout_logprobs": mine.get("generation_logprobs"),
            "prev_logprobs": mine.get("prev_logprobs"),
            "advantage": only(mine.get("advantages")),
        }


def unfold(record: Record) -> Iterator[Record]:
    """One row per answer of the model, each after all that stood before it."""
    content, index = record.get("content"), record.get("idx")
    flags = ["not_trained_on"] if record.get("sample_loss_mask") == 0 else []
    shared = without(record, "content", "idx", *PER_TOKEN)
    shared["trajectory_id"] = record[PLACE] if index is None else str(index)
    shared["advantage"] = number(record.get("advantages"))
    if is_conversation(content):
        yield from rows(turns(content), {**shared, "_flags": flags}, unanswered=content)
        return
    tokens = _tokens(record)
    answers = _answers(content, tokens)
    if answers is None:
        tokens, answers = None, _answers(content, None) or []
    if tokens is None and any(isinstance(record.get(name), list) for name in PER_TOKEN):
        flags.append("token_arrays_left_out")
    for turn, (prompt, response) in enumerate(answers):
        texts = {"turn": turn, "prompt": prompt, "response": response, "_flags": flags}
        yield {**shared, **texts, **({} if tokens is None else tokens.cells(turn))}


def _answers(content: object, tokens: _Tokens | None) -> list[tuple[str | None, str | None]] | None:
    """Prompt and response of every turn; None if the mask tells of other turns than the texts.

    Answers are every second text: counted from the end if a mask says which text that is, else
    after the first, which is the prompt.
    """
    if not isinstance(content, list):
        alone = None if content is None else str(content)
        turns = 1 if tokens is None else len(tokens.runs)
        return None if alone is not None and turns > 1 else [(None, alone)] * turns
    texts = [str(text) for text in content]
    places = range(1, len(texts), 2)
    if tokens is not None:
        last = len(texts) - (1 if tokens.ends_in_answer else 2)
        places = range(last - 2 * (len(tokens.runs) - 1), last + 1, 2)
        if places.start < 1:
            return None
    found = [("".join(texts[:place]), texts[place]) for place in places]
    return [*found] or [("".join(texts), None)]


def _tokens(record: Record) -> _Tokens | None:
    """The token arrays; None if ids or mask are missing, too short, or without an answer."""
    given = {name: record[name] for name in PER_TOKEN if isinstance(record.get(name), list)}
    length = record.get("input_lengths")
    if not isinstance(length, int):
        length = len(given.get("token_ids", ()))
    arrays = {name: array[:length] for name, array in given.items() if len(array) >= length}
    mask = [value == 1 for value in arrays.get("token_loss_mask", ())]
    if "token_ids" not in arrays or not any(mask):
        return None
    runs: list[tuple[int, int]] = []
    end = 0
    for by_model, run in groupby(mask):
        start, end = end, end + len(list(run))
        runs += [(start, end)] if by_model else []
    return _Tokens(arrays, runs, ends_in_answer=mask[-1])


def draft(raw: RawTable) -> Draft:
    """The row's own reward; rewards in another order than the rows are noted."""
    found = draft_by_names(raw, NAMES, reward=("filtered_rewards", "rewards"))
    unaligned = found.reward == "filtered_rewards" and "rewards" in raw.frame.columns
    return replace(found, notes={"unaligned_rewards": raw.frame.height} if unaligned else {})


NEMO_RL = Dialect(
    name="nemo-rl",
    signatures=(
        frozenset({"content", "rewards"}),
        frozenset({"token_ids", "token_loss_mask", "rewards"}),
    ),
    draft=draft,
    unfold=unfold,
    telling=frozenset({"generation_logprobs", "input_lengths", "token_loss_mask"}),
    contiguous=True,
)
