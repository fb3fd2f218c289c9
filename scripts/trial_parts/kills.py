"""Runs that are killed at any moment, and resumed until they end: they must end with the same bytes."""

import os
import shutil
import signal
import sys
import time

from . import common

PART = "kills"


class Kind:
    """A kind of run: its words, and what it leaves when nothing disturbs it."""

    def __init__(self, trial, name, words):
        self.name, self.words = name, words
        place = trial.work / "kills" / name
        place.mkdir(parents=True, exist_ok=True)
        self.whole = place / "whole"
        began = time.monotonic()
        trial.must(["train", *words, "--out", "whole"], place)
        self.seconds = time.monotonic() - began
        self.place, self.saved = place, common.saved(self.whole)


def kinds(trial):
    """An image run on the built-in data, one on a few files, and a translator."""
    place = trial.work / "kills"
    common.write_pictures(place / "photos")
    common.write_pairs(place / "pairs.tsv", 200, trial.random("pairs"))
    few = [word for word in common.TINY_IMAGES if not word.startswith("train.batch")] + ["train.batch=4"]
    return [
        Kind(trial, "built-in", ["small", *common.TINY_IMAGES]),
        Kind(trial, "photos", ["small", "--data", "../photos", *few]),
        Kind(trial, "pairs", ["translation", "--data", "../pairs.tsv", *common.TINY_TEXT]),
    ]


def partial_appears(run, child, limit):
    """Waits for a file that is being written, or for the end; says which it was."""
    folders = [run, run / "checkpoints", run / "model", run / "best"]
    until = time.monotonic() + limit
    while child.poll() is None and time.monotonic() < until:
        for folder in folders:
            try:
                if any(name.endswith(".partial") for name in os.listdir(folder)):
                    return True
            except OSError:
                pass
        time.sleep(0.0002)
    return False


def one_run(trial, kind, number):
    """One run with some kills; counts them."""
    numbers = trial.random(PART, kind.name, number)
    place = kind.place / f"{number}"
    place.mkdir()
    run, before = place / "run", place / "before"
    # Data is named relative to where the run starts: the same words from the same depth.
    begin = [word if not word.startswith("../") else "../" + word for word in kind.words]
    begin = ["train", *begin, "--out", "run"]
    words, wanted, history = begin, numbers.randint(1, 8), []
    while True:
        last = len(history) >= wanted
        if not last:
            child = trial.start(words, place)
            if numbers.random() < 0.5:
                # A file in the middle of being written, and not always the first.
                skipped = numbers.choice([0, 0, 0, 1, 2, 5, 9])
                for _ in range(skipped):
                    partial_appears(run, child, 10)
                    time.sleep(0.003)
                hit = partial_appears(run, child, 10)
                moment = "while a file was written" if hit else "after waiting for a file"
            else:
                delay = numbers.random() * kind.seconds * numbers.choice([0.1, 0.5, 1.0])
                time.sleep(delay)
                moment = f"after {delay:.3f} s"
            if child.poll() is None:
                child.send_signal(signal.SIGKILL)
                child.wait()
                trial.count(PART, "kills")
                if "written" in moment:
                    trial.count(PART, "of these, while a file was written")
                history.append(moment)
            elif child.returncode != 0:
                last = True
            else:
                break
        shutil.rmtree(before, ignore_errors=True)
        if run.exists():
            shutil.copytree(run, before)
        # Before its recipe is written there is no run to resume: the same words begin it.
        words = ["train", "--resume", "run"] if (run / "recipe.toml").exists() else begin
        if last:
            result = trial.run(words, place, timeout=120)
            about = f"the run as it was before is in `before`; killed {', '.join(history)}"
            if not trial.judge(PART, words, place, result, codes=(0,), extra=about):
                shutil.rmtree(place)
                return
            break
    trial.count(PART, "runs")
    about = f"the run as it was before the last start is in `before`; killed {', '.join(history)}"
    found = common.saved(run)
    if found != kind.saved:
        names = sorted(name for name in {*found, *kind.saved} if found.get(name) != kind.saved.get(name))
        trial.violation(PART, f"{kind.name}: other bytes", words, place, extra=f"{', '.join(names)}; {about}")
    rest = common.leftovers(run)
    if rest:
        trial.violation(PART, f"{kind.name}: files left over", words, place, extra=f"{', '.join(rest)}; {about}")
    fault = common.metrics_fault(run)
    if fault:
        trial.violation(PART, f"{kind.name}: {fault}", words, place, extra=about)
    shutil.rmtree(place)


def run(trial, seconds, minimum):
    all_kinds = kinds(trial)
    began, number, told = time.monotonic(), 0, 0
    while trial.left() > 3:
        done = trial.counts.get(PART, {}).get("kills", 0)
        if done >= minimum and time.monotonic() - began > seconds:
            break
        # The quick kinds more often than the slow one.
        one_run(trial, all_kinds[[1, 2, 1, 2, 0][number % 5]], number)
        number += 1
        if done - told >= 20:
            told = done
            print(f"trial: {done} kills", file=sys.stderr, flush=True)
