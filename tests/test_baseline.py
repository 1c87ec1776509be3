"""When an earlier result may serve as a yardstick, and what the error says when not."""

from typing import Any

import pytest
from report_products import healthy, no_checkpoint

from ragen_diag.errors import ResultError
from ragen_diag.pipeline.baseline import baseline_metrics
from ragen_diag.result import Result

TAGS = ("<think>", "</think>")
HERE: dict[str, Any] = {"temperature": 1.0, "compat": "none", "scope": "first_turn"}


def _measured(**settings: object) -> Result:
    result = healthy().result
    settings = {**HERE, **settings}
    return result.model_copy(
        update={"inputs": result.inputs.model_copy(update={"settings": settings})}
    )


def test_same_way_of_measuring_is_accepted() -> None:
    # Seeds, limits and devices change how well is measured, not what.
    baseline = _measured(seed=7, limit=16, device="cuda")
    metrics = baseline_metrics(baseline, **HERE, tags=TAGS)
    assert metrics == baseline.metrics


@pytest.mark.parametrize(
    ("settings", "tags", "named"),
    [
        ({"temperature": 0.6}, TAGS, "temperature 0.6 there, 1.0 here"),
        ({"compat": "ragen"}, TAGS, "compat ragen there, none here"),
        ({}, (None, None), "reasoning tags"),
        ({"scope": "turn_1"}, TAGS, "scope turn_1 there, first_turn here"),
        ({"temperature": 0.6, "compat": "ragen"}, TAGS, "compat ragen there, none here"),
    ],
)
def test_another_way_of_measuring_is_named(
    settings: dict[str, object], tags: tuple[str | None, str | None], named: str
) -> None:
    with pytest.raises(ResultError, match=named):
        baseline_metrics(_measured(**settings), **HERE, tags=tags)


def test_baseline_without_a_checkpoint_is_refused() -> None:
    with pytest.raises(ResultError, match="no model metrics"):
        baseline_metrics(no_checkpoint().result, **HERE, tags=TAGS)
