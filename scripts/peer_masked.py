"""Masked-language pre-training of `vitreous train bert` in PyTorch, to compare losses.

    python scripts/peer_masked.py TEXT MODEL STEPS [SEED]

TEXT is the text file, MODEL the model directory of a run on it (for its tokenizer and sizes), STEPS the number of steps of batches of 64
sequences of 128 tokens. The recipe is that of `bert` with train.batch=64, train.precision=bf16, schedule.warmup_steps=1000: documents are
separated by blank lines, and packed; 15 % of the tokens, by whole words, 80/10/10; AdamW 5e-4, (0.9, 0.98), 1e-6, decay 0.01 on matrices, clipping at 1,
linear schedule, dropout 0.1. The last 1 % of the sequences are for validation, of which 1,000 are evaluated with fixed masks.
Needs PyTorch with CUDA, transformers, tokenizers.
"""
import re
import sys
import time

import torch
from tokenizers import Tokenizer
from transformers import AutoConfig, BertForMaskedLM

TEXT, MODEL, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
torch.manual_seed(int(sys.argv[4]) if len(sys.argv) > 4 else 1)
tokenizer = Tokenizer.from_file(MODEL + "/tokenizer.json")
CLS, SEP, MASK = (tokenizer.token_to_id(name) for name in ("[CLS]", "[SEP]", "[MASK]"))
size = tokenizer.get_vocab_size()

lines = [text for text in re.split(r"\n\s*\n", open(TEXT, encoding="utf-8", errors="replace").read()) if text.strip()]
stream, starts = [], []  # tokens of all documents with separators, and whether each begins a word
for first in range(0, len(lines), 20000):
    for encoded in tokenizer.encode_batch(lines[first : first + 20000], add_special_tokens=False):
        stream += encoded.ids + [SEP]
        starts += [i == 0 or a != b for i, (a, b) in enumerate(zip(encoded.word_ids, [None] + encoded.word_ids))] + [False]
count = len(stream) // 126
rows = torch.tensor(stream[: count * 126]).view(count, 126)
begins = torch.tensor(starts[: count * 126]).view(count, 126)
rows = torch.cat([torch.full((count, 1), CLS), rows, torch.full((count, 1), SEP)], 1).cuda()
edge = torch.zeros(count, 1, dtype=torch.bool)
begins = torch.cat([edge, begins, edge], 1).cuda()
kept = count // 100
train, test = (rows[:-kept], begins[:-kept]), (rows[-kept:][:1000], begins[-kept:][:1000])
print(f"{len(stream):,} tokens, {count:,} sequences, vocabulary {size:,}", flush=True)


def masked(rows, begins):
    """Whole words are drawn until 15 % of the tokens are: here by a chance of 15 % for each word."""
    special = (rows == CLS) | (rows == SEP)
    word = begins.long().cumsum(1)
    chance = torch.rand(rows.shape, device=rows.device).gather(1, word.clamp(max=rows.shape[1] - 1))
    chosen = (chance < 0.15) & ~special
    labels = torch.where(chosen, rows, -100)
    draw = torch.rand(rows.shape, device=rows.device)
    inputs = torch.where(chosen & (draw < 0.8), MASK, rows)
    inputs = torch.where(chosen & (draw >= 0.8) & (draw < 0.9), torch.randint_like(rows, size), inputs)
    return inputs, labels


model = BertForMaskedLM(AutoConfig.from_pretrained(MODEL)).cuda().train()
matrices = [p for p in model.parameters() if p.dim() > 1]
others = [p for p in model.parameters() if p.dim() < 2]
groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
optimizer = torch.optim.AdamW(groups, lr=5e-4, betas=(0.9, 0.98), eps=1e-6, fused=True)
factor = lambda step: min((step + 1) / 1000, (STEPS - step) / max(1, STEPS - 1000))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
compiled = torch.compile(model)
evaluated = masked(*test)


def loss_of(which, inputs, labels):
    with torch.autocast("cuda", torch.bfloat16):
        return which(input_ids=inputs, labels=labels).loss


start, order, at = time.time(), torch.randperm(len(train[0]), device="cuda"), 0
for step in range(STEPS):
    if at + 64 > len(order):
        order, at = torch.randperm(len(train[0]), device="cuda"), 0
    batch = order[at : at + 64]
    at += 64
    loss = loss_of(compiled, *masked(train[0][batch], train[1][batch]))
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    schedule.step()
    if (step + 1) % (STEPS // 10) == 0:
        model.eval()
        with torch.inference_mode():
            value = sum(loss_of(model, *(part[i : i + 100] for part in evaluated)).item() for i in range(0, 1000, 100)) / 10
        model.train()
        print(f"step {step + 1}: loss {loss.item():.3f}, validation loss {value:.4f}, {time.time() - start:.0f} s", flush=True)
