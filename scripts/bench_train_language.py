#!/usr/bin/env python3
"""Times training steps of language models here and in PyTorch, in turns, on the CPU; prints a Markdown table of medians.

    python3 scripts/bench_train_language.py [--rounds N] [--seconds S] [--only NAME] [--binary target/release/vitreous]

Needs python3 with torch and transformers, and a built binary. GPT-2 124M with a batch of 4 x 512, and a model of characters (6 layers of
width 384, 65 tokens) with a batch of 16 x 256. A step is forward, backward, clipping at 1 and AdamW. PyTorch runs transformers' GPT-2
with its scaled-dot-product attention, in f32 and under bf16 autocast, eager and compiled; the faster of the two counts. Neither side has dropout.
In every round each side runs while the others sleep, and the ratio is the median of those of the rounds. Measure on a quiet machine.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import tempfile
import time

import torch
import transformers as hf

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
CHARACTERS = dict(vocab_size=65, n_positions=256, n_embd=384, n_layer=6, n_head=6)
# Both sides train this: `vitreous bench` the saved configuration, PyTorch the model built from it. GPT-2's own configuration drops 0.1.
WITHOUT_DROPOUT = dict(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
CASES = {"GPT-2 124M, 4 x 512": ({}, 4, 512), "characters 6 x 384, 16 x 256": (CHARACTERS, 16, 256)}


def ours(binary, model, batch, length, precision, seconds):
    """Seconds of a step."""
    command = [binary, "bench", model, "--mode", "train", "--batch", str(batch), "--tokens", str(length), "--precision", precision,
               "--seconds", str(seconds), "--device", "cpu", "--json", "--quiet"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return json.loads(found)["median_ms"] / 1e3


class Peer:
    """Training steps of transformers' GPT-2."""

    def __init__(self, sizes, batch, length, precision, compiled):
        torch.manual_seed(1)
        self.model = hf.GPT2LMHeadModel(hf.GPT2Config(**sizes, **WITHOUT_DROPOUT, use_cache=False)).train()
        decays = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        groups = [dict(params=decays, weight_decay=0.05), dict(params=others, weight_decay=0.0)]
        self.optimizer = torch.optim.AdamW(groups, lr=1e-4, fused=True)
        self.tokens = torch.randint(self.model.config.vocab_size, (batch, length + 1))
        self.precision = precision
        self.forward = torch.compile(self.loss) if compiled else self.loss
        for _ in range(2):
            self.step()

    def loss(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            logits = self.model(self.tokens[:, :-1]).logits
        return torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), self.tokens[:, 1:].flatten())

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        self.forward().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()

    def time(self, seconds):
        """The median seconds of a step."""
        times, begin = [], time.perf_counter()
        while len(times) < 3 or time.perf_counter() - begin < seconds:
            before = time.perf_counter()
            self.step()
            times.append(time.perf_counter() - before)
        return statistics.median(times)


def measure(binary, sizes, batch, length, precision, rounds, seconds):
    with tempfile.TemporaryDirectory() as folder:
        hf.GPT2Config(**sizes, **WITHOUT_DROPOUT, architectures=["GPT2LMHeadModel"]).save_pretrained(folder)
        peers = [Peer(sizes, batch, length, precision, compiled) for compiled in [False, True]]
        found = []
        for _ in range(rounds):
            own = ours(binary, folder, batch, length, precision, seconds)
            found.append((own, *(peer.time(seconds) for peer in peers)))
            print("  ", " ".join(f"{value:.3f} s" for value in found[-1]), flush=True)
    own, eager, compiled = (statistics.median(column) for column in zip(*found))
    ratio = statistics.median(min(row[1:]) / row[0] for row in found)
    tokens = batch * length
    return f"{tokens / own:,.0f} | {tokens / eager:,.0f} | {tokens / compiled:,.0f} | {ratio:.2f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--only", default="")
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/vitreous"))
    options = parser.parse_args()
    rows = []
    for name, (sizes, batch, length) in CASES.items():
        for precision in ["f32", "bf16"]:
            if options.only in name:
                print(name, precision, flush=True)
                rows.append(f"| {name} | {precision} | " + measure(
                    options.binary, sizes, batch, length, precision, options.rounds, options.seconds) + " |")
    print("\n| model | precision | vitreous, tokens/s | PyTorch eager | compiled | ratio to the faster |\n|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
