"""Synthesises sentences of plain text with espeak-ng: WAV files, train.csv and validation.csv with the columns path and text, for
`vitreous train transcribe --data OUT` and `vitreous eval MODEL --data OUT/validation.csv`.

    python scripts/make_speech.py OUT TEXT.. [--voice V] [--speed N] [--pitch N] [--train N] [--validation N]      (espeak-ng)

Sentences of 6 to 14 words without digits, abbreviations and names in capitals are taken, the same ones each time; none is in both lists.
"""

import argparse
import csv
import pathlib
import random
import re
import subprocess

SENTENCE = re.compile(r"(?:(?<=[.!?] )|(?<=^))([A-Z][a-z]+(?:,? [a-z]+(?:'[a-z]+)?){5,13}[.?!])(?= |$)", re.MULTILINE)


def sentences(paths):
    found = set()
    for path in paths:
        found.update(SENTENCE.findall(pathlib.Path(path).read_text(errors="ignore").replace("<br />", "\n")))
    found = sorted(found)
    random.Random(1).shuffle(found)
    return found


def write(out, split, texts, arguments):
    folder = out / split
    folder.mkdir(parents=True, exist_ok=True)
    with open(out / f"{split}.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["path", "text"])
        for index, text in enumerate(texts):
            path = folder / f"{index:04}.wav"
            say = ["espeak-ng", "-v", arguments.voice, "-s", str(arguments.speed), "-p", str(arguments.pitch), "-w", str(path), text]
            subprocess.run(say, check=True)
            table.writerow([path.relative_to(out), text])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("text", nargs="+", help="plain text")
    parser.add_argument("--voice", default="en-gb-scotland+croak")
    parser.add_argument("--speed", type=int, default=220, help="words per minute")
    parser.add_argument("--pitch", type=int, default=50, help="from 0 to 99")
    parser.add_argument("--train", type=int, default=160)
    parser.add_argument("--validation", type=int, default=50)
    arguments = parser.parse_args()
    found = sentences(arguments.text)
    wanted = arguments.train + arguments.validation
    if len(found) < wanted:
        parser.error(f"the text has only {len(found)} suitable sentences, but {wanted} are wanted: name more text")
    write(arguments.out, "validation", found[:arguments.validation], arguments)
    write(arguments.out, "train", found[arguments.validation:wanted], arguments)


main()
