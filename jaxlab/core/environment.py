"""On what numbers were computed: the machine, the versions and the commit."""

import datetime
import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import jax
import numpy as np

import jaxlab

__all__ = ["describe_environment", "describe_measurement"]

_PACKAGES = (
    "jax", "jaxlib", "numpy", "scipy", "optax", "equinox", "optimistix", "numpyro", "jaxtyping",
    "matplotlib", "networkx", "scikit-learn",
)  # fmt: skip

_CPU_INFO = Path("/proc/cpuinfo")


def describe_environment() -> dict[str, Any]:
    """Versions, devices and settings that numbers can depend on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_count": os.cpu_count(),
        "packages": {"this package": jaxlab.__version__, **_versions(_PACKAGES)},
        "devices": [str(device) for device in jax.devices()],
        "x64": jax.dtypes.canonicalize_dtype(float) == np.float64,
        "git_commit": _commit(),
    }


def describe_measurement(*others: str) -> dict[str, Any]:
    """When and where numbers were measured, as ``jaxlab report`` shows it.

    Args:
        others: More packages whose versions matter.
    """
    environment = describe_environment()
    packages = environment["packages"]
    return {
        "when": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": {
            "cpu": _cpu_model(),
            "cpus": environment["cpu_count"],
            "platform": environment["platform"],
            "python": environment["python"],
            "devices": environment["devices"],
        },
        "versions": {
            "jaxlab": packages.pop("this package"),
            **packages,
            **_versions(others),
            "commit": environment["git_commit"],
        },
    }


def _cpu_model() -> str | None:
    """The processor's name, where Linux tells it."""
    if not _CPU_INFO.is_file():
        return None
    lines = _CPU_INFO.read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else None


def _versions(names: tuple[str, ...]) -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in names:
        try:
            versions[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def _commit() -> str | None:
    """The checkout's commit, with ``-dirty`` if files differ; ``None`` outside a checkout."""
    root = Path(jaxlab.__file__).parent.parent
    if not (root / ".git").exists():
        return None
    try:
        return subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"],
            cwd=root, capture_output=True, text=True, timeout=10, check=True,
        ).stdout.strip()  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
