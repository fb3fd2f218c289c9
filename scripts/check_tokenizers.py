#!/usr/bin/env python3
"""Compares the ids of every tokenizer.json in a folder with those of transformers, on lines of many scripts, emoji and control characters.

    python scripts/check_tokenizers.py FOLDER [--lines N] [--program PROGRAM]        (transformers; cargo, or the built example as PROGRAM)

A tokenizer is a file `*tokenizer.json`; what it says is compared, as transformers' PreTrainedTokenizerFast reads it. (transformers 5 makes
some of its classes, as LlamaTokenizer, from the vocabulary alone, with other spaces than the file's.) The lines are those of
`crates/data/tests/fixtures/tokenizers/lines.py`, with another seed than the tests'. A special token that a line names is that token on
both sides. Prints a table; exit code 1 if a line differs.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

from transformers import PreTrainedTokenizerFast

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY / "crates/data/tests/fixtures/tokenizers"))
from lines import lines  # noqa: E402

CARGO = ["cargo", "run", "--release", "-q", "-p", "vitreous-data", "--example", "encode_text", "--"]


def ours(program, directory, texts):
    """The ids of each text, or an error."""
    requests = directory / "requests.jsonl"
    requests.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    done = subprocess.run([*program, directory, requests], check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8")
    # Not splitlines: what is decoded has line separators of Unicode.
    answers = [json.loads(line) for line in done.stdout.split("\n") if line]
    return [answer["windows"][0]["ids"] if "windows" in answer else answer["error"] for answer in answers]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--program")
    options = parser.parse_args()
    program = [options.program] if options.program else CARGO
    texts = lines(options.lines, seed=20)
    files = sorted(options.folder.rglob("*tokenizer.json"))
    if not files:
        sys.exit(f"{options.folder}: there is no tokenizer.json in it")
    print("| tokenizer | vocabulary | lines | tokens | differ |\n|---|--:|--:|--:|--:|")
    wrong = 0
    for file in files:
        with tempfile.TemporaryDirectory() as folder:
            directory = pathlib.Path(folder)
            shutil.copy(file, directory / "tokenizer.json")
            peer = PreTrainedTokenizerFast(tokenizer_file=str(file))
            expected = [peer(text)["input_ids"] for text in texts]
            found = ours(program, directory, texts)
        differ = [at for at, (own, other) in enumerate(zip(found, expected)) if own != other]
        wrong += len(differ) + abs(len(found) - len(expected))
        name = file.relative_to(options.folder)
        print(f"| {name} | {len(peer):,} | {len(texts):,} | {sum(map(len, expected)):,} | {len(differ)} |", flush=True)
        for at in differ[:3]:
            print(f"{texts[at]!r}\n  ours   {found[at]}\n  theirs {expected[at]}", file=sys.stderr)
    sys.exit(wrong > 0)


main()
