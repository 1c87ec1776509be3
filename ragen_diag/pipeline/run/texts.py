"""What changed in the texts between two steps of a run, and some responses token by token."""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from ragen_diag.metrics.pointwise import pointwise_mi
from ragen_diag.pipeline.run.details import by_id, rows_of
from ragen_diag.pipeline.run.store import Kept
from ragen_diag.pipeline.stages import retold, step_groups
from ragen_diag.pipeline.step import make_step
from ragen_diag.pipeline.tables import response_id
from ragen_diag.postmortem.changed import Pair, changed_prompts
from ragen_diag.postmortem.model import PairRecord, PhraseRecord, Texts, TokenRecord
from ragen_diag.postmortem.phrases import shared_phrases
from ragen_diag.rollouts import Rollouts
from ragen_diag.settings import Settings
from ragen_diag.spans import TagChoice
from ragen_diag.tokens import decode

if TYPE_CHECKING:
    from ragen_diag.checkpoints.load import Checkpoint

TOKEN_ROWS = 4
"""Responses that are shown token by token, per step."""


def changed_texts(before: Kept, after: Kept, steps: tuple[int, int], why: str) -> Texts:
    """Phrases that came to be shared across prompts, and the prompts that changed most."""
    one, other = rows_of(before), rows_of(after)
    pairs = changed_prompts(one, other)
    phrases = shared_phrases(
        *(
            [
                (prompt or "", text)
                for prompt, text in step.select("prompt", "reasoning").iter_rows()
                if text is not None
            ]
            for step in (one, other)
        )
    )
    return Texts(
        why=why,
        step_before=steps[0],
        step_after=steps[1],
        same_prompts=all(pair.kind == "same_prompt" for pair in pairs),
        phrases=tuple(
            PhraseRecord(
                text=phrase.text,
                share_before=phrase.share_before,
                share_after=phrase.share_after,
                prompts_before=phrase.prompts_before,
                prompts_after=phrase.prompts_after,
            )
            for phrase in phrases
        ),
        pairs=tuple(_pair(pair, before, after) for pair in pairs),
    )


def _pair(pair: Pair, before: Kept, after: Kept) -> PairRecord:
    return PairRecord(
        kind=pair.kind,
        prompt=pair.prompt,
        before=by_id(before, [sample.response_id for sample in pair.before]),
        after=by_id(after, [sample.response_id for sample in pair.after]),
        gap_before=pair.gap_before,
        gap_after=pair.gap_after,
    )


def token_view(
    rollouts: Rollouts,
    step: int,
    response_ids: Sequence[str],
    checkpoint: "Checkpoint",
    choice: TagChoice,
    settings: Settings,
) -> tuple[TokenRecord, ...]:
    """Some responses of a step with what each of their tokens tells of the prompt, nats.

    The values of a response add up to its matched minus its marginal log-likelihood. Responses
    that are not scored are left out.
    """
    from ragen_diag.scoring.tokens import score_tokens

    step_rows = make_step(retold(rollouts, checkpoint).table, choice)
    groups = step_groups(step_rows, checkpoint, settings)
    ids_R = [response_id(int(row)) for row in groups.row_R]
    place = {name: r for r, name in enumerate(ids_R)}
    names = [name for name in response_ids if name in place][:TOKEN_ROWS]
    rows = [place[name] for name in names]
    if not rows:
        return ()
    scored = score_tokens(
        checkpoint,
        groups,
        rows,
        response_ids=ids_R,
        batch_tokens=settings.batch_tokens,
        temperature=settings.temperature,
    )
    return tuple(
        TokenRecord(
            step=step,
            response_id=name,
            prompt=groups.prompts_P[int(groups.own_R[r])],
            tokens=pieces(checkpoint.tokenizer, groups.reasoning_ids_R[r]),
            pointwise_mi=tuple(pointwise_mi(logp_PT, int(groups.own_R[r])).tolist()),
        )
        for name, r, logp_PT in zip(names, rows, scored, strict=True)
    )


def pieces(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """What each token adds to the text: together they are it, blanks included.

    A token that ends inside a character adds nothing, and the one that completes it all of it.
    """
    whole = decode(tokenizer, list(ids))
    pieces, told = [], 0
    for place in range(len(ids)):
        text = decode(tokenizer, list(ids[: place + 1]))
        both = zip(text[told:], whole[told:], strict=False)
        # What a later token still changes is told with that token.
        piece = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], both))
        pieces.append(piece)
        told += len(piece)
    return tuple(pieces)
