"""Makes the fixtures of BART, mBART and Marian: tiny models with random weights, saved by transformers, with its outputs for padded
pairs, gradients and generated tokens.

    python make.py        (torch, transformers, safetensors)
"""

import pathlib
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(FOLDER.parents[1] / "pairs"))

import peer  # noqa: E402

HERE = FOLDER / "fixtures"
SIZES = dict(vocab_size=31, d_model=12, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3, decoder_attention_heads=2,
             encoder_ffn_dim=20, decoder_ffn_dim=17, max_position_embeddings=13)
MARIAN = dict(pad_token_id=30, eos_token_id=0, forced_eos_token_id=0, decoder_start_token_id=30, activation_function="swish",
              scale_embedding=True)
MBART = dict(scale_embedding=True, decoder_start_token_id=2)

SETTINGS = [
    dict(max_new_tokens=9),
    dict(max_new_tokens=9, num_beams=3, num_return_sequences=3),
    dict(max_new_tokens=9, num_beams=4, length_penalty=2.0, early_stopping=True, num_return_sequences=4),
    dict(max_new_tokens=9, num_beams=2, length_penalty=-0.5, early_stopping="never", num_return_sequences=2),
    dict(max_new_tokens=9, num_beams=3, no_repeat_ngram_size=3, num_return_sequences=3),
    dict(max_new_tokens=9, no_repeat_ngram_size=2, min_new_tokens=3),
    dict(max_new_tokens=9, forced_bos_token_id=5, num_beams=2),
]


def main():
    torch.manual_seed(7)
    bart = hf.BartForConditionalGeneration(hf.BartConfig(**SIZES))
    peer.save(HERE, "model", peer.teach(bart), unchanged=True)
    peer.gradients(HERE, "model", bart)
    peer.generated(HERE, "model", bart, SETTINGS)
    scaled = hf.BartConfig(**{**SIZES, "scale_embedding": True, "activation_function": "relu", "encoder_layers": 1})
    target = peer.save(HERE, "scaled", hf.BartForConditionalGeneration(scaled))
    # A file without the bias of the logits: the peer then takes zeros.
    model = hf.BartForConditionalGeneration.from_pretrained(target)
    model.final_logits_bias.zero_()
    peer.save(HERE, "scaled", model, unchanged=True)
    tensors = load_file(target / "model.safetensors")
    del tensors["final_logits_bias"]
    save_file(tensors, target / "model.safetensors", metadata={"format": "pt"})
    untied = hf.BartForConditionalGeneration(hf.BartConfig(**{**SIZES, "tie_word_embeddings": False}))
    peer.save(HERE, "untied", untied)
    mbart = hf.MBartForConditionalGeneration(hf.MBartConfig(**{**SIZES, **MBART}))
    peer.save(HERE, "mbart", peer.teach(mbart), unchanged=True)
    peer.gradients(HERE, "mbart", mbart)
    peer.generated(HERE, "mbart", mbart, SETTINGS)
    marian = hf.MarianMTModel(hf.MarianConfig(**{**SIZES, **MARIAN}))
    peer.save(HERE, "marian", peer.teach(marian), unchanged=True)
    peer.gradients(HERE, "marian", marian)
    peer.generated(HERE, "marian", marian, SETTINGS)
    apart = {**SIZES, **MARIAN, "decoder_vocab_size": 23, "pad_token_id": 22, "decoder_start_token_id": 22,
             "share_encoder_decoder_embeddings": False, "d_model": 18}
    peer.save(HERE, "marian_apart", hf.MarianMTModel(hf.MarianConfig(**apart)))
    peer.tidy(HERE)


main()
