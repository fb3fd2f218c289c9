"""What the trials of several ranks have in common: kill_ranks, try_slurm and try_hosts."""

import os
import pathlib

RECIPE = [
    "train", "small", "model.patch=16", "model.dim=16", "model.depth=2", "model.heads=2", "model.mlp_dim=32",
    "model.stochastic_depth=0.1", "train.batch=250", "train.ema=0.9", "output.checkpoint_steps=1", "--device", "cpu",
]  # fmt: skip


def ranks_of(launcher, binary):
    """The processes below a launcher that run this program."""
    found, left = [], [launcher]
    while left:
        parent = left.pop()
        try:
            for task in os.listdir(f"/proc/{parent}/task"):
                children = pathlib.Path(f"/proc/{parent}/task/{task}/children").read_text()
                left += [int(child) for child in children.split()]
            if os.path.samefile(f"/proc/{parent}/exe", binary):
                found.append(parent)
        except OSError:
            pass
    return sorted(found)


def results(run):
    """The bytes that must be the same."""
    files = [path for folder in ("checkpoints", "model", "best") for path in (run / folder).rglob("*")]
    files.append(run / "evaluation.json")
    kept = [path for path in files if path.is_file() and not path.name.endswith((".partial", ".begun"))]
    return {str(path.relative_to(run)): path.read_bytes() for path in kept}


def differences(one, many):
    """The files that are not the same in two runs."""
    one, many = results(one), results(many)
    return [name for name in sorted(one.keys() | many.keys()) if one.get(name) != many.get(name)]


def processes(binary, mark):
    """The processes that run this program and have this text in their environment, by rank."""
    found = []
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            if not os.path.samefile(f"/proc/{number}/exe", binary):
                continue
            variables = pathlib.Path(f"/proc/{number}/environ").read_bytes().split(b"\0")
        except OSError:
            continue
        variables = dict(pair.decode(errors="replace").partition("=")[::2] for pair in variables)
        if mark not in variables.items():
            continue
        rank = next((variables[name] for name in ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK") if name in variables), "0")
        found.append((int(rank), int(number)))
    return [number for _, number in sorted(found)]


def saved_steps(run):
    """The steps of the checkpoints that are there."""
    names = [path.name for path in (run / "checkpoints").glob("*")] if (run / "checkpoints").is_dir() else []
    return sorted(names)
