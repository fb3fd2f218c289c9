"""Makes the fixtures of LLaMA and its relatives: tiny models with random weights, saved by transformers, with its outputs for padded
tokens.

    python make.py        (torch, transformers, safetensors)
"""

import json
import pathlib
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1] / "decoder"))

import peer  # noqa: E402

HERE = FOLDER / "fixtures"
SIZES = dict(vocab_size=31, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=16)


def llama(**changes):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, **changes}))


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 100.0, **more}


def phi3(sizes, **changes):
    return hf.Phi3ForCausalLM(hf.Phi3Config(**{**sizes, "pad_token_id": 0, "eos_token_id": 1, **changes}))


def frequencies(factors):
    """Inverse frequencies and the factor of cosines and sines, for each scaling and several lengths of texts."""
    long = dict(factor=8.0, original_max_position_embeddings=64)
    scalings = [
        rope("linear", factor=3.0), rope("dynamic", factor=2.0), rope("dynamic", factor=4.0),
        rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0, **long), rope("yarn", **long),
        rope("yarn", beta_fast=16.0, beta_slow=2.0, attention_factor=1.25, **long),
        rope("yarn", mscale=1.5, mscale_all_dim=0.7, **long),
        rope("longrope", original_max_position_embeddings=64, **factors),
        rope("longrope", factor=16.0, original_max_position_embeddings=64, **factors),
        rope("longrope", attention_factor=1.75, original_max_position_embeddings=64, **factors),
    ]
    found = []
    for scaling in scalings:
        config = hf.LlamaConfig(hidden_size=16, num_attention_heads=2, max_position_embeddings=256, rope_parameters=dict(scaling))
        for length in [8, 64, 65, 256, 400]:
            values, factor = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](config, "cpu", seq_len=length)
            found.append({"config": config.to_dict(), "length": length, "frequencies": values.tolist(), "factor": float(factor)})
    keys = ["model_type", "hidden_size", "num_attention_heads", "max_position_embeddings", "rope_parameters"]
    for entry in found:
        entry["config"] = {key: entry["config"][key] for key in keys}
    (FOLDER / "frequencies.json").write_text(json.dumps(found) + "\n")


def main():
    torch.manual_seed(11)
    peer.save(HERE, "model", llama())
    peer.save(HERE, "tied", llama(tie_word_embeddings=True, num_key_value_heads=6, hidden_act="gelu", rms_norm_eps=1e-3))
    peer.save(HERE, "biases", llama(attention_bias=True, mlp_bias=True, num_key_value_heads=1, head_dim=10))
    peer.save(HERE, "linear", llama(rope_parameters=rope("linear", factor=4.0)))
    long = dict(factor=8.0, original_max_position_embeddings=12)
    peer.save(HERE, "llama3", llama(rope_parameters=rope("llama3", low_freq_factor=1.0, high_freq_factor=4.0, **long)))
    peer.save(HERE, "yarn", llama(rope_parameters=rope("yarn", **long)))
    # Files of transformers 4: the base beside the scaling, under the older name, and a constant of the library.
    target = peer.save(HERE, "old", llama(rope_parameters=rope("linear", factor=2.0)))
    config = (target / "config.json").read_text().replace('"rope_parameters"', '"rope_scaling"')
    config = config.replace('"rope_type"', '"type"').replace('"rope_theta": 100.0,', "").replace(
        '"use_cache"', '"rope_theta": 100.0,\n  "use_cache"')
    (target / "config.json").write_text(config)
    tensors = load_file(target / "model.safetensors")
    tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = torch.ones(2)
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    peer.save(HERE, "mistral", hf.MistralForCausalLM(hf.MistralConfig(**SIZES, sliding_window=3)))
    peer.save(HERE, "qwen2", hf.Qwen2ForCausalLM(hf.Qwen2Config(**SIZES)))
    peer.save(HERE, "qwen2_window", hf.Qwen2ForCausalLM(
        hf.Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=2, max_window_layers=0)))
    peer.save(HERE, "qwen3", hf.Qwen3ForCausalLM(hf.Qwen3Config(**SIZES, head_dim=8)))
    # Phi-3: a part of each head is rotated; factors for short texts and for long ones.
    phi = {**SIZES, "num_attention_heads": 3, "num_key_value_heads": 1}
    peer.save(HERE, "phi3", phi3(phi, sliding_window=4, rope_parameters=rope("default", partial_rotary_factor=0.75)))
    factors = dict(short_factor=[1.0, 1.1, 1.5, 2.0], long_factor=[1.0, 2.5, 4.0, 7.5])
    peer.save(HERE, "phi3_short", phi3(phi, original_max_position_embeddings=12, rope_parameters=rope("longrope", **factors)))
    peer.save(HERE, "phi3_long", phi3(phi, original_max_position_embeddings=6, rope_parameters=rope("longrope", **factors)))
    peer.save(HERE, "gemma", hf.GemmaForCausalLM(hf.GemmaConfig(**{**SIZES, "head_dim": 10})))
    peer.save(HERE, "gemma_biases", hf.GemmaForCausalLM(hf.GemmaConfig(
        **{**SIZES, "head_dim": 4}, attention_bias=True, tie_word_embeddings=False, hidden_act="relu")))
    peer.save(HERE, "dynamic", llama(rope_parameters=rope("dynamic", factor=2.0)))
    peer.save(HERE, "yarn_scales", llama(rope_parameters=rope("yarn", mscale=1.5, mscale_all_dim=0.7, **long)))
    peer.tidy(HERE)
    frequencies(factors)


main()
