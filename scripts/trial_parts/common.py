"""What all parts share: running the program with limits, judging what it said, and keeping what broke."""

import json
import os
import random
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MIB = 1 << 20
# What a terminal obeys, or what turns text around. Tabs and line ends are text; \r is how progress is redrawn.
CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
# How often a finding of one kind is kept with its files.
KEPT_PER_KIND = 2
LARGEST_KEPT = 64 * MIB

TINY_IMAGES = [
    "model.patch=16", "model.dim=16", "model.depth=2", "model.heads=2", "model.mlp_dim=32",
    "model.stochastic_depth=0.1", "train.batch=1000", "train.epochs=2", "train.ema=0.9", "optimizer.lr=2e-3",
    "output.checkpoint_steps=1", "output.log_steps=4",
]
TINY_TEXT = [
    "text.vocabulary=300", "text.max_tokens=40", "train.tokens=256", "train.epochs=2", "train.average=2",
    "model.dim=16", "model.heads=2", "model.encoder_layers=1", "model.decoder_layers=1", "model.mlp_dim=32",
    "model.max_length=64", "schedule.warmup_steps=10", "output.checkpoint_steps=5",
]


class Result:
    """How a command ended."""

    def __init__(self, code, out, err, timed_out, seconds):
        self.code, self.out, self.err = code, out, err
        self.timed_out, self.seconds = timed_out, seconds
        self.too_much_memory = False

    def said(self):
        return (self.out + self.err).decode("utf-8", "replace")

    def tail(self):
        lines = self.err.decode("utf-8", "replace").strip().splitlines()
        # The terminal of whoever reads the report is spared, too.
        return " | ".join(lines[-2:])[-300:].encode("unicode_escape").decode()

    def faults(self, codes=(0, 1, 2)):
        """What is wrong with any command that ends like this, whatever it was asked."""
        found = []
        said = self.said()
        panic = re.search(r"panicked at ([^\s]+)", said)
        if self.too_much_memory:
            found.append("takes more memory than allowed")
        elif self.timed_out:
            found.append("timeout")
        elif panic:
            found.append(f"panic at {panic.group(1).rstrip(':')}")
        elif self.code < 0:
            reason = re.search(r"memory allocation of \d+ bytes failed|stack overflow", said)
            about = re.sub(r"\d+", "N", reason.group(0)) if reason else "no reason given"
            found.append(f"death by {signal.Signals(-self.code).name} ({about})")
        elif self.code not in codes:
            found.append(f"exit code {self.code}")
        elif self.code != 0 and not self.err.strip():
            found.append(f"exit code {self.code} without a message")
        control = CONTROL.search(said)
        if control:
            found.append("raw control character in the output")
        return found


