import json
import re
from html.parser import HTMLParser

import pytest

from jaxlab.report.collect import collect
from jaxlab.report.page import page
from tests.report import samples
from tests.report.samples import claim, mutant, rung

URL_ATTRIBUTES = ("src", "href", "srcset", "action", "data", "poster", "background")


class Reader(HTMLParser):
    """The elements and the visible text of a page."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.text = [], ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.text += data

    def all(self, tag):
        return [attributes for found, attributes in self.elements if found == tag]


def shown(folder):
    return Reader(page(collect(folder)))


def test_an_empty_folder_shows_the_commands(tmp_path):
    text = shown(tmp_path).text
    for command in (
        "jaxlab verify dual_sgd",
        "jaxlab run dual_sgd",
        "pytest benchmarks/dual_sgd.py -n 0",
    ):
        assert command in text
    assert "Nothing was run yet" in text


def test_a_command_goes_away_with_its_results(tmp_path):
    samples.write_claims(tmp_path, [claim()])
    text = shown(tmp_path).text
    assert "jaxlab verify dual_sgd" not in text
    assert "jaxlab run dual_sgd" in text
    assert "1 of 1 (the paper has 16)" in text


def test_all_parts_are_there(tmp_path):
    text = shown(samples.healthy(tmp_path)).text
    stored = json.loads((samples.ROOT / "docs/papers/dual_sgd_claims.json").read_text())
    exact = next(rung for rung in stored[0]["rungs"] if rung["rung"] == "exact")
    for said in (
        "Nothing of what was run: 16 claims, 29 mutants, 1 experiment, 1 benchmark number.",
        "dual_sgd/inexact_energy_decrease",
        f"{min(exact['least'].values()):.2g}",
        "gradient at the midpoint",
        "exponent of rounds",
        "Scaffnew needs fewer rounds.",
        "numpy / jaxlab",
        "Intel(R) Xeon(R) Processor · Linux-6.1-x86_64-with-glibc2.36 · Python 3.11.7 · 2 cores",
        "2026-11-30 13:00 UTC · effort quick · seed 0 · 346 s",
        "effort quick",
        "jaxlab replay results/claims/dual_sgd_inexact_energy_decrease-step_2_L",
    ):
        assert said in text


def test_without_mutants_there_is_no_table_of_mutants(tmp_path):
    samples.write_claims(tmp_path, [claim(mutants=[])])
    assert "Planted bugs" not in shown(tmp_path).text


def test_names_stay_text(tmp_path):
    evil = "<script>alert(1)</script>\"'&amp;<img src=x onerror=alert(1)>"
    bad = rung(evil, evil, -1.0, note=evil, file=evil, least={evil: -1.0})
    samples.write_claims(
        tmp_path,
        [claim(evil, statement=evil, source=evil, families=[evil], note=evil, verdict=evil,
               expected=evil, tightness=evil, rungs=[bad],
               mutants=[mutant(evil, evil, evil, rungs=[bad]), mutant(evil, None)])],
        source=evil.replace("/", "|"),
    )  # fmt: skip
    criterion = {"name": evil, "measured": 1.0, "threshold": evil, "holds": False, "about": evil}
    samples.write_run(tmp_path, experiment=evil, verdict=evil, notes=[evil], criteria=[criterion])
    samples.write(tmp_path / "dual_sgd/args.json", {"experiment": evil, "args": {evil: evil}})
    samples.write_benchmark(tmp_path, about=samples.about(evil, when=evil, effort=evil, seed=evil,
                            machine={evil: evil}, versions={evil: evil}),
                            rows=[{"name": evil, "value": evil}], failed=[evil])  # fmt: skip
    samples.write(tmp_path / "claims" / "<b>.json", "{")
    reader = shown(tmp_path)
    assert not reader.all("script")
    assert not reader.all("b")
    assert [image["src"][:26] for image in reader.all("img")] == ["data:image/svg+xml;base64,"]
    assert reader.text.count(evil) > 30
    assert not [
        name for _, attributes in reader.elements for name in attributes if name[:2] == "on"
    ]


def test_half_a_surrogate_pair_does_not_stop_the_page(tmp_path):
    samples.write_claims(tmp_path, [claim("half \ud800 a pair")])
    assert b"half ? a pair" in page(collect(tmp_path)).encode()


def test_nothing_refers_outside(tmp_path):
    text = page(collect(samples.nasty(tmp_path)))
    reader = Reader(text)
    urls = [a[name] for _, a in reader.elements for name in URL_ATTRIBUTES if name in a]
    assert len(urls) > 5
    assert all(url.startswith(("#", "data:image/")) for url in urls)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)[1]
    assert "url(" not in style
    assert "@import" not in style
    targets = {attributes.get("id") for _, attributes in reader.elements}
    assert {url[1:] for url in urls if url.startswith("#")} <= targets
    (policy,) = [a["content"] for a in reader.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'")
    assert all(image["alt"] for image in reader.all("img"))


def test_bad_news_come_before_the_sections(tmp_path):
    text = shown(samples.nasty(tmp_path)).text
    news, section = text.index("What did not reproduce"), text.index("Accelerated Dual Method")
    for name in ("own/<script>alert(1)</script>", "shape only", "claims/cut.json", "unfinished",
                 "jaxlab replay 'my results/avery"):  # fmt: skip
        assert news < text.index(name, news) < section


@pytest.mark.parametrize(
    ("margin", "cell"), [(None, "held"), ("nan", "held"), ("inf", "inf"), (-0.0, "-0")]
)
def test_margins_without_a_number(tmp_path, margin, cell):
    samples.write_claims(tmp_path, [claim(rungs=[rung("attack", least={"a": margin})])])
    found = re.search(r'data-label="attack"><div><span[^>]*>([^<]*)', page(collect(tmp_path)))
    assert found[1] == cell


def test_a_rung_that_skips_says_so(tmp_path):
    rungs = [rung(), rung("exact", "skipped", least={}, note="needs cvxpy")]
    samples.write_claims(tmp_path, [claim(rungs=rungs)])
    text = page(collect(tmp_path))
    assert 'data-label="exact"><div><span class="badge quiet">skipped</span>' in text
    assert "exact: 1443 tried; needs cvxpy" in text


def test_a_smoke_run_is_not_praised(tmp_path):
    samples.write_run(tmp_path, smoke=True)
    text = page(collect(tmp_path))
    assert '<span class="badge good">reproduced' not in text
    assert text.count("reproduced, but only a smoke run") == 2
    assert "Nothing of what was run: 1 smoke run." in text
