"""Five products as the pipeline would hand them over, with numbers from real small runs."""

from dataclasses import replace

import numpy as np
import polars as pl

from ragen_diag.judging.findings import Finding
from ragen_diag.judging.regimes import Axis, Check, Regime
from ragen_diag.metrics.metric import Metric
from ragen_diag.metrics.reward import Bucket, RewardSignal
from ragen_diag.report.product import Answered, Commonest, Example, Product
from ragen_diag.result import (
    CheckpointInput,
    Counts,
    DumpInput,
    Inputs,
    Result,
    Scoring,
    Spans,
)
from ragen_diag.scoring.scores import Noise, Scores

P, G = 32, 4
HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\x1b[2J\x1b]0;t\x07"
    "\n::error title=x::y\n##[error]z [/think] [red]r[/red] |a|`b`\u202eabc\u2028\x00 推理"
    " \U0001f600"
)


def make_scores(dependence: float, seed: int = 0, prompts: int = P, tokens: int = 25) -> Scores:
    """Log-probabilities whose own column stands out by about `dependence` nats."""
    rng = np.random.default_rng(seed)
    own_R = np.repeat(np.arange(prompts), G)
    logp_RP = rng.normal(-12.0 - dependence, 1.2, size=(prompts * G, prompts))
    logp_RP += rng.normal(0.0, 1.0, size=(1, prompts))
    logp_RP[np.arange(prompts * G), own_R] += dependence * rng.uniform(0.5, 1.2, prompts * G)
    n_tokens_R = rng.poisson(tokens, prompts * G) + 1
    noise = Noise(2.1e-07, 3.8e-06, 64, 1e-5, "prefix")
    names = [f"r{r:06d}" for r in range(len(own_R))]
    own_logp_R = [
        np.full(n, logp_P[own] / n)
        for logp_P, own, n in zip(logp_RP, own_R, n_tokens_R, strict=True)
    ]
    return Scores(logp_RP, n_tokens_R, own_R, names, own_logp_R, noise)


def make_groups(flat: int, seed: int = 0) -> pl.DataFrame:
    rng = np.random.default_rng(seed)
    varying = P - flat
    variances = [0.0] * flat + sorted(rng.choice([0.25, 1 / 3, 0.3025], varying).tolist())
    parts = np.array_split(np.arange(varying), 6)
    buckets = [f"Q{number}" for number, part in enumerate(parts, start=1) for _ in part]
    return pl.DataFrame(
        {
            "group_id": [f"g{index}" for index in range(P)],
            "n": [G] * P,
            "reward_mean": [1.0] * flat + [0.5] * varying,
            "reward_var": variances,
            "flat": ["all_solved"] * flat + [None] * varying,
            "bucket": [None] * flat + buckets,
        },
        schema_overrides={"flat": pl.String, "bucket": pl.String},
    )


def make_reward(flat: int, mean: float, cv: float, applicability: str) -> RewardSignal:
    buckets = tuple(
        Bucket(
            name=f"Q{number}",
            groups=3 if number < 4 else 2,
            rv_min=0.25,
            rv_mean=0.25 + 0.016 * number,
            rv_max=0.3334,
            std_mean=0.5 + 0.01 * number,
        )
        for number in range(1, 7)
    )
    return RewardSignal(
        mean=mean,
        pooled_var=0.246,
        between_prompt_var=0.153,
        within_prompt_var=0.093,
        in_group_reward_std=0.252,
        in_group_reward_var=0.125,
        flat_groups={
            "groups": P,
            "compared": P,
            "flat": flat,
            "flat_share": flat / P,
            "flat_share_by_chance": 0.4121,
            "identical_texts": 0,
            "all_solved": flat - 2,
            "all_failed": 2,
        },
        buckets=buckets,
        cv_std=cv,
        cv_var=cv * 1.2,
        applicability=applicability,
    )


def metric(value, half=None, unit="", n=128, most=None, **more) -> Metric:
    low, high = (None, None) if half is None else (value - half, value + half)
    high = high if most is None or high is None else min(high, most)
    return Metric(value=value, low=low, high=high, unit=unit, n=n, **more)


