"""``jaxlab memorize``."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Annotated

import jax
import tyro
from rich.console import Console

from jaxlab.core.files import json_text, usable_directory, usable_file, write_text
from jaxlab.core.progress import progress
from jaxlab.core.usage import parse_args
from jaxlab.memorize.report import summary, tell
from jaxlab.memorize.sources import open_files
from jaxlab.memorize.study import Settings, study

__all__ = ["memorize_main"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class MemorizeArgs(Settings):
    """At which noise levels would a diffusion model copy these rows, and which samples are copies?

    Files are npy or npz; rows are the first axis, images or vectors. They are read in blocks.
    """

    data: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="DATA")]
    """The training set."""
    holdout: Path | None = None
    """Rows of the same distribution that are not in DATA; split off DATA at random if not given."""
    samples: Path | None = None
    """A model's samples, to be told from copies of DATA."""
    out: Path | None = None
    """The folder for summary.json and the figure; results/memorize/NAME if not given."""
    json: str = ""
    """Write the summary as JSON to this file as well; "-" means standard output."""
    image: tuple[int, ...] = ()
    """Draw flat rows as images of this height, width and perhaps colours."""
    key: str = ""
    """The array of DATA if it is an npz file of several."""
    holdout_key: str = ""
    """The same for the holdout."""
    samples_key: str = ""
    """The same for the samples."""
    figure: bool = True
    """Draw figure.png and figure.svg, which takes matplotlib."""

    def __post_init__(self) -> None:
        """Check the values that the types leave open."""
        for name, least in (("seed", 0), ("queries", 2), ("sigmas", 6)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        if self.block_rows is not None and self.block_rows < 1:
            raise ValueError(f"block-rows must be at least 1, got {self.block_rows}")
        if not 0.1 < self.threshold < 1:
            raise ValueError(f"threshold must be in (0.1, 1), got {self.threshold}")
        for name in ("sigma_min", "sigma_max"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                flag = name.replace("_", "-")
                raise ValueError(f"{flag} must be positive and finite, got {value}")
        ends = (self.sigma_min, self.sigma_max)
        if ends[0] is not None and ends[1] is not None and not ends[0] < ends[1]:
            raise ValueError(f"sigma-min must be below sigma-max, got {ends[0]} and {ends[1]}")


def memorize_main(words: list[str]) -> int:
    """Study a training set; 0 whatever comes out, 2 if it cannot be studied."""
    try:
        args = parse_args(MemorizeArgs, words, prog="jaxlab memorize")
        _run(args)
    except (ValueError, OSError) as error:
        print(f"jaxlab: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: MemorizeArgs) -> None:
    begin = time.monotonic()
    if args.figure:
        import matplotlib  # noqa: F401  missing, it should be missed before the work and not after

    from jaxlab.memorize.figure import draw, image_shape

    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: getattr(args, name) for name in names})
    out = Path("results/memorize", args.data.stem) if args.out is None else args.out
    keys = (args.key, args.holdout_key, args.samples_key)
    console = Console(stderr=args.json == "-")
    with open_files(args.data, args.holdout, args.samples, keys) as files:
        shape = image_shape(files[0], args.image)
        usable_directory(out)
        if args.json not in ("", "-"):
            usable_file(Path(args.json), "json")
        with progress() as track, jax.enable_x64(True):
            found = study(*files, settings, track)
            text = json_text(summary(found, settings))
        write_text(out / "summary.json", text)
        if args.figure:
            draw(found, shape, out)
    tell(found, settings, console)
    written = "summary.json, figure.png and figure.svg" if args.figure else "summary.json"
    done = f"wrote {written} to {out} in {time.monotonic() - begin:.0f} s"
    console.print(done, markup=False, highlight=False, soft_wrap=True)
    if args.json == "-":
        print(text, end="")
    elif args.json:
        write_text(Path(args.json), text)
