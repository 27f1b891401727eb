"""Folders of results as the programs write them, and nastier ones."""

import base64
import json
import math
from pathlib import Path

ROOT = Path(__file__).parents[2]

SVG = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 300 200" width="300" height="200">'
    '<rect width="300" height="200" fill="#fff"/><path d="M10 190L290 10" stroke="#0072B2"/></svg>'
)
PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
MACHINE = {"platform": "Linux-6.1-x86_64-with-glibc2.36", "python": "3.11.7", "cpus": 2}
VERSIONS = {"jaxlab": "0.1.0", "jax": "0.10.2"}
WHEN = "2026-11-30T13:00:00+00:00"


def rung(name="attack", verdict="held", margin=0.01, **changes):
    data = {
        "rung": name,
        "verdict": verdict,
        "num_instances": 1443,
        "least": {"quadratic": margin, "huber": 7.0},
        "note": "",
        "file": "",
        "seconds": 1.5,
    }
    return {**data, **changes}


def mutant(name="wrong sign", killed_by="explore", file="results/claims/a.npz", **changes):
    verdict = "refuted" if killed_by else "held"
    climbed = [rung(killed_by or "attack", verdict, -0.5, file=file if killed_by else "")]
    data = {"name": name, "killed_by": killed_by, "margin": -0.5, "rungs": climbed}
    return {**data, **changes}


def claim(name="dual_sgd/rate", **changes):
    data = {
        "name": name,
        "statement": "f(x_k) - f* <= (1 - q)^k V_0",
        "source": "Theorem 1",
        "families": ["quadratic", "huber"],
        "expected": "held",
        "verdict": "held",
        "ok": True,
        "tightness": "upper",
        "least_margin": 0.01,
        "seconds": 12.5,
        "note": "",
        "rungs": [rung("explore"), rung("sample"), rung("attack")],
        "mutants": [mutant()],
    }
    return {**data, **changes}


def about(source, **changes):
    data = {"source": source, "effort": "quick", "seed": 0, "seconds": 345.6, "when": WHEN}
    return {**data, "machine": MACHINE, "versions": VERSIONS, **changes}


def write(path, data):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(data if isinstance(data, str) else json.dumps(data))
    return path


def write_claims(folder, claims, source="dual_sgd"):
    data = {"about": about(source), "claims": claims}
    return write(folder / "claims" / f"{Path(source).stem}.json", data)


def write_run(folder, slug="dual_sgd", verdict="reproduced", **changes):
    criteria = [
        {"name": "exponent of rounds", "measured": 0.52, "threshold": "in [0.4, 0.6]",
         "holds": True, "about": "shape"},
        {"name": "final error", "measured": 0.3, "threshold": "at most 0.1",
         "holds": verdict == "reproduced", "about": "size"},
    ]  # fmt: skip
    summary = {"experiment": slug, "smoke": False, "verdict": verdict, "criteria": criteria,
               "notes": ["Scaffnew needs fewer rounds."]}  # fmt: skip
    write(folder / slug / "summary.json", {**summary, **changes})
    write(folder / slug / "args.json", {"experiment": slug, "args": {"agents": 16, "json": None}})
    environment = {"python": "3.11.7", "platform": "Linux", "cpu_count": 2, "devices": ["cpu:0"],
                   "packages": {"this package": "0.1.0", "jax": "0.10.2", "scipy": None},
                   "git_commit": None}  # fmt: skip
    write(folder / slug / "env.json", environment)
    write(folder / slug / "figure.svg", SVG)
    (folder / slug / "figure.png").write_bytes(PNG)


def write_benchmark(folder, name="dual_sgd", rows=(("numpy / jaxlab", "1.16"),), **changes):
    rows = [{"name": what, "value": value} for what, value in rows]
    machine = {"cpu": "Intel(R) Xeon(R) Processor", **MACHINE}
    data = {"about": about(name, machine=machine), "rows": rows}
    write(folder / "benchmarks" / f"{name}.json", {**data, **changes})


def healthy(folder):
    """What a paper's commands leave when all is well; the claims are the stored ones."""
    stored = json.loads((ROOT / "docs/papers/dual_sgd_claims.json").read_text())
    new = {"source": "Theorem 1", "families": ["quadratic"], "seconds": 12.5, "note": ""}
    write_claims(folder, [{**new, **claim} for claim in stored])
    write_run(folder)
    write_benchmark(folder)
    return folder


def nasty(folder):
    """Also a user's own source, with long names, many rows, bad news and damaged files."""
    healthy(folder)
    word = "averyveryveryverylongnamewithoutanyplacetobreakit" * 3
    worst = [
        rung("check", "invalid", math.nan, note="the margin has a scale: " + word),
        rung("attack", "refuted", -1.234567e-10, note="confirmed", file=f"my results/{word}.npz"),
        rung("exact", "skipped", math.nan, least={}, note="needs cvxpy"),
        rung("a rung of a later version", "candidate", math.inf),
    ]
    claims = [claim(f"own/claim_{i}_{word}", statement=f"for all x: {word} <= {i}",
                    families=[word] * 5) for i in range(30)]  # fmt: skip
    claims += [
        claim("own/<script>alert(1)</script>", verdict="refuted", ok=False, rungs=worst,
              mutants=[mutant(word, None), mutant(word, "a rung of a later version", word)]),
        claim("own/tight", tightness="tight", rungs=[rung("attack", margin=0.5)]),
    ]  # fmt: skip
    write_claims(folder, claims, source=f"/home/someone/{word[:150]}.py")
    write_run(folder, word[:100], "shape only", notes=[word, "& <b>so on</b>"])
    write_run(folder, "own_smoke", "not reproduced", smoke=True)
    write(folder / "begun" / "args.json", {"experiment": "begun", "args": {"out": word}})
    rows = [(f"{word}: number {i}", f"{i * 1e6:.3f} µs, as a long text") for i in range(40)]
    write_benchmark(folder, "own", rows, failed=[f"test_{word}"])
    write(folder / "claims" / "cut.json", '{"about": {"source": "cut"}, "cla')
    write(folder / f"damaged_{word[:80]}" / "summary.json", "[]")
    return folder
