"""How much a response tells of its prompt: MI, retrieval and entropies from cross-scores.

Comes in: log-probabilities of every response under every distinct prompt. Goes out: the metrics
of RAGEN-2 (arXiv 2604.06268), Sec. 2.3 and Table 1, under the names of its public logs. Knows no
models, texts, rewards or verdicts.

R responses, P distinct prompts (columns), S steps. `logp_RP[r, p]` = log p(Z_r given X_p) summed
over the tokens of the reasoning Z_r, in nats; `own_R[r]` is the column of r's own prompt;
`n_tokens_R[r]` >= 1 its number of scored tokens.

Columns may fall into blocks, as the turns of trajectories do: -inf where p is no candidate of r.
Mixture, rank and permutations then stay within a block, and P_r, the number of r's candidates,
stands for P. Means are then the quantities given the block, I(X;Z | block) and so on: over the
prompts of a block alike, and over blocks by their responses, which are the trajectories whose turn
was drawn there. Prompts alike would let later turns, with a prompt per trajectory, outweigh all.

All are proxies under the scorer: Shannon quantities only if the scorer is the sampling policy at
the sampling temperature (App. F).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.mixture import Candidates, Compat, RowScores, row_scores
from ragen_diag.metrics.retrieval import best_columns, retrieval_credit
from ragen_diag.metrics.uncertainty import (
    Bootstrap,
    bootstrap,
    per_prompt_means,
    permutation_test,
)

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

PER_TOKEN = "nats/token"
PER_RESPONSE = "nats/response"
STD_EPSILON = 1e-3
"""Added to the z-score's denominator, as in the public implementation."""
TOP_K = (2, 4, 8)

_NEED_PROMPTS: dict[str, str] = {
    "retrieval_accuracy": "",
    **{f"retrieval_accuracy@{k}": "" for k in TOP_K},
    "retrieval_accuracy_rows": "",
    "retrieval_chance_level": "",
    "retrieval_above_chance": "",
    "retrieval_skill": "",
    "retrieval_p_value": "",
    "mi_estimate": PER_TOKEN,
    "mi_estimate_rows": PER_TOKEN,
    "mi_seq_estimate": PER_RESPONSE,
    "mi_seq_estimate_rows": PER_RESPONSE,
    "mi_upper_bound": PER_RESPONSE,
    "mi_p_value": "",
    "mi_zscore": "",
    "mi_zscore_ema": "",
    "mi_zscore_seq": "",
    "mi_zscore_ema_seq": "",
    "reasoning_entropy_est": PER_TOKEN,
    "reasoning_entropy_seq_est": PER_RESPONSE,
    "marginal_std": PER_TOKEN,
    "marginal_std_ema": PER_TOKEN,
    "marginal_std_seq": PER_RESPONSE,
    "marginal_std_ema_seq": PER_RESPONSE,
}
_NEED_ROWS = {"conditional_entropy_est": PER_TOKEN, "conditional_entropy_seq_est": PER_RESPONSE}

UNITS: dict[str, str] = {**_NEED_PROMPTS, **_NEED_ROWS}
"""Every name that `measure` returns, with its unit."""


def per_prompt_mean(values_R: FloatArray, own_R: IntArray, columns: int) -> FloatArray:
    """Mean value of each prompt's responses, shape (columns,); NaN for a prompt without any.

    >>> per_prompt_mean(np.array([1.0, 3.0, 4.0]), np.array([0, 0, 2]), 3)
    array([ 2., nan,  4.])
    """
    n_P = np.bincount(own_R, minlength=columns)
    sums_P = np.bincount(own_R, weights=values_R, minlength=columns)
    return np.where(n_P > 0, sums_P / np.maximum(n_P, 1), np.nan)


def ema_std(std_S: Sequence[float] | FloatArray, *, decay: float = 0.9) -> FloatArray:
    """Marginal std smoothed over steps: s_ema(t) = decay s_ema(t-1) + (1 - decay) s(t).

    `std_S` in step order; the first value is its own start. Same unit as given. The EMA z-score
    of step t is its MI / (s_ema(t) + 1e-3): only the denominator is smoothed.

    >>> ema_std([1.0, 2.0, 2.0]).round(3).tolist()
    [1.0, 1.1, 1.19]
    """
    smoothed_S = np.array(std_S, dtype=np.float64)
    for step in range(1, len(smoothed_S)):
        smoothed_S[step] = decay * smoothed_S[step - 1] + (1.0 - decay) * smoothed_S[step]
    return smoothed_S