def make_metrics(accuracy, mi_seq, h_token, tokens, top1, valid=0.992) -> dict[str, Metric]:
    chance = 1 / P
    return {
        "retrieval_accuracy": metric(accuracy, 0.055, most=1.0),
        "retrieval_accuracy@2": metric(min(1.0, accuracy + 0.09), 0.05),
        "retrieval_chance_level": metric(chance),
        "retrieval_skill": metric((accuracy - chance) / (1 - chance), 0.0572, most=1.0),
        "retrieval_p_value": metric(0.0004998),
        "mi_estimate": metric(mi_seq / tokens, 0.01, "nats/token"),
        "mi_seq_estimate": metric(mi_seq, 0.141, "nats/response", most=float(np.log(P))),
        "mi_upper_bound": metric(float(np.log(P)), unit="nats/response"),
        "mi_zscore": metric(0.41, 0.06),
        "mi_zscore_ema": Metric.undefined("needs a series of steps"),
        "conditional_entropy_est": metric(h_token, 0.031, "nats/token"),
        "conditional_entropy_seq_est": metric(h_token * tokens, 0.42, "nats/response"),
        "reasoning_entropy_est": metric(h_token + mi_seq / tokens, 0.03, "nats/token"),
        "top1_share": metric(top1),
        "distinct_ratio": metric(0.35),
        "valid_thinking_rate": metric(valid, 0.008, most=1.0),
        "reasoning_length": metric(tokens, 0.7, "tokens"),
        "truncated_share": metric(0.0),
        "success_rate": metric(0.422, 0.08),
        "a_new_metric": metric(1234.5, unit="furlongs"),
    }


def make_regime(label, metrics, *, mi_state, entropy_state, candidates=None) -> Regime:
    skill, entropy = metrics["retrieval_skill"], metrics["conditional_entropy_est"]
    seq, top1 = metrics["conditional_entropy_seq_est"], metrics["top1_share"]

    def check(name, value, threshold, state, source, cls=Check, **more):
        return cls(
            metric=name,
            value=value.value,
            low=value.low,
            high=value.high,
            threshold=threshold,
            source=source,
            state=state,
            reason=value.reason,
            **more,
        )

    read_off = "read off the paper's Fig. 5 at P = 8 (provisional)"
    ours = "provisional absolute, not from the paper"
    mi = check("retrieval_skill", skill, 0.4, mi_state, read_off, Axis)
    checks = (
        check("conditional_entropy_est", entropy, 0.2, entropy_state, ours),
        check("conditional_entropy_seq_est", seq, 1.0, entropy_state, ours),
        check("top1_share", top1, 0.5, entropy_state, ours),
    )
    axis = check("conditional_entropy_est", entropy, 0.2, entropy_state, ours, Axis, checks=checks)
    return Regime(label=label, candidates=candidates or (label,), axes={"mi": mi, "entropy": axis})


PROVISIONAL = Finding(
    code="thresholds_provisional",
    severity="note",
    message="no baseline given: absolute thresholds are provisional",
)


def make_inputs(*, path="runs/tmpl/rollouts/step_00080.parquet", dialect="trl", checkpoint=True):
    scored = CheckpointInput(
        path="runs/tmpl/checkpoints/step_00080",
        found="beside the dump",
        revision=None,
        fingerprint="9f2c41d0a7",
        stored_dtype="float32",
        dtype="float32",
        device="cpu",
        reason="float32 on a CPU: bfloat16 is slow there and depends on the batch shape",
        step=80,
    )
    return Inputs(
        dump=DumpInput(
            paths=(path,),
            dialect=dialect,
            rows=P * G,
            sha256="3b1e0f" + "0" * 58,
            step=80,
            group_source={"explicit": P * G},
            notes={},
        ),
        checkpoint=scored if checkpoint else None,
        spans=Spans(
            open="<think>",
            close="</think>",
            prefilled=True,
            reason="the prompts end with the open tag",
            counts={"valid": 127, "missing": 1},
        ),
        scoring=Scoring(
            path="prefix",
            batch_tokens=4096,
            temperature=1.0,
            noise_per_token=2.1e-07,
            noise_per_response=3.8e-06,
            probe_pairs=64,
            from_ids=0,
            retokenised=127,
        )
        if checkpoint
        else None,
        settings={"step": 80, "seed": 0, "resamples": 2000, "reasoning_tags": "auto"},
    )


