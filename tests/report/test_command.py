import json

import pytest

from jaxlab import cli
from tests.report import samples


def test_the_page_is_written_next_to_the_results(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    samples.nasty(tmp_path / "results")
    assert cli.main(["report"]) == 0
    assert capsys.readouterr().out == "results/report.html\n"
    assert (tmp_path / "results/report.html").read_text().startswith("<!DOCTYPE html>")


def test_out_and_json(tmp_path, capsys):
    folder = samples.nasty(tmp_path / "results")
    out, file = tmp_path / "new" / "page.html", tmp_path / "page.json"
    words = ["report", "--results", str(folder), "--out", str(out)]
    assert cli.main([*words, "--json", str(file)]) == 0
    assert out.is_file()
    assert capsys.readouterr().out == f"{out}\n"
    assert cli.main([*words, "--json", "-"]) == 0
    captured = capsys.readouterr()
    assert captured.err == f"{out}\n"
    told, stored = json.loads(captured.out), json.loads(file.read_text())
    assert told["findings"] == stored["findings"]
    damaged = [finding["name"] for finding in told["findings"] if finding["kind"] == "file"]
    assert damaged[0] == "claims/cut.json"
    assert told["sections"][0]["paper"]["slug"] == "dual_sgd"


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--reslts", "x"], "--results"),
        (["--results", "{folder}/none"], "results must be a folder, got '{folder}/none'"),
        (["--results", "{folder}/file"], "results must be a folder, got '{folder}/file'"),
        (["--results", "{folder}", "--out", "/proc/none/a.html"], "out's folder must be a folder"),
        (["--results", "{folder}", "--out", "{folder}"], "out must be a file, got '{folder}'"),
        (["--results", "{folder}", "--json", "/proc/none/a"], "json's folder must be a folder"),
        (["--results", "{folder}", "--json", "{folder}"], "json must be a file, got '{folder}'"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(words, complaint, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert cli.main(["report", *(word.format(folder=tmp_path) for word in words)]) == 2
    captured = capsys.readouterr()
    assert complaint.format(folder=tmp_path) in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_help(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "160")
    with pytest.raises(SystemExit) as stop:
        cli.main(["report", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    for said in ("Write one HTML page", "RESULTS/report.html if not given", "standard output"):
        assert said in shown
