"""Eight virtual devices against one."""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import PartitionSpec as P

from jaxlab.models.llama import CausalLM
from jaxlab.models.sharding import device_mesh, param_shardings
from tests.models.prompts import TINY

WORKER = Path(__file__).with_name("sharded.py")


def test_eight_devices_compute_what_one_does():
    done = subprocess.run(
        [sys.executable, str(WORKER)], capture_output=True, text=True, timeout=150, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["devices"] == 8
    # 2 of the 4 devices of the model axis hold half of the heads each: 1/4 of each kernel.
    assert found["query_shard"] == [3, 24, 6]
    assert found["down_shard"] == [3, 10, 24]
    assert found["logits"] < 1e-11
    assert found["gradients"] < 1e-11


def test_every_parameter_has_a_rule():
    mesh = device_mesh(data=1, model=1)
    for config in TINY.values():
        specs = jax.tree.map(
            lambda sharding: sharding.spec, param_shardings(mesh, CausalLM(config).shapes())
        )
        assert specs["layers"]["mlp"]["gate"]["kernel"] == P(None, None, "model")
        assert specs["norm"]["scale"] in (P(), P(None))
    with pytest.raises(ValueError, match="rules must match every parameter, got none for 'odd'"):
        param_shardings(mesh, {"odd": jnp.ones(2)})
    with pytest.raises(ValueError, match="data \\* model must be at most the 1 devices, got 6"):
        device_mesh(data=2, model=3)
