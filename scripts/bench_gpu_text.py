"""BERT, GPT-2 and LLaMA on a GPU in bf16: ours and PyTorch with transformers in turns, for the tables in BENCHMARKS.md.

    python scripts/bench_gpu_text.py target/release/vitreous [ROUNDS [ROW ...]]

Rows are bert-infer, bert-train, gpt-train, llama-train, write and read (of language models); without any, all are measured. For each, `vitreous bench` and
the peer run one after the other, ROUNDS times (3); medians count. The peer is compiled and warmed up before the first round and
stays in memory. Peers: BertModel with SDPA attention, eager and torch.compile for inference (weights and activations in bf16),
torch.compile with autocast and fused AdamW for training (GPT-2 without dropout on both sides, BERT with 0.1 on both);
LlamaForCausalLM with a static cache, whose decoding `generate` compiles, and
torch.compile for prompts. Random weights, random tokens. Needs PyTorch with CUDA and transformers.
"""
import json
import statistics
import subprocess
import sys
import tempfile
import time

import torch
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

TINY = dict(hidden_size=2048, num_hidden_layers=22, num_attention_heads=32, num_key_value_heads=4, intermediate_size=5632, vocab_size=32000)


def seconds(run, least=0.5):
    run()
    torch.cuda.synchronize()
    times = []
    while len(times) < 3 or sum(times) < least:
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def ours(program, *options):
    command = [program, "bench", *map(str, options), "--precision", "bf16", "--device", "cuda:0", "--seconds", "1", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.splitlines()[-1])


def bert_infer(batch, tokens):
    model = BertModel(BertConfig(attn_implementation="sdpa")).cuda().to(torch.bfloat16).eval()
    ids = torch.randint(0, 30000, (batch, tokens), device="cuda")
    mask = torch.ones_like(ids)
    compiled = torch.compile(model)

    def run(which):
        with torch.inference_mode():
            which(ids, attention_mask=mask)

    return {"eager": lambda: batch / seconds(lambda: run(model)), "compiled": lambda: batch / seconds(lambda: run(compiled))}


def bert_train(batch, tokens):
    model = BertModel(BertConfig(attn_implementation="sdpa")).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, 30000, (batch, tokens), device="cuda")
    targets = torch.randint(0, 768, (batch,), device="cuda")
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(compiled(ids).pooler_output.float(), targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"compiled": lambda: batch / seconds(step)}


def train(make, config, batch, tokens):
    """Tokens per second of a language model's training steps."""
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = make(config).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(0, 32000, (batch, tokens), device="cuda")
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"compiled": lambda: batch * tokens / seconds(step, 1.5)}


# What both sides train. A preset is not what the peer is: GPT-2's drops 0.1 in training.
GPT2 = GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, attn_implementation="sdpa")
LLAMA = LlamaConfig(max_position_embeddings=4096, attn_implementation="sdpa", **TINY)


def bench_training(program, make, config, batch, tokens):
    """`vitreous bench` of the configuration that the peer is built from."""
    with tempfile.TemporaryDirectory() as folder:
        config.architectures = [make.__name__]
        config.save_pretrained(folder)
        found = ours(program, folder, "--mode", "train", "--batch", batch, "--tokens", tokens)
        return tokens * found["sequences_per_second"]


def tiny_llama():
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = LlamaForCausalLM(LlamaConfig(max_position_embeddings=4096, attn_implementation="sdpa", **TINY)).eval()
        torch.set_default_dtype(torch.float32)
    return model


def write(batch, prompt, tokens):
    model = tiny_llama()
    ids = torch.randint(0, 32000, (batch, prompt), device="cuda")
    mask = torch.ones_like(ids)

    def run(new):
        with torch.inference_mode():
            model.generate(ids, attention_mask=mask, max_new_tokens=new, min_new_tokens=new, do_sample=False, cache_implementation="static")

    def rate():
        # Reading the prompt is taken off: the difference of a long and a short text.
        return batch * (tokens - 8) / (seconds(lambda: run(tokens)) - seconds(lambda: run(8)))

    run(tokens)
    run(8)
    return {"compiled": rate}


def read(batch, tokens):
    model = tiny_llama()
    ids = torch.randint(0, 32000, (batch, tokens), device="cuda")
    compiled = torch.compile(model)

    def run():
        with torch.inference_mode():
            compiled(ids, logits_to_keep=1, use_cache=True)

    return {"compiled": lambda: batch * tokens / seconds(run)}


def rows(program):
    for batch, tokens in [(256, 128), (64, 512)]:
        options = ["bert_base", "--batch", batch, "--tokens", tokens]
        yield "bert-infer", f"{batch} x {tokens}", lambda b=batch, t=tokens: bert_infer(b, t), lambda o=options: ours(
            program, *o, "--mode", "infer")["sequences_per_second"]
        yield "bert-train", f"{batch} x {tokens}", lambda b=batch, t=tokens: bert_train(b, t), lambda o=options: ours(
            program, *o, "--mode", "train")["sequences_per_second"]
    for name, what, make, config, batch, tokens in [
        ("gpt-train", "GPT-2 124M", GPT2LMHeadModel, GPT2, 32, 1024),
        ("llama-train", "TinyLlama 1.1B", LlamaForCausalLM, LLAMA, 4, 2048),
    ]:
        case = (make, config, batch, tokens)
        yield name, f"{what}, {batch} x {tokens}", lambda c=case: train(*c), lambda c=case: bench_training(program, *c)
    for batch in [1, 32]:
        options = ["tinyllama_1.1b", "--mode", "generate", "--batch", batch, "--prompt", 128, "--tokens", 128]
        yield "write", f"TinyLlama, {batch} at once", lambda b=batch: write(b, 128, 128), lambda o=options: ours(
            program, *o)["generated_tokens_per_second"]
    options = ["tinyllama_1.1b", "--mode", "generate", "--batch", 4, "--prompt", 2044, "--tokens", 4]
    yield "read", "TinyLlama, 4 x 2044", lambda: read(4, 2044), lambda: ours(program, *options)["prompt_tokens_per_second"]


def main():
    program, arguments = sys.argv[1], sys.argv[2:]
    rounds, chosen = int(arguments[0]) if arguments else 3, arguments[1:]
    print("| | | ours | peer | ratio to the better |\n|---|---|--:|--:|--:|")
    for name, what, make, run in rows(program):
        if chosen and name not in chosen:
            continue
        peers = make()
        measured = [([peer() for peer in peers.values()], run()) for _ in range(rounds)]
        theirs = {peer: statistics.median(m[0][i] for m in measured) for i, peer in enumerate(peers)}
        own = statistics.median(m[1] for m in measured)
        listed = ", ".join(f"{peer} {rate:,.0f}" for peer, rate in theirs.items())
        print(f"| {name} | {what} | {own:,.0f} | {listed} | {own / max(theirs.values()):.2f} |", flush=True)
        del peers
        torch.cuda.empty_cache()
        torch.compiler.reset()


if __name__ == "__main__":
    main()
