"""Remarks on whether the scored ids are those of the policy, and on the dump's own log-probs."""

from collections.abc import Callable

from ragen_diag.judging import thresholds as cuts
from ragen_diag.judging.evidence import BatchEvidence
from ragen_diag.judging.findings import Finding, counted, finding
from ragen_diag.metrics.agreement import EXTREME, TOP, RolloutGap
from ragen_diag.metrics.trials import FormatTrial

_FORMS = {
    "ids": "ids of the dump",
    "raw": "plain text",
    "rendered": "text with special tokens",
    "messages": "messages",
    "stripped": "text stripped of special tokens",
}


def _retokenised(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    if scoring is None or not scoring.retokenised:
        return None
    return finding(
        "retokenised",
        "note",
        f"{scoring.retokenised} of {scoring.scored_rows} scored rows were encoded from text, so"
        " their tokens may not be the sampled ones.",
        {"retokenised": scoring.retokenised, "scored_rows": scoring.scored_rows},
    )


def _prompt_format(evidence: BatchEvidence) -> Finding | None:
    trial = evidence.scoring.formats if evidence.scoring else None
    if trial is None:
        return None
    looks = (
        f"{trial.looks_stripped} of {trial.rows} prompts look like chats whose special tokens were"
        " removed. "
        if trial.looks_stripped
        else ""
    )
    if not _clearly_better(trial) and not looks:
        return None
    told = ", ".join(f"{name} {logp:.3f}" for name, logp in trial.logp.items())
    better = (
        f"; {trial.best} is better by {trial.gain:.3f} +- {trial.error or 0.0:.3f}: give"
        f" --prompt-format {trial.best}"
        if _clearly_better(trial)
        else f"; none is clearly better than {trial.used}, which is used"
    )
    return finding(
        "prompt_format",
        "warning" if _clearly_better(trial) else "note",
        f"{looks}Over {trial.rows} responses the log-probability in nats/token by format of the"
        f" prompt is {told}{better}.",
        {
            "used": trial.used,
            "best": trial.best,
            **{f"logp_per_token_{name}": logp for name, logp in trial.logp.items()},
            "gain": trial.gain,
            "standard_error": trial.error,
            "rows": trial.rows,
            "look_stripped": trial.looks_stripped,
            "threshold_gain": cuts.FORMAT_GAIN,
            "threshold_errors": cuts.FORMAT_ERRORS,
        },
    )


def _clearly_better(trial: FormatTrial) -> bool:
    if trial.best == trial.used or trial.error is None:
        return False
    return trial.gain >= max(cuts.FORMAT_GAIN, cuts.FORMAT_ERRORS * trial.error)


def _mixed_prompt_forms(evidence: BatchEvidence) -> Finding | None:
    forms = evidence.scoring.prompt_forms if evidence.scoring else {}
    if len(forms) < 2:
        return None
    told = ", ".join(f"{_FORMS.get(name, name)} ({n} rows)" for name, n in forms.items())
    return finding(
        "mixed_prompt_forms",
        "warning",
        f"Prompts of several forms are compared with each other: {told}.",
        forms,
    )


def _against_template(evidence: BatchEvidence) -> Finding | None:
    found = evidence.scoring.against_template if evidence.scoring else {}
    differing = {name: n for name, n in found.items() if name != "same"}
    if not differing:
        return None
    total = sum(found.values())
    harmless = differing.keys() <= {"white_space"}
    return finding(
        "prompts_differ_from_template",
        "note" if harmless else "warning",
        f"{sum(differing.values())} of {total} saved prompts are not what the chat template makes"
        f" of their messages; they differ in: {counted(differing)}.",
        {**found, "rows": total},
    )


def _double_bos(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    if scoring is None or not scoring.double_bos:
        return None
    return finding(
        "double_bos",
        "warning",
        f"{scoring.double_bos} of {scoring.scored_rows} scored rows have a prompt that begins with"
        " the BOS twice.",
        {"rows": scoring.double_bos, "scored_rows": scoring.scored_rows},
    )


def _quantised(evidence: BatchEvidence) -> Finding | None:
    if evidence.scoring is None or not evidence.scoring.quantised:
        return None
    return finding(
        "quantised_checkpoint",
        "warning",
        "The checkpoint's weights are quantised: these are not the log-probs of the policy that"
        " was trained.",
    )


def _experts(evidence: BatchEvidence) -> Finding | None:
    scoring = evidence.scoring
    if scoring is None or not scoring.experts or _gap(evidence) is None:
        return None
    return finding(
        "mixture_of_experts",
        "note",
        f"The model chooses among {scoring.experts} experts for each token, and engines choose"
        " differently for about one in ten: the dump's log-probs can't be matched closely.",
        {"experts": scoring.experts},
    )


def _gap(evidence: BatchEvidence) -> RolloutGap | None:
    gap = evidence.scoring.gap if evidence.scoring else None
    return gap if gap is not None and (gap.tokens or gap.infinite) else None


def _logprobs_left_out(evidence: BatchEvidence) -> Finding | None:
    scoring, gap = evidence.scoring, _gap(evidence)
    lacking = dict(scoring.logprobs_lacking) if scoring else {}
    # Of a dump that has none at all it is said where they are compared.
    if scoring is None or not lacking or (gap is None and lacking.keys() == {"no_logprobs"}):
        return None
    return finding(
        "logprobs_left_out",
        "note",
        f"The dump's log-probabilities are not compared in full for {sum(lacking.values())} of"
        f" {scoring.scored_rows} scored rows: {counted(lacking)}.",
        {**lacking, "scored_rows": scoring.scored_rows},
    )


def _filtered_logprobs(evidence: BatchEvidence) -> Finding | None:
    gap = _gap(evidence)
    if gap is None:
        return None
    zeros = gap.zeros if gap.zeros >= cuts.FILTERED_TOKENS * gap.tokens else 0
    if not zeros and not gap.infinite and not gap.positive:
        return None
    told = [
        f"{n} of {gap.tokens + gap.infinite} {what}"
        for n, what in (
            (zeros, "are exactly 0 where the scorer's are not near it"),
            (gap.infinite, "are -inf"),
            (gap.positive, "are above 0, which no log-probability is"),
        )
        if n
    ]
    return finding(
        "filtered_logprobs",
        "warning",
        f"Of the dump's log-probabilities {', '.join(told)}.",
        {
            "exactly_zero": gap.zeros,
            "infinite": gap.infinite,
            "above_zero": gap.positive,
            "tokens": gap.tokens + gap.infinite,
            "threshold_zero": cuts.FILTERED_TOKENS,
        },
    )


def _extreme_gaps(evidence: BatchEvidence) -> Finding | None:
    gap, scoring = _gap(evidence), evidence.scoring
    if gap is None or scoring is None or not gap.extremes or gap.largest is None:
        return None
    if gap.top_share is None or gap.top_share < cuts.TOP_CARRIES:
        return None
    _, token, size = gap.largest
    return finding(
        "extreme_logprob_gaps",
        "note",
        f"{gap.extremes} of {gap.tokens} tokens are more than {EXTREME:g} nat off the dump's"
        f" log-probabilities; {TOP:.1%} of tokens carry {gap.top_share:.1%} of all gaps. The"
        f" largest, {size:+.3g}, is token {token} of the reasoning of {scoring.largest_response}.",
        {
            "extreme_tokens": gap.extremes,
            "tokens": gap.tokens,
            "share_of_top_tokens": gap.top_share,
            "largest_gap": size,
            "largest_response": scoring.largest_response,
            "largest_token": token,
            "median_absolute_gap": gap.median_absolute,
            "mean_gap_of_all": gap.mean,
            "threshold": cuts.TOP_CARRIES,
        },
    )


RULES: tuple[Callable[[BatchEvidence], Finding | None], ...] = (
    _retokenised,
    _prompt_format,
    _mixed_prompt_forms,
    _against_template,
    _double_bos,
    _quantised,
    _experts,
    _logprobs_left_out,
    _filtered_logprobs,
    _extreme_gaps,
)
