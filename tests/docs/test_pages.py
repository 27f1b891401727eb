"""Pages say what the code does, and nothing public is left out of them."""

import ast
import importlib.util
import json
import re
from pathlib import Path

import pytest
import yaml

from jaxlab.core.registry import papers

ROOT = Path(__file__).parents[2]
PAGES = sorted((ROOT / "docs").rglob("*.md"))
MODULES = sorted(
    path.relative_to(ROOT).with_suffix("").as_posix().replace("/", ".")
    for path in (ROOT / "jaxlab").rglob("*.py")
    if path.name != "__init__.py"
)


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"docs/tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def undocumented(source):
    """Public names of a module that have no docstring; a constant's is the string after it."""
    tree = ast.parse(source)
    missing = [] if ast.get_docstring(tree) else ["the module"]
    public, documented = set(), set()
    for node, following in zip(tree.body, [*tree.body[1:], None], strict=True):
        if isinstance(node, ast.ImportFrom):  # documented where it comes from
            documented |= {name.name for name in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            if ast.get_docstring(node):
                documented.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = {target.id for target in targets if isinstance(target, ast.Name)}
            if names == {"__all__"} and isinstance(node.value, ast.List):
                public = set(ast.literal_eval(node.value))
            elif isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                documented |= names
    return missing + sorted(public - documented)


@pytest.mark.parametrize("module", MODULES)
def test_public_names_are_documented(module):
    source = (ROOT / f"{module.replace('.', '/')}.py").read_text()
    assert "__all__ = [" in source
    assert undocumented(source) == []


def test_undocumented_names_are_noticed():
    module = '"""A module."""\n__all__ = ["A", "b", "C"]\n'
    source = module + 'A = 1\n"""A constant."""\ndef b(): ...\nC = 2\n'
    assert undocumented(source) == ["C", "b"]
    assert undocumented("__all__ = []") == ["the module"]


def test_every_module_is_in_the_reference():
    described = re.findall(
        r"^::: ([\w.]+)", "\n".join(p.read_text() for p in PAGES if p.parent.name == "api"), re.M
    )
    assert sorted(described) == MODULES


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.slug)
def test_every_paper_has_its_rooms(paper):
    for room in ("experiments", "proofs_checks", "benchmarks"):
        assert (ROOT / room / f"{paper.slug}.py").is_file()
    assert (ROOT / f"docs/papers/{paper.slug}.md").is_file()
    assert f"papers/{paper.slug}.md" in (ROOT / "mkdocs.yml").read_text()


@pytest.mark.parametrize("paper", papers(), ids=lambda paper: paper.slug)
def test_stored_claims_are_those_of_the_program(paper):
    stored = json.loads((ROOT / f"docs/papers/{paper.slug}_claims.json").read_text())
    assert len(stored) == paper.claims
    assert all(report["ok"] for report in stored)


def test_generated_parts_are_up_to_date():
    for path, text in tool("generate").generated().items():
        assert path.read_text() == text, "run: python docs/tools/generate.py"


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("*.md")], ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_configurations_are_readable():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    used = {hook["id"] for repository in hooks["repos"] for hook in repository["hooks"]}
    assert {"ruff-check", "ruff-format", "codespell", "pyright"} <= used


def test_formulas_of_docstrings_become_markdown():
    tools = tool("docstrings")
    assert tools.ROLE.sub(tools._role, "the :math:`a +\n    b` here") == "the $a + b$ here"
    block = "One round is\n\n.. math::\n    a &= b \\\\\n    c &= d\n\nand more"
    assert "$$\n\\begin{align*} a &= b" in tools.BLOCK.sub(tools._block, block)


def test_formulas_become_mathml():
    page = '<p><span class="arithmatex">\\(x^2 &lt; 1\\)</span></p>'
    shown = tool("mathml").on_page_content(page)
    assert "<math" in shown
    assert "arithmatex" not in shown
