"""Signatures in reward and length: what pushed the run, or what it did to please."""

from ragen_diag.postmortem.case import END, PERSISTENT, Case, moved
from ragen_diag.postmortem.model import Confidence, OnsetRecord, Signature
from ragen_diag.postmortem.signatures.signature import sentences, signature
from ragen_diag.postmortem.watched import (
    LENGTH,
    MI,
    MI_SEQ,
    REPETITION,
    REWARD,
    SUCCESS,
    TRUNCATED,
)
from ragen_diag.timeline.extract import FLAT_SHARE, KEPT_SHARE, REWARD_STD

STARVED_SHARE = 0.5
"""At or above, on the mean share of flat groups over the last steps; ours."""
STARVED_CLEARLY = 0.8
STARVED_STD = 0.25
"""At or below, on what is left of the in-group reward std; ours (the paper stops at 0.1)."""
HACKED = ("answers_independent_of_prompt", "empty_answers_rewarded", "phantom_variance")
"""Findings that tell of a reward which does not ask for the prompt; the last is but a hint."""


def reward_hacking(case: Case) -> Signature | None:
    """Reward goes its own way: up, or at its best, while what it stands for is not."""
    rose, success, mi = case.rose(REWARD), case.fell(SUCCESS), case.fell(MI) or case.fell(MI_SEQ)
    told = {code: steps for code in HACKED if (steps := case.finding_at_end(code))}
    apart = rose is not None and (success is not None or mi is not None)
    if not apart and not told:
        return None
    evidence = sentences(
        *(moved(onset) for onset in (rose, success, mi) if onset is not None and apart),
        *(f"{code} at steps {', '.join(map(str, steps))}" for code, steps in told.items()),
    )
    against = sentences(
        None if (solved := case.rose(SUCCESS)) is None else moved(solved),
        None if (lost := case.fell(REWARD)) is None else moved(lost),
    )
    lasting = any(len(told.get(code, ())) >= PERSISTENT for code in HACKED[:2])
    strong = (rose is not None and success is not None) or lasting
    confidence: Confidence = "likely" if strong and not against else "possible"
    return signature("reward_hacking", confidence, rose, evidence, against)


def signal_starvation(case: Case) -> Signature | None:
    """Rewards stop varying within groups, so that regularisers are all that is left to follow."""
    std, flat = case.fell(REWARD_STD), case.rose(FLAT_SHARE)
    last = case.last(FLAT_SHARE)
    much_flat = last is not None and last >= STARVED_SHARE
    weak = std is not None and bool(std.before) and _left(std) <= STARVED_STD
    if not much_flat and not weak and flat is None:
        return None
    evidence = sentences(
        *(moved(onset) for onset in (std, flat, case.fell(KEPT_SHARE)) if onset is not None),
        f"{100 * last:.0f} % of the groups are flat at the end" if last is not None else None,
        _beyond_chance(case),
        case.kept_level(KEPT_SHARE),
    )
    against = sentences(
        None if (solved := case.rose(SUCCESS)) is None else f"{moved(solved)}: prompts get solved",
        None if much_flat or weak else "most groups still vary",
    )
    starved = weak or (last is not None and last >= STARVED_CLEARLY)
    confidence: Confidence = "clear" if starved else "likely" if much_flat else "possible"
    if against and confidence == "clear":
        confidence = "likely"
    return signature("signal_starvation", confidence, std or flat, evidence, against)


def _left(onset: OnsetRecord) -> float:
    return (onset.after or 0.0) / (onset.before or 1.0)


def _beyond_chance(case: Case) -> str | None:
    """Observed against what chance alone gives with groups of this size."""
    shares = [point.result.reward.flat_groups for point in case.timeline.points[-END:]]
    chance = [float(c) for s in shares if (c := s.get("flat_share_by_chance")) is not None]
    if not chance:
        return None
    return f"chance alone would leave {100 * (sum(chance) / len(chance)):.0f} % flat"


def length_blow_up(case: Case) -> Signature | None:
    """Responses grow and grow."""
    longer = case.rose(LENGTH)
    if longer is None:
        return None
    signs = [case.rose(TRUNCATED), case.rose(REPETITION)]
    evidence = sentences(
        moved(longer),
        *(moved(onset) for onset in signs if onset is not None),
        _follows(case),
        None if (mi := case.fell(MI)) is None else moved(mi),
    )
    against = sentences(
        None if (better := case.rose(SUCCESS)) is None else f"{moved(better)}: it may pay",
    )
    bad = any(onset is not None for onset in signs)
    confidence: Confidence = "clear" if bad and not against else "likely" if bad else "possible"
    return signature("length_blow_up", confidence, longer, evidence, against)


def length_collapse(case: Case) -> Signature | None:
    """Responses shrink: compression where the prompt still shows, part of a collapse where not."""
    shorter = case.fell(LENGTH)
    if shorter is None:
        return None
    mi = case.fell(MI) or case.fell(MI_SEQ)
    holds = case.kept_level(MI) if mi is None else None
    evidence = sentences(
        moved(shorter), None if mi is None else moved(mi), _follows(case), None if mi else holds
    )
    against = sentences(f"{holds}: short, but still about the prompt" if holds else None)
    confidence: Confidence = "likely" if mi is not None else "possible"
    return signature("length_collapse", confidence, shorter, evidence, against)


def _follows(case: Case) -> str | None:
    value = case.last("reward_length_correlation")
    if value is None:
        return None
    return f"within groups reward and length correlate by {value:+.2f} at the end"
