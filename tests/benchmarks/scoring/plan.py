"""What is run: slices, dtypes, who takes part, how often, and whose memory is measured."""

from dataclasses import dataclass

Size = tuple[str, int, int]
"""Kind of slice, prompts P, responses R."""


def label(size: Size) -> str:
    """Such as "short 2x16".

    >>> label(("short", 2, 16))
    'short 2x16'
    """
    return f"{size[0]} {size[1]}x{size[2]}"


AGAINST = ("engine", "score", "naive", "lm-eval")
OURS = ("engine", "score")


@dataclass(frozen=True)
class Race:
    """Contenders that take turns on a slice."""

    size: Size
    dtype: str
    contenders: tuple[str, ...]
    rounds: int


@dataclass(frozen=True)
class Peak:
    """A contender whose memory is measured on a slice."""

    size: Size
    dtype: str
    contender: str


@dataclass(frozen=True)
class Plan:
    """All of a run."""

    races: list[Race]
    peaks: list[Peak]
    checked: int = 4
    """Pairs of a slice whose exactness is looked at."""


def full(rounds: int) -> Plan:
    """The real slice, long prompts, a collapsed set. Long ones take their time: once."""
    short, long, collapsed = ("short", 2, 32), ("long", 2, 16), ("collapsed", 2, 32)
    return Plan(
        races=[
            Race(short, "fp32", AGAINST, rounds),
            Race(short, "bf16", AGAINST, rounds),
            Race(long, "fp32", AGAINST, 1),
            Race(long, "bf16", OURS, 1),
            Race(collapsed, "fp32", ("engine", "no tree"), rounds),
            Race(collapsed, "bf16", ("engine", "no tree"), rounds),
        ],
        peaks=[
            *(Peak(("short", 2, 4), dtype, "score") for dtype in ("fp32", "bf16")),
            *(Peak(short, dtype, name) for dtype in ("fp32", "bf16") for name in OURS),
            Peak(("short", 8, 32), "fp32", "score"),
            Peak(long, "fp32", "score"),
            *(Peak(short, dtype, "naive") for dtype in ("fp32", "bf16")),
            Peak(short, "fp32", "lm-eval"),
        ],
    )


def quick() -> Plan:
    """One prompt each, once, and no check of ours on itself."""
    short, long, collapsed = ("short", 1, 24), ("long", 1, 10), ("collapsed", 1, 32)
    return Plan(
        races=[
            Race(short, "fp32", ("engine", "naive", "lm-eval"), 1),
            Race(short, "bf16", ("engine",), 1),
            Race(long, "fp32", ("engine", "naive", "lm-eval"), 1),
            Race(collapsed, "fp32", ("engine", "no tree"), 1),
        ],
        peaks=[Peak(("short", 1, 2), "fp32", "score"), Peak(("short", 2, 4), "fp32", "score")],
        checked=2,
    )


def accelerator(rounds: int) -> Plan:
    """Enough rows to fill one."""
    short, long = ("short", 8, 64), ("long", 2, 32)
    both = ("fp32", "bf16")
    return Plan(
        races=[
            *(Race(short, dtype, AGAINST, rounds) for dtype in both),
            *(Race(long, dtype, AGAINST, rounds) for dtype in both),
            *(Race(("collapsed", 2, 16), d, ("engine", "no tree"), rounds) for d in both),
        ],
        peaks=[
            *(Peak(("short", 8, rows), d, "score") for rows in (16, 64) for d in both),
            *(Peak(short, dtype, "naive") for dtype in both),
        ],
    )
