"""An earlier result as the yardstick of another.

Comes in: a `Result` and what the new analysis measures with. Goes out: its metrics, or an error
that says why the two cannot be compared. Knows no thresholds.
"""

from collections.abc import Mapping

from ragen_diag.errors import ResultError
from ragen_diag.judging.thresholds import OF_BASELINE
from ragen_diag.metrics.metric import Metric
from ragen_diag.result import Result


def baseline_metrics(
    baseline: Result,
    *,
    temperature: float,
    compat: str,
    tags: tuple[str | None, str | None],
    scope: str,
    prompt_format: str = "auto",
) -> Mapping[str, Metric]:
    """The baseline's metrics, if they were measured in the same way.

    `tags` are the open and close tag of the new analysis' reasoning spans, None without; `scope`
    names its turns.

    Raises:
        ResultError: the baseline was not scored by a checkpoint, or under another temperature,
            formula, prompt format, reasoning span or scope of turns.
    """
    known = [baseline.metrics[name] for name in OF_BASELINE if name in baseline.metrics]
    if not known:
        raise ResultError("the baseline has no model metrics; analyse it again with its checkpoint")
    if all(metric.value is None for metric in known):
        raise ResultError(
            f"the baseline's model metrics are undefined ({known[0].reason}); take an earlier step"
        )
    ours: dict[str, object] = {
        "temperature": temperature,
        "compat": compat,
        "prompt format": prompt_format,
        "reasoning tags": tags,
        "scope": scope,
    }
    spans, settings = baseline.inputs.spans, baseline.inputs.settings
    theirs = {
        "temperature": settings.get("temperature"),
        "compat": settings.get("compat"),
        "prompt format": settings.get("prompt_format", "auto"),
        "reasoning tags": (spans.open, spans.close),
        "scope": settings.get("scope", "first_turn"),
    }
    differing = [
        f"{name} {theirs[name]} there, {value} here"
        for name, value in ours.items()
        if theirs[name] != value
    ]
    if differing:
        raise ResultError(
            f"the baseline was measured in another way ({'; '.join(differing)});"
            " analyse it again with the same settings"
        )
    return baseline.metrics
