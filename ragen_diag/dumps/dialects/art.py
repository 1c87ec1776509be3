"""ART's `trajectories/{train|val}/{step}.yaml`: a list of groups, each with its trajectories of
reward, metrics, metadata, logs and messages_and_choices.

Only the list tells groups apart. A Choice is what the model answered; an assistant's message
between Choices was put there by the program.
"""

from collections.abc import Iterator, Mapping

from ragen_diag.dumps.dialect import PLACE, SKIPPED, Dialect
from ragen_diag.dumps.dialects.episodes import (
    draft_rows,
    fields,
    objects,
    own_ending,
    rows,
    scores,
    without,
)
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.turns import Message, Turn, is_conversation, turns


def unfold(record: Record) -> Iterator[Record]:
    """The answers of all trajectories of one group."""
    trajectories = record.get("trajectories")
    if not isinstance(trajectories, list) or not trajectories:
        yield {SKIPPED: "group_without_trajectory"}
        return
    group = record[PLACE]
    of_group = without(record, "trajectories")
    for place, item in enumerate(trajectories):
        trajectory = fields(item)
        items = objects(trajectory.get("messages_and_choices"))
        if items is None or not is_conversation([_message(item) for item in items]):
            yield {SKIPPED: "bad_trajectory"}
            continue
        shared = _shared(trajectory, of_group)
        shared |= {"group_id": group, "trajectory_id": f"{group}:{place}"}
        yield from _rows(items, shared)


def _rows(items: list[Record], shared: Record) -> Iterator[Record]:
    messages = [_message(item) for item in items]
    choices = {at for at, item in enumerate(items) if _is_choice(item)}

    def cells(turn: Turn) -> Record:
        return own_ending(items[turn.position].get("finish_reason"))

    answers = turns(messages, answers=choices or None)
    yield from rows(answers, shared, unanswered=messages, cells=cells)


def _shared(trajectory: Record, of_group: Record) -> Record:
    components, others = scores(fields(trajectory.get("metrics")))
    kept = without(trajectory, "messages_and_choices", "reward", "metrics")
    return {
        "reward": trajectory.get("reward"),
        "reward_components": components,
        "extra": {**kept, "metrics": others, "group": of_group},
    }


def _is_choice(item: Record) -> bool:
    return isinstance(item.get("message"), Mapping)


def _message(item: Record) -> Message:
    return {"role": "assistant", **item["message"]} if _is_choice(item) else item


ART = Dialect(
    name="art",
    signatures=(frozenset({"trajectories"}),),
    draft=draft_rows,
    unfold=unfold,
)