def make_result(metrics, regime, *, reward, findings=(), excluded=None, inputs=None) -> Result:
    excluded = {"no_reasoning_span": 1} if excluded is None else excluded
    return Result(
        inputs=inputs or make_inputs(),
        counts=Counts(
            rows=P * G,
            scored_rows=P * G - sum(excluded.values()),
            prompts=P,
            groups=P,
            excluded=excluded,
        ),
        metrics=metrics,
        reward=reward,
        regime=regime,
        findings=tuple(findings),
        run={"started": "2026-11-30T20:00:00Z", "seconds": {"score": 4.2}, "python": "3.11.7"},
    )


def make_prompt(index: int) -> str:
    row, column = index // 8 + 1, index % 8 + 1
    return (
        "You walk on a grid. Reach the goal with as few moves as you can.\n"
        f"player row one col four . goal row {row} col {column} .\n<think>"
    ).removesuffix("<think>")


def make_responses(scores, excluded: int = 1) -> pl.DataFrame:
    """The table of responses, the last `excluded` rows not scored."""
    rng = np.random.default_rng(1)
    rows = P * G
    scored = scores is not None
    rest = rows - excluded

    def known(values):
        return [*values[:rest], *[None] * excluded] if scored else [None] * rows

    logp_RP = scores.logp_RP if scored else np.zeros((rows, P))
    own_R = np.repeat(np.arange(P), G)
    matched_R = logp_RP[np.arange(rows), own_R]
    return pl.DataFrame(
        {
            "response_id": [f"r{index:06d}" for index in range(rows)],
            "sample_id": [f"s{index}" for index in range(rows)],
            "group_id": [f"g{index // G}" for index in range(rows)],
            "own": known(own_R.tolist()),
            "n_tokens": known(scores.n_tokens_R.tolist() if scored else [0] * rows),
            "matched": known(matched_R.tolist()),
            "marginal": known(logp_RP.mean(axis=1).tolist()),
            "best_column": known(logp_RP.argmax(axis=1).tolist()),
            "reward": rng.integers(0, 2, rows).astype(float).tolist(),
            "excluded": [None] * rest + ["no_reasoning_span"] * excluded,
            "margin": known((matched_R - logp_RP.max(axis=1)).tolist()),
            "span": ["valid"] * rest + ["missing"] * excluded,
            "response_length": (rng.poisson(33, rows) + 4).tolist(),
            "truncated": [index % 40 == 39 for index in range(rows)],
        },
        schema_overrides={"own": pl.Int64, "n_tokens": pl.Int64, "best_column": pl.Int64}
        | dict.fromkeys(["matched", "marginal", "margin"], pl.Float64),
    )


def make_prompts() -> pl.DataFrame:
    return pl.DataFrame(
        {
            "column": list(range(P)),
            "prompt": [make_prompt(index) for index in range(P)],
            "group_ids": [[f"g{index}"] for index in range(P)],
            "n": [G] * P,
            "reward_mean": [0.5] * P,
            "reward_var": [0.25] * P,
            "bucket": ["Q1"] * P,
            "retrieval_share": [0.25] * P,
        }
    )


def make_example(kind, index, thought, *, margin, best, reward=0.0, reason=None) -> Example:
    opening = "<think>" if reason is None else ""
    response = f"{opening}{thought}</think> <answer>down left left</answer>"
    return Example(
        kind=kind,
        response_id=f"r{index * G:06d}",
        prompt=make_prompt(index),
        response=response,
        start=len(opening),
        end=len(opening) + len(thought) if reason is None else 0,
        column=index,
        n_tokens=len(thought.split()),
        reward=reward,
        matched=-3.21,
        margin=margin,
        best_column=best,
        best_prompt=None if best == index else make_prompt(best),
        reason=reason,
    )


