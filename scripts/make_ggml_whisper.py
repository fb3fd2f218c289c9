#!/usr/bin/env python3
"""Write OpenAI's Whisper checkpoint as the file that whisper.cpp reads, to time whisper.cpp beside ours (bench_whisper.py --ggml).

    python scripts/make_ggml_whisper.py tiny.en.pt OUT.bin      # needs torch, numpy and openai-whisper (filters, vocabulary)

The format: magic, eleven settings, mel filters, the tokens' bytes, then each tensor with its name, type and shape, fastest axis first.
Matrices are f16, as in whisper.cpp's own downloads: its convolutions refuse f32.
"""

import argparse
import base64
import struct
from pathlib import Path

import numpy as np
import torch
import whisper

MAGIC = 0x67676D6C
F16 = 1
SETTINGS = ["n_vocab", "n_audio_ctx", "n_audio_state", "n_audio_head", "n_audio_layer", "n_text_ctx", "n_text_state", "n_text_head",
            "n_text_layer", "n_mels"]


def tokens(multilingual):
    name = "multilingual.tiktoken" if multilingual else "gpt2.tiktoken"
    lines = (Path(whisper.__file__).parent / "assets" / name).read_text().splitlines()
    ranks = [(int(rank), base64.b64decode(token)) for token, rank in (line.split() for line in lines if line)]
    return [token for _, token in sorted(ranks)]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    arguments = parser.parse_args()
    checkpoint = torch.load(arguments.model, map_location="cpu", weights_only=True)
    settings = checkpoint["dims"]
    filters = np.load(Path(whisper.__file__).parent / "assets" / "mel_filters.npz")[f"mel_{settings['n_mels']}"].astype(np.float32)
    vocabulary = tokens(settings["n_vocab"] >= 51865)
    with open(arguments.out, "wb") as out:
        out.write(struct.pack("I", MAGIC))
        out.write(struct.pack("11i", *(settings[name] for name in SETTINGS), F16))
        out.write(struct.pack("2i", *filters.shape) + filters.tobytes())
        out.write(struct.pack("i", len(vocabulary)))
        for token in vocabulary:
            out.write(struct.pack("i", len(token)) + token)
        for name, tensor in checkpoint["model_state_dict"].items():
            values = tensor.squeeze().float().numpy()
            # Biases of convolutions are added to [channels, frames].
            if name in ("encoder.conv1.bias", "encoder.conv2.bias"):
                values = values.reshape(-1, 1)
            is_half = values.ndim >= 2 and "bias" not in name and "positional_embedding" not in name
            values = np.ascontiguousarray(values.astype(np.float16 if is_half else np.float32))
            encoded = name.encode()
            out.write(struct.pack("3i", values.ndim, len(encoded), int(is_half)))
            out.write(struct.pack(f"{values.ndim}i", *reversed(values.shape)) + encoded + values.tobytes())


main()
