import json
import math

import pytest

from jaxlab.core import papers
from jaxlab.report.collect import collect
from jaxlab.report.results import LOOSE, as_plain, findings
from tests.report import samples
from tests.report.samples import claim, mutant, rung


def only_claim(folder, **changes):
    samples.write_claims(folder, [claim(**changes)])
    return collect(folder).sections[0].all_claims[0]


def test_a_paper_with_everything(tmp_path):
    results = collect(samples.healthy(tmp_path))
    section, *others = results.sections
    assert [other.paper for other in others] == [*papers()[1:]]
    assert len(section.all_claims) == section.paper.claims
    assert section.claims[0].about.machine["cpus"] == "2"
    assert section.experiments[0].verdict == "reproduced"
    assert section.experiments[0].figure.content == samples.SVG.encode()
    assert section.experiments[0].about.versions == {"jaxlab": "0.1.0", "jax": "0.10.2"}
    assert section.experiments[0].flags == {"agents": "16"}
    assert section.benchmarks[0].rows == (("numpy / jaxlab", "1.16"),)
    assert section.benchmarks[0].about.machine["cpu"] == "Intel(R) Xeon(R) Processor"
    assert results.damage == findings(results) == ()


def test_a_users_own_file_is_not_taken_for_the_paper_of_its_name(tmp_path):
    samples.write_claims(tmp_path, [claim()], source="mine/dual_sgd.py")
    *of_papers, own = collect(tmp_path).sections
    assert [section.is_empty for section in of_papers] == [True] * len(papers())
    assert (own.title, own.paper, len(own.all_claims)) == ("mine/dual_sgd.py", None, 1)


def test_a_list_of_claims_is_named_after_its_file(tmp_path):
    samples.write(tmp_path / "claims/mine.json", [claim()])
    assert collect(tmp_path).sections[-1].title == "mine"


def test_reports_without_the_new_fields_are_read(tmp_path):
    old = claim()
    for field in ("source", "families", "seconds", "note"):
        del old[field]
    samples.write(tmp_path / "claims/dual_sgd.json", {"claims": [old]})
    found = collect(tmp_path).sections[0].all_claims[0]
    assert (found.source, found.families) == ("", ())
    assert math.isnan(found.seconds)


def test_margins_of_every_spelling(tmp_path):
    least = {"a": None, "b": "nan", "c": math.nan, "d": math.inf, "e": "inf", "f": 0.25}
    found = only_claim(tmp_path, rungs=[rung("attack", least=least)])
    assert found.rungs[0].margin == found.worst_margin == 0.25
    nothing = only_claim(tmp_path, rungs=[rung("attack", least={"a": math.nan})])
    assert math.isnan(nothing.worst_margin)
    assert not nothing.is_loose


@pytest.mark.parametrize(
    ("tightness", "rungs", "is_loose"),
    [
        ("upper", {"attack": LOOSE / 2}, False),
        ("upper", {"attack": LOOSE * 2}, True),
        ("upper", {"attack": LOOSE * 2, "exact": 0.0}, False),
        ("upper", {"explore": 0.0, "attack": LOOSE * 2}, True),
        ("upper", {"explore": LOOSE * 2, "sample": LOOSE * 2}, False),
        ("order", {"attack": LOOSE * 2}, False),
        ("tight", {"attack": LOOSE * 2}, True),
    ],
)
def test_loose_is_what_the_worst_case_rungs_say(tmp_path, tightness, rungs, is_loose):
    climbed = [rung(name, margin=margin) for name, margin in rungs.items()]
    found = only_claim(tmp_path, tightness=tightness, rungs=climbed)
    assert found.is_loose == is_loose


@pytest.mark.parametrize("verdict", ["refuted", "vacuous", "inconclusive", "invalid", "unheard"])
def test_bad_claims_are_findings_with_their_counterexample(tmp_path, verdict):
    bad = rung("attack", verdict, -1.0, note="as confirmed", file="a.npz")
    samples.write_claims(tmp_path, [claim(), claim("bad", verdict=verdict, rungs=[rung(), bad])])
    (finding,) = findings(collect(tmp_path))
    assert finding[1:] == ("claim", "bad", verdict, "attack: as confirmed", "a.npz")


@pytest.mark.parametrize("verdict", ["refuted", "held"])
def test_claims_expected_refuted_are_findings_either_way(tmp_path, verdict):
    samples.write_claims(tmp_path, [claim(expected="refuted", verdict=verdict)])
    results = collect(tmp_path)
    (finding,) = findings(results)
    assert (finding.verdict, finding.reason) == (verdict, "expected: refuted")
    assert results.sections[0].all_claims[0].as_expected == (verdict == "refuted")