class Trial:
    """One trial: the binary, where files go, what was counted and what was found."""

    def __init__(self, binary, work, keep, seed, deadline, jobs):
        self.binary, self.work, self.keep, self.seed = binary, work, keep, seed
        self.deadline, self.jobs = deadline, jobs
        self.counts, self.seconds, self.notes = {}, {}, []
        self.violations = {}
        self.lock = threading.Lock()

    def random(self, *name):
        """Random numbers of their own for each case, so that a case does not depend on those before it."""
        return random.Random(":".join(map(str, (self.seed, *name))))

    def left(self):
        return self.deadline - time.monotonic()

    def count(self, part, what, number=1):
        with self.lock:
            row = self.counts.setdefault(part, {})
            row[what] = row.get(what, 0) + number

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)
            print(f"trial: {text}", file=sys.stderr, flush=True)

    def command(self, words, memory_mib=None, file_blocks=None):
        """The words with limits set by a shell, which makes a command line that can be repeated."""
        limits = ["ulimit -c 0"]
        if memory_mib:
            limits.append(f"ulimit -v {memory_mib * 1024}")
        if file_blocks is not None:
            limits.append(f"ulimit -f {file_blocks}")
        return ["sh", "-c", "; ".join(limits) + '; exec "$@"', "sh", *map(str, words)]

    def start(self, words, cwd, out=subprocess.DEVNULL, err=subprocess.DEVNULL, **limits):
        return subprocess.Popen(
            self.command([self.binary, *words], **limits), cwd=cwd, stdin=subprocess.DEVNULL, stdout=out,
            stderr=err, start_new_session=True,
        )

    def run(self, words, cwd, timeout=20, program=None, most_resident_mib=None, **limits):
        """Runs the program to its end; one that holds more memory than allowed is ended."""
        words = [self.binary if program is None else program, *words]
        began = time.monotonic()
        child = subprocess.Popen(
            self.command(words, **limits), cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )
        timed_out = False
        watch = Watch(child, most_resident_mib) if most_resident_mib else None
        try:
            out, err = child.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            timed_out = True
            end(child)
            out, err = child.communicate()
        result = Result(child.returncode, out, err, timed_out, time.monotonic() - began)
        result.too_much_memory = watch is not None and watch.ended()
        return result

    def must(self, words, cwd):
        """A command that has to succeed before the trial can begin."""
        result = self.run(words, cwd, timeout=120)
        if result.code != 0:
            sys.exit(f"trial: cannot begin: vitreous {shlex.join(map(str, words))}: {result.tail()}")
        return result

    def violation(self, part, kind, words, place=None, result=None, extra=""):
        """Records a finding; of each kind some are kept with their files, as a folder to repeat them in."""
        with self.lock:
            key = (part, kind)
            entry = self.violations.setdefault(key, {"count": 0, "kept": []})
            entry["count"] += 1
            number = entry["count"]
            self.counts.setdefault(part, {})
            self.counts[part]["violations"] = self.counts[part].get("violations", 0) + 1
        if number > KEPT_PER_KIND:
            return
        name = re.sub(r"[^A-Za-z0-9]+", "-", f"{part}-{kind}").strip("-")[:80]
        folder = self.keep / f"{name}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        left_out = copy_small(Path(place), folder) if place else []
        line = words if isinstance(words, str) else " ".join(quoted(str(word)) for word in ["vitreous", *words])
        text = f"cd {folder} && {line}"
        said = f"{result.tail()}" if result else ""
        about = "\n".join(filter(None, [text, extra, said, *(f"not kept: {name}" for name in left_out)]))
        (folder / "REPRODUCE.txt").write_text(about + "\n", errors="backslashreplace")
        if result:
            (folder / "STDERR.txt").write_bytes(result.err)
        with self.lock:
            entry["kept"].append((text, extra, said))
        print(f"trial: violation in {part}: {kind}", file=sys.stderr, flush=True)

    def judge(self, part, words, place, result, codes=(0, 1, 2), extra=""):
        """Records everything wrong with how a command ended."""
        found = result.faults(codes)
        for kind in found:
            self.violation(part, f"{words[0] if words else ''}: {kind}", words, place, result, extra)
        return not found


def quoted(word):
    """A word for a shell, with nothing in it that a terminal would obey."""
    if not CONTROL.search(word):
        return shlex.quote(word)
    escaped = "".join(f"\\u{ord(c):04x}" if CONTROL.match(c) or c in "'\\" else c for c in word)
    return f"$'{escaped}'"


class Watch(threading.Thread):
    """Ends a process that holds too much memory: a limit on addresses would be an error that can be handled."""

    def __init__(self, child, most_mib):
        super().__init__(daemon=True)
        self.child, self.most, self.exceeded = child, most_mib * 1024, False
        self.start()

    def run(self):
        while self.child.returncode is None:
            try:
                status = open(f"/proc/{self.child.pid}/status").read()
            except OSError:
                return
            held = re.search(r"VmRSS:\s+(\d+)", status)
            if held and int(held.group(1)) > self.most:
                self.exceeded = True
                os.kill(self.child.pid, signal.SIGKILL)
                return
            time.sleep(0.02)

    def ended(self):
        self.join(1)
        return self.exceeded


