"""prime-rl's and verifiers' `traces.jsonl`: one episode per line with the traces of its actors.

A trace is a graph: every node is a message with a link to the one before it, and where the context
was cut or an actor called another it branches. So each answer has its own way back to the root:
that is what the model saw. The step is the folder's; an episode may have begun some steps earlier.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

from ragen_diag.dumps.dialect import PLACE, SKIPPED, Dialect
from ragen_diag.dumps.dialects.episodes import (
    draft_rows,
    ending,
    fields,
    number,
    objects,
    only,
    own_ending,
    rows,
    scores,
    without,
)
from ragen_diag.dumps.raw import Record
from ragen_diag.dumps.turns import Message, Turn, is_conversation, last_turn

Node = Mapping[str, Any]

_ELSEWHERE = ("message", "token_ids", "mask", "is_content", "logprobs", "advantages", "parent")
_ONLY_ACTOR = "agent"


def unfold(record: Record) -> Iterator[Record]:
    """The answers of all actors that are trained; for each other trace a row to be counted.

    A line may also be a trace alone, as in the first weeks of the format.
    """
    episode = record if "traces" in record else {}
    traces = record.get("traces", [record])
    if not isinstance(traces, list) or not traces:
        yield {SKIPPED: "episode_without_trace"}
        return
    for place, item in enumerate(traces):
        trace = fields(item)
        nodes = objects(trace.get("nodes"))
        if nodes is None or not is_conversation([_message(node) for node in nodes]):
            yield {SKIPPED: "bad_trace"}
        elif fields(trace.get("agent")).get("trainable") is False:
            yield {SKIPPED: "untrainable_trace"}
        else:
            name = trace.get("id") or f"{record[PLACE]}:{place}"
            shared = {"trajectory_id": name, **_shared(episode, trace)}
            yield from _rows(nodes, trace, shared)


def _rows(nodes: Sequence[Node], trace: Record, shared: Record) -> Iterator[Record]:
    parents = _parents(nodes)
    ways: list[list[int]] = []
    for at, parent in enumerate(parents):
        ways.append([*([] if parent is None else ways[parent]), at])
    told = any("sampled" in node for node in nodes)
    answers = [at for at, node in enumerate(nodes) if _is_answer(node, told)]
    turns = []
    for index, at in enumerate(answers):
        turn = last_turn([_message(nodes[i]) for i in ways[at]], index)
        turns.append(replace(turn, position=at))
    if len(set(range(len(nodes))) - set(parents)) > 1:
        shared["_flags"].append("branched_trace")
    calls = {str(call.get("node")): call for call in objects(trace.get("calls")) or []}
    end = ending(trace.get("stop_condition"), otherwise="stop")

    def cells(turn: Turn) -> Record:
        way = [nodes[i] for i in ways[turn.position]]
        call = calls.get(str(turn.position), {})
        reason = own_ending(way[-1].get("finish_reason") or call.get("finish_reason"))
        own = {"node": without(way[-1], *_ELSEWHERE), "call": without(call)}
        advantage = shared["advantage"]
        if advantage is None:
            advantage = only(way[-1].get("advantages"))
        extra = {**shared["extra"], "turn": own}
        return {**_tokens(way), **reason, "advantage": advantage, "extra": extra}

    unanswered = [_message(nodes[i]) for i in (ways[-1] if ways else ())]
    yield from rows(turns, shared, last=end, unanswered=unanswered, cells=cells)


def _shared(episode: Record, trace: Record) -> Record:
    task = fields(episode.get("task")) or fields(trace.get("task"))
    run, env = fields(episode.get("run")), fields(episode.get("env"))
    reward, components, flags = _reward(fields(trace.get("rewards")))
    metrics, others = scores(fields(trace.get("metrics")))
    others |= {name: metrics.pop(name) for name in components if name in metrics}
    # Errors are those of all attempts, so that a trace that was saved in the end has some as well.
    failed = not trace.get("ok", not trace.get("errors"))
    return {
        "group_id": _group(episode, trace, task),
        "split": fields(run.get("work")).get("type") or run.get("type"),
        "reward": reward,
        "reward_components": {**components, **metrics},
        "advantage": number(fields(trace.get("info")).get("advantage")),
        "ground_truth": fields(task.get("data")).get("answer"),
        "env": env.get("name") or env.get("id") or None,
        "extra": {
            "episode": without(episode, "traces", "task"),
            "task": task,
            "trace": without(trace, "nodes", "calls", "task", "metrics") | {"metrics": others},
        },
        "_flags": [*flags, *(["episode_error"] if failed else [])],
    }


def _group(episode: Record, trace: Record, task: Record) -> str | None:
    """The rollout group, else the task; actors of one episode answer different prompts."""
    given = episode.get("group")
    group = fields(given).get("id") if isinstance(given, dict) else given
    group = next((name for name in (group, task.get("key"), task.get("hash")) if name), None)
    actor = fields(trace.get("agent")).get("name", _ONLY_ACTOR)
    if group is None:
        return None
    return str(group) if actor == _ONLY_ACTOR else f"{group}:{actor}"


def _reward(rewards: Record) -> tuple[float | None, dict[str, float], list[str]]:
    """The weighted sum of what was scored, the scores themselves, and whether some are missing."""
    entries = {name: fields(value) or {"score": value} for name, value in rewards.items()}
    read = {name: number(entry.get("score")) for name, entry in entries.items()}
    components = {name: score for name, score in read.items() if score is not None}
    weights = {name: number(entries[name].get("weight", 1.0)) or 0.0 for name in components}
    total = sum(score * weights[name] for name, score in components.items())
    flags = ["null_component"] if len(components) < len(read) else []
    return (total if components else None), components, flags


def _message(node: Node) -> Message:
    message = node.get("message")
    return message if isinstance(message, Mapping) else node


def _is_answer(node: Node, told: bool) -> bool:
    """The model's own messages are marked; an assistant's may also have been given to it."""
    return node.get("sampled") is True if told else _message(node).get("role") == "assistant"


def _parents(nodes: Sequence[Node]) -> list[int | None]:
    """The place of the node before each; nodes without any link follow one another."""
    if not any("parent" in node for node in nodes):
        return [at - 1 if at else None for at in range(len(nodes))]
    links = [node.get("parent") for node in nodes]
    return [
        link if isinstance(link, int) and 0 <= link < at else None for at, link in enumerate(links)
    ]


def _tokens(way: Sequence[Node]) -> Record:
    """The ids that the model was fed and wrote, where all nodes on the way have theirs."""
    ids = [ids for node in way if isinstance(ids := node.get("token_ids"), list) and ids]
    mask = way[-1].get("mask")
    if not way[-1].get("token_ids"):
        return {}
    # What the model wrote is the end of its message; before it stands the template's opening.
    start = mask.index(True) if isinstance(mask, list) and True in mask else 0
    if len(ids) < len(way) or mask != [False] * start + [True] * (len(ids[-1]) - start):
        return {"_flags": ["token_ids_left_out"]}
    return {
        "prompt_ids": [*chain.from_iterable(ids[:-1]), *ids[-1][:start]],
        "response_ids": ids[-1][start:],
        "rollout_logprobs": way[-1].get("logprobs") or None,
    }


PRIME_RL = Dialect(
    name="prime-rl",
    signatures=(frozenset({"traces", "task"}), frozenset({"nodes", "rewards"})),
    draft=draft_rows,
    unfold=unfold,
    telling=frozenset({"traces", "nodes"}),
)
