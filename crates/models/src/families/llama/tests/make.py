"""Makes the fixtures of LLaMA and its relatives: tiny models with random weights, saved by transformers, with its outputs for padded
tokens.

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
SIZES = dict(vocab_size=31, hidden_size=24, intermediate_size=20, num_hidden_layers=2, num_attention_heads=6,
             num_key_value_heads=2, max_position_embeddings=16)


def llama(**changes):
    return hf.LlamaForCausalLM(hf.LlamaConfig(**{**SIZES, **changes}))


def rope(kind, **more):
    return {"rope_type": kind, "rope_theta": 100.0, **more}


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
    peer.tidy(HERE)


main()