def measure(
    logp_RP: FloatArray,
    n_tokens_R: IntArray,
    own_R: IntArray,
    *,
    cluster_R: IntArray | None = None,
    compat: Compat = "none",
    resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Metric]:
    """All metrics of `UNITS`, with 95 % intervals from a bootstrap over prompts.

    Where prompts have something in common, as histories that began alike, `cluster_R` names for
    each response what is drawn as a whole.

    Means are means of per-prompt means, as the mixture is uniform over prompts and
    H(Z) = I + H(Z given X) must hold for uneven groups too; `*_rows` weigh every response alike.
    So are `mi_upper_bound` and `retrieval_chance_level` over log P_r and 1 / P_r: the bound of
    that very mean, and its expectation when groups are dealt at random.
    `marginal_std` is over rows, ddof 0. The EMA forms equal the plain ones in a single step; use
    `ema_std` over a series. The p-values test retrieval and `mi_seq_estimate` against groups
    dealt to prompts at random.

    compat "ragen" follows the public code instead: all means weigh rows alike, and the marginal
    per token is that of the mean matrix L / T. This changes `mi_estimate`, `mi_zscore`,
    `reasoning_entropy_est`, `marginal_std` and their EMA forms; on even groups nothing else.
    Kept ours: ties share credit (there: argmax), no @k for k >= P (there: k is cut), one column
    per distinct prompt, blocks (there: turns of all numbers in one mixture, drawn with
    replacement), and the p-values, which stay balanced.

    A row with P_r = 1 leaves only the conditional entropies defined; no rows leaves nothing.

    Raises:
        ValueError: see `row_scores`.
    """
    rows = len(logp_RP)
    scores = row_scores(logp_RP, n_tokens_R, own_R, compat=compat)
    if rows == 0:
        return {name: Metric.undefined("no scored rows", unit=UNITS[name]) for name in UNITS}
    candidates = scores.candidates
    draws = bootstrap(
        own_R,
        block_R=candidates.block_P[own_R],
        cluster_R=cluster_R,
        resamples=resamples,
        seed=seed,
    )
    metrics = _conditional_entropies(scores, draws, compat)
    if candidates.n_R.min() < 2:
        reason = "one distinct prompt: nothing to tell apart"
        undefined = {name: Metric.undefined(reason, unit=UNITS[name], n=rows) for name in UNITS}
        return undefined | metrics
    metrics |= _retrieval(logp_RP, own_R, candidates, draws, compat)
    metrics |= _mutual_information(scores, draws, compat)
    bound_B = _level(np.log(candidates.n_R), draws, compat)
    metrics["mi_upper_bound"] = Metric(
        value=float(bound_B[0]), unit=PER_RESPONSE, n=logp_RP.shape[1]
    )
    metrics |= _p_values(logp_RP, own_R, candidates, draws.weight_R, resamples, seed)
    return {name: metrics[name] for name in UNITS}


def _mean(values_R: FloatArray, draws: Bootstrap, compat: Compat) -> FloatArray:
    over = draws.mean_over_rows if compat == "ragen" else draws.mean_over_prompts
    return over(values_R)


def _level(values_R: FloatArray, draws: Bootstrap, compat: Compat) -> FloatArray:
    """The mean of a value that is one per block, exact where all blocks share it."""
    least = float(values_R.min())
    return least + _mean(values_R - least, draws, compat)


def _conditional_entropies(
    scores: RowScores, draws: Bootstrap, compat: Compat
) -> dict[str, Metric]:
    """H(Z given X) = -mean(matched), >= 0 for a discrete text (Table 1)."""
    per_token_B = -_mean(scores.matched_R, draws, compat)
    per_response_B = -_mean(scores.matched_seq_R, draws, compat)
    return {
        "conditional_entropy_est": draws.metric(per_token_B, unit=PER_TOKEN),
        "conditional_entropy_seq_est": draws.metric(per_response_B, unit=PER_RESPONSE),
    }


