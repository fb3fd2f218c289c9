"""Encoder-decoders of T5-small's and BART-base's shape on the CPU, in turns: the encoder, whole training steps, and greedy and beam-4
decoding of 200 sentences, in f32 and bf16, by Vitreous, PyTorch (transformers; eager and compiled) and CTranslate2 (decoding, f32).

    cargo build --release -p vitreous
    python scripts/bench_seq2seq.py [--rounds 3] [--precisions f32 bf16] [--parts encoder train decode] [--models t5-small bart-base]

Needs torch, transformers, safetensors, ctranslate2, and a C++ compiler for torch.compile. About 25 minutes on two cores.

Encoder: 32 texts of 128 tokens, without padding. Training: forward, backward, clipping at 1 and AdamW, dropout 0.1, 8 pairs (BART: 4) of
128 and 128 tokens; PyTorch in bf16 is autocast. Ours are the medians of `vitreous bench`, PyTorch's those of as many seconds, behind a
warm-up. Decoding: weights are random, so no text ends by itself: each has as many tokens as are allowed, for all programs. Tokens are bytes
(ByT5's tokenizer), which takes no part in the time of any of them. All programs are timed with the model open and warm: ours is the time
that the command takes for the sentences twice, in two files, less its time for them once. Each row has the best round of each program.
"""

import argparse
import copy
import json
import os
import pathlib
import random
import re
import statistics
import subprocess
import tempfile
import time

import torch
import transformers as hf

SENTENCES, TOKENS, BATCH = 200, 32, 32
LENGTH, ENCODED, TRAINED, SECONDS = 128, 32, {"t5-small": 8, "bart-base": 4}, 5
BINARY = pathlib.Path(__file__).resolve().parents[1] / "target" / "release" / "vitreous"
PRESETS = {"t5-small": "t5_small", "bart-base": "bart_base"}


def models(folder, names):
    torch.manual_seed(1)
    t5 = hf.T5ForConditionalGeneration(hf.T5Config(decoder_start_token_id=0))
    bart = hf.BartForConditionalGeneration(hf.BartConfig(
        d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
        encoder_ffn_dim=3072, decoder_ffn_dim=3072, pad_token_id=0, eos_token_id=1, bos_token_id=2, decoder_start_token_id=0,
        forced_eos_token_id=None, normalize_before=False))  # the last is for CTranslate2's converter
    for name, model in [("t5-small", t5), ("bart-base", bart)]:
        if name not in names:
            continue
        path = folder / name
        model.eval().save_pretrained(path)
        # CTranslate2's converter of BART asks for a first token, which ByT5 does not have.
        (path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "ByT5Tokenizer", "bos_token": "<unk>"}))
        (path / "generation_config.json").write_text(json.dumps({"eos_token_id": 1, "decoder_start_token_id": 0, "pad_token_id": 0}))
        yield name, path, model


# Encoders and training


def bench(name, precision, *options):
    """Seconds of a run."""
    command = [BINARY, "bench", PRESETS[name], "--precision", precision, "--tokens", LENGTH, "--seconds", SECONDS,
               "--threads", torch.get_num_threads(), "--device", "cpu", "--json", *options]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["median_ms"] / 1e3


def median_time(run):
    run()
    run()
    times, start = [], time.perf_counter()
    while len(times) < 3 or time.perf_counter() - start < SECONDS:
        before = time.perf_counter()
        run()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def encoder_runs(model, precision):
    """PyTorch's encoder, eager and compiled, with weights of the precision."""
    encoder = copy.deepcopy(model.get_encoder()).eval()
    encoder = encoder.to(torch.bfloat16) if precision == "bf16" else encoder
    tokens = torch.randint(3, model.config.vocab_size, (ENCODED, LENGTH))

    def of(module):
        def run():
            with torch.inference_mode():
                module(input_ids=tokens)
        return run

    return {"PyTorch eager": of(encoder), "PyTorch compiled": of(torch.compile(encoder))}


