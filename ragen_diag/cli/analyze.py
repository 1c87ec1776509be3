"""`ragen-diag analyze`: one step, scored, measured, judged and written out."""

import math
from pathlib import Path
from typing import Annotated, Literal

import typer

from ragen_diag.cli import reading
from ragen_diag.cli.streams import data_on_stdout, write_json
from ragen_diag.errors import Interrupted, UsageError
from ragen_diag.settings import Compat, DtypeChoice, PromptFormat, ReasoningTags, Scope, Settings

_MODEL = "Model"
_OUTPUT = "Output"
_STATISTICS = "Statistics"
_DEFAULTS = Settings()

PlotFormat = Literal["svg", "png"]


def analyze(
    dump: reading.DumpArgument,
    ckpt: Annotated[
        str | None,
        typer.Option(
            help="Checkpoint: a folder, a bare name such as step_400 that is looked up beside the"
            " dump, or a Hub id. Without it only what needs no model is measured.",
            show_default=False,
        ),
    ] = None,
    step: Annotated[
        int | None,
        typer.Option(help="Training step; default: the checkpoint's.", show_default=False),
    ] = None,
    reward: reading.RewardOption = None,
    scope: Annotated[
        str,
        typer.Option(
            help="Turns of each trajectory: first_turn, turn_K (number K), or trajectory_uniform"
            " (one drawn by --seed). Responses are told apart within a turn only."
        ),
    ] = str(_DEFAULTS.scope),
    reasoning_tags: Annotated[
        str,
        typer.Option(
            help="Tags around the reasoning, as OPEN,CLOSE; 'auto' finds them, 'none' scores the"
            " whole response."
        ),
    ] = "auto",
    prompt_format: Annotated[
        PromptFormat,
        typer.Option(
            metavar="FORMAT",
            help="How prompts without token ids are taken: auto, raw or rendered text, messages"
            " through the chat template, or stripped (text that lost its special tokens). Ids of"
            " the dump come first in any case.",
        ),
    ] = _DEFAULTS.prompt_format,
    limit: Annotated[
        int | None,
        typer.Option(min=2, help="Use at most N distinct prompts, drawn by --seed."),
    ] = None,
    baseline: Annotated[
        Path | None,
        typer.Option(help="result.json of a good step: thresholds become relative to it."),
    ] = None,
    dialect: reading.DialectOption = None,
    names: reading.MapOption = None,
    reward_key: reading.RewardKeyOption = None,
    reward_reduce: reading.RewardReduceOption = None,
    split: reading.SplitOption = None,
    on_duplicate_step: reading.DuplicateStepOption = None,
    max_bad_rows: reading.MaxBadOption = reading.MAX_BAD,
    revision: Annotated[
        str | None, typer.Option(rich_help_panel=_MODEL, help="Revision of a Hub checkpoint.")
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(rich_help_panel=_MODEL, help="Tokenizer, if the checkpoint has none."),
    ] = None,
    base_model: reading.BaseModelOption = None,
    dtype: Annotated[
        DtypeChoice,
        typer.Option(
            rich_help_panel=_MODEL,
            metavar="DTYPE",
            help="auto, float32, bfloat16, float16; auto is float32 on a CPU.",
        ),
    ] = _DEFAULTS.dtype,
    device: Annotated[
        str, typer.Option(rich_help_panel=_MODEL, help="auto, cpu, cuda, cuda:1, mps.")
    ] = _DEFAULTS.device,
    batch_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            rich_help_panel=_MODEL,
            help="Tokens per forward pass; default: a fixed function of the model's shape.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[
        float,
        typer.Option(
            min=1e-3, rich_help_panel=_MODEL, help="Divides the logits before the softmax."
        ),
    ] = _DEFAULTS.temperature,
    compat: Annotated[
        Compat,
        typer.Option(
            rich_help_panel=_STATISTICS,
            help="'ragen': per-token metrics by the public implementation's formula.",
        ),
    ] = _DEFAULTS.compat,
    resamples: Annotated[
        int,
        typer.Option(
            min=100, rich_help_panel=_STATISTICS, help="Bootstrap resamples and permutations."
        ),
    ] = _DEFAULTS.resamples,
    seed: Annotated[
        int, typer.Option(min=0, rich_help_panel=_STATISTICS, help="Seed of every random draw.")
    ] = _DEFAULTS.seed,
    flat_atol: Annotated[
        float,
        typer.Option(
            min=0.0,
            rich_help_panel=_STATISTICS,
            help="Rewards of a group count as equal if max - min is at most this, ...",
        ),
    ] = _DEFAULTS.flat_atol,
    flat_rtol: Annotated[
        float,
        typer.Option(
            min=0.0, rich_help_panel=_STATISTICS, help="... plus this times their mean's size."
        ),
    ] = _DEFAULTS.flat_rtol,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            rich_help_panel=_OUTPUT,
            help="Output folder; default: ragen-diag-out/RUN/CHECKPOINT, named after dump and"
            " checkpoint, in the current folder.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            rich_help_panel=_OUTPUT,
            help="Replace the results of another dump, step or checkpoint. Those of the same"
            " inputs are replaced in any case.",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json", rich_help_panel=_OUTPUT, help="Print result.json instead of the verdict."
        ),
    ] = False,
    plot_format: Annotated[
        PlotFormat, typer.Option(rich_help_panel=_OUTPUT, help="Format of the plot files.")
    ] = "svg",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", rich_help_panel=_OUTPUT, help="No progress.")
    ] = False,
) -> None:
    """Score one step's rollouts with its checkpoint, measure, judge and report.

    Examples:

    ragen-diag analyze out/completions/completions_00400.parquet --ckpt out/checkpoint-400

    ragen-diag analyze rollouts/400.jsonl --ckpt step_400 --baseline base/result.json
    """
    if not math.isfinite(temperature):
        raise UsageError(f"--temperature {temperature}: give a finite number, such as 1.0")
    settings = Settings(
        step=step,
        reading=reading.make_reading(
            rewards=reward,
            dialect=dialect,
            names=names,
            reward_key=reward_key,
            reward_reduce=reward_reduce,
            split=split,
            on_duplicate_step=on_duplicate_step,
            max_bad_rows=max_bad_rows,
        ),
        scope=_parse_scope(scope),
        reasoning_tags=_parse_tags(reasoning_tags),
        prompt_format=prompt_format,
        limit=limit,
        revision=revision,
        tokenizer=tokenizer,
        base_model=base_model,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        temperature=temperature,
        compat=compat,
        resamples=resamples,
        seed=seed,
        flat_atol=flat_atol,
        flat_rtol=flat_rtol,
    )
    _run(
        dump,
        ckpt,
        settings,
        baseline,
        out=out,
        force=force,
        json=json,
        plot_format=plot_format,
        quiet=quiet,
    )


