"""The filter of RAGEN-2, on the vectors of its authors' code."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ragen_diag.snr.topp import keep_top_p


def kept(variances, top_p, **options):
    return keep_top_p(np.array(variances, dtype=np.float64), top_p, **options).tolist()


def test_the_authors_vectors():
    # Rewards h -3, 3; m -2, 2; l -1, 1: sample variances 18, 8, 2, and 26 of 28 are enough.
    variances = [np.var(pair, ddof=1) for pair in ([-3, 3], [-2, 2], [-1, 1])]
    assert variances == [18, 8, 2]
    assert kept(variances, 0.8) == [True, True, False]
    assert kept([0.0, 0.0], 0.9) == [False, False]
    assert kept([0.0, 0.0], 0.9, include_zero=True) == [True, True]
    # {0, 0.1} has variance 0.005, less than the absolute eps: nothing is left of the target.
    assert kept([np.var([0, 0.1], ddof=1)], 0.9, eps=0.01) == [False]


def test_rounding_does_not_put_the_target_out_of_reach():
    # 0.3 + 0.2 + 0.1 is 0.6 in this order and 0.6000000000000001 in the other.
    assert kept([0.1, 0.2, 0.3], 1.0) == [True, True, True]
    assert kept([0.25, 0.25, 0.25, 0.25], 0.5) == [True, True, False, False]


@given(
    st.lists(st.floats(0, 100).map(lambda v: round(v, 3)), min_size=1, max_size=12),
    st.floats(0.05, 1.0),
)
def test_the_smallest_set_that_holds_enough(variances, top_p):
    mask = keep_top_p(np.array(variances), top_p)
    total, chosen = sum(variances), sorted(v for v, k in zip(variances, mask, strict=True) if k)
    if total == 0:
        assert not mask.any()
        return
    assert sum(chosen) >= top_p * total - 1e-9
    assert sum(chosen[1:]) < top_p * total + 1e-9
    dropped = [v for v, k in zip(variances, mask, strict=True) if not k]
    assert not dropped or max(dropped) <= chosen[0]


@pytest.mark.parametrize(
    ("variances", "top_p", "eps"),
    [([1.0], 0.0, 0.0), ([1.0], 1.1, 0.0), ([1.0], 0.9, -1.0), ([-1.0], 0.9, 0.0)],
)
def test_values_out_of_range_are_refused(variances, top_p, eps):
    with pytest.raises(ValueError):
        kept(variances, top_p, eps=eps)
