#!/usr/bin/env python3
"""Next-token distributions and stories of language models beside llama.cpp and `transformers`, on published weights.

    python3 scripts/compare_language.py distributions target/release/vitreous MODEL.gguf TEXTS.jsonl
    python3 scripts/compare_language.py story target/release/vitreous stories15M.bin

`distributions` asks for the token after each of some hundred beginnings of real texts (JSON lines with `text`). `transformers` has the
weights of the GGUF file dequantised to f32 by the package `gguf`. Each side gives its likeliest tokens; divergence is that of the distribution
over the tokens which both sides give, with one more place for all others. `story` writes a story greedily, with `transformers` on weights
that this script reads from llama2.c's format itself. Needs torch, transformers, gguf and xllamacpp.
"""
import argparse
import json
import math
import os
import statistics
import struct
import subprocess
import tempfile


def beginnings(path, count, each):
    """Beginnings of texts that end at the end of a word, `each` of a text."""
    found = []
    for line in open(path, encoding="utf-8"):
        words = json.loads(line)["text"].replace("<br />", " ").split()
        if len(words) >= 100:
            found += [" ".join(words[: 4 + 6 * place]) for place in range(each)]
        if len(found) >= count:
            break
    return found[:count]


def ours(binary, model, prompts, top, *options):
    """The likeliest tokens behind each prompt, with their logarithmic probabilities."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl", encoding="utf-8") as file:
        file.writelines(json.dumps({"prompt": prompt}) + "\n" for prompt in prompts)
        file.flush()
        command = [binary, "generate", model, "--file", file.name, "--json", "--temperature", "0", "--max-tokens", "1"]
        command += ["--logprobs", str(top), "-q", "--ignore-eos", *options]
        lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return [{one["token"]: one["logprob"] for one in json.loads(line)["logprobs"][0]["top"]} for line in lines]


def llama_cpp(model, prompts, top):
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path, params.n_ctx, params.n_parallel = model, 2048, 1
    server = xllamacpp.Server(params)
    found = []
    for prompt in prompts:
        wanted = {"prompt": prompt, "n_predict": 1, "temperature": 0, "n_probs": top, "cache_prompt": False}
        answer = server.handle_completions(wanted)
        found.append({one["id"]: one["logprob"] for one in answer["choices"][0]["logprobs"]["content"][0]["top_logprobs"]})
    return found


def transformers(model, prompts, top):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, name = os.path.split(os.path.abspath(model))
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=name)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=name, dtype=torch.float32).eval()
    found = []
    with torch.inference_mode():
        for prompt in prompts:
            ids = torch.tensor([tokenizer(prompt, add_special_tokens=False)["input_ids"]])
            best = model(ids).logits[0, -1].double().log_softmax(-1).topk(top)
            found.append(dict(zip(best.indices.tolist(), best.values.tolist())))
    return found


def compared(a, b):
    """The divergence of b from a, whether both have the same likeliest token, and the largest difference of a probability."""
    both = a.keys() & b.keys()
    p, q = [[math.exp(side[token]) for token in both] for side in (a, b)]
    p, q = [[*side, max(1 - sum(side), 1e-9)] for side in (p, q)]
    divergence = sum(x * math.log(x / y) for x, y in zip(p, q))
    return divergence, max(a, key=a.get) == max(b, key=b.get), max(abs(x - y) for x, y in zip(p, q))


def distributions(args):
    prompts = beginnings(args.texts, args.count, 20)
    sides = {
        "ours": ours(args.binary, args.model, prompts, args.top),
        "llama.cpp": llama_cpp(args.model, prompts, args.top),
        "transformers": transformers(args.model, prompts, args.top),
    }
    print(f"{len(prompts)} positions, the {args.top} likeliest tokens of each\n")
    print("| | mean divergence, nats | median | largest | same likeliest token | largest difference of a probability |")
    print("|---|--:|--:|--:|--:|--:|")
    for truth, other in [("transformers", "ours"), ("transformers", "llama.cpp"), ("llama.cpp", "ours")]:
        rows = [compared(a, b) for a, b in zip(sides[truth], sides[other])]
        divergences, same, differences = zip(*rows)
        mean, median = statistics.mean(divergences), statistics.median(divergences)
        agree = f"{100 * statistics.mean(same):.1f} %"
        print(f"| {other} from {truth} | {mean:.1e} | {median:.1e} | {max(divergences):.1e} | {agree} | {max(differences):.3f} |")


# ---- stories15M


def llama2c(path):
    """A model of llama2.c in `transformers`."""
    import numpy
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    data = open(path, "rb").read()
    dim, hidden, layers, heads, key_heads, vocabulary, longest = struct.unpack("7i", data[:28])
    values, at = numpy.frombuffer(data, "<f4", offset=28), 0

    def take(*shape):
        nonlocal at
        size = math.prod(shape)
        at += size
        return torch.from_numpy(values[at - size : at].reshape(shape).copy())

    key_dim = dim * key_heads // heads
    words, attention_norm = take(abs(vocabulary), dim), take(layers, dim)
    query, key, value, out = take(layers, dim, dim), take(layers, key_dim, dim), take(layers, key_dim, dim), take(layers, dim, dim)
    norm, gate, down, up = take(layers, dim), take(layers, hidden, dim), take(layers, dim, hidden), take(layers, hidden, dim)
    last_norm = take(dim)
    take(2, longest, dim // heads // 2)  # Tables of sines and cosines.
    head = words if vocabulary > 0 else take(-vocabulary, dim)
    # Pairs that are turned together are neighbours there, and half a head apart here.
    halves = lambda matrix, heads: matrix.view(heads, -1, 2, dim).transpose(1, 2).reshape(matrix.shape)
    config = LlamaConfig(
        vocab_size=abs(vocabulary), hidden_size=dim, intermediate_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=key_heads, max_position_embeddings=longest, rms_norm_eps=1e-5, tie_word_embeddings=vocabulary > 0,
        bos_token_id=1, eos_token_id=2,
    )
    state = {"model.embed_tokens.weight": words, "model.norm.weight": last_norm, "lm_head.weight": head}
    for layer in range(layers):
        parts = {
            "input_layernorm": attention_norm, "post_attention_layernorm": norm, "self_attn.v_proj": value, "self_attn.o_proj": out,
            "mlp.gate_proj": gate, "mlp.down_proj": down, "mlp.up_proj": up,
        }
        state |= {f"model.layers.{layer}.{name}.weight": part[layer] for name, part in parts.items()}
        state[f"model.layers.{layer}.self_attn.q_proj.weight"] = halves(query[layer], heads)
        state[f"model.layers.{layer}.self_attn.k_proj.weight"] = halves(key[layer], key_heads)
    model = LlamaForCausalLM(config)
    model.load_state_dict(state)
    return model.eval()


def llama2c_pieces(path, vocabulary):
    """The pieces of a tokenizer.bin with their ids and scores."""
    data, at, pieces = open(path, "rb").read(), 4, {}
    for piece in range(vocabulary):
        score, length = struct.unpack_from("fi", data, at)
        pieces.setdefault(data[at + 8 : at + 8 + length].decode(errors="replace"), (piece, score))
        at += 8 + length
    return pieces


def encoded(text, pieces):
    """Ids as llama2.c's run.c has them: of letters, of which the pair with the best score is joined again and again."""
    parts = list(f" {text}") if text else []
    while True:
        pairs = [(pieces[a + b][1], -place) for place, (a, b) in enumerate(zip(parts, parts[1:])) if a + b in pieces]
        if not pairs:
            return [1] + [pieces[part][0] for part in parts]
        place = -max(pairs)[1]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]


