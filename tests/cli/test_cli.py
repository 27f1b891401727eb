import json
import subprocess
import sys

import pytest

from jaxlab import cli
from jaxlab.core import locate
from jaxlab.core.registry import papers


def test_list_shows_every_paper(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    assert cli.main(["list"]) == 0
    shown = capsys.readouterr().out
    for paper in papers():
        for cell in (paper.slug, paper.title, paper.family, paper.evidence, str(paper.claims)):
            assert cell in shown


def test_list_as_json(capsys, tmp_path):
    assert cli.main(["list", "--json", "-"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["slug"] for row in rows] == [paper.slug for paper in papers()]
    assert cli.main(["list", f"--json={tmp_path / 'papers.json'}"]) == 0
    assert json.loads((tmp_path / "papers.json").read_text()) == rows


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (
            ["lst"],
            "one of list, run, verify, replay, report, memorize, order, got 'lst'; did you mean "
            "'list'?",
        ),
        (["run", "dual_sdg"], "got 'dual_sdg'; did you mean 'dual_sgd'?"),
        (["list", "--jsn"], "got '--jsn'; did you mean '--json'?"),
        (["list", "--json"], "--json must be followed by one file or '-', got none"),
        (["list", "--json", "/proc/none/x"], "--json must be a file that can be written"),
        (["run", "dual_sgd", "--agent", "3"], "--agents"),
        (["run", "dual_sgd", "--graph", "rng"], "ring"),
        (["run", "dual_sgd", "--agents", "many"], "many"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(words, complaint, capsys):
    assert cli.main(words) == 2
    captured = capsys.readouterr()
    assert complaint in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


@pytest.mark.parametrize("words", [[], ["run"]])
def test_missing_words_show_the_usage(words, capsys):
    assert cli.main(words) == 2
    assert capsys.readouterr().err.startswith("usage: jaxlab")


@pytest.mark.parametrize("words", [["--help"], ["list", "--help"], ["run", "--help"]])
def test_help(words, capsys):
    assert cli.main(words) == 0
    assert capsys.readouterr().out.startswith("usage: jaxlab")


def test_help_of_an_experiment_describes_every_flag(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as stop:
        cli.main(["run", "dual_sgd", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "jaxlab run dual_sgd" in shown
    for said in (
        "How many agents share the rows",
        "The first random seed",
        "independent repetitions",
    ):
        assert said in shown


@pytest.mark.parametrize("words", [["--help"], ["list"], ["list", "--json", "-"], ["lst"]])
def test_quick_commands_do_not_import_jax(words):
    script = (
        "import sys; from jaxlab import cli; cli.main(sys.argv[1:]); "
        "sys.exit('jax was imported' if 'jax' in sys.modules else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_interrupt_and_missing_extra(monkeypatch, capsys):
    def stopped(words):
        raise KeyboardInterrupt

    def incomplete(words):
        raise ModuleNotFoundError("No module named 'cvxpy'", name="cvxpy.atoms")

    monkeypatch.setitem(cli._COMMANDS, "verify", stopped)
    assert cli.main(["verify"]) == 130
    monkeypatch.setitem(cli._COMMANDS, "verify", incomplete)
    assert cli.main(["verify"]) == 2
    assert "pip install 'jaxlab[exact]'" in capsys.readouterr().err


def test_a_bug_is_not_taken_for_a_missing_extra(monkeypatch):
    def broken(words):
        raise ImportError("cannot import name", name="jaxlab.optim")

    monkeypatch.setitem(cli._COMMANDS, "verify", broken)
    with pytest.raises(ImportError):
        cli.main(["verify"])


def test_scripts_are_found_in_the_checkout_or_in_the_wheel(tmp_path, monkeypatch):
    package = tmp_path / "jaxlab"
    bundled = package / "_bundled" / "experiments" / "toy.py"
    bundled.parent.mkdir(parents=True)
    bundled.write_text("PLACE = 'wheel'")
    beside = tmp_path / "experiments" / "toy.py"
    beside.parent.mkdir()
    beside.write_text("PLACE = 'another package of site-packages'")
    monkeypatch.setattr(locate.jaxlab, "__file__", str(package / "__init__.py"))
    assert locate.companion_path("experiments", "toy") == bundled
    (tmp_path / "pyproject.toml").write_text("")
    assert locate.companion_path("experiments", "toy") == beside
    with pytest.raises(FileNotFoundError, match=r"proofs_checks/toy\.py must be"):
        locate.companion_path("proofs_checks", "toy")


def test_a_script_that_fails_to_import_is_tried_again(tmp_path, monkeypatch):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "pyproject.toml").write_text("")
    script = tmp_path / "experiments" / "half.py"
    script.write_text("raise RuntimeError('half done')")
    monkeypatch.setattr(locate.jaxlab, "__file__", str(tmp_path / "jaxlab" / "__init__.py"))
    with pytest.raises(RuntimeError, match="half done"):
        locate.load_companion("experiments", "half")
    script.write_text("VALUE = 1")
    assert locate.load_companion("experiments", "half").VALUE == 1
    assert locate.load_companion("experiments", "half") is sys.modules["jaxlab_experiments_half"]
