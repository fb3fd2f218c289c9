#!/usr/bin/env python3
"""Speed of training with two ranks of one thread against one rank of two threads, here and in PyTorch's DDP (gloo), in turns.

    python3 scripts/bench_ranks.py target/release/vitreous --text FILE [--rounds 3] [--mpirun mpirun.mpich] [--only small|gpt] [--no-peer]

Needs an MPI and, for the peer, torch and transformers. Two models in f32: the small ViT on the built-in images (batches of 128, two of
them in an update) and a GPT of 6 x 384 on the characters of FILE (batches of 8 x 128, two in an update). Ours is `vitreous train`, whose
metrics.jsonl tells samples per second; the first lines are left out. The peer is a loop over random data with the same sizes: one
process of two threads that accumulates two batches, against two processes of one thread under DistributedDataParallel. Both sides run an
update for the same batches in both forms. The table has medians. Measure on a quiet machine.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

UPDATES = 40
FIRST = 10


# ---- Ours


def ours(options, name, ranks):
    """Samples per second of `vitreous train`."""
    with tempfile.TemporaryDirectory() as folder:
        run = os.path.join(folder, "run")
        command = [options.binary, "train"]
        if name == "small":
            command += ["small", "train.batch=128"]
        else:
            command += ["characters", "--data", options.text, "train.batch=8", "train.precision=f32", "model.dim=384", "model.depth=6",
                        "model.heads=6", "text.max_tokens=128"]
        command += [f"train.accumulate={2 // ranks}", "train.epochs=1", "output.log_steps=5", "--out", run, "--device", "cpu"]
        command += ["--threads", str(2 // ranks)]
        if ranks > 1:
            more = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"] if "openmpi" in options.mpirun else []
            command = [options.mpirun, *more, "-n", str(ranks), *command]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        metrics = pathlib.Path(run, "metrics.jsonl")
        rates = []
        begin = time.monotonic()
        while process.poll() is None and time.monotonic() - begin < 120:
            time.sleep(0.5)
            rates = rates_of(metrics)
            if len(rates) >= 2 + options.lines:
                process.terminate()
                break
        _, said = process.communicate(timeout=120)
        rates = rates_of(metrics)[2:]
        if not rates:
            sys.exit(f"no metrics of {' '.join(command)}: {said}")
        return statistics.median(rates)


def rates_of(metrics):
    if not metrics.exists():
        return []
    lines = []
    for line in metrics.read_text().splitlines():
        try:
            lines.append(json.loads(line))
        except ValueError:
            pass
    keys = ("images_per_second", "tokens_per_second")
    return [line[key] for line in lines for key in keys if key in line]


# ---- The peer, which runs this file again in each of its processes


class Small:
    """The small ViT's sizes."""

    batch = 128

    def __new__(cls):
        import torch

        layer = torch.nn.TransformerEncoderLayer(128, 4, 512, 0.1, "gelu", batch_first=True)
        model = torch.nn.Sequential(torch.nn.Linear(192, 128), torch.nn.TransformerEncoder(layer, 6, enable_nested_tensor=False))
        head = torch.nn.Linear(128, 10)

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model, self.head = model, head

            def forward(self, patches, labels):
                return torch.nn.functional.cross_entropy(self.head(self.model(patches).mean(1)), labels)

        return Model(), (torch.randn(cls.batch, 16, 192), torch.randint(10, (cls.batch,)))


class Gpt:
    """A GPT of 6 x 384."""

    batch = 8

    def __new__(cls):
        import torch
        import transformers as hf

        sizes = dict(vocab_size=96, n_positions=128, n_embd=384, n_layer=6, n_head=6)
        model = hf.GPT2LMHeadModel(hf.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, **sizes))
        tokens = torch.randint(96, (cls.batch, 128))

        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.model = model

            def forward(self, tokens):
                return self.model(tokens, labels=tokens).loss

        return Model(), (tokens,)


def peer_process(name):
    """Samples per second of all processes; rank 0 prints."""
    import contextlib

    import torch

    size = int(os.environ.get("WORLD_SIZE", "1"))
    torch.set_num_threads(2 // size)
    torch.manual_seed(1)
    model, batch = (Small if name == "small" else Gpt)()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if size > 1:
        torch.distributed.init_process_group("gloo")
        model = torch.nn.parallel.DistributedDataParallel(model)
    times = []
    for _ in range(UPDATES):
        begin = time.perf_counter()
        optimizer.zero_grad(set_to_none=True)
        for index in range(2 // size):
            waits = index + 1 < 2 // size and size > 1
            with model.no_sync() if waits else contextlib.nullcontext():
                model(*batch).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        times.append(time.perf_counter() - begin)
    if os.environ.get("RANK", "0") == "0":
        print(2 * len(batch[0]) * (128 if name == "gpt" else 1) / statistics.median(times[FIRST:]))


def peer(name, ranks):
    command = [sys.executable, os.path.abspath(__file__), "--peer", name]
    if ranks > 1:
        command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks), *command[1:]]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": str(2 // ranks)})
    if done.returncode:
        sys.exit(done.stderr)
    return float(re.findall(r"[\d.]+", done.stdout)[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary", nargs="?")
    parser.add_argument("--text")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--lines", type=int, default=8, help="lines of metrics, each of five updates")
    parser.add_argument("--mpirun", default=shutil.which("mpirun.mpich") or "mpirun")
    parser.add_argument("--only", default="")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--peer", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peer:
        return peer_process(options.peer)
    print("| model | one rank, two threads | two ranks | ratio | PyTorch, one process | DDP, two | ratio | ours / DDP |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|", flush=True)
    for name in ["small", "gpt"]:
        if options.only not in name:
            continue
        sides = [lambda: ours(options, name, 1), lambda: ours(options, name, 2)]
        sides += [] if options.no_peer else [lambda: peer(name, 1), lambda: peer(name, 2)]
        rounds = [[side() for side in sides] for _ in range(options.rounds)]
        medians = [statistics.median(column) for column in zip(*rounds)]
        ratio = lambda a, b: statistics.median(row[b] / row[a] for row in rounds)
        cells = [f"{medians[0]:,.0f}", f"{medians[1]:,.0f}", f"{ratio(0, 1):.3f}"]
        if len(sides) > 2:
            cells += [f"{medians[2]:,.0f}", f"{medians[3]:,.0f}", f"{ratio(2, 3):.3f}", f"{ratio(3, 1):.2f}"]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
