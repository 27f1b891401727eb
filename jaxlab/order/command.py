"""``jaxlab order``."""

import dataclasses
import sys
import time
from pathlib import Path
from typing import Annotated

import jax
import tyro
from rich.console import Console

from jaxlab.core.files import json_text, usable_directory, usable_file, write_text
from jaxlab.core.progress import Track, progress
from jaxlab.core.usage import parse_args
from jaxlab.order.check import measured_gaps, rehearsed
from jaxlab.order.model import Batch, Learner, load_model, make_learner
from jaxlab.order.report import Findings, order_text, orders_of, summary, tell
from jaxlab.order.sources import Drawn, Source, draw, find_sources, open_source, read_documents
from jaxlab.order.store import open_store
from jaxlab.order.study import Settings, batch_at, describe, study, target_batches

__all__ = ["order_main"]


@dataclasses.dataclass(frozen=True, kw_only=True)
class OrderArgs(Settings):
    """In which order should SGD train on these files, so that the target's loss ends lowest?

    Every file is a source. One Hessian product a source ranks them, before any training; a run that
    is killed goes on when the same command is given again.
    """

    target: Annotated[Path, tyro.conf.arg(metavar="FILE")]
    """The text whose loss counts: a file of text, or of JSON lines with the key of --field, or
    "messages" for conversations."""
    sources: Annotated[Path, tyro.conf.arg(metavar="DIR")]
    """The folder of the sources, of the same kinds: its files, and those of its folders."""
    suffixes: tuple[str, ...] = (".txt", ".jsonl", ".md")
    """How names of sources end; all but .jsonl are read as one text."""
    step_size: float | None = None
    """Of SGD: tell what the order is worth, and try two pairs of sources in both orders."""
    rehearse: bool = False
    """Take one step on each source, in this and three other orders, and tell how they end."""
    out: Path | None = None
    """The folder for summary.json, order.txt and the figure; results/order/DIR if not given."""
    json: str = ""
    """Write the summary as JSON to this file as well; "-" means standard output."""
    restart: bool = False
    """Begin anew in a folder that holds another run."""
    figure: bool = True
    """Draw figure.png and figure.svg, which takes matplotlib."""

    def __post_init__(self) -> None:
        """Check the values that the types leave open."""
        for name, least in (("seed", 0), ("layers", 1), ("tokens", 2)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} must be at least {least}, got {getattr(self, name)}")
        for name in ("sequences", "target_sequences"):
            value = getattr(self, name)
            if value < 2 or value % 2:
                flag = name.replace("_", "-")
                raise ValueError(f"{flag} must be even, for two halves, and positive, got {value}")
        if self.step_size is not None and not 0 < self.step_size < float("inf"):
            raise ValueError(f"step-size must be positive and finite, got {self.step_size}")
        if self.rehearse and self.step_size is None:
            raise ValueError("rehearse must come with a step-size, got none")
        for suffix in self.suffixes:
            if not suffix.startswith("."):
                raise ValueError(f"suffixes must begin with a dot, got {suffix!r}")


def order_main(words: list[str]) -> int:
    """Order sources; 0 when done, 2 if it cannot be done."""
    try:
        args = parse_args(OrderArgs, words, prog="jaxlab order")
        _run(args)
    except (ValueError, OSError) as error:
        print(f"jaxlab: {error}", file=sys.stderr)
        return 2
    return 0


