import json
import shutil
import subprocess
import sys

import pytest

from jaxlab.report.collect import collect
from tests.report.samples import ROOT

TOY = """
import pytest

def test_quick(report):
    report("ours / theirs", "0.98")
    report("first call", "1.2 s")

def test_unequal(report):
    assert FAILS is False
"""


@pytest.mark.parametrize("fails", [False, True])
def test_benchmarks_keep_their_numbers_for_the_report(tmp_path, fails):
    (tmp_path / "benchmarks").mkdir()
    shutil.copy(ROOT / "benchmarks/conftest.py", tmp_path / "benchmarks")
    (tmp_path / "benchmarks/toy.py").write_text(TOY.replace("FAILS", str(fails)))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "-c", "/dev/null",
         "-p", "no:cacheprovider", "benchmarks/toy.py"],
        cwd=tmp_path, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == int(fails), done.stdout + done.stderr
    assert f"{'ours / theirs':<56}{'0.98':>24}" in done.stdout
    content = json.loads((tmp_path / "results/benchmarks/toy.json").read_text())
    assert content["rows"][1] == {"name": "first call", "value": "1.2 s"}
    (benchmark,) = collect(tmp_path / "results").sections[-1].benchmarks
    assert benchmark.rows == (("ours / theirs", "0.98"), ("first call", "1.2 s"))
    assert benchmark.failed == (("test_unequal",) if fails else ())
    assert {"cpus", "platform", "python"} <= set(benchmark.about.machine)
    assert "jax" in benchmark.about.versions
    assert benchmark.about.when.endswith("+00:00")
