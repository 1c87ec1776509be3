"""The reward of a dump: what was read, how, and how much of it is there."""

from collections import Counter
from collections.abc import Mapping

import polars as pl

from ragen_diag.dumps.dump import Dump
from ragen_diag.survey.facts import Component, Problem, Reward, problem
from ragen_diag.survey.tally import Tally

MISSING: Mapping[str, str] = {
    "null_reward": "have no reward",
    "nan_reward": "have a reward that is NaN",
    "bad_reward": "have a reward that is no number",
}
"""Notes of the reader on rewards that are null, in words."""
_HOW = ("reward_", "unweighted_reward_sum", "turn_rewards_", "rewards_left_out")
_SUM = "unweighted_reward_sum"


def reward_facts(dump: Dump, tally: Tally, rows: pl.DataFrame, notes: Mapping[str, int]) -> Reward:
    """The reward over `trajectories`; `notes` are those of reading and deciding together."""
    values = rows["reward"].drop_nulls()
    low, high = values.min(), values.max()
    steps = Counter[str]()
    for (_, name), count in tally.components.items():
        steps[name] += count
    total = tally.ledger.rows
    return Reward(
        name=_name(dump, tally, notes),
        type=_type(dump, tally),
        how=tuple(sorted(name for name in notes if name.startswith(_HOW))),
        numbers=len(values),
        missing={name: notes[name] for name in MISSING if notes.get(name)},
        candidates=tuple(tally.ledger.candidates),
        components=tuple(
            Component(name=name, rows=count, share=count / total)
            for name, count in sorted(steps.items())
        ),
        mean=_number(values.mean()),
        min=_number(low),
        max=_number(high),
        share_at_min=_number((values == low).mean()) if len(values) else None,
        share_at_max=_number((values == high).mean()) if len(values) else None,
    )


def reward_problems(reward: Reward, tally: Tally) -> list[Problem]:
    """What is odd about the rewards."""
    rows = tally.ledger.rows
    found = [
        problem(
            name,
            "warning",
            f"{count:,} of {rows:,} rows {MISSING[name]}; they are left out of all reward"
            " statistics, and never taken for 0",
            tally.ledger.places.get(name, []),
        )
        for name, count in reward.missing.items()
    ]
    if reward.numbers > 1 and reward.min == reward.max:
        others = [name for name in reward.candidates if name != reward.name]
        hint = f"; try another, as in --reward {others[0]}" if others else ""
        message = f"every reward is {reward.min:g}: no group has any signal{hint}"
        found.append(problem("constant_reward", "warning", message))
    return found


def _name(dump: Dump, tally: Tally, notes: Mapping[str, int]) -> str | None:
    asked = dump.reading.rewards
    if notes.get("rewards_left_out"):
        return None
    if asked:
        return " + ".join(name if w == 1.0 else f"{w:g} x {name}" for name, w in asked)
    if tally.reward_name is None:
        return None
    if notes.get(_SUM):
        return "sum of reward functions"
    return dump.reading.names.get(tally.reward_name, tally.reward_name)


def _type(dump: Dump, tally: Tally) -> str | None:
    """The type in the first file that has the column, as polars names it."""
    asked = [name for name, _ in dump.reading.rewards]
    name = asked[0] if len(asked) == 1 else tally.reward_name
    for source in dump.sources:
        kind = None if name is None else source.kinds.get(name)
        if kind is not None:
            return str(kind.dtype if kind.dtype is not None else "object")
        column = dump.reading.names.get(name or "", name)
        if source.schema is not None and column in source.schema.columns:
            return str(source.schema[column].dtype)
    return None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) else None