def end(child):
    """Ends a child and whatever it started in its session."""
    try:
        os.killpg(child.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    child.wait()


def copy_small(source, target):
    """Copies a folder as it is, without following links and without what is large or no file."""
    left_out = []
    for root, folders, files in os.walk(source):
        inside = Path(root).relative_to(source)
        for name in list(folders):
            if os.path.islink(os.path.join(root, name)):
                folders.remove(name)
                files.append(name)
            else:
                (target / inside / name).mkdir(parents=True, exist_ok=True)
        for name in files:
            path, to = os.path.join(root, name), target / inside / name
            if os.path.islink(path):
                to.unlink(missing_ok=True)
                os.symlink(os.readlink(path), to)
            elif os.path.isfile(path) and os.path.getsize(path) <= LARGEST_KEPT:
                shutil.copy2(path, to)
            else:
                left_out.append(str(inside / name))
    return left_out


def leftovers(folder):
    """Files that a finished command should not leave behind."""
    names = (path for path in Path(folder).rglob("*") if path.is_file())
    return sorted(str(path.relative_to(folder)) for path in names if path.name.endswith((".partial", ".tmp")))


def metrics_fault(run):
    """What is wrong with the metrics of a run that has ended."""
    try:
        lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    except (OSError, ValueError) as error:
        return f"metrics.jsonl cannot be read ({type(error).__name__})"
    seen = [(line.get("step"), "loss" in line, "val_loss" in line) for line in lines]
    return "metrics.jsonl tells a step twice" if len(set(seen)) != len(seen) else None


def saved(run):
    """The bytes that must not depend on how often a run was cut."""
    found = {}
    for folder in ["model", "best", "checkpoints"]:
        for path in sorted((run / folder).glob("*.safetensors")):
            found[str(path.relative_to(run))] = path.read_bytes()
    return found


def write_bmp(path, colour, number, side=20):
    """A picture of one colour, with a little noise."""
    fields = [54 + 3 * side * side, 0, 54, 40, side, side, 1 | 24 << 16, 0, 3 * side * side, 0, 0, 0, 0]
    pixels = bytearray()
    for pixel in range(side * side):
        noise = pixel * (7 + number) % 31
        pixels += bytes(min(255, value + noise) for value in reversed(colour))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"BM" + b"".join(field.to_bytes(4, "little") for field in fields) + pixels)


def write_pictures(folder):
    """A folder of three classes: seven pictures of each to learn from, two to test with."""
    for name, colour in [("red", (190, 20, 20)), ("green", (20, 190, 20)), ("blue", (20, 20, 190))]:
        for number in range(9):
            part = "train" if number < 7 else "val"
            write_bmp(folder / part / name / f"{number}.bmp", colour, number)


def write_pairs(path, count, numbers):
    """Sentences of digits in two languages."""
    english = "zero one two three four five six seven".split()
    german = "null eins zwei drei vier fünf sechs sieben".split()
    lines = []
    for _ in range(count):
        digits = [numbers.randrange(8) for _ in range(numbers.randint(1, 8))]
        lines.append(" ".join(english[d] for d in digits) + ".\t" + " ".join(german[d] for d in digits) + ".\n")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def write_large_model(folder, dim=768, layers=6):
    """A model whose weights are zeros in a file of holes: large to read and to write, at no cost to make."""
    tiny = REPOSITORY / "crates/vitreous/tests/fixtures/tiny_vit"
    config = json.loads((tiny / "config.json").read_text())
    bytes_ = (tiny / "model.safetensors").read_bytes()
    header = json.loads(bytes_[8:8 + int.from_bytes(bytes_[:8], "little")])
    sizes = {config["hidden_size"]: dim, config["intermediate_size"]: 4 * dim}
    tensors, at = {}, 0
    names = [name for name in header if name != "__metadata__"]
    for name in names:
        numbers = range(layers) if ".layer.0." in name else [0]
        if ".layer." in name and ".layer.0." not in name:
            continue
        for number in numbers:
            shape = [sizes.get(size, size) for size in header[name]["shape"]]
            count = 4
            for size in shape:
                count *= size
            renamed = name.replace(".layer.0.", f".layer.{number}.")
            tensors[renamed] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + count]}
            at += count
    config.update(hidden_size=dim, intermediate_size=4 * dim, num_hidden_layers=layers, pooler_output_size=dim)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(tiny / "preprocessor_config.json", folder)
    text = json.dumps(tensors).encode()
    with open(folder / "model.safetensors", "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + at)
