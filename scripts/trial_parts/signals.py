"""Signals that ask a run to stop, a limit on the size of files, and a model file cut off while it is read."""

import json
import os
import shutil
import signal
import time

from . import common

PART = "signals"


def asked_to_stop(trial, place, name, number, whole, words):
    """A run that is asked to stop must save, say so by its exit code, and be resumed to the same bytes."""
    sent = getattr(signal, name)
    place = place / f"{name}-{number}"
    place.mkdir()
    run = place / "run"
    with open(place / "stderr", "wb") as err:
        child = trial.start(["train", *words, "--out", "run"], place, err=err)
        until = time.monotonic() + 20
        metrics = run / "metrics.jsonl"
        while child.poll() is None and time.monotonic() < until and not (metrics.exists() and metrics.stat().st_size):
            time.sleep(0.001)
        time.sleep(trial.random(PART, name, number).random() * 0.2)
        if child.poll() is not None:
            trial.note(f"{name}: the run ended before the signal")
            return
        child.send_signal(sent)
        try:
            child.wait(20)
        except Exception:
            common.end(child)
            trial.violation(PART, f"{name}: training goes on", ["train", *words], place)
            return
    trial.count(PART, name)
    line = f"vitreous train {' '.join(words)} --out run & sleep 0.7; kill -{name[3:]} $!"
    if child.returncode < 0:
        dead = signal.Signals(-child.returncode).name
        trial.violation(PART, f"{name}: death by {dead}, nothing saved", line, place)
        return
    if child.returncode == 0 and not (run / "model").exists():
        trial.violation(PART, f"{name}: exit code 0 although the run did not end", line, place)
    if not list((run / "checkpoints").glob("*.safetensors")):
        trial.violation(PART, f"{name}: no checkpoint was saved", line, place)
    resumed = trial.run(["train", "--resume", "run"], place, timeout=120)
    if trial.judge(PART, ["train", "--resume", "run"], place, resumed, codes=(0,)):
        if common.saved(run) != whole:
            trial.violation(PART, f"{name}: resumed to other bytes", line, place)
    shutil.rmtree(place)


def too_large(trial, place, model):
    """Files may not grow beyond a limit: an error with a message, not a death by SIGXFSZ."""
    folder = place / "limit"
    folder.mkdir()
    shutil.copytree(model, folder / "model")
    common.write_bmp(folder / "x.bmp", (9, 90, 9), 1)
    small = ["small", *common.TINY_IMAGES]
    commands = [
        ["train", *small, "--out", "run"], ["convert", "model", "out"], ["convert", "model", "out.npz"],
        ["explain", "model", "x.bmp", "--out", "pages"], ["summary", "model", "--html", "page.html"],
        ["data", "--preview", "sheet.png"],
    ]
    for blocks in [0, 1, 16, 64]:
        for words in commands:
            result = trial.run(words, folder, file_blocks=blocks, timeout=60)
            trial.count(PART, "limits on file size")
            line = f"sh -c 'ulimit -f {blocks}; exec vitreous {' '.join(words)}'"
            for kind in result.faults():
                trial.violation(PART, f"ulimit -f, {words[0]}: {kind}", line, folder, result)
            for path in folder.iterdir():
                if path.name not in ("model", "x.bmp"):
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def is_mapped(pid, name):
    try:
        with open(f"/proc/{pid}/maps") as maps:
            return name in maps.read()
    except OSError:
        return False


def cut_off(trial, place):
    """A model file that is truncated while it is read: an error with a message, not a death by SIGBUS."""
    folder = place / "cut"
    common.write_large_model(folder / "whole", layers=4)
    common.write_bmp(folder / "x.bmp", (9, 90, 9), 1)
    # Only data with the model's own classes is evaluated.
    config = json.loads((folder / "whole/config.json").read_text())
    for number, name in enumerate(config["id2label"].values()):
        common.write_bmp(folder / "photos/val" / name / "0.bmp", (9, 90, 20 * number), number)
        common.write_bmp(folder / "photos/train" / name / "1.bmp", (9, 90, 20 * number), number)
    os.makedirs(folder / "model")
    for name in ["config.json", "preprocessor_config.json"]:
        shutil.copy(folder / "whole" / name, folder / "model")
    for number in range(9):
        model = folder / "model/model.safetensors"
        with open(folder / "whole/model.safetensors", "rb") as file:
            head = file.read(1 << 16)
        with open(model, "wb") as file:
            file.write(head)
            file.truncate((folder / "whole/model.safetensors").stat().st_size)
        words = [
            ["predict", "model", "x.bmp"], ["convert", "model", "out", "--force"],
            ["eval", "model", "--data", "photos"],
        ][number % 3]
        with open(folder / "stdout", "wb") as out, open(folder / "stderr", "wb") as err:
            child = trial.start(words, folder, out=out, err=err)
            until = time.monotonic() + 5
            while child.poll() is None and time.monotonic() < until and not is_mapped(child.pid, "model.safetensors"):
                pass
            time.sleep(trial.random(PART, "cut", number).random() * 0.05)
            ended = child.poll() is not None
            os.truncate(model, 1 << 16)
            try:
                child.wait(30)
            except Exception:
                common.end(child)
        if ended:
            continue
        trial.count(PART, "model files cut off")
        output = [(folder / name).read_bytes() for name in ("stdout", "stderr")]
        result = common.Result(child.returncode, *output, False, 0)
        line = f"vitreous {' '.join(words)} & sleep 0.05; truncate -s 65536 model/model.safetensors"
        for kind in result.faults():
            about = "model: a file of zeros of several hundred MB, as write_large_model makes it"
            trial.violation(PART, f"truncated while mapped, {words[0]}: {kind}", line, None, result, about)


def run(trial, seconds, minimum):
    place = trial.work / "signals"
    place.mkdir()
    # Only the signal saves: there is no checkpoint before the end of the first epoch.
    words = [word for word in common.TINY_IMAGES if "checkpoint_steps" not in word and "batch" not in word]
    words = ["small", *words, "train.batch=100", "output.checkpoint_steps=0"]
    trial.must(["train", *words, "--out", "whole"], place)
    whole = common.saved(place / "whole")
    too_large(trial, place, place / "whole/model")
    began = time.monotonic()
    number = 0
    while number < 1 or (time.monotonic() - began < seconds and trial.left() > 10):
        for name in ["SIGHUP", "SIGTERM", "SIGINT"]:
            asked_to_stop(trial, place, name, number, whole, words)
        number += 1
    cut_off(trial, place)
    shutil.rmtree(place)
