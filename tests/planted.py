"""Made-up series with a known history, for the tests of onsets."""

import numpy as np

from ragen_diag.trends.series import Series


def series(step, value, *, se=None, segment=None) -> Series:
    """A series from lists; `se` makes 95 % intervals."""
    value_S = np.asarray(value, dtype=np.float64)
    half = np.full(len(value_S), np.nan if se is None else 1.96 * se)
    return Series(
        step_S=np.asarray(step, dtype=np.int64),
        value_S=value_S,
        low_S=value_S - half,
        high_S=value_S + half,
        segment_S=np.zeros(len(value_S), dtype=np.int64)
        if segment is None
        else np.asarray(segment, dtype=np.int64),
    )


def noise(generator, size: int, phi: float, sd: float):
    """AR(1) of that standard deviation."""
    white = generator.standard_normal(size) * sd
    out = np.empty(size)
    out[0] = white[0]
    for place in range(1, size):
        out[place] = phi * out[place - 1] + (1 - phi**2) ** 0.5 * white[place]
    return out


def ramp(size: int, last_good: int, reached: int):
    """0 up to one place, 1 from another on, a straight way between."""
    return np.clip((np.arange(size) - last_good) / (reached - last_good), 0.0, 1.0)


def healthy(generator, size: int, phi: float) -> dict[str, np.ndarray]:
    """A run that learns: outcomes rise, MI and entropy lose less than a tenth."""
    t = np.linspace(0.0, 1.0, size)
    learnt = 1 - np.exp(-3 * t)
    run = {
        "retrieval_skill": 0.7 * (1 - 0.08 * t) + noise(generator, size, phi, 0.04),
        "mi_seq_estimate": 2.2 * (1 - 0.08 * t) + noise(generator, size, phi, 0.12),
        "policy_entropy": 0.54 * (1 - 0.1 * t) + noise(generator, size, phi, 0.02),
        "success_rate": 0.5 + 0.25 * learnt + noise(generator, size, phi, 0.03),
        "reward_mean": 0.1 + 0.5 * learnt + noise(generator, size, phi, 0.05),
        "valid_thinking_rate": np.clip(0.98 + noise(generator, size, phi, 0.01), 0, 1),
    }
    for name in ("truncated_share", "repetition", "top1_share"):
        run[name] = np.clip(0.03 + noise(generator, size, phi, 0.015), 0, 1)
    return run
