"""`trainer_state.json` of Hugging Face's trainers (TRL among them) -> the rows of its log."""

from collections.abc import Iterator
from pathlib import Path

from ragen_diag.errors import HistoryError
from ragen_diag.history.lines import parsed
from ragen_diag.history.rows import Entry, Row, stepped
from ragen_diag.history.tally import Damage, Tally

LOG = "log_history"


def read(path: Path, tally: Tally) -> Iterator[Entry]:
    """The rows of `log_history`, in its order.

    Raises:
        HistoryError: the file is not JSON or has no `log_history`; more than a tenth of its entries
            is no row; no row has a step.
    """
    try:
        state = parsed(path.read_bytes().decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise HistoryError(
            f"{path}: no JSON that can be read ({error}); name the trainer_state.json of another"
            " checkpoint"
        ) from error
    log = state.get(LOG) if isinstance(state, dict) else None
    if not isinstance(log, list):
        raise HistoryError(
            f"{path}: JSON without a list '{LOG}'; name a trainer_state.json, or write the logged"
            " rows as JSON lines"
        )
    return stepped(path, _rows(path, log, tally), tally)


def _rows(path: Path, log: list[object], tally: Tally) -> Iterator[Row]:
    damage = Damage(path, "entry of log_history", rows=len(log))
    for number, row in enumerate(log, start=1):
        if isinstance(row, dict):
            yield row
        else:
            damage.met(number)
    damage.settle(tally, torn=False)
