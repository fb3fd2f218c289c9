"""Damaged files of every kind that is read: an answer or an error, never a crash."""

import os
import shutil
import sys
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor

from . import common, mutate

PART = "files"
FIXTURES = common.REPOSITORY / "crates"
ARCHIVES = FIXTURES / "models/tests/fixtures/archive"
VIT = FIXTURES / "models/src/families/vit/tests/fixtures"
DATASETS = FIXTURES / "data/tests/fixtures/datasets"
# The largest image that is decoded takes half a gigabyte for its pixels alone, and there may be two copies.
MEMORY, IMAGE_MEMORY = 2048, 4096
NAMES = "hostile names"


class Seed:
    """A sound file in a folder of its own, with the commands that read it."""

    def __init__(self, kind, folder, target, commands, memory=MEMORY, timeout=20, may_take_long=False):
        self.kind, self.folder, self.target, self.commands = kind, folder, target, commands
        self.memory, self.timeout, self.may_take_long = memory, timeout, may_take_long


def prepare(trial):
    """Runs and files that other parts start from, too."""
    seeds = trial.seeds
    image, text = seeds / "image-run", seeds / "text-run"
    image.mkdir(parents=True)
    few = [word for word in common.TINY_IMAGES if "epochs" not in word] + ["train.epochs=1", "train.batch=4"]
    common.write_pictures(image / "photos")
    common.write_bmp(image / "x.bmp", (9, 90, 9), 1)
    trial.must(["train", "small", "--data", "photos", "--out", "run", *few], image)
    common.write_pairs(text / "pairs.tsv", 200, trial.random("text"))
    trial.must(["train", "translation", "--data", "pairs.tsv", "--out", "run", *common.TINY_TEXT], text)


def folder_with(trial, name, *copies):
    """A folder with copies of files or folders, and a picture."""
    folder = trial.seeds / name
    folder.mkdir(parents=True)
    common.write_bmp(folder / "x.bmp", (9, 90, 9), 1)
    for source, target in copies:
        if source.is_dir():
            shutil.copytree(source, folder / target)
        else:
            (folder / target).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, folder / target)
    return folder


def models(trial):
    tiny = trial.seeds / "image-run"
    predict = ["predict", "run/model", "x.bmp"]
    with_model = [predict, ["summary", "run/model"], ["convert", "run/model", "new"],
                  ["explain", "run/model", "x.bmp", "--out", "new"], ["eval", "run/model", "--data", "photos"]]
    for name, kind in [("model.safetensors", "safetensors"), ("config.json", "config.json"),
                       ("preprocessor_config.json", "preprocessor_config.json")]:
        yield Seed(kind, tiny, f"run/model/{name}", with_model)
    names = ["hf_vit", "timm_token", "hf_dinov2", "hf_deit_teacher", "hf_vit_bf16", "timm_swiglu", "own_post_norm",
             "hf_registers_classifier", "timm_distilled", "hf_vit_sharded"]
    for name in names:
        folder = folder_with(trial, name, (VIT / name, "model"))
        commands = [["predict", "model", "x.bmp"], ["predict", "model", "x.bmp", "--features"], ["summary", "model"],
                    ["convert", "model", "new"], ["convert", "model", "new.npz"]]
        for file in sorted(os.listdir(folder / "model")):
            if file.endswith(("config.json", "index.json")):
                yield Seed("config.json", folder, f"model/{file}", commands)
            elif file.startswith("model") and file.endswith(".safetensors"):
                yield Seed("safetensors", folder, f"model/{file}", commands)
    for name in ["bert/tests/fixtures/classes", "transformer/tests/fixtures/post"]:
        folder = folder_with(trial, name.split("/")[0], (FIXTURES / "models/src/families" / name, "model"))
        for file, kind in [("config.json", "config.json"), ("model.safetensors", "safetensors")]:
            yield Seed(kind, folder, f"model/{file}", [["summary", "model"], ["convert", "model", "new"]])
    for path in sorted((VIT / "npz").glob("*.npz")):
        folder = folder_with(trial, f"npz-{path.stem}", (path, "m.npz"))
        heads = ["--heads", "2"]
        yield Seed("npz", folder, "m.npz", [["summary", "m.npz", *heads], ["predict", "m.npz", "x.bmp", *heads],
                                            ["convert", "m.npz", "new", *heads]])
    pytorch = [(VIT / "timm_token/training.pth", "m.pth"), (VIT / "facebook_dinov2_registers/dinov2.pth", "m.pth")]
    pytorch += [(path, "m.pth") for path in sorted(ARCHIVES.glob("*.pth"))]
    for number, (path, name) in enumerate(pytorch):
        folder = folder_with(trial, f"pytorch-{number}", (path, name))
        yield Seed("PyTorch", folder, name, [["summary", name], ["predict", name, "x.bmp"], ["convert", name, "new"]])
    folder = folder_with(trial, "pytorch-bin", (VIT / "hf_vit_bin", "model"))
    yield Seed("PyTorch", folder, "model/pytorch_model.bin", [["predict", "model", "x.bmp"], ["convert", "model", "new"]])