def training_runs(model, precision, batch):
    """PyTorch's training steps, eager and compiled."""
    source, target, wanted = (torch.randint(3, model.config.vocab_size, (batch, LENGTH)) for _ in range(3))

    def of(compiles):
        own = copy.deepcopy(model).train()
        optimizer = torch.optim.AdamW(own.parameters(), lr=1e-5, weight_decay=0.05, fused=True)

        def loss():
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
                logits = own(input_ids=source, decoder_input_ids=target, use_cache=False).logits
            return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), wanted.flatten())

        forward = torch.compile(loss) if compiles else loss

        def run():
            forward().backward()
            torch.nn.utils.clip_grad_norm_(own.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        return run

    return {"PyTorch eager": of(False), "PyTorch compiled": of(True)}


def in_turns(title, count, own, peers, rounds):
    times = {"vitreous": [], **{peer: [] for peer in peers}}
    for _ in range(rounds):
        times["vitreous"].append(own())
        for peer, run in peers.items():
            try:
                times[peer].append(median_time(run))
            except Exception as error:  # no compiler, or a model that it does not know
                print(f"{title}: {peer} is left out: {str(error).splitlines()[0]}", flush=True)
    report(title, count, times)


def report(title, count, times):
    best = {peer: min(found) for peer, found in times.items() if found}
    print(f"{title}: " + ", ".join(
        f"{peer} {seconds:.2f} s ({count / seconds:.1f}/s, {seconds / best['vitreous']:.2f} x)" for peer, seconds in best.items()), flush=True)


# Decoding


def ours(path, lines, beam, precision):
    def seconds(times):
        command = [BINARY, "generate", path, *["--file", lines] * times, "--max-tokens", TOKENS, "--min-tokens", TOKENS - 1, "--beam", beam,
                   "--precision", precision, "--threads", torch.get_num_threads(), "--device", "cpu", "--json"]
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
    from ctranslate2.converters import transformers as loaders

    # BART's loader, unlike T5's, does not name the tokens that only the model has.
    loader = loaders._MODEL_LOADERS["BartConfig"]
    named = type(loader).get_vocabulary

    def all_named(model, tokenizer):
        tokens = named(loader, model, tokenizer)
        return [*tokens, *(f"<extra {place}>" for place in range(len(tokens), model.config.vocab_size))]

    loader.get_vocabulary = all_named
    target = folder / f"{path.name}-ct2"
    loaders.TransformersConverter(str(path)).convert(str(target), force=True)
    return ctranslate2.Translator(str(target), device="cpu", inter_threads=1, intra_threads=torch.get_num_threads())


def ctranslate2_time(translator, rows, names, beam):
    sources = [[names(token) for token in row] for row in rows]
    start = time.perf_counter()
    found = translator.translate_batch(
        sources, beam_size=beam, max_decoding_length=TOKENS, min_decoding_length=TOKENS - 1, max_batch_size=BATCH)
    seconds = time.perf_counter() - start
    lengths = {len(one.hypotheses[0]) for one in found}
    assert lengths <= {TOKENS - 1, TOKENS}, f"CTranslate2 wrote texts of {lengths} tokens"
    return seconds


def decode(name, path, model, precision, folder, sentences, rounds):
    tokenizer = hf.ByT5Tokenizer()
    rows = sorted((tokenizer(text).input_ids for text in sentences), key=len, reverse=True)
    lines = folder / "lines.txt"
    lines.write_text("\n".join(sentences) + "\n")
    peer = copy.deepcopy(model).to(torch.bfloat16) if precision == "bf16" else model
    # CTranslate2 has no bf16 on processors.
    translator = ctranslate2_translator(path, folder) if precision == "f32" else None
    for beam in (1, 4):
        times = {"vitreous": [], "transformers": [], "ctranslate2": []}
        for _ in range(rounds):
            times["vitreous"].append(ours(path, lines, beam, precision))
            times["transformers"].append(transformers(peer, rows, beam))
            if translator:
                times["ctranslate2"].append(ctranslate2_time(translator, rows, tokenizer.convert_ids_to_tokens, beam))
        report(f"{name}, {SENTENCES} sentences, beam {beam}, {precision}", SENTENCES, times)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precisions", nargs="+", choices=["f32", "bf16"], default=["f32", "bf16"])
    parser.add_argument("--parts", nargs="+", choices=["encoder", "train", "decode"], default=["encoder", "train", "decode"])
    parser.add_argument("--models", nargs="+", choices=list(PRESETS), default=list(PRESETS))
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    draw = random.Random(1)
    words = "the a cat dog house tree runs sits on under with small large green old new".split()
    sentences = [" ".join(draw.choice(words) for _ in range(draw.randint(4, 12))) for _ in range(SENTENCES)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = pathlib.Path(temporary)
        for name, path, model in models(folder, options.models):
            for precision in options.precisions:
                if "encoder" in options.parts:
                    own = lambda: bench(name, precision, "--tower", "encoder", "--batch", ENCODED)
                    title = f"{name}, encoder, {ENCODED} x {LENGTH} tokens, {precision}"
                    in_turns(title, ENCODED, own, encoder_runs(model, precision), options.rounds)
                if "train" in options.parts:
                    batch = TRAINED[name]
                    own = lambda: bench(name, precision, "--mode", "train", "--batch", batch)
                    title = f"{name}, training, {batch} pairs of {LENGTH} tokens each, {precision}"
                    in_turns(title, batch, own, training_runs(model, precision, batch), options.rounds)
                if "decode" in options.parts:
                    decode(name, path, model, precision, folder, sentences, options.rounds)


main()
