"""How every test runs, and how the examples of docstrings and pages are executed."""

import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import jax
import pytest
from sybil import Sybil
from sybil.example import SybilFailure
from sybil.parsers.markdown import PythonCodeBlockParser, SkipParser
from sybil.parsers.rest import DocTestParser

jax.config.update("jax_enable_x64", True)

# Shapes are compiled inside examples, so that a deadline would time the compiler.
hypothesis.settings.register_profile("jaxlab", deadline=None, derandomize=True, print_blob=True)
hypothesis.settings.load_profile("jaxlab")


def pytest_configure(config: pytest.Config) -> None:
    """Keep compiled programs between runs."""
    if getattr(config, "cache", None) is not None:  # not with -p no:cacheprovider
        # JAX does not write entries whole, so that every worker has a folder of its own.
        folder = config.cache.mkdir("jax") / os.environ.get("PYTEST_XDIST_WORKER", "main")
        jax.config.update("jax_compilation_cache_dir", str(folder))
    # Test programs are small: at the default threshold of one second the cache would stay empty.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    # Two suites that run at once may still meet; then the program is compiled again.
    config.addinivalue_line(
        "filterwarnings", "ignore:Error (reading|writing) persistent compilation cache:UserWarning"
    )


SYBILS = (
    Sybil([DocTestParser()], path="jaxlab", pattern="*.py"),
    Sybil([PythonCodeBlockParser(), SkipParser()], path="docs", pattern="*.md"),
    Sybil([PythonCodeBlockParser(), SkipParser()], filenames=["README.md"]),
)


@pytest.fixture(scope="session")
def smollm():
    """SmolLM2-135M-Instruct with its tokenizer, in float32, for tests marked ``lm``."""
    # Not at the top: the run-time type checker comes after this file and must see every import.
    from jaxlab.models.load import load

    try:
        return load("smollm2-135m-instruct")
    except FileNotFoundError as error:
        pytest.fail(str(error), pytrace=False)


class Page(pytest.Item):
    """The examples of one file, in order. One item, since xdist spreads items over processes."""

    def __init__(self, *, sybil: Sybil, **kwargs):
        super().__init__(**kwargs)
        self.sybil = sybil

    def runtest(self) -> None:
        """Evaluate the examples."""
        # Examples show what a reader sees, who has JAX's default precision.
        jax.config.update("jax_enable_x64", False)
        try:
            for example in self.sybil.parse(self.path).examples():
                example.evaluate()
        finally:
            jax.config.update("jax_enable_x64", True)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style=None):
        """Show what an example printed and what it should have."""
        if isinstance(excinfo.value, SybilFailure):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


class PageFile(pytest.File):
    """A file with examples."""

    def __init__(self, *, sybil: Sybil, **kwargs):
        super().__init__(**kwargs)
        self.sybil = sybil

    def collect(self) -> Iterator[Page]:
        """One item, if there are examples."""
        if any(self.sybil.parse(self.path).examples()):
            yield Page.from_parent(self, name="examples", sybil=self.sybil)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> PageFile | None:
    """Take the package's modules and the Markdown pages."""
    for sybil in SYBILS:
        if sybil.should_parse(file_path):
            return PageFile.from_parent(parent, path=file_path, sybil=sybil)
    return None