def test_other_findings(tmp_path):
    tight = claim("loose", tightness="tight", rungs=[rung("attack", margin=0.5)])
    samples.write_claims(tmp_path, [tight, claim("weak", mutants=[mutant("bug", None), mutant()])])
    samples.write_run(tmp_path, verdict="shape only")
    samples.write(tmp_path / "begun/args.json", {"experiment": "dual_sgd", "args": {}})
    samples.write_benchmark(tmp_path, failed=["test_equal"])
    samples.write(tmp_path / "claims/cut.json", '{"claims": [')
    found = [(f.kind, f.name, f.verdict) for f in findings(collect(tmp_path))]
    assert found == [
        ("claim", "loose", "loose here"),
        ("mutant", "weak: bug", "survived"),
        ("experiment", "begun", "unfinished"),
        ("experiment", "dual_sgd", "shape only"),
        ("benchmark", "test_equal", "failed"),
        ("file", "claims/cut.json", "damaged"),
    ]


def test_missed_criteria_are_the_reason(tmp_path):
    samples.write_run(tmp_path, verdict="not reproduced", smoke=True)
    (finding,) = findings(collect(tmp_path))
    assert "no evidence; final error: 0.3, threshold at most 0.1" in finding.reason
    assert "exponent" not in finding.reason


DAMAGED = {
    "claims/a.json": ["", "{", "3", '"text"', "[3]", '{"claims": 3}', '{"about": 3, "claims": []}',
                      "{}", '{"claims": [{"name": 3}]}', "[" * 100_000],
    "some/summary.json": ["null", '{"experiment": "x"}', '{"experiment": "x", "verdict": 3}'],
    "some/args.json": ["[]", '{"experiment": 3}', '{"args": {}}', '{"experiment": "x", "args": 3}'],
    "benchmarks/a.json": ["{}", '{"rows": [3]}', '{"rows": [{"name": "x"}]}', '{"rows": {}}'],
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "content"), [(name, text) for name, texts in DAMAGED.items() for text in texts]
)
def test_damaged_files_are_named_and_the_rest_is_read(tmp_path, name, content):
    samples.healthy(tmp_path)
    samples.write(tmp_path / name, content)
    results = collect(tmp_path)
    (hurt,) = results.damage
    assert hurt.file == name
    assert hurt.reason
    assert len(results.sections) == len(papers())
    assert len(results.sections[0].all_claims) == 16


def test_margins_that_are_no_numbers_are_damage(tmp_path):
    for least in ({"a": "much"}, {"a": [1]}, 3):
        samples.write_claims(tmp_path, [claim(rungs=[rung(least=least)])])
        assert collect(tmp_path).damage[0].file == "claims/dual_sgd.json"
    huge = json.dumps({"claims": [claim(rungs=[rung(num_instances=math.inf)])]})
    samples.write(tmp_path / "claims/dual_sgd.json", huge)
    assert collect(tmp_path).damage[0].file == "claims/dual_sgd.json"


def test_a_run_is_shown_without_its_damaged_companions(tmp_path):
    samples.write_run(tmp_path)
    samples.write(tmp_path / "dual_sgd/env.json", '{"packages": 3}')
    samples.write(tmp_path / "dual_sgd/args.json", "{")
    samples.write(tmp_path / "dual_sgd/figure.svg", samples.SVG[:-9])
    results = collect(tmp_path)
    named = {hurt.file for hurt in results.damage}
    assert named == {"dual_sgd/env.json", "dual_sgd/args.json", "dual_sgd/figure.svg"}
    (run,) = results.sections[0].experiments
    assert run.figure.content == samples.PNG
    assert run.verdict == "reproduced"


def test_a_cut_png_is_damage(tmp_path):
    samples.write_run(tmp_path)
    (tmp_path / "dual_sgd/figure.svg").unlink()
    (tmp_path / "dual_sgd/figure.png").write_bytes(samples.PNG[:-5])
    results = collect(tmp_path)
    assert [hurt.file for hurt in results.damage] == ["dual_sgd/figure.png"]
    assert results.sections[0].experiments[0].figure is None


def test_accounts_of_counterexamples_are_no_reports(tmp_path):
    account = {"claim": "dual_sgd/rate", "instance": {}, "replay": "jaxlab replay a.npz"}
    samples.write(tmp_path / "claims/a.json", account)
    samples.write(tmp_path / "claims/b.json", account)
    (tmp_path / "claims/b.npz").write_bytes(b"")
    results = collect(tmp_path)
    assert results.damage == ()
    assert [section.is_empty for section in results.sections] == [True] * len(papers())


def test_plain_data_has_no_images(tmp_path):
    plain = json.dumps(as_plain(collect(samples.healthy(tmp_path))))
    assert '"file": "dual_sgd/figure.svg", "media_type": "image/svg+xml"}' in plain
