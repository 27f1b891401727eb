import json
import subprocess
import sys
import tomllib
from pathlib import Path

# The modules of the package itself and what it adds to JAX.
HANDFUL = 5


def modules_after(statement):
    code = f"{statement}\nimport sys, json\nprint(json.dumps(sorted(sys.modules)))"
    return set(json.loads(output_of(code)))


def output_of(code):
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True
    )
    return done.stdout


def test_the_package_alone_does_not_load_jax():
    added = modules_after("import jaxlab") - modules_after("pass")
    assert not {name for name in added if name.split(".")[0] in ("jax", "jaxlib", "numpy")}
    assert "jaxlab" in added


def test_the_package_adds_a_handful_of_modules_to_jax():
    added = modules_after("import jax, jaxlab") - modules_after("import jax")
    assert "jaxlab" in added
    assert len(added) <= HANDFUL, sorted(added)


def test_importing_the_families_starts_no_backend():
    code = """
import jaxlab
jaxlab.core, jaxlab.optim, jaxlab.problems
import jaxlab.optim.dual_sgd, jaxlab.optim.federated, jaxlab.problems.devices
import jaxlab.diffusion.learned, jaxlab.diffusion.mixture, jaxlab.data.images
from jax._src import xla_bridge
print(sorted(xla_bridge._backends))
"""
    assert output_of(code).strip() == "[]"


def test_an_unknown_name_lists_the_known_ones():
    code = """
import jaxlab
try:
    jaxlab.optimization
except AttributeError as error:
    print(error)
"""
    assert "'optimization'; it has" in output_of(code)


def test_types_are_checked_in_every_package():
    root = Path(__file__).parents[2]
    options = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    (hook,) = (word for word in options["addopts"] if word.startswith("--jaxtyping-packages="))
    listed = {name.split(".")[1] for name in hook.split("=")[1].split(",")[:-1]}
    assert listed == {path.parent.name for path in (root / "jaxlab").glob("*/__init__.py")}