def healthy() -> Product:
    scores = make_scores(9.0)
    metrics = make_metrics(0.984, 3.424, 0.426, 25.9, 0.01, valid=1.0)
    regime = make_regime("diverse_reasoning", metrics, mi_state="high", entropy_state="high")
    findings = (
        Finding(
            code="mi_saturated",
            severity="note",
            message="MI 3.424 of at most 3.466 nats/response: a lower bound",
            evidence={"mi_seq_estimate": 3.424, "cap": 3.4657},
        ),
        PROVISIONAL,
    )
    reward = make_reward(20, 0.766, 1.33, "likely_helps")
    thought = "player is in row one col two . target is down one away and left one away ."
    return Product(
        result=make_result(metrics, regime, reward=reward, findings=findings, excluded={}),
        responses=make_responses(scores, excluded=0),
        prompts=make_prompts(),
        groups=make_groups(20),
        scores=scores,
        examples=(
            make_example("best_grounded", 3, thought, margin=9.4, best=3, reward=1.0),
            make_example("least_grounded", 7, "hmm . let me see .", margin=-0.3, best=9),
        ),
        commonest=Commonest(text=thought, rows=2, share=2 / 128, prompts=1),
    )


def template() -> Product:
    scores = make_scores(1.3, tokens=8)
    metrics = make_metrics(0.181, 0.752, 0.443, 8.4, 0.24)
    regime = make_regime("template_collapse", metrics, mi_state="low", entropy_state="high")
    findings = (
        Finding(
            code="retokenised",
            severity="note",
            message="no token ids in the dump: 127 texts were encoded again",
            evidence={"rows": 127},
        ),
        Finding(
            code="flat_groups",
            severity="warning",
            message="17 of 32 groups have no reward differences (41 % by chance alone)",
            evidence={"share": 17 / 32, "expected": 0.4121},
        ),
        PROVISIONAL,
    )
    text = "well there is a safe way ."
    answered = tuple(
        Answered(column=index, prompt=make_prompt(index), rows=1 + index % 2, reward_mean=0.5)
        for index in (0, 5, 11, 26)
    )
    return Product(
        result=make_result(
            metrics,
            regime,
            reward=make_reward(17, 0.422, 1.10, "likely_helps"),
            findings=findings,
        ),
        responses=make_responses(scores),
        prompts=make_prompts(),
        groups=make_groups(17),
        scores=scores,
        examples=(
            make_example("best_grounded", 2, "go down two .", margin=1.1, best=2, reward=1.0),
            make_example("least_grounded", 9, text, margin=-1.93, best=26),
            make_example("least_grounded", 14, "i need to move carefully .", margin=-1.4, best=3),
            make_example(
                "excluded", 31, "just go", margin=None, best=31, reason="no_reasoning_span"
            ),
        ),
        commonest=Commonest(text=text, rows=26, share=26 / 128, prompts=19, answered=answered),
    )


def format_collapse() -> Product:
    why = "11 scored rows, fewer than 16"
    base = make_metrics(0.9, 1.2, 0.4, 20.0, 0.1, valid=0.086)
    kept = ("valid_thinking_rate", "truncated_share", "a_new_metric")
    metrics = {
        name: old if name in kept else Metric.undefined(why, unit=old.unit, n=11)
        for name, old in base.items()
    }
    regime = make_regime(
        "format_collapse",
        metrics,
        mi_state="not_available",
        entropy_state="not_available",
        candidates=("diverse_reasoning", "compressed_reasoning"),
    )
    findings = (
        Finding(
            code="format_collapse",
            severity="void",
            message="valid reasoning in 8.6 % of responses, below 80 %",
            evidence={"valid_thinking_rate": 0.086, "threshold": 0.8},
        ),
        Finding(
            code="insufficient_data",
            severity="void",
            message="11 scored responses, fewer than 16",
            evidence={"scored_rows": 11, "needed": 16},
        ),
        Finding(
            code="rows_excluded",
            severity="warning",
            message="117 of 128 responses were not scored",
            evidence={"rows": 117},
        ),
        PROVISIONAL,
    )
    scores = make_scores(6.0)
    scores = replace(
        scores,
        logp_RP=scores.logp_RP[:11],
        n_tokens_R=scores.n_tokens_R[:11],
        own_R=scores.own_R[:11],
        response_ids=scores.response_ids[:11],
    )
    reward = replace(
        make_reward(32, -0.1, 0.0, "undefined"),
        cv_std=None,
        cv_var=None,
        buckets=(),
        reason="every group is flat",
    )
    return Product(
        result=make_result(
            metrics,
            regime,
            reward=reward,
            findings=findings,
            excluded={"no_reasoning_span": 70, "unclosed_reasoning": 41, "empty_reasoning": 6},
        ),
        responses=make_responses(make_scores(6.0), excluded=117),
        prompts=make_prompts(),
        groups=make_groups(32),
        scores=scores,
        examples=(
            make_example(
                "excluded", 4, "on path hmm", margin=None, best=4, reason="unclosed_reasoning"
            ),
        ),
    )


