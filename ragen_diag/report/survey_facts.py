"""The facts of a survey as short texts, still to be made safe by the renderer.

Comes in: a `Survey`. Goes out: texts, one per subject. Knows no layout.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from ragen_diag.report.numbers import number, plural, short
from ragen_diag.report.safetext import clip
from ragen_diag.survey.facts import Quantiles, Survey

_GROUPED_BY = {
    "explicit": "ids of the dump",
    "derived_key": "prompt and ground truth",
    "contiguous": "runs of equal prompts",
    "prompt_text": "prompt text",
}
_LONGEST_NAME = 60
_LISTED = 4


def subject(survey: Survey) -> str:
    """Which dump, how large, and how it is written."""
    if survey.dialect is None:
        return f"{_clipped(survey.paths[0])}: not read" if survey.paths else "no dump"
    more = f" and {len(survey.paths) - 1} more" if len(survey.paths) > 1 else ""
    steps = "" if survey.steps in ((), (None,)) else f" of {plural(len(survey.steps), 'step')}"
    return (
        f"{_clipped(survey.paths[0])}{more}: {plural(survey.rows, 'row')}{steps} in"
        f" {plural(len(survey.files), 'file')}, dialect {survey.dialect} ({survey.certainty}:"
        f" {clip(survey.grounds or '', 100)})"
    )


def facts(survey: Survey) -> Iterator[tuple[str, str]]:
    """Label and detail of everything that is known, one line each."""
    for label, detail in (
        ("files", _files(survey)),
        ("steps", _steps(survey)),
        ("splits", _shares(survey.splits, survey.rows)),
        ("groups", _groups(survey)),
        ("texts", _texts(survey)),
        ("reward", _reward(survey)),
        ("components", _components(survey)),
        ("reward variance", _variance(survey)),
        ("truncation", _truncation(survey)),
        ("reasoning", _reasoning(survey)),
        ("tokens", _tokens(survey)),
        ("checkpoint", _checkpoint(survey)),
    ):
        if detail:
            yield label, detail


def _files(survey: Survey) -> str:
    kinds = Counter(file.container for file in survey.files)
    groups = [file.row_groups for file in survey.files if file.row_groups is not None]
    told = [f"{n:,} {kind}" for kind, n in sorted(kinds.items())]
    if groups:
        largest = max(groups, key=lambda group: group.most_bytes)
        number_of = sum(group.number for group in groups)
        told.append(f"{plural(number_of, 'row group')} of {_size(largest.most_bytes)} at most")
    if survey.files_passed_over:
        told.append(f"{plural(len(survey.files_passed_over), 'file')} passed over")
    return ", ".join(told)


def _steps(survey: Survey) -> str:
    numbers = [step for step in survey.steps if step is not None]
    if not numbers:
        return ""
    gaps = {later - earlier for earlier, later in pairwise(numbers)}
    told = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else str(numbers[0])
    if len(gaps) == 1 and gaps != {1}:
        told += f", every {gaps.pop():,}"
    each = {
        name: [getattr(step, name) for step in survey.per_step]
        for name in ("rows", "prompts", "groups")
    }
    return f"{told}: " + ", ".join(_range(values, name) for name, values in each.items())


def _groups(survey: Survey) -> str:
    sizes = survey.group_sizes
    if sizes is None:
        return ""
    size = f"{sizes.smallest:,}"
    if sizes.largest != sizes.smallest:
        size = f"{sizes.smallest:,} to {sizes.largest:,} (median {short(sizes.median)})"
    by = ", ".join(
        _GROUPED_BY.get(name, name) + (f" ({n:,} rows)" if len(survey.group_source) > 1 else "")
        for name, n in survey.group_source.items()
    )
    turns = ""
    if survey.turns > 1:
        turns = f"; {plural(survey.trajectories, 'trajectory', 'trajectories')} of up to"
        turns += f" {survey.turns:,} turns"
    return f"{survey.groups:,} of {size}, by {by}{turns}"


def _texts(survey: Survey) -> str:
    texts = survey.texts
    if texts is None:
        return ""
    told = f"{plural(survey.prompts, 'prompt')}"
    if texts.distinct_share is not None:
        told += f"; {_percent(texts.distinct_share)} of the responses differ"
        if texts.one_text_groups:
            told += f", all equal in {plural(texts.one_text_groups, 'group')}"
    copies = plural(texts.exact_copies, "exact copy", "exact copies")
    return f"{told}; {copies}" if texts.exact_copies else told


def _reward(survey: Survey) -> str:
    reward = survey.reward
    if reward is None or reward.mean is None or reward.min is None or reward.max is None:
        return ""
    name = clip(reward.name or "", _LONGEST_NAME)
    missing = sum(reward.missing.values())
    told = f"{name}: mean {number(reward.mean)}, from {short(reward.min)}"
    if reward.share_at_min is not None and reward.share_at_max is not None:
        told += f" ({_percent(reward.share_at_min)}) to {short(reward.max)}"
        told += f" ({_percent(reward.share_at_max)})"
    return f"{told}; {missing:,} missing" if missing else told


def _components(survey: Survey) -> str:
    if survey.reward is None:
        return ""
    shares = [
        clip(component.name, _LONGEST_NAME)
        + ("" if component.share == 1 else f" ({_percent(component.share)} of rows)")
        for component in survey.reward.components
    ]
    return _first(shares)


def _variance(survey: Survey) -> str:
    found = survey.reward_variance
    scored = survey.reward is not None and survey.reward.numbers > 0
    if found is None or found.flat_share is None or not scored:
        return ""
    told = f"{_percent(found.flat_share)} of {plural(found.compared, 'group')} flat"
    means = [f"{number(b.rv_mean)}" for b in found.buckets if b.rv_mean is not None]
    if not means:
        return told
    of = "Q1" if len(means) == 1 else f"Q1 to Q{len(means)}"
    return f"{told}; mean variance of {of}: {', '.join(means)}"


def _truncation(survey: Survey) -> str:
    found = survey.truncation
    if found is None:
        return ""
    if found.share is None:
        return found.how
    return f"{_percent(found.share)} ended at the length cap (by {found.how})"


def _reasoning(survey: Survey) -> str:
    sample = survey.sample
    if sample is None or not sample.rows:
        return ""
    if sample.tags is None:
        return f"no known tags in {sample.rows:,} sampled rows"
    shares = _shares(sample.spans, sample.rows)
    return f"{clip(sample.tags, _LONGEST_NAME)}: {shares} ({sample.rows:,} sampled rows)"


def _tokens(survey: Survey) -> str:
    sample = survey.sample
    if sample is None:
        return ""
    told = [
        f"{name} {_quantiles(values)}"
        for name, values in (("prompt", sample.prompt_tokens), ("response", sample.response_tokens))
        if values is not None
    ]
    by = clip(sample.lengths_by, 200)
    return f"{', '.join(told)} (median / p99 / most; {by})" if told else f"not counted: {by}"


def _checkpoint(survey: Survey) -> str:
    found = survey.checkpoint
    if found is None:
        return ""
    told = [found.found]
    told += [] if found.stored_dtype is None else [found.stored_dtype]
    told += [] if found.weight_bytes is None else [_size(found.weight_bytes)]
    told += [] if found.context is None else [f"context {found.context:,}"]
    told += [] if found.vocabulary is None else [f"vocabulary {found.vocabulary:,}"]
    return ", ".join(told)


def _quantiles(values: Quantiles) -> str:
    return f"{values.median:,} / {values.p99:,} / {values.max:,}"


def _shares(counts: Mapping[str, int], total: int) -> str:
    shares = [f"{clip(k, _LONGEST_NAME)} {_percent(n / total)}" for k, n in counts.items() if n]
    return _first(shares)


def _first(texts: Sequence[str]) -> str:
    more = f" and {len(texts) - _LISTED:,} more" if len(texts) > _LISTED else ""
    return ", ".join(texts[:_LISTED]) + more


def _range(values: Sequence[int], nouns: str) -> str:
    low, high = min(values), max(values)
    if low == high:
        return plural(low, nouns.removesuffix("s"), nouns)
    return f"{low:,} to {high:,} {nouns}"


def _percent(share: float) -> str:
    return f"{number(share, share=True)} %"


def _size(count: float) -> str:
    """Bytes in a unit that fits.

    >>> _size(1159680)
    '1.2 MB'
    """
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def _clipped(path: str) -> str:
    return clip(path, 100, tail=60)
