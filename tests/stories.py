"""Stories as the pipeline would hand them over: a template collapse, a calm run, hostile texts,
and a sweep."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
from planted_runs import S, around, before_after, calm, run, told
from report_products import HOSTILE

from ragen_diag.postmortem.model import (
    Coverage,
    PairRecord,
    PhraseRecord,
    SampleRecord,
    Texts,
    TokenRecord,
)
from ragen_diag.postmortem.sweep import Run, compare_runs
from ragen_diag.report.postmortem import write_postmortem, write_sweep
from ragen_diag.report.story import GroupDetail, StepDetail, Story, SweepStory
from ragen_diag.result import CheckpointInput
from ragen_diag.timeline import Timeline

# In front, as names in figures are cut short: mathematics that matplotlib cannot set.
SPITE = f"$\\frac$ [bold]x {HOSTILE}"


def collapsed(depth: float = 0.1) -> Timeline:
    """Input-dependence is lost after step 60, success after step 140; entropy stays."""
    values = calm()
    return run(
        {
            "retrieval_skill": values["retrieval_skill"] * before_after(1, depth, 6),
            "mi_seq_estimate": values["mi_seq_estimate"] * before_after(1, depth, 6),
            "success_rate": values["success_rate"] * before_after(1, 0.5, 14),
        },
        regimes={7: "template_collapse"},
        resumes=(100,),
        history={"kl": {step: 0.01 * step for step in range(0, 190, 2)}},
    )


@cache
def template(text: str = "go up", name: str = "r000001") -> Story:
    """The story of a template collapse; all that a run itself says is `text` and `name`."""
    timeline = collapsed()
    sample = SampleRecord(
        response_id=name,
        prompt=text,
        response=f"<think>{text}</think>left",
        start=7,
        end=7 + len(text),
        reward=0.5,
        gap=1.25,
    )
    texts = Texts(
        why="the last good and the first bad step of retrieval_skill",
        step_before=60,
        step_after=70,
        same_prompts=True,
        phrases=(
            PhraseRecord(
                text=text,
                share_before=0.02,
                share_after=0.75,
                prompts_before=0.125,
                prompts_after=0.875,
            ),
        ),
        pairs=(
            PairRecord(
                kind="same_prompt",
                prompt=text,
                before=(sample,),
                after=(sample,),
                gap_before=2.5,
                gap_after=0.25,
            ),
        ),
        tokens=(
            TokenRecord(
                step=60,
                response_id=name,
                prompt=text,
                tokens=(text, " up", " now"),
                pointwise_mi=(1.5, -0.4, 0.01),
            ),
        ),
    )
    group = GroupDetail(
        group_id=name,
        prompt=text,
        responses=8,
        reward_mean=0.5,
        reward_var=0.25,
        flat=None,
        gap=1.25,
        rows=(sample,),
    )
    story = told(timeline, step_minutes=6.0, gpu_hour_cost=2.5, gpus=8)
    return Story(
        postmortem=story.model_copy(update={"texts": (texts,)}),
        timeline=timeline,
        details=(StepDetail(step=70, why="first bad step", groups_in_all=32, groups=(group,)),),
    )


@cache
def quiet() -> Story:
    """Nothing happened."""
    timeline = run()
    return Story(postmortem=told(timeline), timeline=timeline)


@cache
def hostile() -> Story:
    """Every text that a run can choose tries to get out."""
    story = template(SPITE, SPITE)
    history = story.timeline.history.with_columns(name=SPITE + story.timeline.history["name"])
    timeline = replace(story.timeline, history=history)
    postmortem = told(timeline)
    steps = list(postmortem.steps)
    steps[2] = steps[2].model_copy(update={"unscored": SPITE, "findings": {SPITE: "warning"}})
    log = Coverage(
        path=SPITE,
        kind="jsonl",
        names=1,
        matched=20,
        only_in_log=75,
        only_in_rollouts=(),
        restarts=(),
        left_out={SPITE: 3},
    )
    checkpoint = CheckpointInput(
        path=SPITE,
        found=SPITE,
        revision=SPITE,
        fingerprint=SPITE,
        stored_dtype=SPITE,
        dtype=SPITE,
        device=SPITE,
        reason=SPITE,
        step=0,
        notes=(SPITE,),
    )
    inputs = postmortem.inputs.model_copy(
        update={
            "run": f"/tmp/{SPITE}[bold]x",
            "history": (log,),
            "checkpoints": (checkpoint,),
            "settings": {SPITE: SPITE},
        }
    )
    changed = {"steps": tuple(steps), "inputs": inputs, "run": {SPITE: SPITE}}
    changed["texts"] = story.postmortem.texts
    return replace(story, postmortem=postmortem.model_copy(update=changed), timeline=timeline)


@cache
def sweep() -> SweepStory:
    """Four runs that end the less grounded, the worse: success 0.62, 0.52, 0.42, 0.32."""
    timelines = []
    for place, depth in enumerate((1.0, 0.7, 0.4, 0.1)):
        values = calm()
        timelines.append(
            run(
                {
                    "retrieval_skill": values["retrieval_skill"] * before_after(1, depth, 6),
                    "success_rate": around(np.linspace(0.6, 0.62 - 0.1 * place, S), 0.001, 4),
                }
            )
        )
    runs = [
        Run(name=f"kl_{place}", postmortem=told(timeline), timeline=timeline)
        for place, timeline in enumerate(timelines)
    ]
    return SweepStory(sweep=compare_runs(runs, seed=0), timelines=tuple(timelines))


def hostile_sweep() -> SweepStory:
    """The same runs under names that try to get out."""
    story = sweep()
    runs = [row.model_copy(update={"name": SPITE + row.name}) for row in story.sweep.runs]
    return replace(story, sweep=story.sweep.model_copy(update={"runs": tuple(runs)}))


STORIES = {"template": template, "quiet": quiet, "hostile": hostile}
SWEEPS = {"sweep": sweep, "hostile_sweep": hostile_sweep}


def write_all(home: Path) -> Path:
    """Every story and every sweep, each in a folder of its name."""
    for name, make in STORIES.items():
        write_postmortem(make(), home / name)
    for name, make_sweep in SWEEPS.items():
        write_sweep(make_sweep(), home / name)
    return home
