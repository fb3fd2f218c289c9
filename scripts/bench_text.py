#!/usr/bin/env python3
"""Speed of text encoders on the CPU, in turns with sentence-transformers, ONNX Runtime and PyTorch.

    python3 scripts/bench_text.py target/release/vitreous --embed MINILM_DIRECTORY --texts SENTENCES.txt
    python3 scripts/bench_text.py target/release/vitreous --bert infer train

Needs torch, transformers, sentence-transformers, onnxruntime, onnx and onnxscript. `--embed` measures texts per second, of all
sides with the model open and warm: ours is the time that the command takes for the texts twice, in two files, less its time for them once;
`whole` is the whole command, from start to end. `--bert` measures BERT-base with random weights,
sequences per second, against the best of eager and compiled PyTorch, in bf16 with autocast and with all weights in bf16; a training
step is forward, backward, clipping and AdamW, with dropout. Each side runs `--rounds` times in turns; the table has medians, and the
median of the ratios to the best peer of each round. All sides use `--threads` threads.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def timed(call):
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def compare(name, amount, peers, own, rounds):
    """Prints a row: `amount` per second of each peer, of ours, and the ratio to the best."""
    for call in [*peers.values(), own]:
        call()  # Warm: compiled, pages in memory.
    rates = {peer: [] for peer in [*peers, "ours"]}
    for _ in range(rounds):
        for peer, call in peers.items():
            rates[peer].append(amount / timed(call))
        rates["ours"].append(own())
    ratio = statistics.median(own / max(theirs) for own, *theirs in zip(rates["ours"], *(rates[peer] for peer in peers)))
    sides = ", ".join(f"{peer} {statistics.median(values):.1f}" for peer, values in rates.items())
    print(f"| {name} | {sides} | {ratio:.2f} |", flush=True)


# ---- Embeddings


def export(directory, path):
    """The encoder as an ONNX file."""
    import torch
    from transformers import AutoModel

    class Encoder(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = AutoModel.from_pretrained(directory, dtype=torch.float32, attn_implementation="eager").eval()

        def forward(self, ids, mask):
            return self.model(input_ids=ids, attention_mask=mask).last_hidden_state

    ids = torch.ones(2, 7, dtype=torch.int64)
    batch, length = torch.export.Dim("batch"), torch.export.Dim("length")
    sizes = {name: {0: batch, 1: length} for name in ("ids", "mask")}
    torch.onnx.export(Encoder(), (ids, ids), path, input_names=["ids", "mask"], output_names=["tokens"], dynamic_shapes=sizes)


class OnnxRuntime:
    """The encoder in ONNX Runtime, texts sorted by length, mean pooling, vectors of length 1."""

    def __init__(self, directory, path, threads, batch):
        import onnxruntime
        from transformers import AutoTokenizer

        export(directory, path)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tokenizer = AutoTokenizer.from_pretrained(directory)
        self.batch = batch

    def embed(self, texts):
        import numpy

        ids = self.tokenizer(texts, truncation=True, max_length=256)["input_ids"]
        order = sorted(range(len(ids)), key=lambda text: -len(ids[text]))
        vectors = [None] * len(ids)
        for start in range(0, len(order), self.batch):
            some = order[start : start + self.batch]
            longest = len(ids[some[0]])
            tokens = numpy.zeros((len(some), longest), numpy.int64)
            mask = numpy.zeros_like(tokens)
            for row, text in enumerate(some):
                tokens[row, : len(ids[text])] = ids[text]
                mask[row, : len(ids[text])] = 1
            hidden = self.session.run(None, {"ids": tokens, "mask": mask})[0]
            means = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdims=True)
            means /= numpy.linalg.norm(means, axis=1, keepdims=True)
            for row, text in enumerate(some):
                vectors[text] = means[row]
        return numpy.stack(vectors)


def bench_embeddings(args):
    import numpy
    import torch
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(args.threads)
    texts = open(args.texts, encoding="utf-8").read().splitlines()
    with tempfile.TemporaryDirectory() as folder:
        runtime = OnnxRuntime(args.embed, os.path.join(folder, "model.onnx"), args.threads, args.batch)
        out = os.path.join(folder, "vectors.npy")

        whole = []

        def seconds(precision, times):
            command = [args.binary, "embed", args.embed, "--out", out, "--force", "--precision", precision]
            command += ["--threads", str(args.threads), "-q", *["--file", args.texts] * times]
            return timed(lambda: subprocess.run(command, check=True))

        def own(precision):
            once, twice = seconds(precision, 1), seconds(precision, 2)
            whole.append(len(texts) / once)
            return len(texts) / (twice - once)

        for precision, dtype in [("f32", torch.float32), ("bf16", torch.bfloat16)]:
            model = SentenceTransformer(args.embed, device="cpu", model_kwargs={"dtype": dtype})
            encode = lambda: model.encode(texts, batch_size=args.batch, convert_to_numpy=dtype == torch.float32, convert_to_tensor=True)
            peers = {"sentence-transformers": encode}
            compare(f"embeddings, {precision}", len(texts), peers, lambda: own(precision), args.rounds)
            if precision == "f32":
                peers = {"ONNX Runtime": lambda: runtime.embed(texts)}
                compare(f"embeddings, {precision}", len(texts), peers, lambda: own(precision), args.rounds)
            seconds(precision, 1)
            print(f"whole commands: {statistics.median(whole):.1f} texts/s", flush=True)
            whole.clear()
            difference = numpy.abs(numpy.load(out) - encode().float().numpy()).max()
            print(f"largest difference of a number to sentence-transformers': {difference:.1e}", flush=True)


# ---- BERT-base


class Bert:
    """BERT-base with its pooler in PyTorch."""

    def __init__(self, args, mode, precision, way):
        import torch
        from transformers import BertConfig, BertModel

        torch.set_num_threads(args.threads)
        self.torch, self.train = torch, mode == "train"
        self.autocast = precision == "bf16" and "autocast" in way
        model = BertModel(BertConfig())
        model = model.to(torch.bfloat16) if precision == "bf16" and not self.autocast else model
        model.train(self.train)
        self.parameters = list(model.parameters())
        if self.train:
            self.optimizer = torch.optim.AdamW(self.parameters, lr=1e-5, weight_decay=0.05, fused=True)
        self.model = torch.compile(model) if "compiled" in way else model
        self.ids = torch.randint(0, 30522, (args.sequences, args.tokens))
        self.targets = torch.randint(0, 768, (args.sequences,))

    def forward(self):
        with self.torch.autocast("cpu", self.torch.bfloat16, enabled=self.autocast):
            return self.model(self.ids).pooler_output

    def __call__(self):
        if not self.train:
            with self.torch.inference_mode():
                return self.forward()
        loss = self.torch.nn.functional.cross_entropy(self.forward().float(), self.targets)
        loss.backward()
        self.torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()


def bench_bert(args, mode, precision):
    ways = ["eager", "compiled"] if precision == "f32" else [f"{way}, {kind}" for way in ("eager", "compiled") for kind in ("autocast", "whole")]
    peers = {way: Bert(args, mode, precision, way) for way in ways if not args.ways or any(wanted in way for wanted in args.ways)}

    def own():
        command = [args.binary, "bench", "bert_base", "--mode", mode, "--precision", precision, "--json", "--seconds", "0"]
        command += ["--batch", str(args.sequences), "--tokens", str(args.tokens), "--threads", str(args.threads)]
        result = subprocess.run(command, check=True, capture_output=True, text=True)
        return json.loads(result.stdout)["sequences_per_second"]

    name = f"BERT-base, {mode}, {precision}, {args.sequences} x {args.tokens}"
    compare(name, args.sequences, peers, own, args.rounds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("--embed", metavar="DIRECTORY", help="a model of sentence-transformers, such as all-MiniLM-L6-v2")
    parser.add_argument("--texts", metavar="FILE", help="one text per line")
    parser.add_argument("--batch", type=int, default=32, help="texts that the peers compute at once")
    parser.add_argument("--bert", nargs="+", choices=["infer", "train"], default=[])
    parser.add_argument("--precision", nargs="+", choices=["f32", "bf16"], default=["f32", "bf16"])
    parser.add_argument("--ways", nargs="+", default=[], help="only these of PyTorch's: eager, compiled, autocast, whole")
    parser.add_argument("--sequences", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    print("| | per second | ours / best peer |\n|---|---|--:|")
    if args.embed:
        bench_embeddings(args)
    for mode in args.bert:
        for precision in args.precision:
            bench_bert(args, mode, precision)


main()
