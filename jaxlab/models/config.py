"""The sizes of a language model of the Llama family."""

from dataclasses import dataclass

from jaxlab.core.checks import check_count, check_value

__all__ = ["LlamaConfig"]


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Sizes and constants of a decoder; hashable, so that it is static under ``jit``.

    Attributes:
        vocab_size: Number of tokens.
        dim: Width of the residual stream.
        num_layers: Number of blocks.
        num_heads: Heads of queries.
        num_kv_heads: Heads of keys and values; each serves ``num_heads / num_kv_heads`` queries.
        head_dim: Width of a head, even.
        mlp_dim: Width of the gated multilayer perceptron.
        context_length: The longest sequence that the model was trained for.
        rope_theta: Base of the rotary embedding's frequencies.
        rope_factors: Divisors of the frequencies, one for each of ``head_dim / 2``; ``None`` means
            one (Llama 3.1 and later stretch the slow ones).
        norm_eps: Added to the mean square in every RMSNorm.
        attention_bias: Whether queries, keys and values have biases, as in Qwen2.
        tied_embeddings: Whether the output head is the embedding table.

    Raises:
        ValueError: Sizes that do not fit each other.

    Example:
        >>> config = LlamaConfig(vocab_size=256, dim=64, num_layers=2, num_heads=4, mlp_dim=128)
        >>> config.num_kv_heads, config.head_dim
        (4, 16)
    """

    vocab_size: int
    dim: int
    num_layers: int
    num_heads: int
    mlp_dim: int
    num_kv_heads: int = 0
    head_dim: int = 0
    context_length: int = 2048
    rope_theta: float = 10_000.0
    rope_factors: tuple[float, ...] | None = None
    norm_eps: float = 1e-5
    attention_bias: bool = False
    tied_embeddings: bool = True

    def __post_init__(self) -> None:
        """Fill in the derived sizes and check how they fit."""
        if not self.num_kv_heads:
            object.__setattr__(self, "num_kv_heads", self.num_heads)
        if not self.head_dim and self.num_heads:
            if self.dim % self.num_heads:
                raise ValueError(
                    f"dim must be a multiple of num_heads = {self.num_heads} where head_dim is not "
                    f"given, got {self.dim}"
                )
            object.__setattr__(self, "head_dim", self.dim // self.num_heads)
        for name in ("vocab_size", "dim", "num_layers", "num_heads", "mlp_dim", "context_length"):
            check_count(name, getattr(self, name))
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_heads must be a multiple of num_kv_heads = {self.num_kv_heads}, got "
                f"{self.num_heads}"
            )
        if self.head_dim % 2:
            raise ValueError(f"head_dim must be even for rotation, got {self.head_dim}")
        check_value("rope_theta", self.rope_theta, lambda x: x > 0, "positive")
        check_value("norm_eps", self.norm_eps, lambda x: x > 0, "positive")
        if self.rope_factors is not None and len(self.rope_factors) != self.head_dim // 2:
            raise ValueError(
                f"rope_factors must be {self.head_dim // 2} numbers, half of head_dim, got "
                f"{len(self.rope_factors)}"
            )
