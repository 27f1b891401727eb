"""What the language model is compared on; shared by the tests and tests/peers/language_model.py."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM

LENGTHS = (1, 2, 7, 64, 257, 1024)

PROMPTS = (
    "The capital of France is",
    "Once upon a time, in a village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at a temperature of",
    "The three primary colours are",
    "In 1969, the first humans",
    "SELECT name, price FROM",
    "Dear Sir or Madam,\n\n",
    "The derivative of x^2 is",
    "She opened the letter and",
    "Recipe for pancakes: 1.",
    "La vie est",
    "A prime number is",
    "The mitochondrion is",
    "Q: What is 2 + 2?\nA:",
    "import numpy as np\n\nx =",
    "My favourite season is autumn because",
    "Photosynthesis turns",
    "Breaking news:",
    "<div class=",
)

_SIZES = {"vocab_size": 61, "dim": 24, "num_layers": 3, "num_heads": 4, "mlp_dim": 40}

TINY = {
    "llama": LlamaConfig(**_SIZES, num_kv_heads=2, context_length=64),
    "qwen2": LlamaConfig(
        **_SIZES,
        num_kv_heads=1,
        context_length=64,
        attention_bias=True,
        rope_theta=1e6,
        norm_eps=1e-6,
        tied_embeddings=False,
    ),
    "wide": LlamaConfig(**_SIZES, head_dim=10, context_length=64, tied_embeddings=False),
}


def tiny_params(config: LlamaConfig) -> dict:
    """Parameters far from the initial ones, norms and biases among them; the same everywhere."""
    shapes = CausalLM(config).shapes()
    rng = np.random.default_rng(0)

    def draw(shape: jax.ShapeDtypeStruct) -> jnp.ndarray:
        return jnp.asarray(rng.normal(scale=0.3, size=shape.shape) + (len(shape.shape) < 3), "f")

    return jax.tree.map(draw, shapes)


def long_tokens(vocab_size: int, length: int, tokenizer=None) -> np.ndarray:
    """A text of so many tokens: all prompts again and again, or numbers without a tokenizer."""
    if tokenizer is None:
        return np.random.default_rng(1).integers(0, vocab_size, length).astype(np.int32)
    ids = tokenizer.encode("\n".join(PROMPTS))
    return np.resize(np.asarray(ids, np.int32), length)
