"""Where the numbers of a result come from, line by line: dump, spans, checkpoint, tokens, scoring.

Comes in: a `Result`. Goes out: names and texts without any markup. Knows no layout.
"""

from collections.abc import Mapping

from ragen_diag.report.numbers import number, short
from ragen_diag.report.safetext import clip
from ragen_diag.result import Result, Scoring

_LONGEST_VALUE = 1000
MOST_PATHS = 8


def provenance(result: Result) -> list[tuple[str, str]]:
    """What the numbers rest on, by name; values are clipped, and still to be escaped."""
    dump, checkpoint, spans = result.inputs.dump, result.inputs.checkpoint, result.inputs.spans
    scoring = result.inputs.scoring
    more = len(dump.paths) - MOST_PATHS
    rows = [
        ("dump", ", ".join(dump.paths[:MOST_PATHS]) + (f" and {more} more" if more > 0 else "")),
        ("dump sha256", dump.sha256 or "none, as it is remote"),
        ("dialect", dump.dialect),
        ("step", "not named" if dump.step is None else str(dump.step)),
        ("groups found by", _counts(dump.group_source)),
        ("repairs at reading", _counts(dump.notes) or "none"),
        ("reasoning tags", f"{spans.open} ... {spans.close}" if spans.open else "none"),
        ("tags chosen because", spans.reason),
        ("reasoning spans", _counts(spans.counts)),
    ]
    if checkpoint is not None:
        revision = "" if checkpoint.revision is None else f" at {checkpoint.revision}"
        rows += [
            ("checkpoint", f"{checkpoint.path}{revision} ({checkpoint.found})"),
            ("checkpoint fingerprint", checkpoint.fingerprint),
            ("checkpoint step", "not known" if checkpoint.step is None else str(checkpoint.step)),
            ("dtype", f"{checkpoint.dtype}, stored as {checkpoint.stored_dtype}"),
            ("device", checkpoint.device),
            ("why this dtype and device", checkpoint.reason),
            *(("note on the checkpoint", note) for note in checkpoint.notes),
        ]
    if scoring is not None:
        rows += [
            ("scorer", f"{scoring.path}, {scoring.batch_tokens:,} tokens per forward pass"),
            ("temperature", short(scoring.temperature)),
            (
                "numeric noise",
                f"{number(scoring.noise_per_token)} nats/token,"
                f" {number(scoring.noise_per_response)} nats/response"
                f" ({scoring.probe_pairs:,} pairs scored twice)",
            ),
            *_close(scoring),
            *_tokens(scoring),
        ]
        if scoring.note:
            rows.append(("note on scoring", scoring.note))
    rows.append(("ragen-diag", result.tool.version))
    return [(name, clip(value, _LONGEST_VALUE)) for name, value in rows]


def _close(scoring: Scoring) -> list[tuple[str, str]]:
    share = scoring.rows_within_noise
    if share is None:
        return []
    return [("responses with two best prompts within it", f"{number(share, share=True)} %")]


def _tokens(scoring: Scoring) -> list[tuple[str, str]]:
    """Where token ids came from, and what speaks for or against them."""
    rows = [("token ids", f"{scoring.from_ids:,} from the dump, {scoring.retokenised:,} encoded")]
    if scoring.from_ids:
        share = number(scoring.round_trips / scoring.from_ids, share=True)
        told = f"{scoring.round_trips:,} of {scoring.from_ids:,} responses ({share} %)"
        rows.append(("same ids after decoding and encoding", told))
    if scoring.replacements:
        rows.append(("responses with U+FFFD", f"{scoring.replacements:,}"))
    if scoring.prompt_forms:
        rows.append(("prompts taken from", _counts(scoring.prompt_forms)))
    formats = scoring.prompt_formats
    if formats is not None:
        told = ", ".join(f"{name} {number(x)}" for name, x in formats.logp_per_token.items())
        rows.append(
            ("log p in nats/token by prompt format", f"{told} ({formats.rows:,} responses)")
        )
    if scoring.against_template:
        rows.append(("prompts against the chat template", _counts(scoring.against_template)))
    if scoring.logprobs_lacking:
        rows.append(("rollout log-probs not compared", _counts(scoring.logprobs_lacking)))
    return rows


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{clip(name, 60)} {n:,}" for name, n in list(counts.items())[:20])