def story(args):
    import torch

    model = llama2c(args.model)
    pieces = llama2c_pieces(os.path.join(os.path.dirname(args.model), "tokenizer.bin"), model.config.vocab_size)
    equal = 0
    for prompt in ["", "Once upon a time", "Lily and Tom", "The little dog was"]:
        command = [args.binary, "generate", args.model, prompt, "--json", "--temperature", "0", "--max-tokens", str(args.tokens)]
        answer = json.loads(subprocess.run([*command, "--ignore-eos", "-q"], check=True, capture_output=True, text=True).stdout)
        ids = torch.tensor([encoded(prompt, pieces)])
        with torch.inference_mode():
            theirs = model.generate(ids, max_new_tokens=args.tokens, min_new_tokens=args.tokens, do_sample=False, pad_token_id=0)
        same = theirs[0, ids.shape[1] :].tolist() == answer["tokens"]
        equal += same
        print(f"{prompt!r}: {len(answer['tokens'])} tokens, {'equal' if same else 'DIFFERENT'}:\n  {answer['text'][:200]!r} ..")
    print(f"{equal} stories are equal")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("distributions")
    one.add_argument("binary")
    one.add_argument("model")
    one.add_argument("texts")
    one.add_argument("--count", type=int, default=400)
    one.add_argument("--top", type=int, default=1000)
    two = commands.add_parser("story")
    two.add_argument("binary")
    two.add_argument("model")
    two.add_argument("--tokens", type=int, default=200)
    args = parser.parse_args()
    {"distributions": distributions, "story": story}[args.command](args)


main()
