#!/usr/bin/env python3
"""Compares `vitreous eval` of a language model with transformers: perplexity of a text, and multiple-choice questions by likelihood.

    python scripts/check_evaluation.py MODEL [--text FILE] [--questions FILE.jsonl ..] [--limit N] [--binary target/release/vitreous]

MODEL is a directory in Hugging Face's format (`vitreous convert FILE.gguf DIRECTORY` makes one). Questions are those of BoolQ, PIQA,
OpenBookQA and HellaSwag as JSON lines, the first N of each file; contexts are written here again, as lm-evaluation-harness has them. Prints a
table: how many questions are answered alike, and the largest difference of a log-likelihood. Needs torch and transformers.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent


def ours(binary, model, *options):
    done = subprocess.run([binary, "eval", model, *map(str, options), "--json", "--device", "cpu"], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return json.loads(done.stdout.splitlines()[-1])


class Peer:
    def __init__(self, directory):
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.longest = self.model.config.max_position_embeddings

    @torch.inference_mode()
    def log_probabilities(self, ids):
        """Of each token but the first."""
        logits = self.model(torch.tensor([ids[:-1]])).logits[0].double().log_softmax(-1)
        return logits.gather(1, torch.tensor(ids[1:])[:, None])[:, 0]

    def perplexity(self, text, stride):
        """In windows, each of which scores the tokens that no window before it saw, as in the guide of transformers."""
        ids = self.tokenizer(text)["input_ids"]
        total, seen, count = 0.0, 1, 0
        for begin in range(0, len(ids), stride):
            end = min(begin + self.longest, len(ids))
            scored = min(end - seen, end - begin - 1)
            if scored > 0:
                total -= self.log_probabilities(ids[begin:end])[-scored:].sum().item()
                count += scored
            seen = end
            if end == len(ids):
                break
        return torch.tensor(total / count).exp().item(), count

    def likelihoods(self, context, choices):
        """Of each answer behind the context and a space."""
        before = len(self.tokenizer(context)["input_ids"])
        found = []
        for choice in choices:
            ids = self.tokenizer(f"{context} {choice}")["input_ids"]
            scored = max(len(ids) - before, 1)
            found.append(self.log_probabilities(ids[-(self.longest + 1):])[-scored:].sum().item())
        return found


def wikihow(text):
    return re.sub(r"\[.*?\]", "", text.strip().replace(" [title]", ". ")).replace("  ", " ")


def question(line):
    """The context and the answers of a line."""
    row = json.loads(line)
    if "passage" in row:
        return f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:", ["no", "yes"]
    if "options" in row:
        choices = re.split(r"\n[B-Z]\. ", row["options"].removeprefix("A. "))
        asked = row["question"].rstrip()
        return (f"Question: {asked}\nAnswer:" if len(choices) == 2 else asked), choices
    if isinstance(row.get("answer"), list):
        return wikihow(row["question"]), [wikihow(choice) for choice in row["answer"]]
    sys.exit(f"this script does not know the format of {line[:80]}")


def best(numbers):
    return max(range(len(numbers)), key=numbers.__getitem__)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("model")
    parser.add_argument("--text", type=pathlib.Path)
    parser.add_argument("--questions", type=pathlib.Path, nargs="*", default=[])
    parser.add_argument("--limit", type=int, default=200)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/vitreous"))
    options = parser.parse_args()
    peer = Peer(options.model)
    if options.text:
        stride = peer.longest // 2
        own = ours(options.binary, options.model, "--data", options.text, "--stride", stride)
        perplexity, count = peer.perplexity(options.text.read_text(encoding="utf-8"), stride)
        print(f"perplexity of {options.text.name}: {own['perplexity']:.5f} over {own['tokens']:,} tokens; transformers {perplexity:.5f} over {count:,}")
    print("| questions | | likeliest alike | by length alike | largest difference of a log-likelihood |\n|---|--:|--:|--:|--:|", flush=True)
    for file in options.questions:
        lines = [line for line in file.read_text(encoding="utf-8").split("\n") if line.strip()][: options.limit]
        with tempfile.TemporaryDirectory() as folder:
            some = pathlib.Path(folder, "questions.jsonl")
            some.write_text("\n".join(lines) + "\n", encoding="utf-8")
            own = ours(options.binary, options.model, "--data", some)
        alike, by_length, largest = 0, 0, 0.0
        for line, choice, by_character, found in zip(lines, own["choices"], own["choices_norm"], own["log_likelihoods"]):
            context, choices = question(line)
            expected = peer.likelihoods(context, choices)
            alike += best(expected) == choice
            by_length += best([number / len(answer) for number, answer in zip(expected, choices)]) == by_character
            largest = max(largest, *(abs(a - b) for a, b in zip(found, expected)))
        print(f"| {own['format']} | {len(lines)} | {alike} | {by_length} | {largest:.1e} |", flush=True)


main()
