"""Files that are no files: pipes, devices, holes of 30 GB, folders, links to themselves."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from . import common

PART = "special files"
HOLE = 30 << 30


def make(kind, path):
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "zeros":
        path.symlink_to("/dev/zero")
    elif kind == "hole":
        with open(path, "wb") as file:
            file.truncate(HOLE)
    elif kind == "folder":
        path.mkdir()
        (path / "inside").mkdir()
    elif kind == "loop":
        path.symlink_to(path.name)
    elif kind == "nowhere":
        path.symlink_to("nothing-there")
    elif kind == "upwards":
        path.symlink_to(".")


KINDS = ["pipe", "zeros", "hole", "folder", "loop", "nowhere", "upwards"]


def places(trial):
    """What is replaced, in which folder, and the commands that read it."""
    root = trial.work / "special"
    shutil.copytree(trial.seeds / "image-run", root / "image")
    shutil.copytree(trial.seeds / "text-run", root / "text")
    common.write_pictures(root / "image/photos")
    shutil.copytree(common.REPOSITORY / "crates/data/tests/fixtures/datasets/idx", root / "image/idx")
    shutil.copytree(common.REPOSITORY / "crates/data/tests/fixtures/datasets/shards", root / "image/shards")
    (root / "image/photos.csv").write_text("path,label,split\nphotos/train/red/0.bmp,a,train\nphotos/val/red/7.bmp,a,val\n")
    common.write_bmp(root / "image/x.png", (9, 90, 9), 1)
    one_step = ["train.epochs=1", *[word for word in common.TINY_IMAGES if "epochs" not in word]]
    photos = ["train", "small", "--data", "photos", "--out", "new", *one_step]
    pairs = ["train", "translation", "--data", "pairs.tsv", "--out", "new", *common.TINY_TEXT]
    predict = ["predict", "run/model", "x.png"]
    return root, [
        ("image", "x.png", [predict, ["predict", "run/model", "."], ["explain", "run/model", "x.png", "--out", "new"]]),
        ("image", "photos/train/red/0.bmp", [["data", "photos"], ["data", "photos.csv"], photos]),
        ("image", "photos.csv", [["data", "photos.csv"]]),
        ("image", "idx/t10k-images.idx3-ubyte", [["data", "idx"]]),
        ("image", "shards/set-000.tar", [["data", "shards"], ["data", "shards/set-000.tar"]]),
        ("image", "run/model/model.safetensors", [predict, ["convert", "run/model", "new"]]),
        ("image", "run/model/config.json", [predict, ["summary", "run/model"]]),
        ("image", "run/model/preprocessor_config.json", [predict]),
        ("image", "run/recipe.toml", [["train", "--resume", "run"], ["train", "run/recipe.toml", "--out", "new"]]),
        ("image", "run/metrics.jsonl", [["report", "run"], ["train", "--resume", "run"]]),
        ("image", "run/.lock", [["train", "--resume", "run"]]),
        ("image", "new", [["convert", "run/model", "new"], ["explain", "run/model", "x.png", "--out", "new"], photos]),
        ("image", "new.npz", [["convert", "run/model", "new.npz"], ["convert", "run/model", "new.npz", "--force"]]),
        ("image", "page.html", [["summary", "run/model", "--html", "page.html"], ["report", "run", "--out", "page.html"]]),
        ("text", "pairs.tsv", [pairs, ["eval", "run", "--data", "pairs.tsv"], ["translate", "run", "--file", "pairs.tsv"]]),
        ("text", "run/model/tokenizer.json", [["translate", "run", "one two."]]),
        ("text", "run/tokenizer.json", [["train", "--resume", "run"]]),
    ]


def one(trial, root, number, which, name, kind, words):
    place = root / f"case-{number}"
    shutil.copytree(root / which, place, symlinks=True)
    make(kind, place / name)
    result = trial.run(words, place, timeout=8, most_resident_mib=1536)
    trial.count(PART, kind)
    for fault in result.faults():
        how = {"pipe": f"mkfifo {name}", "zeros": f"ln -s /dev/zero {name}", "hole": f"truncate -s 30G {name}"}
        about = f"`{name}` is a {kind}" + (f": {how[kind]}" if kind in how else "")
        trial.violation(PART, f"{kind} as {name}, {words[0]}: {fault}", words, place, result, about)
    shutil.rmtree(place)


def run(trial, seconds, minimum):
    root, found = places(trial)
    jobs = []
    for which, name, commands in found:
        jobs += [(which, name, kind, words) for kind in KINDS for words in commands]
    # Whoever translates lines from a pipe wants to wait for them.
    jobs = [job for job in jobs if not (job[2] == "pipe" and job[3][0] == "translate" and "--file" in job[3])]
    # A short trial takes some of them, others with each seed.
    trial.random(PART).shuffle(jobs)
    until = time.monotonic() + seconds

    def timely(number, job):
        if time.monotonic() < until:
            one(trial, root, number, *job)

    # Those that hang only wait, so more than one a core.
    with ThreadPoolExecutor(2 * trial.jobs) as pool:
        for future in [pool.submit(timely, number, job) for number, job in enumerate(jobs)]:
            future.result()
    shutil.rmtree(root)