def _retrieval(
    logp_RP: FloatArray, own_R: IntArray, candidates: Candidates, draws: Bootstrap, compat: Compat
) -> dict[str, Metric]:
    """Accuracy, the exact chance 1/P_r, and skill = (accuracy - chance) / (1 - chance) (ours)."""
    chance_B = _level(1.0 / candidates.n_R, draws, compat)
    credit_R = retrieval_credit(logp_RP, own_R)
    accuracy_B = _mean(credit_R, draws, compat)
    metrics = {
        "retrieval_accuracy": draws.metric(accuracy_B),
        "retrieval_accuracy_rows": draws.metric(draws.mean_over_rows(credit_R)),
        "retrieval_chance_level": Metric(value=float(chance_B[0]), n=logp_RP.shape[1]),
        "retrieval_above_chance": draws.metric(accuracy_B - chance_B),
        "retrieval_skill": draws.metric((accuracy_B - chance_B) / (1.0 - chance_B)),
    }
    fewest = int(candidates.n_R.min())
    for k in TOP_K:
        name = f"retrieval_accuracy@{k}"
        if k < fewest:
            credit_R = retrieval_credit(logp_RP, own_R, k=k)
            metrics[name] = draws.metric(_mean(credit_R, draws, compat))
        else:
            metrics[name] = Metric.undefined(
                f"needs more than {k} distinct prompts, there are {fewest}", n=len(own_R)
            )
    return metrics


def _mutual_information(scores: RowScores, draws: Bootstrap, compat: Compat) -> dict[str, Metric]:
    """MI, H(Z), marginal std and z-scores, per token and per response.

    The z-score, mean(gap) / (std + 1e-3), explodes where the batch homogenises and the std goes
    to zero; read it beside `marginal_std`.
    """
    metrics: dict[str, Metric] = {}
    for seq, unit, matched_R, marginal_R in (
        ("", PER_TOKEN, scores.matched_R, scores.marginal_R),
        ("_seq", PER_RESPONSE, scores.matched_seq_R, scores.marginal_seq_R),
    ):
        gap_R = matched_R - marginal_R
        mi_B = _mean(gap_R, draws, compat)
        std_B = draws.std_over_rows(marginal_R)
        z_B = mi_B / (std_B + STD_EPSILON)
        metrics |= {
            f"mi{seq}_estimate": draws.metric(mi_B, unit=unit),
            f"mi{seq}_estimate_rows": draws.metric(draws.mean_over_rows(gap_R), unit=unit),
            f"reasoning_entropy{seq}_est": draws.metric(
                -_mean(marginal_R, draws, compat), unit=unit
            ),
            f"marginal_std{seq}": draws.metric(std_B, unit=unit),
            f"marginal_std_ema{seq}": draws.metric(std_B, unit=unit),
            f"mi_zscore{seq}": draws.metric(z_B),
            f"mi_zscore_ema{seq}": draws.metric(z_B),
        }
    return metrics


def _p_values(
    logp_RP: FloatArray,
    own_R: IntArray,
    candidates: Candidates,
    weight_R: FloatArray,
    resamples: int,
    seed: int,
) -> dict[str, Metric]:
    """Permutation p-values of retrieval accuracy and `mi_seq_estimate`; `n` permutations each."""
    # The marginal does not depend on the label, so the matched log-likelihood alone decides.
    sum_R = np.where(logp_RP == -np.inf, 0.0, logp_RP).sum(axis=1)
    centred_RP = logp_RP - (sum_R / candidates.n_R)[:, None]
    weight_P = np.bincount(own_R, weights=weight_R).astype(np.float64)
    metrics = {}
    for name, value_RP in (
        ("retrieval_p_value", best_columns(logp_RP)),
        ("mi_p_value", centred_RP),
    ):
        value_CP, own_C = per_prompt_means(value_RP, own_R)
        test = permutation_test(
            value_CP,
            own_C,
            block_P=candidates.block_P,
            weight_C=weight_P[own_C],
            resamples=resamples,
            seed=seed,
        )
        metrics[name] = Metric(value=test.p, n=test.permutations)
    return metrics
