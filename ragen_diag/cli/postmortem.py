"""`ragen-diag postmortem`: when did which quantity of a run turn, and what to do."""

import re
from pathlib import Path
from typing import Annotated

import typer

from ragen_diag.cli import reading, scoring
from ragen_diag.cli.streams import data_on_stdout, write_json
from ragen_diag.errors import Interrupted, UsageError
from ragen_diag.settings import RunSettings, ScorerChoice, Settings

_RUN = "Run"
_DEFAULTS, _RUN_DEFAULTS = Settings(), RunSettings()


def postmortem(
    run: Annotated[
        list[str],
        typer.Argument(
            help="Run folder, or the folder or file of its rollouts; several for a sweep.",
            show_default=False,
        ),
    ],
    scorer: Annotated[
        str,
        typer.Option(
            rich_help_panel=_RUN,
            help="Checkpoint that scores each step: own (steps without one go unscored), nearest"
            " (own, or the nearest before), or fixed:CKPT for all steps.",
        ),
    ] = str(_RUN_DEFAULTS.scorer),
    history: Annotated[
        list[str] | None,
        typer.Option(
            rich_help_panel=_RUN,
            help="Scalar log of the trainer: JSONL, CSV, trainer_state.json, TensorBoard events or"
            " a W&B offline run; several times for several. For one run only.",
            show_default=False,
        ),
    ] = None,
    every: Annotated[
        int, typer.Option(min=1, rich_help_panel=_RUN, help="Analyse every Nth step only.")
    ] = _RUN_DEFAULTS.every,
    tokens: Annotated[
        bool,
        typer.Option("--tokens", rich_help_panel=_RUN, help="Show some responses token by token."),
    ] = False,
    step_minutes: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            rich_help_panel=_RUN,
            help="Minutes of one training step, for the cost since the onset.",
            show_default=False,
        ),
    ] = None,
    gpu_hour_cost: Annotated[
        float | None,
        typer.Option(
            min=0.0, rich_help_panel=_RUN, help="Price of a GPU hour.", show_default=False
        ),
    ] = None,
    gpus: Annotated[
        int, typer.Option(min=1, rich_help_panel=_RUN, help="GPUs that the run has.")
    ] = _RUN_DEFAULTS.gpus,
    reward: reading.RewardOption = None,
    scope: scoring.ScopeOption = str(_DEFAULTS.scope),
    reasoning_tags: scoring.TagsOption = "auto",
    prompt_format: scoring.PromptFormatOption = _DEFAULTS.prompt_format,
    limit: scoring.LimitOption = None,
    dialect: reading.DialectOption = None,
    names: reading.MapOption = None,
    reward_key: reading.RewardKeyOption = None,
    reward_reduce: reading.RewardReduceOption = None,
    split: reading.SplitOption = None,
    on_duplicate_step: reading.DuplicateStepOption = None,
    max_bad_rows: reading.MaxBadOption = reading.MAX_BAD,
    tokenizer: scoring.TokenizerOption = None,
    base_model: reading.BaseModelOption = None,
    dtype: scoring.DtypeOption = _DEFAULTS.dtype,
    device: scoring.DeviceOption = _DEFAULTS.device,
    batch_tokens: scoring.BatchTokensOption = None,
    temperature: scoring.TemperatureOption = _DEFAULTS.temperature,
    resamples: scoring.ResamplesOption = _DEFAULTS.resamples,
    seed: scoring.SeedOption = _DEFAULTS.seed,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            rich_help_panel=scoring.OUTPUT,
            help="Output folder; default: ragen-diag-out/RUN/postmortem in the current folder.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force",
            rich_help_panel=scoring.OUTPUT,
            help="Replace the post-mortem of another run.",
        ),
    ] = False,
    json: Annotated[
        bool,
        typer.Option(
            "--json",
            rich_help_panel=scoring.OUTPUT,
            help="Print postmortem.json (of a sweep, sweep.json) instead of the verdict.",
        ),
    ] = False,
    plot_format: scoring.PlotFormatOption = "svg",
    quiet: scoring.QuietOption = False,
) -> None:
    """Tell the story of a run: what turned at which step, what it looks like, what to do.

    Examples:

    ragen-diag postmortem out/my_run --history out/my_run/trainer_state.json

    ragen-diag postmortem runs/kl_0.01 runs/kl_0.05 runs/kl_0.1
    """
    settings = Settings(
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
        tokenizer=tokenizer,
        base_model=base_model,
        dtype=dtype,
        device=device,
        batch_tokens=batch_tokens,
        temperature=scoring.finite_temperature(temperature),
        resamples=resamples,
        seed=seed,
    )
    run_settings = RunSettings(
        scorer=_parse_scorer(scorer),
        history=tuple(history or ()),
        every=every,
        tokens=tokens,
        step_minutes=step_minutes,
        gpu_hour_cost=gpu_hour_cost,
        gpus=gpus,
    )
    if gpu_hour_cost is not None and step_minutes is None:
        raise UsageError("--gpu-hour-cost needs --step-minutes, or there are no hours to price")
    if len(run) > 1 and history:
        raise UsageError("--history belongs to one run; leave it out, or name one run")
    _run(
        run,
        settings,
        run_settings,
        out=out,
        force=force,
        json=json,
        plot_format=plot_format,
        quiet=quiet,
    )