def translators(trial):
    text = trial.seeds / "text-run"
    translate = ["translate", "run/model", "one two three.", "sieben"]
    for name, kind in [("tokenizer.json", "tokenizer.json"), ("model.safetensors", "safetensors"),
                       ("config.json", "config.json")]:
        commands = [translate, translate + ["--beam", "3"], ["summary", "run/model"]]
        commands += [["explain", "run/model", "--text", "one two.", "--out", "new"]]
        yield Seed(kind, text, f"run/model/{name}", commands)
    yield Seed("tokenizer.json", text, "run/tokenizer.json", [["train", "--resume", "run"]])
    learn = ["train", "translation", "--data", "pairs.tsv", "--out", "new", *common.TINY_TEXT, "train.epochs=1"]
    commands = [learn, ["eval", "run", "--data", "pairs.tsv"], ["translate", "run", "--file", "pairs.tsv"]]
    yield Seed("TSV pairs", text, "pairs.tsv", commands)


def encoders(trial):
    """Models of texts, their tokenizers, and the texts that they are given."""
    texts, vocabularies = FIXTURES / "vitreous/tests/fixtures/texts", FIXTURES / "data/tests/fixtures/tokenizers"
    predict = ["predict", "model", "--text", "Ada Lovelace lived in London.", "--pair", "a"]
    uses = {
        "bert_classes": [predict, ["embed", "model", "the engine"], ["convert", "model", "new"]],
        "roberta_tokens": [["predict", "model", "--text", "Ada Lovelace lived in London."]],
        "roberta_masked": [["fill", "model", "the <mask> of Ada"],
                           ["explain", "model", "--text", "the <mask>", "--out", "new"]],
        "bert_answers": [["predict", "model", "--question", "Who?", "--context", "Ada Lovelace in London. " * 20]],
        "sentence_dense": [["embed", "model", "the engine"], ["convert", "model", "new"]],
    }
    for name, commands in uses.items():
        folder = folder_with(trial, f"encoder-{name}", (texts / name, "model"))
        for path in sorted((folder / "model").rglob("*")):
            target = str(path.relative_to(folder))
            if path.name == "tokenizer.json":
                yield Seed("tokenizer.json", folder, target, commands)
            elif path.name == "config.json" and path.parent.name == "model":
                yield Seed("config.json", folder, target, commands)
            elif path.suffix == ".json":
                yield Seed("files beside a model of texts", folder, target, commands)
            elif path.suffix == ".safetensors":
                yield Seed("safetensors", folder, target, commands)
    for name in ["bert", "roberta", "albert", "xlm-roberta"]:
        model = "roberta_masked" if name == "roberta" else "bert_masked"
        folder = folder_with(trial, f"vocabulary-{name}", (texts / model, "model"))
        (folder / "model/tokenizer.json").unlink()
        for path in (vocabularies / name).iterdir():
            if path.name != "config.json":
                shutil.copy(path, folder / "model" / path.name)
        for path in sorted((vocabularies / name).iterdir()):
            if path.name not in ("config.json", "tokenizer_config.json", "special_tokens_map.json"):
                yield Seed("vocabulary", folder, f"model/{path.name}", [["embed", "model", "a"]])
    yield from labelled(trial, texts)