def no_checkpoint() -> Product:
    metrics = {
        "valid_thinking_rate": metric(0.992, 0.008),
        "reward_mean": metric(0.422, 0.05),
        "response_length": metric(33.4, 0.9, "characters"),
    }
    result = make_result(
        metrics,
        Regime(label="not_judged", candidates=(), axes={}),
        reward=make_reward(17, 0.422, 0.81, "unclear"),
        findings=(PROVISIONAL,),
        excluded={},
        inputs=make_inputs(checkpoint=False),
    )
    result = result.model_copy(
        update={"counts": Counts(rows=P * G, scored_rows=0, prompts=0, groups=P, excluded={})}
    )
    return Product(
        result=result,
        responses=make_responses(None, excluded=0),
        prompts=make_prompts().clear(),
        groups=make_groups(17),
    )


def hostile() -> Product:
    """The template run with hostile text wherever a text can come from the outside."""
    product = template()
    result = product.result
    finding = Finding(
        code=f"odd{HOSTILE}", severity="warning", message=HOSTILE, evidence={HOSTILE: HOSTILE}
    )
    checkpoint = result.inputs.checkpoint.model_copy(
        update={"path": f"/ckpt/{HOSTILE}", "reason": HOSTILE, "found": HOSTILE}
    )
    dump = result.inputs.dump.model_copy(
        update={"paths": (f"/run/{HOSTILE}",), "dialect": HOSTILE, "notes": {HOSTILE: 3}}
    )
    inputs = result.inputs.model_copy(
        update={"dump": dump, "checkpoint": checkpoint, "settings": {HOSTILE: HOSTILE}}
    )
    counts = result.counts.model_copy(update={"excluded": {HOSTILE: 1}})
    regime = replace(result.regime, label=HOSTILE, candidates=(HOSTILE, "template_collapse"))
    metrics = {
        **result.metrics,
        HOSTILE: Metric(value=None, reason=HOSTILE, unit=HOSTILE),
        "unit": Metric(value=1.0, unit=HOSTILE),
    }
    changed = result.model_copy(
        update={
            "inputs": inputs,
            "counts": counts,
            "regime": regime,
            "metrics": metrics,
            "findings": (*result.findings, finding),
            "run": {HOSTILE: HOSTILE},
        }
    )
    example = Example(
        kind="least_grounded",
        response_id=HOSTILE,
        prompt=HOSTILE,
        response=f"<think>{HOSTILE}</think>",
        start=7,
        end=7 + len(HOSTILE),
        column=0,
        margin=-1.0,
        best_column=1,
        best_prompt=HOSTILE,
        reason=HOSTILE,
    )
    return replace(
        product,
        result=changed,
        examples=(example, replace(example, kind="excluded")),
        commonest=Commonest(
            text=HOSTILE,
            rows=3,
            share=0.02,
            prompts=2,
            answered=(Answered(column=0, prompt=HOSTILE, rows=3),),
        ),
    )


PRODUCTS = {
    "healthy": healthy,
    "template": template,
    "format_collapse": format_collapse,
    "no_checkpoint": no_checkpoint,
    "hostile": hostile,
}
