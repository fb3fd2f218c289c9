"""Disks that fill: a command says so and fails, and what was there before is still there."""

import json
import shutil
import subprocess
import time
from pathlib import Path

from . import common

PART = "disks"
# The file system is gone with the namespace, so what is in it is copied out first.
SCRIPT = (
    'mount -t tmpfs -o size="$1" none full && cp -a before/. full/ || exit 99; shift; '
    '"$@"; code=$?; cp -a full/. after/; exit $code'
)


def can_mount(place):
    """Whether a small file system can be mounted in a namespace of its own."""
    probe = 'mount -t tmpfs -o size=300k none "$1"'
    try:
        words = ["unshare", "-m", "sh", "-c", probe, "sh", str(place)]
        return subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def is_whole(trial, path, folder):
    """Whether a file under its final name can be opened."""
    if path.suffix in (".safetensors", ".npz"):
        if path.parent.name == "checkpoints" or path.name == "arrays.npz":
            # Not models: the header has to fit the file.
            bytes_ = path.read_bytes()
            if path.suffix == ".npz":
                return bytes_[-22:-18] == b"PK\x05\x06"
            length = int.from_bytes(bytes_[:8], "little")
            header = json.loads(bytes_[8:8 + length])
            ends = [tensor["data_offsets"][1] for name, tensor in header.items() if name != "__metadata__"]
            return 8 + length + max(ends) == len(bytes_)
        return trial.run(["summary", str(path.relative_to(folder))], folder).code == 0
    try:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".html":
            return path.read_text().rstrip().endswith("</html>")
        elif path.suffix == ".png":
            return path.read_bytes()[-8:-4] == b"IEND"
        elif path.suffix == ".toml":
            import tomllib
            tomllib.loads(path.read_text())
    except ImportError:
        return True
    except ValueError:
        return False
    return True


class Full:
    """A command with a full disk, and the files that it writes when there is room."""

    def __init__(self, name, words, before, most):
        self.name, self.words, self.before, self.most = name, words, before, most
        self.expected = {}


