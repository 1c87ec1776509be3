"""`ragen-diag analyze`: one step, scored, measured, judged and written out."""

from pathlib import Path
from typing import Annotated

import typer

from ragen_diag.cli import reading, scoring
from ragen_diag.cli.streams import data_on_stdout, write_json
from ragen_diag.errors import Interrupted
from ragen_diag.settings import Compat, Settings

_DEFAULTS = Settings()


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
    scope: scoring.ScopeOption = str(_DEFAULTS.scope),
    reasoning_tags: scoring.TagsOption = "auto",
    prompt_format: scoring.PromptFormatOption = _DEFAULTS.prompt_format,
    limit: scoring.LimitOption = None,
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
        str | None,
        typer.Option(rich_help_panel=scoring.MODEL, help="Revision of a Hub checkpoint."),
    ] = None,
    tokenizer: scoring.TokenizerOption = None,
    base_model: reading.BaseModelOption = None,
    dtype: scoring.DtypeOption = _DEFAULTS.dtype,
    device: scoring.DeviceOption = _DEFAULTS.device,
    batch_tokens: scoring.BatchTokensOption = None,
    temperature: scoring.TemperatureOption = _DEFAULTS.temperature,
    compat: Annotated[
        Compat,
        typer.Option(
            rich_help_panel=scoring.STATISTICS,
            help="'ragen': per-token metrics by the public implementation's formula.",
        ),
    ] = _DEFAULTS.compat,
    resamples: scoring.ResamplesOption = _DEFAULTS.resamples,
    seed: scoring.SeedOption = _DEFAULTS.seed,
    flat_atol: Annotated[
        float,
        typer.Option(
            min=0.0,
            rich_help_panel=scoring.STATISTICS,
            help="Rewards of a group count as equal if max - min is at most this, ...",
        ),
    ] = _DEFAULTS.flat_atol,
    flat_rtol: Annotated[
        float,
        typer.Option(
            min=0.0,
            rich_help_panel=scoring.STATISTICS,
            help="... plus this times their mean's size.",
        ),
    ] = _DEFAULTS.flat_rtol,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            rich_help_panel=scoring.OUTPUT,
            help="Output folder; default: ragen-diag-out/RUN/CHECKPOINT, named after dump and"
            " checkpoint, in the current folder.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            rich_help_panel=scoring.OUTPUT,
            help="Replace the results of another dump, step or checkpoint. Those of the same"
            " inputs are replaced in any case.",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=scoring.OUTPUT,
            help="Print result.json instead of the verdict.",
        ),
    ] = False,
    plot_format: scoring.PlotFormatOption = "svg",
    quiet: scoring.QuietOption = False,
) -> None:
    """Score one step's rollouts with its checkpoint, measure, judge and report.

    Examples:

    ragen-diag analyze out/completions/completions_00400.parquet --ckpt out/checkpoint-400

    ragen-diag analyze rollouts/400.jsonl --ckpt step_400 --baseline base/result.json
    """
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
        scope=scoring.parse_scope(scope),
        reasoning_tags=scoring.parse_tags(reasoning_tags),
        prompt_format=prompt_format,
        limit=limit,
        revision=revision,
        tokenizer=tokenizer,
        base_model=base_model,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        temperature=scoring.finite_temperature(temperature),
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
    plot_format: scoring.PlotFormat,
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