def _run(args: OrderArgs) -> None:
    begin = time.monotonic()
    if args.figure:
        import matplotlib  # noqa: F401  missing, it should be missed before the work and not after

    names = [field.name for field in dataclasses.fields(Settings)]
    settings = Settings(**{name: getattr(args, name) for name in names})
    out = args.out or Path("results/order", args.sources.resolve().name)
    if args.sources.resolve() in (out.resolve(), out.resolve().parent):
        raise ValueError(
            f"out must not lie in the folder of the sources, whose files its own would join, got "
            f"{str(out)!r}"
        )
    console = Console(stderr=args.json == "-")
    with progress() as track, jax.enable_x64(False):
        target, sources, warnings = _opened(args, track)
        usable_directory(out)
        if args.json not in ("", "-"):
            usable_file(Path(args.json), "json")
        learner = _learner(settings)
        drawn = _drawn(sources, learner, settings, settings.sequences, track)
        goal = target_batches(
            _drawn([target], learner, settings, settings.target_sequences, track)[target.digest],
            settings.sequences,
        )
        warnings += _few_tokens(sources, drawn, settings)
        store = open_store(out, describe(settings, learner, target, sources), restart=args.restart)
        found = study(sources, drawn, goal, learner, store, track)
        gaps, changes = [], {}
        if args.step_size is not None:

            def batches(i: int) -> Batch:
                digest = sources[i].digest
                return batch_at(learner, drawn[digest], digest, store)

            gaps = measured_gaps(learner, found.edges, batches, goal, args.step_size)
            if args.rehearse:
                every = orders_of(found)
                changes = rehearsed(learner, every, batches, goal, args.step_size, track)
        findings = Findings(
            target, sources, settings, learner, found, args.step_size, gaps, changes, warnings
        )
        text = json_text(summary(findings))
        write_text(out / "summary.json", text)
        write_text(out / "order.txt", order_text(findings))
        store.drop_large()
        if args.figure:
            from jaxlab.order.figure import draw as draw_findings

            draw_findings(findings, out)
    tell(findings, console)
    written = "summary.json, order.txt" + (", figure.png and figure.svg" if args.figure else "")
    done = f"wrote {written} to {out} in {time.monotonic() - begin:.0f} s"
    console.print(done, markup=False, highlight=False, soft_wrap=True)
    if args.json == "-":
        print(text, end="")
    elif args.json:
        write_text(Path(args.json), text)


def _opened(args: OrderArgs, track: Track) -> tuple[Source, list[Source], list[str]]:
    """All files, read once, and what is odd about them."""
    target = open_source(args.target.name, args.target, args.field)
    paths, inside = find_sources(args.sources, args.suffixes, args.target)
    warnings = []
    if inside:
        warnings.append(f"the target {args.target} lies among the sources and is not one of them")
    sources = [
        open_source(path.relative_to(args.sources).as_posix(), path, args.field)
        for path in track(paths, "reading")
    ]
    first: dict[str, str] = {target.digest: "the target"}
    for source in sources:
        if source.digest in first:
            warnings.append(f"{source.name} is the same, byte for byte, as {first[source.digest]}")
        first.setdefault(source.digest, source.name)
    if len({source.digest for source in sources}) < 2:
        raise ValueError(
            f"sources must differ, got {len(sources)} files that are all the same in "
            f"{str(args.sources)!r}"
        )
    return target, sources, warnings


def _learner(settings: Settings) -> Learner:
    lm, params, reader = load_model(settings.model)
    longest = lm.config.context_length
    if settings.tokens > longest:
        raise ValueError(
            f"tokens must be at most {longest}, the model's context, got {settings.tokens}"
        )
    return make_learner(lm, params, reader, settings.layers)


def _drawn(
    sources: list[Source], learner: Learner, settings: Settings, sequences: int, track: Track
) -> dict[str, Drawn]:
    """Sequences by digest; the texts are forgotten one after the other."""
    drawn = {}
    for source in track(sources, "tokens"):
        if source.digest not in drawn:
            drawn[source.digest] = draw(
                source, read_documents(source, settings.field), learner.reader,
                seed=settings.seed, sequences=sequences, tokens=settings.tokens,
            )  # fmt: skip
    return drawn


def _few_tokens(sources: list[Source], drawn: dict[str, Drawn], settings: Settings) -> list[str]:
    most = settings.sequences * (settings.tokens - 1)
    counts = {source.name: int(drawn[source.digest].scored.sum()) for source in sources}
    return [
        f"{name} has {count} of the {most} tokens that others have"
        for name, count in counts.items()
        if count < 0.7 * most
    ]