def _run(
    dump: list[str],
    ckpt: str | None,
    settings: Settings,
    baseline: Path | None,
    *,
    out: Path | None,
    force: bool,
    json: bool,
    plot_format: PlotFormat,
    quiet: bool,
) -> None:
    # Imported here so that --help and --version need neither torch nor matplotlib.
    from ragen_diag.cli.progress import ProgressBar
    from ragen_diag.pipeline import analyze as run
    from ragen_diag.report.folder import UNFINISHED, check_folder, default_folder, write_folder
    from ragen_diag.report.terminal import print_verdict
    from ragen_diag.result import CheckpointInput, DumpInput, read_result

    class Run(ProgressBar):
        folder = Path()

        def inputs(self, dump: DumpInput, checkpoint: CheckpointInput | None) -> None:
            self.folder = out or default_folder(dump, checkpoint)
            check_folder(self.folder, dump, checkpoint, force=force)

        def unfinished(self) -> Path:
            return self.folder / UNFINISHED

    reference = read_result(baseline) if baseline is not None else None
    with Run(quiet=quiet) as progress:
        try:
            product = run(dump, ckpt, settings=settings, baseline=reference, observer=progress)
        except KeyboardInterrupt as stop:
            kept = progress.folder / UNFINISHED
            if not kept.exists():
                raise
            raise Interrupted(
                f"interrupted; what was scored is kept in {kept}: the same command goes on there"
            ) from stop
    write_folder(product, progress.folder, force=force, plot_format=plot_format)
    with data_on_stdout():
        if json:
            write_json(product.result.to_json())
        else:
            print_verdict(product.result, progress.folder)


def _parse_scope(text: str) -> Scope:
    try:
        return Scope.parse(text)
    except ValueError as error:
        raise UsageError(f"--scope {error}") from error


def _parse_tags(text: str) -> ReasoningTags:
    if text == "auto":
        return "auto"
    if text == "none":
        return "none"
    opening, comma, closing = text.partition(",")
    if not comma or not opening.strip() or not closing.strip():
        raise UsageError(
            f"--reasoning-tags {text!r}: give both tags as OPEN,CLOSE (for example"
            " '<think>,</think>'), or auto, or none"
        )
    return opening.strip(), closing.strip()
