"""What the command for mutation testing counts, and how; the mutants themselves run at night."""

import json
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SOURCE = '''
"""Text."""

__all__ = ["f", "g"]

Number: TypeAlias = int | float


class Pair(NamedTuple):
    left: int | float = 1


@functools.lru_cache(maxsize=8)
def f(x: int | float, *, key=5) -> int | float:
    """More text."""
    y: int | float = -x + 1
    if y == 3:
        raise ValueError(f"got {y + 1}")
    warnings.warn(f"{y - 1}", UserWarning, stacklevel=2)
    return y
'''


@pytest.fixture
def mutants(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / ".ci")
    return __import__("mutants")


@pytest.fixture
def mutation(mutants):
    return __import__("mutation")


@pytest.fixture
def scores(mutants):
    return __import__("mutation_scores")


def change(mutants, old, new, operator="NumberReplacer"):
    assert SOURCE.count(old) == 1
    return mutants.Change(operator, 0, 1, SOURCE.replace(old, new))


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("TypeAlias = int | float", "TypeAlias = int & float", "an annotation"),
        ("left: int | float", "left: int & float", "an annotation"),
        ("x: int | float", "x: int & float", "an annotation"),
        ("-> int | float", "-> int & float", "an annotation"),
        ("y: int | float", "y: int & float", "an annotation"),
        ("float, *, key", "float, /, key", "a marker in a signature"),
        ("key=5", "key=6", None),
        ("More text", "Less text", "a docstring"),
        ('["f", "g"]', '["f"]', "__all__"),
        ("y + 1}", "y - 1}", "the text of an error or a warning"),
        ("y - 1}", "y + 1}", "the text of an error or a warning"),
        ("stacklevel=2", "stacklevel=3", "the text of an error or a warning"),
        ("maxsize=8", "maxsize=9", "a decorator that only caches or compiles"),
        ("-x + 1", "-x+1  # sum", "a comment or the layout"),
        ("-x + 1", "-x + ", "not Python"),
        ("float = 1", "float = 2", None),
        ("-x + 1", "-x + 2", None),
        ("y == 3", "y != 3", None),
        ("raise ValueError", "raise TypeError", None),
        ("UserWarning", "FutureWarning", None),
    ],
)
def test_what_nobody_can_see_is_left_out(mutants, old, new, reason):
    assert mutants.why_left_out(SOURCE, change(mutants, old, new)) == reason


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ("ReplaceBinaryOperator_Add_Sub", True),
        ("ReplaceBinaryOperator_Add_LShift", False),
        ("ReplaceBinaryOperator_BitAnd_BitOr", True),
        ("ReplaceBinaryOperator_BitAnd_Mul", False),
        ("ReplaceComparisonOperator_Lt_GtE", True),
        ("ReplaceComparisonOperator_Eq_Is", False),
        ("ReplaceUnaryOperator_USub_Invert", False),
        ("ReplaceUnaryOperator_Delete_Invert", True),
        ("core/ReplaceTrueWithFalse", True),
        ("NumberReplacer", True),
    ],
)
def test_operators_are_replaced_by_their_like(mutants, operator, kept):
    assert mutants.same_kind(operator) == kept
    wrong = change(mutants, "-x + 1", "-x - 1", operator)
    assert (mutants.why_left_out(SOURCE, wrong) is None) == kept


def test_equal_mutants_count_once(mutants):
    changes = [
        change(mutants, "= -x", "= x"),
        change(mutants, "= -x", "= +x"),
        change(mutants, "float = 1", "float = 2"),
        change(mutants, "maxsize=8", "maxsize=7"),
    ]
    sort = mutants.sort_changes(SOURCE, changes)
    assert sort.mutants == [changes[0], changes[2]]
    assert sort.left_out == {
        "the same as another mutant": 1,
        "a decorator that only caches or compiles": 1,
    }


