#!/usr/bin/env python3
"""Opens model directories that vitreous wrote with transformers and sentence-transformers, and compares what both make of the same texts.

    python scripts/check_directories.py --minilm DIR --albert DIR [--binary target/release/vitreous]

From MiniLM (get it from sentence-transformers/all-MiniLM-L6-v2) one-epoch runs on some generated texts make a classifier of texts, a tagger of
tokens and an embedding model, and one from nothing a language model; their `model/` is what is compared. Of ALBERT, a published checkpoint
with a masked-token head, the answers of `fill` are compared. Prints the largest differences. Needs torch, transformers, sentence-transformers.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import torch
import transformers as hf
from sentence_transformers import SentenceTransformer

REPOSITORY = pathlib.Path(__file__).resolve().parent.parent
TEXTS = ["a good film with a happy end", "what a bad story", "the red cat sat in London", "bad, bad and long"]
LIMIT = 1e-4


class Check:
    def __init__(self, binary, folder):
        self.binary, self.folder, self.largest = binary, pathlib.Path(folder), {}

    def run(self, *arguments):
        done = subprocess.run([self.binary, *map(str, arguments), "--device", "cpu"], capture_output=True, text=True, encoding="utf-8")
        if done.returncode:
            sys.exit(done.stderr)
        return [json.loads(line) for line in done.stdout.split("\n") if line.startswith("{")]

    def write(self, name, text):
        (self.folder / name).write_text(text, encoding="utf-8")
        return self.folder / name

    def train(self, name, recipe, *options):
        out = self.folder / name
        self.run("train", recipe, "--out", out, "--json", *options, "train.epochs=1")
        return out / "model"

    def differ(self, name, found, expected):
        found, expected = torch.as_tensor(found).double(), torch.as_tensor(expected).double()
        assert found.shape == expected.shape, (name, found.shape, expected.shape)
        if not found.numel():
            return
        self.largest[name] = max(self.largest.get(name, 0.0), (found - expected).abs().max().item())


@torch.inference_mode()
def classes(check, minilm):
    rows = "".join(f"{text}\t{'bad' if 'bad' in text else 'good'}\n" for text in TEXTS * 12)
    data = check.write("classes.tsv", "text\tlabel\n" + rows)
    model = check.train("classes", "classify-text", "--init", minilm, "--data", data, "train.batch=4")
    tokenizer, peer = hf.AutoTokenizer.from_pretrained(model), hf.AutoModelForSequenceClassification.from_pretrained(model).eval()
    for text, line in zip(TEXTS, check.run("predict", model, "--json", *sum((["--text", text] for text in TEXTS), []))):
        check.differ("classes of texts, logits", line["logits"], peer(**tokenizer(text, return_tensors="pt")).logits[0])


@torch.inference_mode()
def tags(check, minilm):
    sentence = "the O\nred O\ncat O\nsat O\nin O\nLondon B-LOC\n\n"
    data = check.write("tags.conll", (sentence + "Ada B-PER\nLovelace I-PER\nwrote O\n\n") * 24)
    model = check.train("tags", "classify-tokens", "--init", minilm, "--data", data, "train.batch=4")
    peer = hf.pipeline("token-classification", str(model), aggregation_strategy="simple")
    for text, line in zip(TEXTS, check.run("predict", model, "--json", *sum((["--text", text] for text in TEXTS), []))):
        expected = [(one["entity_group"], one["start"], one["end"], float(one["score"])) for one in peer(text)]
        found = [(one["entity_group"], one["start"], one["end"], one["score"]) for one in line["entities"]]
        assert [one[:3] for one in found] == [one[:3] for one in expected], (found, expected)
        check.differ("tags of tokens, scores of entities", [one[3] for one in found], [one[3] for one in expected])


def embeddings(check, minilm):
    rows = "".join(json.dumps({"anchor": text, "positive": text.upper()}) + "\n" for text in TEXTS * 12)
    data = check.write("pairs.jsonl", rows)
    model = check.train("embeddings", "embeddings", "--init", minilm, "--data", data, "train.batch=4")
    assert (model / "modules.json").exists()
    expected = SentenceTransformer(str(model), device="cpu").encode(TEXTS)
    check.differ("sentence embeddings", [line["embedding"] for line in check.run("embed", model, "--json", *TEXTS)], expected)


@torch.inference_mode()
def language(check):
    data = check.write("text.txt", "the red cat sat in London and what a good film it was\n" * 300)
    small = ["model.dim=32", "model.heads=4", "model.depth=2", "model.mlp_dim=64", "text.max_tokens=32", "train.batch=8"]
    model = check.train("language", "gpt", "--data", data, "text.vocabulary=270", *small)
    tokenizer, peer = hf.AutoTokenizer.from_pretrained(model), hf.AutoModelForCausalLM.from_pretrained(model).eval()
    for prompt in ["the red", "what a"]:
        ids = tokenizer(prompt, return_tensors="pt")["input_ids"]
        written = peer.generate(ids, max_new_tokens=12, min_new_tokens=12, do_sample=False)[0, ids.shape[1]:].tolist()
        line = check.run("generate", model, prompt, "--max-tokens", 12, "--logprobs", 1, "--json")[0]
        assert line["tokens"] == written[: len(line["tokens"])], (line["tokens"], written)
        expected = peer(torch.cat([ids, torch.tensor([written])], 1)).logits[0].log_softmax(-1)[ids.shape[1] - 1:]
        expected = [expected[at, token].item() for at, token in enumerate(line["tokens"])]
        check.differ("language model, log-probabilities", [one["logprob"] for one in line["logprobs"]], expected)


@torch.inference_mode()
def albert(check, directory):
    # Of a `vocab.txt`, transformers' own choice for ALBERT makes unknown tokens alone: it wants a SentencePiece model.
    tokenizers = hf.BertTokenizer if (directory / "vocab.txt").exists() else hf.AutoTokenizer
    tokenizer, peer = tokenizers.from_pretrained(directory), hf.AlbertForMaskedLM.from_pretrained(directory).eval()
    mask = tokenizer.mask_token
    texts = [f"C C ( = O ) {mask}", f"{mask} 1 = C C = C C = 1", f"N C ( C ) C ( = {mask} ) O"]
    for text, line in zip(texts, check.run("fill", directory, "--json", "--top", 20, *texts)):
        encoded = tokenizer(text, return_tensors="pt")
        place = (encoded["input_ids"][0] == tokenizer.mask_token_id).nonzero()[0, 0]
        scores, ids = peer(**encoded).logits[0, place].softmax(-1).topk(20)
        top = line["masks"][0]["top"]
        tokens = [one["token"] for one in top]
        assert tokens == tokenizer.convert_ids_to_tokens(ids.tolist()), (tokens, ids)
        check.differ("ALBERT's masked tokens, scores", [one["score"] for one in top], scores)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minilm", type=pathlib.Path, required=True)
    parser.add_argument("--albert", type=pathlib.Path, required=True)
    parser.add_argument("--binary", default=str(REPOSITORY / "target/release/vitreous"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        check = Check(options.binary, folder)
        classes(check, options.minilm)
        tags(check, options.minilm)
        embeddings(check, options.minilm)
        language(check)
        albert(check, options.albert)
    for name, largest in check.largest.items():
        print(f"{name}: largest difference {largest:.1e}")
    sys.exit(max(check.largest.values()) > LIMIT)


main()
