"""`ragen-diag convert-ckpt`: shards or pickled weights as a folder that can be scored with."""

import sys
from pathlib import Path
from typing import Annotated

import typer


def convert_ckpt(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="Folder with verl's FSDP shards or pytorch_model*.bin, or one file of torch.save.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path, typer.Argument(metavar="OUT", help="Folder to write.", show_default=False)
    ],
    config_from: Annotated[
        Path | None,
        typer.Option(
            help="Folder with config.json and the tokenizer, such as the base model's; default: the"
            " checkpoint's own.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT if it is a checkpoint.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No messages.")] = False,
) -> None:
    """Write a checkpoint of shards or pickles as a Hugging Face folder with safetensors.

    No code of the files is run. Layouts that need their trainer are named with its command.

    Example:

    ragen-diag convert-ckpt checkpoints/global_step_400/actor step_400
    """
    # Imported here so that --help and --version need no torch.
    from ragen_diag.checkpoints.conversion.convert import convert_checkpoint
    from ragen_diag.report.safetext import inert, one_line

    done = convert_checkpoint(source, out, config_from=config_from, force=force)
    if quiet:
        return
    told = [
        f"{done.path}: {done.weights:,} weights, {done.size / 1e9:.2f} GB as {done.dtype}, from"
        f" {done.kind} in {done.source}; all are those of config.json"
    ]
    if done.left_out:
        names = ", ".join(done.left_out[:5]) + (", ..." if len(done.left_out) > 5 else "")
        told.append(f"left out {len(done.left_out)} that are no weights: {names}")
    sys.stderr.write(inert(one_line("; ".join([*told, *done.notes]))) + "\n")