def test_cosmic_ray_finds_the_changes(mutants):
    pytest.importorskip("cosmic_ray", reason="needs pip install 'jaxlab[nightly]'")
    source = "def f(x: int | None) -> int:\n    return x + 1 if x is not None else 2\n"
    found = mutants.sort_changes(source, mutants.changes_of(source))
    lines = {mutant.code.splitlines()[1].strip() for mutant in found.mutants}
    rest = "if x is not None else 2"
    assert {
        f"return x {sign} 1 {rest}" for sign in ("-", "*", "/", "//", "%", "**")
    } <= lines  # fmt: skip
    assert "return x + 1 if x is None else 2" in lines
    assert all(mutant.line == 2 for mutant in found.mutants)
    assert found.left_out["an annotation"] == 2


def result(mutation, outcome, occurrence=0, *, tests="T", source="S", module="jaxlab/core/a.py"):
    return mutation.Result(
        module, "NumberReplacer", occurrence, 7, "-x = 1\n+x = 2", outcome, "", 1.0, source, tests
    )


def test_the_table_counts_timeouts_as_killed(scores):
    outcomes = ["killed"] * 7 + ["timeout"] + ["survived"] * 2
    score = scores.Score("a.py", [result(scores, outcome) for outcome in outcomes], 100)
    head, row = scores.table([score]).splitlines()
    # The interval is that of the textbooks' tables for 8 of 10.
    assert " ".join(row.split()) == "a.py 100 10 8 2 1 80.0 % 44.4 to 97.5 %"
    assert len(head) == len(row)


def test_a_whole_population_has_no_interval(scores):
    score = scores.Score("a.py", [result(scores, "killed")], 1)
    assert (score.percent, scores.interval(score)) == (100.0, "all run")
    assert scores.Score("a.py", [], 0).percent == 100.0
    assert scores.survivors([score]) == "no survivors"


def test_survivors_come_with_their_lines(scores):
    score = scores.Score("a.py", [result(scores, o) for o in ("killed", "survived")], 2)
    listed = scores.survivors([score])
    assert listed == "survivors:\n\njaxlab/core/a.py:7 NumberReplacer 0\n-x = 1\n+x = 2"


def test_results_are_taken_up_again(mutation, tmp_path):
    file = tmp_path / "results.jsonl"
    for number, outcome in enumerate(("killed", "survived", "timeout")):
        mutation.append(file, result(mutation, outcome, number))
    with file.open("a") as stream:
        stream.write('{"module": "jaxlab/core/a')  # interrupted
    mutation.append(file, result(mutation, "killed", 3, source="other"))
    mutation.append(file, result(mutation, "killed", 4, module="jaxlab/core/b.py"))

    def known(tests, **options):
        found = mutation.read_results(file, "jaxlab/core/a.py", "S", tests, **options)
        return sorted(occurrence for _, occurrence in found)

    assert known("T") == [0, 1, 2]
    assert known("new") == []
    assert known("new", retry=True) == [0, 2]
    assert len([json.loads(line) for line in file.read_text().splitlines() if line[-1] == "}"]) == 5


def test_a_larger_sample_contains_a_smaller_one(mutation, mutants):
    changes = [mutants.Change("NumberReplacer", number, 1, "") for number in range(50)]
    few, many = (set(mutation.choose(changes, size, "0 a.py")) for size in (5, 20))
    assert few < many < set(mutation.choose(changes, 0, "0 a.py"))
    assert few != set(mutation.choose(changes, 5, "1 a.py"))


def test_every_module_has_tests_that_exist(mutation):
    for module in mutation.all_modules(ROOT):
        tests = mutation.own_tests(module)
        for word in (*tests.quick, *tests.slow):
            assert "/" not in word or (ROOT / word).exists(), word
    assert mutation.own_tests("jaxlab/core/iterate.py") != mutation.own_tests(
        "jaxlab/core/trees.py"
    )


def test_the_failure_is_named(mutation):
    output = "F\n= short test summary info =\nFAILED tests/a.py::test_b - assert 1\n1 failed\n"
    assert mutation.what_failed(output) == "FAILED tests/a.py::test_b - assert 1"
    assert mutation.what_failed("Fatal Python error\n\n") == "Fatal Python error"
    assert mutation.what_failed("") == ""


def test_what_was_left_out_is_told(mutation, mutants):
    left_out = mutants.Counter({"an annotation": 3, "__all__": 1})
    assert mutation.describe(left_out) == "left out 4: 3 (an annotation), 1 (__all__)"
