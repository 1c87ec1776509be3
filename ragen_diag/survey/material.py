"""What was read of a dump -> every fact about it, each worked out once.

Knows no severities: what the facts mean is said elsewhere.
"""

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from ragen_diag.dumps.decisions import Decided
from ragen_diag.dumps.dump import Dump
from ragen_diag.survey.facts import Absence, GroupSizes, Reward, Step, Texts
from ragen_diag.survey.files import absences
from ragen_diag.survey.grouped import group_table, trajectories, variance
from ragen_diag.survey.groups import group_sizes, group_sources
from ragen_diag.survey.hashes import one_hash
from ragen_diag.survey.places import Places
from ragen_diag.survey.preflight import Preflight
from ragen_diag.survey.rewards import reward_facts
from ragen_diag.survey.sampled import Sampled, look_at
from ragen_diag.survey.steps import distinct_prompts, split_counts, step_table
from ragen_diag.survey.tally import Tally


@dataclass(frozen=True)
class Material:
    """A dump of at least one row that was read through, and what became of its rows."""

    dump: Dump
    tally: Tally
    decided: Decided
    preflight: Preflight

    @property
    def keys(self) -> pl.DataFrame:
        """Those of the rows that stay."""
        return self.decided.keys

    @property
    def places(self) -> Places:
        """Where those rows stand."""
        return Places(self.dump.files)

    @cached_property
    def rows(self) -> pl.DataFrame:
        """One per trajectory; see `trajectories`."""
        return trajectories(self.decided)

    @cached_property
    def groups(self) -> pl.DataFrame:
        """See `group_table`."""
        return group_table(self.rows)

    @cached_property
    def notes(self) -> Counter[str]:
        """Repairs and drops, of reading and of deciding."""
        notes = Counter(self.tally.ledger.notes) + Counter(self.decided.notes)
        if not self.tally.ledger.rewarded:
            # No file has one: that is the error, and no difference between files.
            del notes["no_reward_column"]
        return notes

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        """Every step, in ascending order."""
        return step_table(self.keys, self.rows, self.groups)

    @cached_property
    def sizes(self) -> GroupSizes:
        """Those of the groups."""
        return group_sizes(self.groups)

    @cached_property
    def sources(self) -> dict[str, int]:
        """How the groups were found."""
        return group_sources(self.decided)

    @cached_property
    def reward(self) -> Reward:
        """What was read as the reward."""
        return reward_facts(self.dump, self.tally, self.rows, self.notes)

    @cached_property
    def absences(self) -> tuple[Absence, ...]:
        """What some files or steps lack."""
        return absences(self.dump, self.tally, self.keys)

    @cached_property
    def sampled(self) -> Sampled:
        """What the texts say that were kept."""
        counter, why_not = self.preflight.counter, self.preflight.no_counter
        table = self.tally.drawn.table()
        return look_at(table, self.tally.finish_reasons, counter, why_not)

    @cached_property
    def texts(self) -> Texts:
        """How many texts differ."""
        whole = one_hash("step", "prompt", "truth", "response", "reward")
        responses = self.keys["response"].drop_nulls()
        distinct = responses.n_unique()
        of_several = self.groups.filter(pl.col("size") > 1)
        return Texts(
            distinct_responses=distinct,
            distinct_share=distinct / len(responses) if len(responses) else None,
            one_text_groups=int(of_several["one_text"].fill_null(False).sum()),
            exact_copies=self.keys.height - self.keys.select(whole.n_unique()).item(),
        )

    def facts(self) -> dict[str, Any]:
        """All of it under the names that `Survey` gives."""
        return {
            "rows": self.keys.height,
            "trajectories": self.rows.height,
            "turns": self._turns(),
            "prompts": distinct_prompts(self.rows, self.groups)["prompt"].n_unique(),
            "groups": self.groups.height,
            "group_source": self.sources,
            "steps": tuple(step.step for step in self.steps),
            "splits": split_counts(self.keys),
            "per_step": self.steps,
            "absences": self.absences,
            "group_sizes": self.sizes,
            "texts": self.texts,
            "reward": self.reward,
            "reward_variance": variance(self.groups),
            "truncation": self.sampled.truncation,
            "sample": self.sampled.facts,
            "reading_notes": dict(sorted(self.notes.items())),
        }

    def _turns(self) -> int:
        """The largest number of rows of one trajectory."""
        named = self.keys.drop_nulls("trajectory")
        rows = named.group_by("step", "trajectory").len()["len"].max()
        return int(rows) if isinstance(rows, int) else 1
