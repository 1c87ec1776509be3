"""How numbers are written: one place, so that terminal, Markdown and HTML cannot disagree.

A value that is compared with a threshold gets as many digits as it takes to see on which side of
it it lies; None is "n/a" with its reason.
"""

from collections.abc import Iterable

_MOST_DECIMALS = 17


def _decimals(value: float) -> int:
    size = abs(value)
    if size >= 1000:
        return 0
    if size >= 100:
        return 1
    if size >= 10:
        return 2
    return 3


def _fixed(value: float, extra: int) -> str:
    if value == 0:
        return "0"
    if abs(value) >= 1e6:
        return f"{value:.{3 + extra}g}"
    if abs(value) < 0.01:
        return f"{value:.{2 + extra}g}"
    return f"{value:,.{_decimals(value) + extra}f}"


def _percent(value: float, extra: int) -> str:
    if value in (0, 1):
        return f"{100 * value:.0f}"
    return f"{100 * value:.{1 + extra}f}"


def number(value: float, *, against: Iterable[float | None] = (), share: bool = False) -> str:
    """A number without its unit, with enough digits to differ from every other number in `against`.

    A `share` is written in per cent (the sign is left to the caller) and never rounds to 0 or 100
    unless it is exactly that.

    >>> number(0.7517), number(12.0149), number(0.000123456)
    ('0.752', '12.01', '0.00012')
    >>> number(0.2996, against=[0.3]), number(0.39996, against=[0.4])
    ('0.2996', '0.39996')
    >>> number(0.99996, share=True)
    '99.996'
    """
    write = _percent if share else _fixed
    others = [other for other in against if other is not None and other != value]
    if share:
        others += [bound for bound in (0.0, 1.0) if bound != value]
    for extra in range(_MOST_DECIMALS):
        text = write(value, extra)
        if all(_read(text) != _read(write(other, extra)) for other in others):
            return text
    return repr(value)


def _read(text: str) -> float:
    return float(text.replace(",", ""))


def amount(
    value: float | None,
    *,
    unit: str = "",
    share: bool = False,
    against: Iterable[float | None] = (),
    reason: str | None = None,
) -> str:
    """A number with its unit, or "n/a" with the reason why there is none.

    >>> amount(0.181, share=True), amount(3.06, unit="nats/response")
    ('18.1 %', '3.060 nats/response')
    >>> amount(None, reason="only one prompt")
    'n/a (only one prompt)'
    """
    if value is None:
        return f"n/a ({reason})" if reason else "n/a"
    text = number(value, against=against, share=share)
    if share:
        return f"{text} %"
    return f"{text} {unit}" if unit else text


def interval(
    low: float | None,
    high: float | None,
    *,
    share: bool = False,
    against: Iterable[float | None] = (),
) -> str:
    """A 95 % interval in the unit of its value; "" where none is defined.

    >>> interval(0.101, 0.214), interval(0.12, 0.25, share=True), interval(None, None)
    ('[0.101, 0.214]', '[12.0, 25.0]', '')
    """
    if low is None or high is None:
        return ""
    known = list(against)
    ends = ", ".join(number(end, against=known, share=share) for end in (low, high))
    return f"[{ends}]"


def short(value: float) -> str:
    """A number that may well be whole, such as a reward or a setting.

    >>> short(2000.0), short(0.53125), short(-0.1)
    ('2,000', '0.531', '-0.1')
    """
    return f"{value:,.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


def plural(n: int, noun: str, nouns: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "group"), plural(1200, "response")
    ('1 group', '1,200 responses')
    """
    return f"{n:,} {noun if n == 1 else nouns or noun + 's'}"
