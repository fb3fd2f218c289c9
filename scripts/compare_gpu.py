"""Compares our engine and PyTorch on a GPU, in turns: the table in BENCHMARKS.md.

    python scripts/compare_gpu.py compile [ROW ...]
    python scripts/compare_gpu.py target/release/vitreous [ROUNDS [ROW ...]]

`compile` makes PyTorch compile every model first, so that nothing else runs while something is timed. Then, for each
model and mode, `vitreous bench` and `bench_gpu.py` run one after the other, ROUNDS times (2); the best median of each
counts. Needs PyTorch with CUDA; prints one line per measurement and a table at the end. A ROW is a part of a row's
name, such as `vit_large` or `vit_base_patch16_224 256 infer`; without any, all rows are compared.
"""
import json
import os
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = [
    ("vit_base_patch16_224", 256, "train"),
    ("vit_base_patch16_224", 256, "infer"),
    ("vit_small_patch16_224", 512, "train"),
    ("vit_small_patch16_224", 512, "infer"),
    ("vit_large_patch16_224", 128, "train"),
    ("vit_large_patch16_224", 128, "infer"),
    ("vit_cifar", 1024, "train"),
    ("vit_cifar", 1024, "infer"),
    ("vit_base_patch16_224", 1, "infer"),
]


def chosen(parts):
    rows = [row for row in ROWS if not parts or any(part in " ".join(map(str, row)) for part in parts)]
    if not rows:
        sys.exit("no row matches; rows: " + ", ".join(" ".join(map(str, row)) for row in ROWS))
    return rows


def peers(row):
    """The modes of PyTorch: inference with bf16 weights and, except for batch 1, with autocast."""
    _, batch, mode = row
    return [mode, "autocast"] if mode == "infer" and batch > 1 else [mode]


def peer(row, mode, *more):
    model, batch, _ = row
    return [sys.executable, os.path.join(HERE, "bench_gpu.py"), model, str(batch), mode, *more]


def ours(program, row):
    model, batch, mode = row
    return [program, "bench", model, "--batch", str(batch), "--mode", mode, "--precision", "bf16", "--device", "cuda:0",
            "--seconds", "1.5", "--json"]


def measured(command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if not lines:
        print("failed:", command, done.stderr[-500:], flush=True)
        return None
    return json.loads(lines[-1])


def main():
    if sys.argv[1] == "compile":
        # Half of them at a time: as many as fit into the GPU's memory.
        commands = [peer(row, mode, "warm") for row in chosen(sys.argv[2:]) for mode in peers(row)]
        for wave in (commands[0::2], commands[1::2]):
            running = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in wave]
            if any([process.wait() for process in running]):
                sys.exit("PyTorch failed to compile some models: see above")
        return
    program, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 2
    rows, best = chosen(sys.argv[3:]), {}
    for _ in range(rounds):
        for row in rows:
            commands = {"vitreous": ours(program, row)} | {mode: peer(row, mode) for mode in peers(row)}
            for who, command in commands.items():
                result = measured(command)
                if result is None:
                    continue
                before = best.get((row, who))
                if before is None or result["median_ms"] < before["median_ms"]:
                    best[row, who] = result
                print(row, who, f'{result["median_ms"]:.3f} ms', f'{result["images_per_second"]:.0f}/s', flush=True)
    print("| model | | batch | ours, ms | images/s | PyTorch, images/s (autocast) | ratio | share of 790 TFLOP/s |")
    print("|---|---|--:|--:|--:|--:|--:|--:|")
    for row in rows:
        mine, others = best.get((row, "vitreous")), [best.get((row, mode)) for mode in peers(row)]
        if mine and all(others):
            speeds = " (".join(f'{other["images_per_second"]:.0f}' for other in others) + ")" * (len(others) - 1)
            ratios = " (".join(f'{other["median_ms"] / mine["median_ms"]:.2f}' for other in others) + ")" * (len(others) - 1)
            print(f'| {row[0]} | {row[2]} | {row[1]} | {mine["median_ms"]:.2f} | {mine["images_per_second"]:.0f} | '
                  f'{speeds} | {ratios} | {mine["gflops"] / 1e3 / 790:.2f} |', flush=True)


main()
