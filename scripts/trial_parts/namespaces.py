"""The program in other PID namespaces, as in containers that share a folder: there its number says little."""

import os
import shutil
import signal
import subprocess
import time

from . import common

PART = "namespaces"
LARGE = "LARGE is a model as write_large_model of scripts/trial_parts/common.py makes it"
INSIDE = ["unshare", "--pid", "--fork", "--mount-proc"]


def can_unshare():
    try:
        return subprocess.run([*INSIDE, "true"], capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def child_of(pid):
    """The number, out here, of the process that is the first in the namespace."""
    until = time.monotonic() + 5
    while time.monotonic() < until:
        try:
            text = open(f"/proc/{pid}/task/{pid}/children").read().split()
        except OSError:
            return None
        if text:
            return int(text[0])
        time.sleep(0.0005)
    return None


def partials(folder):
    return sorted(path.name for path in folder.iterdir() if path.name.endswith(".partial"))


class Writer:
    """A conversion that is in the middle of writing its file."""

    def __init__(self, trial, place, target, inside):
        words = [str(trial.binary), "convert", "model", target]
        self.child = subprocess.Popen(
            [*INSIDE, *words] if inside else words, cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        )
        self.pid = child_of(self.child.pid) if inside else self.child.pid
        folder = (place / target).parent
        until = time.monotonic() + 20
        while self.child.poll() is None and time.monotonic() < until and not partials(folder):
            time.sleep(0.0002)
        self.name = (partials(folder) or [None])[0]

    def send(self, number):
        if self.pid:
            os.kill(self.pid, number)


def killed_as_first(trial, place, number):
    """Killed as PID 1 while it writes: what it left must not stay for ever."""
    folder = place / f"killed-{number}"
    folder.mkdir()
    writer = Writer(trial, place, f"{folder.name}/a.npz", inside=True)
    if writer.name is None:
        trial.note("namespaces: no file was seen while it was written")
        return common.end(writer.child)
    time.sleep(trial.random(PART, number).random() * 0.05)
    writer.send(signal.SIGKILL)
    writer.child.wait()
    left = partials(folder)
    if not left:
        return
    trial.count(PART, "killed as PID 1")
    for inside in (False, True):
        words = ["convert", "tiny", f"{folder.name}/b-{inside}.npz"]
        program = [str(trial.binary), *words]
        program = [*INSIDE, *program] if inside else program
        result = trial.run(program[1:], place, program=program[0])
        trial.judge(PART, words, place / "tiny", result, codes=(0,))
        rest = partials(folder)
        where = "as PID 1" if inside else "outside"
        if rest and (inside or number % 2 == 0):
            line = f"{' '.join(INSIDE)} vitreous convert LARGE killed/a.npz, killed while it writes; then, {where}: " \
                   f"vitreous convert tiny killed/b.npz; ls -A killed"
            trial.violation(PART, f"a file of a dead PID 1 is left after the next run {where}", line, None,
                            extra=f"{', '.join(rest)}; {LARGE}")
        elif not rest:
            break
    shutil.rmtree(folder)


def living_elsewhere(trial, place, number, writer_inside):
    """A process that still writes, unseen from where the other one runs, keeps its file."""
    folder = place / f"living-{number}-{writer_inside}"
    folder.mkdir()
    writer = Writer(trial, place, f"{folder.name}/a.npz", inside=writer_inside)
    if writer.name is None:
        trial.note("namespaces: no file was seen while it was written")
        return common.end(writer.child)
    writer.send(signal.SIGSTOP)
    if not partials(folder):
        writer.send(signal.SIGCONT)
        return common.end(writer.child)
    trial.count(PART, "living writers elsewhere")
    words = ["convert", "tiny", f"{folder.name}/b.npz"]
    program = [str(trial.binary), *words] if writer_inside else [*INSIDE, str(trial.binary), *words]
    result = trial.run(program[1:], place, program=program[0])
    there = writer.name in partials(folder)
    writer.send(signal.SIGCONT)
    try:
        writer.child.wait(60)
    except subprocess.TimeoutExpired:
        common.end(writer.child)
    where = "inside" if writer_inside else "outside"
    line = f"vitreous convert LARGE living/a.npz, {where} a PID namespace, stopped while it writes; then on the " \
           f"other side: vitreous convert tiny living/b.npz; then it goes on"
    if result.code != 0:
        trial.violation(PART, "the second writer fails", line, None, result)
    if not there:
        about = f"{writer.name}; {LARGE}"
        trial.violation(PART, f"the file of a living writer {where} was deleted", line, None, extra=about)
    if writer.child.returncode != 0 or not (folder / "a.npz").exists():
        trial.violation(PART, f"a writer {where} fails because of another", line, None)
    shutil.rmtree(folder)


def run(trial, seconds, minimum):
    if not can_unshare():
        trial.note("namespaces: left out, unshare does not work here")
        return
    place = trial.work / "namespaces"
    common.write_large_model(place / "model", layers=2)
    shutil.copytree(common.REPOSITORY / "crates/vitreous/tests/fixtures/tiny_vit", place / "tiny")
    began, number = time.monotonic(), 0
    while number < 2 or (time.monotonic() - began < seconds and trial.left() > 10):
        killed_as_first(trial, place, number)
        living_elsewhere(trial, place, number, writer_inside=number % 2 == 0)
        number += 1
    shutil.rmtree(place)