def labelled(trial, texts):
    """Texts with labels, tags, answers, and texts alone."""
    folder = folder_with(trial, "labelled", (texts / "bert_plain", "plain"), (texts / "bert_classes", "classes"),
                         (texts / "bert_tokens", "tokens"), (texts / "bert_answers", "answers"),
                         (texts / "questions.json", "questions.json"))
    rows = [(f"the engine of Ada number {row}", ["good", "bad"][row % 2]) for row in range(40)]
    (folder / "texts.csv").write_text("text,label\n" + "".join(f'"{text}",{label}\n' for text, label in rows))
    (folder / "texts.jsonl").write_text("".join(f'{{"text": "{text}", "label": "{label}"}}\n' for text, label in rows))
    (folder / "tags.conll").write_text("".join(f"the O\nAda B-PER\nnumber O\n{row} O\n\n" for row in range(40)))
    (folder / "prose.txt").write_text("".join(f"{text}\n\n" for text, _ in rows) * 10)
    few = ["--out", "new", "train.epochs=1", "train.batch=4"]
    for name in ["texts.csv", "texts.jsonl"]:
        train = ["train", "classify-text", "--init", "plain", "--data", name, *few]
        commands = [train, ["eval", "classes", "--data", name], ["embed", "plain", "--file", name]]
        yield Seed("labelled texts", folder, name, commands)
    train = ["train", "classify-tokens", "--init", "plain", "--data", "tags.conll", *few]
    yield Seed("tagged sentences", folder, "tags.conll", [train, ["eval", "tokens", "--data", "tags.conll"]])
    train = ["train", "bert", "--init", "plain", "--data", "prose.txt", *few, "text.max_tokens=32"]
    yield Seed("plain text", folder, "prose.txt", [train, ["embed", "plain", "--file", "prose.txt"]])
    yield Seed("questions", folder, "questions.json", [["eval", "answers", "--data", "questions.json"]])


def runs(trial):
    for which in ["image-run", "text-run"]:
        folder = trial.seeds / which
        resume, report = ["train", "--resume", "run"], ["report", "run"]
        for path in sorted((folder / "run/checkpoints").glob("*.safetensors"))[-1:]:
            yield Seed("checkpoints", folder, f"run/checkpoints/{path.name}", [resume])
        yield Seed("run files", folder, "run/metrics.jsonl", [resume, report, ["report", "run", "--json"]])
        yield Seed("run files", folder, "run/machine.json", [resume, report])
        yield Seed("run files", folder, "run/evaluation.json", [resume, report])
        # A recipe is trusted: it may ask for a long run or a large model, but not crash the program.
        commands = [["train", "--show", "run/recipe.toml"], ["train", "--show", "run/recipe.toml"], report]
        yield Seed("recipe.toml", folder, "run/recipe.toml", commands)
        commands = [resume, ["train", "run/recipe.toml", "--out", "new", "train.epochs=1"]]
        yield Seed("recipe.toml", folder, "run/recipe.toml", commands, timeout=2, may_take_long=True)


def images(trial):
    paths = [path for folder in ["decode", "tiff"] for path in (FIXTURES / "data/tests/fixtures" / folder).iterdir()]
    for path in sorted(path for path in paths if path.is_file() and path.suffix != ".expected"):
        folder = folder_with(trial, f"image-{path.name}", (trial.seeds / "image-run/run/model", "model"), (path, path.name))
        kind = path.suffix.lstrip(".").replace("tif", "tiff").replace("jpg", "jpeg")
        yield Seed(f"image {kind}", folder, path.name, [["predict", "model", path.name]], memory=IMAGE_MEMORY)


def data_sets(trial):
    one_epoch = [word for word in common.TINY_IMAGES if "epochs" not in word and "batch" not in word]
    one_epoch += ["train.epochs=1", "train.batch=4"]

    def commands(path):
        return [["data", path], ["data", path], ["data", path, "--json"],
                ["train", "small", "--data", path, "--out", "new", *one_epoch]]

    for kind, source in [("IDX", "idx"), ("CIFAR", "cifar10"), ("CIFAR", "cifar-100-binary"), ("tar shards", "shards")]:
        folder = folder_with(trial, f"data-{source}", (DATASETS / source, "set"))
        for path in sorted((folder / "set").rglob("*")):
            if path.is_file():
                yield Seed(kind, folder, str(path.relative_to(folder)), commands("set"), memory=IMAGE_MEMORY)
    folder = folder_with(trial, "data-cifar-tar", (DATASETS / "cifar10", "whole"))
    with tarfile.open(folder / "set.tar.gz", "w:gz", compresslevel=1) as archive:
        archive.add(folder / "whole/cifar-10-batches-bin", "cifar-10-batches-bin")
    shutil.rmtree(folder / "whole")
    yield Seed("CIFAR", folder, "set.tar.gz", commands("set.tar.gz"), memory=IMAGE_MEMORY)
    folder = folder_with(trial, "data-manifest", (DATASETS / "folder", "folder"), (DATASETS / "manifest.csv", "set.csv"))
    lines = []
    for number, path in enumerate(sorted((folder / "folder").rglob("*.png"))):
        name, label = path.relative_to(folder).as_posix(), path.relative_to(folder).parts[2]
        split = path.relative_to(folder).parts[1]
        lines.append(f'{{"path": "{name}", "label": ["{label}"], "split": "{split}", "id": {number}}}\n')
    (folder / "set.jsonl").write_text("".join(lines), encoding="utf-8")
    (folder / "set.tsv").write_text((folder / "set.csv").read_text().replace(",f", "\tf").replace(",t", "\tt"))
    for name, kind in [("set.csv", "CSV manifest"), ("set.jsonl", "JSONL manifest"), ("set.tsv", "CSV manifest")]:
        yield Seed(kind, folder, name, commands(name))


