"""Run by test_sharding.py: logits and gradients on a mesh of 2 by 4 devices and on one."""

import json

import jax
import jax.numpy as jnp
from prompts import TINY, long_tokens, tiny_params

from jaxlab.models.llama import CausalLM
from jaxlab.models.losses import TokenBatch, next_token_loss
from jaxlab.models.sharding import batch_sharding, device_mesh, param_shardings


def main() -> None:
    """Print what was found as JSON."""
    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_num_cpu_devices", 8)
    config = TINY["llama"]
    lm = CausalLM(config)
    params = jax.tree.map(lambda leaf: leaf.astype(jnp.float64), tiny_params(config))
    tokens = jnp.asarray(long_tokens(config.vocab_size, 32).reshape(4, 8))
    batch = TokenBatch(tokens, jnp.ones(tokens.shape, bool))
    mesh = device_mesh(data=2, model=4)
    spread = jax.device_put(params, param_shardings(mesh, params))
    spread_batch = jax.device_put(batch, batch_sharding(mesh))

    def both(params, batch):
        return lm.logits(params, batch.tokens), jax.grad(next_token_loss(lm))(params, batch)

    one, many = jax.jit(both)(params, batch), jax.jit(both)(spread, spread_batch)
    gaps = jax.tree.map(
        lambda a, b: float(abs(jax.device_get(a) - jax.device_get(b)).max()), one, many
    )

    def shard(leaf):
        return list(leaf.addressable_shards[0].data.shape)

    print(
        json.dumps(
            {
                "devices": len(jax.devices()),
                "query_shard": shard(spread["layers"]["attention"]["query"]["kernel"]),
                "down_shard": shard(spread["layers"]["mlp"]["down"]["kernel"]),
                "logits": gaps[0],
                "gradients": max(jax.tree.leaves(gaps[1])),
            }
        )
    )


if __name__ == "__main__":
    main()
