"""Encoder-decoders on a GPU in bf16: ours and PyTorch with transformers in turns, for the tables in BENCHMARKS.md.

    python scripts/bench_gpu_sequences.py target/release/vitreous [ROUNDS [ROW ...]]

Rows are t5-train, t5-write, bart-write and whisper; without any, all are measured. For each, `vitreous bench` and the peer run one after
the other, ROUNDS times (3); medians count. The peer is compiled and warmed up before the first round and stays in memory. Training:
torch.compile with autocast and fused AdamW. Writing: `generate` with a static cache, whose decoder it compiles, weights in bf16; if that
fails for a model, with the usual cache, and the row says so. Random weights, random tokens; all texts have the same length, and nothing
ends them before. Needs PyTorch with CUDA and transformers.
"""
import statistics
import sys

import torch
import transformers as hf
from bench_gpu_text import ours, seconds

BART_BASE = dict(d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12,
                 encoder_ffn_dim=3072, decoder_ffn_dim=3072, forced_eos_token_id=None)  # fmt: skip
T5_SMALL = dict(decoder_start_token_id=0)
T5_BASE = dict(d_model=768, d_ff=3072, num_layers=12, num_heads=12, decoder_start_token_id=0)
LARGE_V3 = dict(d_model=1280, encoder_layers=32, decoder_layers=32, encoder_attention_heads=20, decoder_attention_heads=20,
                encoder_ffn_dim=5120, decoder_ffn_dim=5120, num_mel_bins=128, vocab_size=51866)  # fmt: skip


def made(make, config):
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        model = make(config).eval()
        torch.set_default_dtype(torch.float32)
    return model


def t5_train(batch, tokens):
    model = hf.T5ForConditionalGeneration(hf.T5Config(**T5_BASE)).cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids, labels = (torch.randint(0, 32000, (batch, tokens), device="cuda") for _ in range(2))
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss = compiled(input_ids=ids, labels=labels).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return {"compiled": lambda: batch / seconds(step)}


def written(model, batch, tokens, **inputs):
    """Texts per second of `generate`, with the compiled static cache where the model has one."""

    def run(**options):
        with torch.inference_mode():
            out = model.generate(max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, num_beams=1, **inputs, **options)
        assert out.shape[1] >= tokens, out.shape

    try:
        run(cache_implementation="static")
        return {"compiled": lambda: batch / seconds(lambda: run(cache_implementation="static")), "eager": lambda: batch / seconds(run)}
    except Exception as error:
        print(f"static cache: {type(error).__name__}: {error}", file=sys.stderr)
        return {"eager": lambda: batch / seconds(run)}


def write(make, config, batch, prompt, tokens):
    ids = torch.randint(5, 32000, (batch, prompt), device="cuda")
    return written(made(make, config), batch, tokens, input_ids=ids, attention_mask=torch.ones_like(ids))


def whisper(batch, tokens):
    model = made(hf.WhisperForConditionalGeneration, hf.WhisperConfig(attn_implementation="sdpa", **LARGE_V3))
    features = torch.randn(batch, 128, 3000, device="cuda", dtype=torch.bfloat16)
    start = torch.full((batch, 4), 50258, device="cuda")
    # The general search: Whisper's own splits recordings, which the windows here are not.
    model.generate = lambda **options: hf.GenerationMixin.generate(model, **options)
    return written(model, batch, tokens, input_features=features, decoder_input_ids=start)


def rows(program):
    def own(*options):
        return lambda: ours(program, *options)["sequences_per_second"]

    yield "t5-train", "T5-base, 64 x (128 + 128)", lambda: t5_train(64, 128), lambda: ours(
        program, "t5_base", "--mode", "train", "--batch", 64, "--tokens", 128)["pairs_per_second"]
    sizes = ["--mode", "generate", "--batch", 64, "--prompt", 32, "--tokens", 64]
    yield "t5-write", "T5-small, 64 texts of 32, 64 written", lambda: write(
        hf.T5ForConditionalGeneration, hf.T5Config(**T5_SMALL), 64, 32, 64), own("t5_small", *sizes)
    yield "bart-write", "BART-base, 64 texts of 32, 64 written", lambda: write(
        hf.BartForConditionalGeneration, hf.BartConfig(**BART_BASE), 64, 32, 64), own("bart_base", *sizes)
    yield "whisper", "Whisper large-v3, 16 windows, 64 written", lambda: whisper(16, 64), own(
        "whisper_large_v3", "--mode", "generate", "--batch", 16, "--prompt", 4, "--tokens", 64)


def main():
    program, arguments = sys.argv[1], sys.argv[2:]
    rounds, chosen = int(arguments[0]) if arguments else 3, arguments[1:]
    print("| | samples per second | ours | peer | ratio to the better |\n|---|---|--:|--:|--:|", flush=True)
    for name, what, make, run in rows(program):
        if chosen and name not in chosen:
            continue
        try:
            peers = make()
            measured = [([peer() for peer in peers.values()], run()) for _ in range(rounds)]
        except Exception as error:
            print(f"| {name} | {what} | {type(error).__name__}: {error} |", flush=True)
            continue
        theirs = {peer: statistics.median(m[0][i] for m in measured) for i, peer in enumerate(peers)}
        mine = statistics.median(m[1] for m in measured)
        listed = ", ".join(f"{peer} {rate:,.1f}" for peer, rate in theirs.items())
        print(f"| {name} | {what} | {mine:,.1f} | {listed} | {mine / max(theirs.values()):.2f} |", flush=True)
        del peers
        torch.cuda.empty_cache()
        torch.compiler.reset()


if __name__ == "__main__":
    main()
