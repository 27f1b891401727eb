"""Compare the language model with PyTorch's `transformers` on the same weights.

By hand, in an environment with `pip install -e '.[peers]'` and the weights of SmolLM2:

    python tests/peers/language_model.py          # compare and print
    python tests/peers/language_model.py --write  # and write the golden files of the tests

`transformers` opens the folder that our exporter writes. What it computes, and nothing of ours,
goes into the golden files.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from prompts import LENGTHS, PROMPTS, TINY, long_tokens, tiny_params

from jaxlab.models.checkpoint import layout, take
from jaxlab.models.generate import generate, pad_prompts
from jaxlab.models.llama import CausalLM
from jaxlab.models.load import load
from jaxlab.models.losses import TokenBatch, next_token_loss
from jaxlab.models.safetensors_folders import export_safetensors

GOLDEN = Path(__file__).parents[1] / "models" / "golden"
KEPT = 64  # logits kept of each vector, evenly spaced over the vocabulary


def opened(lm: CausalLM, params) -> torch.nn.Module:
    """The model as `transformers` opens it from our export."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        export_safetensors(path, lm, params)
        return transformers.AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager"
        ).eval()


def torch_logits(model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """Logits of one sequence, [time, vocab]."""
    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens))[None].long()).logits[0].numpy()


def torch_greedy(model: torch.nn.Module, tokens: list[int], new: int) -> list[int]:
    """The likeliest continuation, without stopping."""
    ids = torch.tensor(tokens)[None]
    out = model.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        max_new_tokens=new,
        min_new_tokens=new,
        do_sample=False,
        num_beams=1,
        temperature=None,
        top_p=None,
        top_k=None,
        pad_token_id=0,
        eos_token_id=None,
        suppress_tokens=None,
    )
    return out[0, len(tokens) :].tolist()


def torch_gradients(model: torch.nn.Module, tokens: np.ndarray) -> dict[str, np.ndarray]:
    """Gradients of the mean next-token loss of one sequence by name, and the loss."""
    model.zero_grad()
    ids = torch.tensor(np.asarray(tokens))[None].long()
    logits = model(ids).logits[0, :-1]
    loss = torch.nn.functional.cross_entropy(logits, ids[0, 1:])
    loss.backward()
    grads = {
        name: weight.grad.numpy().copy()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    return {"loss": np.asarray(loss.item()), **grads}


def our_gradients(lm: CausalLM, params, tokens: np.ndarray):
    """The same by us."""
    batch = TokenBatch(jnp.asarray(tokens)[None], jnp.ones((1, len(tokens)), bool))
    return jax.jit(jax.value_and_grad(next_token_loss(lm)))(params, batch)


def compare_tiny(write: bool) -> None:
    """Every feature of the family on tiny random models: all logits and all gradients."""
    kept = {}
    for name, config in TINY.items():
        lm = CausalLM(config)
        params = tiny_params(config)
        model = opened(lm, params)
        tokens = long_tokens(config.vocab_size, 24)
        logits = torch_logits(model, tokens)
        gap = np.abs(np.asarray(lm.logits(params, jnp.asarray(tokens))) - logits).max()
        reference = torch_gradients(model, tokens)
        loss, grads = our_gradients(lm, params, tokens)
        ours = named(lm, grads)
        gaps = [
            np.abs(ours[key] - value).max() / np.abs(value).max()
            for key, value in reference.items()
            if key != "loss"
        ]
        print(
            f"{name:8s} logits differ by {gap:.1e} of {np.abs(logits).max():.2f}, loss by "
            f"{abs(float(loss) - float(reference['loss'])):.1e}, gradients by {max(gaps):.1e} "
            f"of their largest entry, in {len(gaps)} tensors"
        )
        kept[f"{name}/logits"] = logits.astype(np.float32)
        kept[f"{name}/loss"] = reference["loss"].astype(np.float32)
        for key, value in reference.items():
            if key != "loss":
                kept[f"{name}/grad/{key}"] = sketch(value)
    if write:
        save("tiny.npz", kept)


def compare_smollm(write: bool) -> None:
    """The real model: prompts of 1 to 1 024 tokens, greedy continuations, gradients."""
    lm, params, tokenizer = load("smollm2-135m-instruct")
    model = opened(lm, params)
    forward = jax.jit(lm.logits)
    kept, worst = {}, 0.0
    text = long_tokens(lm.config.vocab_size, max(LENGTHS), tokenizer)
    for length in LENGTHS:
        reference = torch_logits(model, text[:length])
        gap = np.abs(np.asarray(forward(params, jnp.asarray(text[:length]))) - reference).max()
        worst = max(worst, gap)
        print(f"{length:5d} tokens: logits differ by {gap:.1e} of {np.abs(reference).max():.1f}")
        places = np.linspace(0, lm.config.vocab_size - 1, KEPT).astype(int)
        kept[f"logits/{length}"] = reference[-1, places]
    print(f"largest difference of logits: {worst:.1e}")

    prompts = [tokenizer.encode(prompt) for prompt in PROMPTS]
    tokens, mask = pad_prompts(prompts)
    ours = jax.jit(lambda p, t, m: generate(lm, p, t, mask=m, max_new_tokens=64))(
        params, tokens, mask
    )
    theirs = np.array([torch_greedy(model, prompt, 64) for prompt in prompts])
    equal = (np.asarray(ours.tokens) == theirs).all(axis=1)
    print(f"greedy continuations of 64 tokens: {equal.sum()} of {len(prompts)} equal")
    kept["greedy"] = theirs.astype(np.int32)

    reference = torch_gradients(model, text[:64])
    loss, grads = our_gradients(lm, params, text[:64])
    ours_named = named(lm, grads)
    gaps = {
        key: np.abs(ours_named[key] - value).max() / np.abs(value).max()
        for key, value in reference.items()
        if key != "loss"
    }
    print(
        f"loss of 64 tokens: {float(loss):.6f} and {float(reference['loss']):.6f}; gradients "
        f"differ by at most {max(gaps.values()):.1e} of their largest entry "
        f"({max(gaps, key=gaps.get)})"
    )
    kept["loss"] = reference["loss"].astype(np.float32)
    for key, value in reference.items():
        if key != "loss":
            kept[f"grad/{key}"] = sketch(value, 8)
    if write:
        save("smollm2.npz", kept)


def sketch(values: np.ndarray, size: int = 32) -> np.ndarray:
    """The norm and some entries, evenly spaced."""
    flat = values.reshape(-1)
    places = np.linspace(0, flat.size - 1, min(size, flat.size)).astype(int)
    return np.concatenate([[np.linalg.norm(flat)], flat[places]]).astype(np.float32)


def named(lm: CausalLM, params) -> dict[str, np.ndarray]:
    """Our tree under the names and in the layout of `transformers`."""
    slots = layout(lm, lambda leaf: leaf.hugging_face)
    return {slot.name: np.asarray(take(params, slot)) for slot in slots}


def save(name: str, arrays: dict[str, np.ndarray]) -> None:
    """Write a golden file."""
    GOLDEN.mkdir(exist_ok=True)
    np.savez_compressed(GOLDEN / name, **arrays)
    print(f"wrote {GOLDEN / name}")


def main() -> None:
    """Compare, and write if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="write the golden files")
    write = parser.parse_args().write
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    compare_tiny(write)
    compare_smollm(write)


if __name__ == "__main__":
    main()
