"""Makes the fixtures of T5, T5 v1.1, mT5 and ByT5: tiny models with random weights, saved by transformers, with its outputs for padded
pairs, gradients, generated tokens, and the buckets of relative positions.

    python make.py        (torch, transformers, safetensors)
"""

import json
import pathlib
import sys

import torch
import transformers as hf
from transformers.models.t5.modeling_t5 import T5Attention

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1] / "pairs"))

import peer  # noqa: E402

HERE = FOLDER / "fixtures"
SIZES = dict(vocab_size=31, d_model=12, d_kv=5, d_ff=20, num_layers=3, num_decoder_layers=2, num_heads=3,
             relative_attention_num_buckets=8, relative_attention_max_distance=9, decoder_start_token_id=0)


def t5(**changes):
    return hf.T5ForConditionalGeneration(hf.T5Config(**{**SIZES, **changes}))


def untie(model):
    """An output matrix of its own, as the files of v1.1 and mT5 have it."""
    model.lm_head.weight = torch.nn.Parameter(torch.randn_like(model.shared.weight))
    return model


SETTINGS = [
    dict(max_new_tokens=9),
    dict(max_new_tokens=9, num_beams=3, num_return_sequences=3),
    dict(max_new_tokens=9, num_beams=4, length_penalty=2.0, num_return_sequences=2),
    dict(max_new_tokens=9, num_beams=4, length_penalty=-1.0, early_stopping=True, num_return_sequences=4),
    dict(max_new_tokens=9, num_beams=2, length_penalty=0.0, early_stopping="never", num_return_sequences=2),
    dict(max_new_tokens=9, no_repeat_ngram_size=2),
    dict(max_new_tokens=9, num_beams=3, no_repeat_ngram_size=1, num_return_sequences=3),
    dict(max_new_tokens=9, min_new_tokens=4, num_beams=2),
    dict(max_new_tokens=8, forced_bos_token_id=7, forced_eos_token_id=1, num_beams=3),
    dict(max_length=6, min_length=5),
    dict(max_new_tokens=9, repetition_penalty=1.7),
]


def main():
    torch.manual_seed(7)
    model = peer.teach(t5())
    peer.save(HERE, "model", model, unchanged=True)
    peer.gradients(HERE, "model", model)
    peer.generated(HERE, "model", model, SETTINGS)
    gated = peer.teach(untie(t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False, num_decoder_layers=1)))
    peer.save(HERE, "gated", gated, unchanged=True)
    peer.gradients(HERE, "gated", gated)
    peer.generated(HERE, "gated", gated, SETTINGS)
    peer.save(HERE, "silu", t5(feed_forward_proj="silu", relative_attention_num_buckets=4, relative_attention_max_distance=3,
                              num_heads=1, layer_norm_epsilon=1e-3))
    peer.save(HERE, "gated_tied", t5(feed_forward_proj="gated-silu"))
    multilingual = hf.MT5ForConditionalGeneration(hf.MT5Config(**{**SIZES, "d_kv": 4, "num_decoder_layers": None}))
    peer.save(HERE, "mt5", untie(multilingual))
    peer.gradients(HERE, "mt5", multilingual)
    cases = []
    for bidirectional, buckets, distance in [(True, 32, 128), (False, 32, 128), (True, 8, 9), (False, 8, 20), (True, 4, 3)]:
        places = torch.arange(-700, 701)
        numbers = T5Attention._relative_position_bucket(places, bidirectional, buckets, distance)
        cases.append(dict(bidirectional=bidirectional, buckets=buckets, max_distance=distance, numbers=numbers.tolist()))
    (HERE / "buckets.json").write_text(json.dumps(cases, separators=(",", ":")) + "\n")
    peer.tidy(HERE)


main()
