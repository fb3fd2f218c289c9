"""Encoder-decoders of T5-small's and BART-base's shape on the CPU, in turns: greedy and beam-4 decoding of 200 sentences by Vitreous,
transformers' `generate` and CTranslate2.

    cargo build --release -p vitreous
    python scripts/bench_seq2seq.py [--rounds 3] [--precision f32|bf16]     (torch, transformers, safetensors, ctranslate2)

Weights are random, so no text ends by itself: each has as many tokens as are allowed, for all programs. Tokens are bytes (ByT5's
tokenizer), which takes no part in the time of any of them. All programs are timed with the model open and warm: ours is the time that the
command takes for the sentences twice, in two files, less its time for them once.
"""

import argparse
import json
import pathlib
import random
import re
import subprocess
import tempfile
import time

import torch
import transformers as hf

SENTENCES, TOKENS, BATCH = 200, 32, 32
BINARY = pathlib.Path(__file__).resolve().parents[1] / "target" / "release" / "vitreous"


def models(folder):
    torch.manual_seed(1)
    t5 = hf.T5ForConditionalGeneration(hf.T5Config(decoder_start_token_id=0))
    bart = hf.BartForConditionalGeneration(hf.BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, pad_token_id=0, eos_token_id=1, bos_token_id=2, decoder_start_token_id=0,
        forced_eos_token_id=None, normalize_before=False))  # the last is for CTranslate2's converter
    for name, model in [("t5-small", t5), ("bart-base", bart)]:
        path = folder / name
        model.eval().save_pretrained(path)
        (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer"}))
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "decoder_start_token_id": 0, "pad_token_id": 0}))
        yield name, path, model


def ours(path, lines, beam, precision):
    def seconds(times):
        command = [BINARY, "generate", path, *["--file", lines] * times, "--max-tokens", TOKENS, "--min-tokens", TOKENS - 1, "--beam", beam,
                   "--precision", precision, "--device", "cpu", "--json"]
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
        return float(re.search(r"the model took ([0-9.]+) s", done.stderr).group(1))

    return seconds(2) - seconds(1)


def transformers(model, rows, beam):
    start = time.perf_counter()
    with torch.inference_mode():
        for at in range(0, len(rows), BATCH):
            some = rows[at:at + BATCH]
            width = max(map(len, some))
            tokens = torch.tensor([row + [0] * (width - len(row)) for row in some])
            mask = torch.tensor([[1] * len(row) + [0] * (width - len(row)) for row in some])
            model.generate(tokens, attention_mask=mask, num_beams=beam, max_new_tokens=TOKENS, min_new_tokens=TOKENS - 1, do_sample=False)
    return time.perf_counter() - start


def ctranslate2_translator(path, folder):
    import ctranslate2

    target = folder / f"{path.name}-ct2"
    converter = ctranslate2.converters.TransformersConverter(str(path))
    converter.convert(str(target), force=True)
    return ctranslate2.Translator(str(target), device="cpu", inter_threads=1, intra_threads=torch.get_num_threads())


def ctranslate2_time(translator, rows, names, beam):
    sources = [[names(token) for token in row] for row in rows]
    start = time.perf_counter()
    translator.translate_batch(sources, beam_size=beam, max_decoding_length=TOKENS, min_decoding_length=TOKENS - 1, max_batch_size=BATCH)
    return time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="f32")
    options = parser.parse_args()
    draw = random.Random(1)
    words = "the a cat dog house tree runs sits on under with small large green old new".split()
    sentences = [" ".join(draw.choice(words) for _ in range(draw.randint(4, 12))) for _ in range(SENTENCES)]
    tokenizer = hf.ByT5Tokenizer()
    rows = sorted((tokenizer(text).input_ids for text in sentences), key=len, reverse=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        lines = folder / "lines.txt"
        lines.write_text("\n".join(sentences) + "\n")
        for name, path, model in models(folder):
            try:
                translator = ctranslate2_translator(path, folder)
            except Exception as error:  # a version that does not know the tokenizer
                translator = None
                print(f"{name}: CTranslate2 is left out: {error}")
            for beam in (1, 4):
                times = {"vitreous": [], "transformers": [], "ctranslate2": []}
                for _ in range(options.rounds):
                    times["vitreous"].append(ours(path, lines, beam, options.precision))
                    times["transformers"].append(transformers(model, rows, beam))
                    if translator:
                        times["ctranslate2"].append(ctranslate2_time(translator, rows, tokenizer.convert_ids_to_tokens, beam))
                best = {peer: min(found) for peer, found in times.items() if found}
                print(f"{name}, beam {beam}, {options.precision}: " + ", ".join(
                    f"{peer} {seconds:.2f} s ({SENTENCES / seconds:.1f}/s, {seconds / best['vitreous']:.2f} x)" for peer, seconds in best.items()))


main()
