"""Makes the fixtures of GPT-1 and GPT-2: tiny models with random weights, saved by transformers, with its outputs for padded tokens.

    python make.py        (torch, transformers, safetensors)
"""

import pathlib
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1] / "decoder"))

import peer  # noqa: E402

HERE = FOLDER / "fixtures"


def gpt2(**changes):
    sizes = dict(vocab_size=31, n_positions=9, n_embd=12, n_layer=2, n_head=3)
    return hf.GPT2LMHeadModel(hf.GPT2Config(**{**sizes, **changes}))


def main():
    torch.manual_seed(7)
    peer.save(HERE, "model", gpt2())
    peer.save(HERE, "untied", gpt2(tie_word_embeddings=False, n_inner=20, activation_function="relu", layer_norm_epsilon=1e-3))
    peer.save(HERE, "by_layer", gpt2(scale_attn_by_inverse_layer_idx=True, activation_function="gelu"))
    peer.save(HERE, "unscaled", gpt2(scale_attn_weights=False, activation_function="silu", n_head=1, n_embd=7))
    # OpenAI's own file: no head, no prefix, and the library's constants.
    target = peer.save(HERE, "openai", gpt2(), part="transformer")
    tensors = load_file(target / "model.safetensors")
    for layer in range(2):
        tensors[f"h.{layer}.attn.bias"] = torch.tril(torch.ones(9, 9))[None, None]
        tensors[f"h.{layer}.attn.masked_bias"] = torch.tensor(-1e4)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    first = hf.OpenAIGPTConfig(vocab_size=23, n_positions=8, n_embd=10, n_layer=2, n_head=2)
    peer.save(HERE, "gpt1", hf.OpenAIGPTLMHeadModel(first))
    peer.tidy(HERE)


main()
