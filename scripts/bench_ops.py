#!/usr/bin/env python3
"""Times our engine and PyTorch in turns, op by op and on whole models; prints a Markdown table of medians.

Needs python3 with torch, and cargo. From anywhere in the repository:

    python3 scripts/bench_ops.py [--only SUBSTRING] [--rounds N] [--seconds S]

Both sides get the same inputs, and their results (including gradients) are compared before anything is timed; the
script fails if they disagree. In every round one side runs while the other sleeps, then they swap; the reported ratio
is the median of the ratios per round, so that a temporary slowdown of the machine favours neither side. All cores are
used.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import torch

import bench_peers

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
# Runs before results are compared: after a few training steps, updates show in losses and parameters.
COMPARED_RUNS = 3
# PyTorch's threads keep spinning for a while after a run; wait before the other side's turn.
REST_SECONDS = 0.05
# The fraction of one core that a side may use while the other one is timed.
IDLE_LIMIT = 0.05


def build_engine() -> str:
    """Builds the benchmark and returns its path."""
    command = ["cargo", "bench", "-p", "vitreous-engine", "--bench", "ops", "--no-run", "--message-format=json"]
    built = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    messages = [json.loads(line) for line in built.stdout.splitlines() if line.startswith("{")]
    paths = [m["executable"] for m in messages if m.get("target", {}).get("name") == "ops" and m.get("executable")]
    return paths[-1]


class Engine:
    """One benchmark of our engine, in its own process."""

    def __init__(self, binary: str, name: str):
        self.process = subprocess.Popen(
            [binary, "serve", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
        )
        self.threads = int(self.answer().split()[1])

    def answer(self) -> str:
        line = self.process.stdout.readline()
        if not line:
            raise SystemExit(f"our engine exited with status {self.process.wait()}")
        return line.strip()

    def ask(self, request: str) -> str:
        self.process.stdin.write(request + "\n")
        return self.answer()

    def seconds(self, runs: int) -> float:
        return float(self.ask(f"run {runs}"))

    def results(self) -> torch.Tensor:
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "results.f32")
            count = int(self.ask(f"write {path}"))
            return torch.from_file(path, size=count, dtype=torch.float32).clone()

    def cpu_seconds(self) -> float:
        """CPU time used so far; 0 if the system does not report it."""
        try:
            fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            return 0.0
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def torch_seconds(peer, runs: int) -> float:
    start = time.perf_counter()
    for _ in range(runs):
        peer.run()
    return time.perf_counter() - start


def compare(name: str, label: str, engine: Engine, peer) -> float:
    """The largest relative difference of any result; exits if it is too large."""
    for _ in range(COMPARED_RUNS):
        peer.run()
    ours = engine.results()
    wanted = [part.detach().float().flatten() for part in peer.results(ours)]
    sizes = [part.numel() for part in wanted]
    if sum(sizes) != ours.numel():
        raise SystemExit(f"{name}: our engine returns {ours.numel()} values, PyTorch ({label}) {sizes}")
    worst = 0.0
    for index, (mine, theirs) in enumerate(zip(ours.split(sizes), wanted)):
        difference = (torch.linalg.vector_norm(mine - theirs) / torch.linalg.vector_norm(theirs)).item()
        if not difference <= peer.limit:
            raise SystemExit(
                f"{name}: output {index} differs from PyTorch ({label}) by {difference:.1e}, tolerance {peer.limit:.0e}"
            )
        worst = max(worst, difference)
    return worst


def runs_for(seconds: float, measure) -> int:
    """The number of runs that take about this long, after a warm-up."""
    measure(1)
    runs, taken = 1, measure(1)
    while taken < seconds / 4 and runs < 1_000_000:
        runs *= 2
        taken = measure(runs)
    return max(1, round(runs * seconds / taken))


def measure_subject(binary: str, name: str, options) -> list[str]:
    engine = Engine(binary, name)
    torch.set_num_threads(engine.threads)
    peers = bench_peers.PEERS[name]()
    engine.seconds(COMPARED_RUNS)
    differences = {label: compare(name, label, engine, peer) for label, peer in peers.items()}

    sides = {label: (lambda runs, peer=peer: torch_seconds(peer, runs)) for label, peer in peers.items()}
    sides[None] = engine.seconds
    runs = {}
    for label, measure in sides.items():
        runs[label] = runs_for(options.seconds, measure)
        time.sleep(REST_SECONDS)
    times = {label: [] for label in sides}
    # Keyed by whether ours is running: the CPU time of the other side, and the wall time.
    idle_used, idle_time = {True: 0.0, False: 0.0}, {True: 0.0, False: 0.0}
    for _ in range(options.rounds):
        for label, measure in sides.items():
            time.sleep(REST_SECONDS)
            ours_runs = label is None
            other = time.process_time if ours_runs else engine.cpu_seconds
            before, start = other(), time.perf_counter()
            times[label].append(measure(runs[label]) / runs[label])
            idle_time[ours_runs] += time.perf_counter() - start
            idle_used[ours_runs] += other() - before
    engine.close()
    for ours_runs, sleeper in ((True, "PyTorch"), (False, "our engine")):
        share = idle_used[ours_runs] / idle_time[ours_runs]
        if share > IDLE_LIMIT:
            print(f"warning: {name}: {sleeper} used {share:.0%} of a core while the other side ran", file=sys.stderr)

    ours = times.pop(None)
    rows = []
    for label, theirs in times.items():
        title = f"{name} ({label})" if label else name
        ratio = statistics.median(their / our for their, our in zip(theirs, ours))
        columns = [title, f"{statistics.median(theirs) * 1e3:.3f}", f"{statistics.median(ours) * 1e3:.3f}"]
        columns += [f"{ratio:.2f}", f"{differences[label]:.0e}"]
        rows.append(f"| {' | '.join(columns)} |")
    return rows


def processor() -> str:
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def header(options) -> str:
    def git(*arguments):
        return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True).stdout.strip()

    changed = " (modified)" if git("status", "--porcelain", "--untracked-files=no") else ""
    now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    commit = git("rev-parse", "--short", "HEAD") + changed
    return (
        f"{processor()}, {os.cpu_count()} cores; PyTorch {torch.__version__}; commit {commit}; {now}. "
        f"Medians of {options.rounds} rounds of about {options.seconds} s per side.\n\n"
        "| benchmark | PyTorch ms | ours ms | PyTorch / ours | difference |\n|---|--:|--:|--:|--:|"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="SUBSTRING", help="run only benchmarks whose name contains this")
    parser.add_argument("--rounds", type=int, default=9, metavar="N")
    parser.add_argument("--seconds", type=float, default=0.25, metavar="S", help="time per side in each round")
    options = parser.parse_args()
    binary = build_engine()
    names = subprocess.run([binary, "list"], check=True, capture_output=True, text=True).stdout.split()
    if set(names) != set(bench_peers.PEERS):
        raise SystemExit(f"only one side has {sorted(set(names) ^ set(bench_peers.PEERS))}")
    print(header(options), flush=True)
    for name in names:
        if options.only in name:
            print("\n".join(measure_subject(binary, name, options)), flush=True)


if __name__ == "__main__":
    main()