def room_for(folder):
    """The space that a folder takes in pages, with some for the folders themselves."""
    entries = list(folder.rglob("*"))
    return 4096 * (len(entries) + sum(-(-path.stat().st_size // 4096) for path in entries if path.is_file()))


def files_in(folder):
    return {
        str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }


def attempt(trial, case, place, size, mounts):
    """Runs a command with so many bytes of space; gives how it ended and what is there then."""
    for name in ["full", "after"]:
        shutil.rmtree(place / name, ignore_errors=True)
        (place / name).mkdir()
    if mounts:
        words = ["-m", "sh", "-c", SCRIPT, "sh", f"{size}", str(trial.binary), *case.words]
        result = trial.run(words, place, program="unshare", timeout=60)
        return result, place / "after"
    # No file may grow beyond a limit; the signal is ignored, so that the write gives an error.
    shutil.copytree(case.before, place / "full", dirs_exist_ok=True)
    script = 'trap "" XFSZ; ulimit -f "$1"; shift; exec "$@"'
    words = ["-c", script, "sh", f"{size // 512}", str(trial.binary), *case.words]
    return trial.run(words, place, program="sh", timeout=60), place / "full"


def bring(case, place):
    """What is on the disk before, as a copy that is kept with a finding."""
    shutil.rmtree(place / "before", ignore_errors=True)
    shutil.copytree(case.before, place / "before")


def one(trial, case, place, size, mounts):
    bring(case, place)
    result, after = attempt(trial, case, place, size, mounts)
    trial.count(PART, case.name)
    command = " ".join(["vitreous", *case.words])
    line = f"unshare -m sh -c 'mount -t tmpfs -o size={size} none full && cp -a before/. full/; {command}; ls -lR full'"

    def wrong(kind):
        trial.violation(PART, f"{case.name}: {kind}", line, place, result)

    if result.code == 99:
        return trial.note(f"disks: {case.name}: {size} bytes do not hold what was there before")
    for kind in result.faults():
        wrong(kind)
    if result.code not in (0, 1, 2):
        return
    there, before = files_in(after), files_in(case.before)
    for name in sorted(before):
        if name not in there:
            wrong("an existing file is gone")
        elif there[name] != before[name] and there[name] != case.expected.get(name):
            # A page that is written again holds the time; the metrics of a run grow.
            if not name.endswith((".html", ".jsonl", ".lock")) and ".tfevents" not in name:
                wrong("an existing file was destroyed")
    if result.code == 0:
        for name, content in case.expected.items():
            told = name not in there or (name.endswith((".safetensors", ".npz")) and there[name] != content)
            if told:
                wrong("exit code 0 although something is missing")
                break
    for name in there:
        try:
            whole = name.endswith((".partial", ".tmp")) or is_whole(trial, after / name, after)
        except (OSError, ValueError):
            whole = False
        if not whole:
            kind = Path(name).suffix or name
            wrong(f"a half-written file under its final name: {kind}")
    if common.leftovers(after) and result.code in (0, 1, 2):
        wrong("a temporary file was left over")
    if case.name == "train" and result.code == 1 and (after / "run/recipe.toml").exists():
        resumed = trial.run(["train", "--resume", str(after / "run")], place, timeout=120)
        if resumed.code != 0:
            trial.violation(PART, "train: cannot be resumed with more room", line, place, resumed)
        elif (after / "run/model/model.safetensors").read_bytes() != case.expected["run/model/model.safetensors"]:
            trial.violation(PART, "train: resumed to other bytes", line, place, resumed)


def cases(trial, place):
    """Commands that write, each with what is on the disk before."""
    empty, with_run, with_model = place / "empty", place / "with_run", place / "with_model"
    for folder in [empty, with_run, with_model]:
        folder.mkdir(parents=True)
        (folder / "notes.txt").write_text("mine\n")
    few = [word for word in common.TINY_IMAGES if not word.startswith("train.batch")]
    few += ["train.batch=1000", "train.epochs=1"]
    trial.must(["train", "small", *few, "--out", "run"], with_run)
    shutil.copytree(common.REPOSITORY / "crates/vitreous/tests/fixtures/tiny_vit", with_model / "model")
    trial.must(["convert", "model", "out.npz"], with_model)
    common.write_bmp(place / "try/x.bmp", (9, 90, 9), 1)
    model = "model"
    shutil.copytree(with_model / "model", place / "try/model")
    return [
        Full("train", ["train", "small", *few, "--out", "full/run"], empty, 1600),
        Full("convert", ["convert", model, "full/model"], empty, 160),
        Full("convert to npz", ["convert", model, "full/out.npz"], empty, 160),
        Full("convert --force", ["convert", "full/model", "full/out.npz", "--no-head", "--force"], with_model, 120),
        Full("explain", ["explain", model, "x.bmp", "--arrays", "--out", "full/pages"], empty, 500),
        Full("report", ["report", "full/run"], with_run, 300),
        Full("summary", ["summary", model, "--html", "full/page.html"], empty, 160),
        Full("data", ["data", "--quick", "--preview", "full/sheet.png"], empty, 700),
    ]


def to_full_device(trial, place):
    """Results that could not be written are an error."""
    model, place = "model", place / "try"
    for words in [["predict", model, "x.bmp"], ["summary", model], ["data", "--json", "--quick"], ["train", "--list"]]:
        line = " ".join(["vitreous", *words, "> /dev/full"])
        script = ["-c", 'exec "$@" > /dev/full', "sh", str(trial.binary), *words]
        result = trial.run(script, place, program="sh")
        trial.count(PART, "standard output")
        for kind in result.faults() + (["exit code 0 although nothing was written"] if result.code == 0 else []):
            trial.violation(PART, f"{words[0]} > /dev/full: {kind}", line, None, result)


def run(trial, seconds, minimum):
    place = trial.work / "disks"
    all_cases = cases(trial, place)
    (place / "probe").mkdir()
    mounts = can_mount(place / "probe")
    if not mounts:
        trial.note("disks: no file system can be mounted here; a limit on the size of files stands for a full disk")
    to_full_device(trial, place)
    for case in all_cases:
        bring(case, place / "try")
        result, after = attempt(trial, case, place / "try", 1 << 30, mounts)
        if result.code != 0:
            trial.violation(PART, f"{case.name}: fails with room", case.words, place / "try", result)
        # Names with the time in them are other names each time.
        case.expected = {name: bytes_ for name, bytes_ in files_in(after).items() if ".tfevents." not in name}
    began, number = time.monotonic(), 0
    while number < len(all_cases) or (time.monotonic() - began < seconds and trial.left() > 10):
        case = all_cases[number % len(all_cases)]
        numbers = trial.random(PART, number)
        size = room_for(case.before) + numbers.randrange(4096, case.most * 1024, 4096)
        one(trial, case, place / "try", size, mounts)
        number += 1
    shutil.rmtree(place)