def hostile_name(trial, number, numbers):
    """Sound files with names that a terminal would obey."""
    text = numbers.choice(mutate.HOSTILE_TEXT)
    name = "".join(character for character in text if character not in "/\0").strip(".") or "x"
    folder = trial.work / f"name-{number}"
    common.write_pictures(folder / "photos")
    shutil.copytree(trial.seeds / "image-run/run", folder / f"run{name}")
    shutil.copytree(trial.seeds / "image-run/run/model", folder / "model")
    os.rename(folder / "photos/train/red", folder / "photos/train" / name)
    os.rename(folder / "photos/val/red", folder / "photos/val" / name)
    (folder / f"{name}.png").write_bytes(b"no picture")
    common.write_bmp(folder / f"{name}.bmp", (1, 2, 3), 1)
    (folder / "photos/train/green" / f"{name}.bmp").write_bytes(b"broken")
    train = ["train", "small", "--data", "photos", "--out", f"new{name}", *common.TINY_IMAGES, "train.batch=4"]
    words = numbers.choice([
        ["predict", "model", "."], ["predict", "model", f"./{name}.png"], ["data", "photos"], ["summary", f"./{name}"],
        ["explain", "model", f"./{name}.bmp", "--out", f"new{name}"], [*train, "train.epochs=1"],
        ["train", f"./{name}.toml"], ["convert", "model", f"out{name}"], ["report", f"run{name}"],
        ["train", "--resume", f"run{name}"], ["eval", "model", "--data", "photos"], ["train", name],
    ])
    result = trial.run(words, folder, memory_mib=MEMORY)
    trial.judge(PART, words, folder, result, extra=f"the name is {name!r}")
    shutil.rmtree(folder)


def all_seeds(trial):
    return [seed for part in [models, translators, encoders, runs, images, data_sets] for seed in part(trial)]


def one(trial, seeds_by_kind, number):
    """One damaged file and one command; all that is random follows from its number."""
    numbers = trial.random(PART, number)
    kinds = sorted([*seeds_by_kind, NAMES])
    trial.count(PART, "files")
    trial.count("files of each kind", kinds[number % len(kinds)])
    if kinds[number % len(kinds)] == NAMES:
        return hostile_name(trial, number, numbers)
    seed = numbers.choice(seeds_by_kind[kinds[number % len(kinds)]])
    place = trial.work / f"file-{number}"
    shutil.copytree(seed.folder, place)
    target = place / seed.target
    sound = target.read_bytes()
    damaged = mutate.by_name(target.name)(sound, numbers)
    target.write_bytes(damaged)
    words = numbers.choice(seed.commands)
    result = trial.run(words, place, timeout=seed.timeout, memory_mib=seed.memory)
    if not (seed.may_take_long and result.timed_out):
        about = f"damaged: {seed.target}; memory limit: ulimit -v {seed.memory * 1024}"
        trial.judge(PART, words, place, result, extra=about)
    shutil.rmtree(place)


def run(trial, seconds, minimum):
    seeds_by_kind = {}
    for seed in all_seeds(trial):
        seeds_by_kind.setdefault(seed.kind, []).append(seed)
    began, number = time.monotonic(), 0
    with ThreadPoolExecutor(trial.jobs) as pool:
        while trial.left() > 2:
            done = trial.counts.get(PART, {}).get("files", 0)
            if done >= minimum and time.monotonic() - began > seconds:
                break
            # In batches, so that the time is looked at now and then.
            list(pool.map(lambda index: one(trial, seeds_by_kind, index), range(number, number + 50)))
            number += 50
            if number % 500 == 0:
                print(f"trial: {number} files", file=sys.stderr, flush=True)