def _run(
    runs: list[str],
    settings: Settings,
    run_settings: RunSettings,
    *,
    out: Path | None,
    force: bool,
    json: bool,
    plot_format: scoring.PlotFormat,
    quiet: bool,
) -> None:
    # Imported here so that --help and --version need neither torch nor matplotlib.
    from ragen_diag.cli.progress import ProgressBar
    from ragen_diag.pipeline.postmortem import postmortem as tell
    from ragen_diag.postmortem.sweep import Run, compare_runs
    from ragen_diag.report.postmortem import (
        check_postmortem_folder,
        print_postmortem,
        print_sweep,
        write_postmortem,
        write_sweep,
    )
    from ragen_diag.report.story import Story, SweepStory

    class Walk(ProgressBar):
        def step(self, step: int, place: int, steps: int, *, kept: bool) -> None:
            done = "as kept" if kept else "measuring"
            self.note(f"step {step} ({place + 1} of {steps}): {done}")

    names = _names(runs)
    folders = [_folder(name, out, many=len(runs) > 1) for name in names]
    stories: list[Story] = []
    for run, folder in zip(runs, folders, strict=True):
        check_postmortem_folder(folder, run, force=force)
        with Walk(quiet=quiet) as progress:
            try:
                story = tell(
                    run,
                    folder,
                    settings=settings,
                    run_settings=run_settings,
                    observer=progress,
                )
            except KeyboardInterrupt as stop:
                raise Interrupted(
                    f"interrupted; what was scored is kept in {folder}: the same command goes on"
                    " there"
                ) from stop
        write_postmortem(story, folder, force=force, plot_format=plot_format)
        stories.append(story)
    if len(stories) == 1:
        with data_on_stdout():
            if json:
                write_json(stories[0].postmortem.to_json())
            else:
                print_postmortem(stories[0], folders[0])
        return
    told = [
        Run(name=name, postmortem=story.postmortem, timeline=story.timeline)
        for name, story in zip(names, stories, strict=True)
    ]
    sweep = SweepStory(
        sweep=compare_runs(told, seed=settings.seed),
        timelines=tuple(story.timeline for story in stories),
    )
    folder = out or Path("ragen-diag-out") / "sweep"
    write_sweep(sweep, folder, force=force, plot_format=plot_format)
    with data_on_stdout():
        if json:
            write_json(sweep.sweep.to_json())
        else:
            print_sweep(sweep, folder)


def _parse_scorer(text: str) -> ScorerChoice:
    try:
        return ScorerChoice.parse(text)
    except ValueError as error:
        raise UsageError(f"--scorer {error}") from error


def _names(runs: list[str]) -> list[str]:
    """A name for each run: what is left of its path where the paths differ."""
    paths = [Path(run).absolute() for run in runs]
    if len(set(paths)) < len(paths):
        raise UsageError("a run is named twice; name each once")
    for parts in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["_".join(path.parts[-parts:]) for path in paths]
        plain = [re.sub(r"[^\w.=-]+", "_", name, flags=re.ASCII).strip("._") for name in names]
        if len(set(plain)) == len(plain) and all(plain):
            return plain
    return [f"run_{number}" for number in range(1, len(runs) + 1)]


def _folder(name: str, out: Path | None, *, many: bool) -> Path:
    if out is None:
        return Path("ragen-diag-out") / name / "postmortem"
    return out / name if many else out
