#!/usr/bin/env python3
"""Speed of language models on the CPU, in turns with llama.cpp and PyTorch: tokens per second of reading a prompt and of writing.

    python3 scripts/bench_language.py target/release/vitreous MODEL.gguf    # needs xllamacpp, torch, transformers
    python3 scripts/bench_language.py target/release/vitreous               # GPT-2 124M with random weights alone

Each side runs `--rounds` times; the table has the medians and the median of the ratios. All sides use `--threads` threads.
"""
import argparse
import json
import statistics
import subprocess
import tempfile
import time


def ours(binary, model, prompt, tokens, threads, precision="f32"):
    command = [binary, "bench", model, "--mode", "generate", "--json", "--prompt", str(prompt), "--tokens", str(tokens)]
    command += ["--threads", str(threads), "--precision", precision, "--seconds", "0"]
    result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return result["prompt_tokens_per_second"], result["generated_tokens_per_second"]


class LlamaCpp:
    """A GGUF file in llama.cpp."""

    def __init__(self, path, context, threads):
        import xllamacpp

        params = xllamacpp.CommonParams()
        params.model.path, params.n_ctx, params.n_batch, params.n_ubatch, params.n_parallel = path, context, 512, 512, 1
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
        self.server = xllamacpp.Server(params)
        self.run = 0

    def rates(self, prompt, tokens):
        self.run += 1
        ids = [1000 + (self.run * 7919 + place * 31) % 30000 for place in range(prompt)]
        answer = self.server.handle_completions(
            {"prompt": ids, "n_predict": tokens, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
        )
        return answer["timings"]["prompt_per_second"], answer["timings"]["predicted_per_second"]


class Transformers:
    """A directory of Hugging Face's in `transformers`, eager and compiled."""

    def __init__(self, directory, threads):
        import torch
        from transformers import AutoModelForCausalLM

        torch.set_num_threads(threads)
        self.torch = torch
        self.model = AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32).eval()
        self.compiled = torch.compile(self.model)

    def read(self, model, ids):
        with self.torch.inference_mode():
            start = time.perf_counter()
            # As in generation: the logits of the last token alone, and the keys and values of all.
            model(ids, use_cache=True, logits_to_keep=1)
            return ids.shape[1] / (time.perf_counter() - start)

    def rates(self, prompt, tokens):
        ids = self.torch.randint(0, self.model.config.vocab_size, (1, prompt))
        reading = max(self.read(self.model, ids), self.read(self.compiled, ids))
        with self.torch.inference_mode():
            start = time.perf_counter()
            self.model.generate(ids, max_new_tokens=1, do_sample=False, pad_token_id=0)
            first = time.perf_counter() - start
            start = time.perf_counter()
            self.model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
            writing = (tokens - 1) / (time.perf_counter() - start - first)
        return reading, writing


def compare(name, peer_name, peer, own, rounds):
    peer()  # Warm: compiled, pages in memory.
    own()
    rows = []
    for _ in range(rounds):
        rows.append((peer(), own()))
    for what, index in [("reading", 0), ("writing", 1)]:
        theirs, mine = [[row[side][index] for row in rows] for side in (0, 1)]
        ratio = statistics.median(b / a for a, b in zip(theirs, mine))
        medians = statistics.median(theirs), statistics.median(mine)
        print(f"| {name}, {what} | {peer_name} | {medians[0]:.1f} | {medians[1]:.1f} | {ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("binary")
    parser.add_argument("gguf", nargs="?")
    parser.add_argument("--prompt", type=int, default=480)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--without-gpt2", action="store_true")
    args = parser.parse_args()
    print("| tokens/s | peer | peer | ours | ratio |\n|---|---|--:|--:|--:|")
    sizes = args.prompt, args.tokens
    if args.gguf:
        peer = LlamaCpp(args.gguf, args.prompt + args.tokens + 32, args.threads)
        own = lambda: ours(args.binary, args.gguf, *sizes, args.threads)
        compare("GGUF", "llama.cpp", lambda: peer.rates(*sizes), own, args.rounds)
        del peer
    if not args.without_gpt2:
        from transformers import GPT2Config, GPT2LMHeadModel

        with tempfile.TemporaryDirectory() as directory:
            GPT2LMHeadModel(GPT2Config()).save_pretrained(directory)
            peer = Transformers(directory, args.threads)
            for precision in ["f32", "bf16"]:
                own = lambda: ours(args.binary, directory, *sizes, args.threads, precision)
                name = f"GPT-2 124M, ours in {precision}"
                compare(name, "transformers in f32", lambda: peer.rates(*sizes), own, args.rounds)


main()
