"""Compares the ids of a SentencePiece unigram model with those of `sentencepiece`, line by line.

    python scripts/check_sentencepiece.py spiece.model text.txt [LINES]        (sentencepiece; cargo)
"""

import pathlib
import subprocess
import sys

import sentencepiece as spm


def main():
    model_file, text_file = sys.argv[1:3]
    most = int(sys.argv[3]) if len(sys.argv) > 3 else 10_000
    lines = pathlib.Path(text_file).read_text(encoding="utf-8", errors="replace").split("\n")[:most]
    command = ["cargo", "run", "--release", "-q", "-p", "vitreous-data", "--example", "sentencepiece_ids", "--", model_file]
    ours = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, check=True).stdout.split("\n")
    model = spm.SentencePieceProcessor(model_file=model_file)
    different = 0
    for number, (line, row) in enumerate(zip(lines, ours), 1):
        theirs = " ".join(map(str, model.encode(line)))
        if row != theirs:
            different += 1
            print(f"line {number}: {line!r}\n  ours   {row}\n  theirs {theirs}")
    print(f"{len(lines)} lines, {different} differ")
    sys.exit(different > 0)


main()
