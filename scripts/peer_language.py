"""Pre-training of `vitreous train gpt` in PyTorch with transformers, to compare losses.

    python scripts/peer_language.py TEXT RUN [--optimizer muon] [--epochs N] [--seed N]

TEXT is the text file, RUN the directory of our run on it: its recipe, tokenizer and sizes are used (`recipe.toml`, `model/`). The text is
one document, packed into sequences behind the end-of-text token as ours; the last share of the sequences is for validation. GPT-2 with
its own initialisation, AdamW (fused) or torch.optim.Muon with AdamW beside it, clipping, warm-up and schedule of the recipe; decay on
matrices and word embeddings. On a GPU: torch.compile, and bf16 autocast if the recipe says bf16. Validation is after each epoch, as ours.
Needs PyTorch, transformers, tokenizers.
"""
import argparse
import math
import time
import tomllib

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoConfig, GPT2LMHeadModel


def read_rows(text, tokenizer, length):
    """Sequences of length + 1 tokens, the last of which is only predicted."""
    end = tokenizer.token_to_id("<|endoftext|>")
    lines = open(text, encoding="utf-8", errors="replace", newline="").read().splitlines(keepends=True)
    stream = [end]
    # Parts end before a line that begins with a letter, where no token of GPT-2's pattern goes across.
    part, parts, size = [], [], 0
    for line in lines:
        if size > 1 << 16 and line[:1].isalpha() and part[-1].strip():
            parts.append("".join(part))
            part, size = [], 0
        part.append(line)
        size += len(line)
    for encoded in tokenizer.encode_batch(parts + ["".join(part)], add_special_tokens=False):
        stream += encoded.ids
    stream = torch.tensor(stream + [end])
    return stream.unfold(0, length + 1, length)  # [sequences, length + 1]


def bytes_of_tokens(tokenizer):
    """A letter of byte-level BPE is a byte; special tokens are none."""
    special = {token for token, added in tokenizer.get_added_tokens_decoder().items() if added.special}
    size = tokenizer.get_vocab_size()
    return torch.tensor([0 if token in special else len(tokenizer.id_to_token(token)) for token in range(size)])


def rate(step, steps, warmup, recipe):
    """The learning rate, with its formula in crates/train/src/schedule.rs."""
    high, low = recipe["optimizer"]["lr"], recipe["schedule"]["final_lr"]
    if step < warmup:
        return high * (step + 1) / warmup
    progress = (step - warmup) / max(1, steps - warmup)
    kind = recipe["schedule"]["kind"]
    return low + (high - low) * {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}[kind]


def optimizers(model, recipe, name, fused):
    given = recipe["optimizer"]
    hidden = [p for key, p in model.named_parameters() if p.dim() > 1 and ".h." in key]
    words = [model.transformer.wte.weight]
    others = [p for key, p in model.named_parameters() if p.dim() < 2 or "wpe" in key]
    groups = [{"params": words if name == "muon" else words + hidden, "weight_decay": given["weight_decay"]}, {"params": others, "weight_decay": 0.0}]
    found = [torch.optim.AdamW(groups, lr=given["lr"], betas=tuple(given["betas"]), eps=given["eps"], fused=fused)]
    if name == "muon":
        found.append(torch.optim.Muon(hidden, lr=given["lr"], weight_decay=given["weight_decay"], momentum=given["momentum"],
                                      nesterov=given["nesterov"], adjust_lr_fn="match_rms_adamw"))
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text")
    parser.add_argument("run")
    parser.add_argument("--optimizer", choices=["adamw", "muon"], help="that of the recipe if not given")
    parser.add_argument("--epochs", type=int, help="those of the recipe if not given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    options = parser.parse_args()
    recipe = tomllib.load(open(options.run + "/recipe.toml", "rb"))
    name = options.optimizer or recipe["optimizer"]["name"]
    on_gpu = options.device.startswith("cuda")
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = Tokenizer.from_file(options.run + "/model/tokenizer.json")
    length, batch = recipe["text"]["max_tokens"], recipe["train"]["batch"]
    rows = read_rows(options.text, tokenizer, length).to(options.device)
    kept = round(len(rows) * recipe["data"]["validation_share"])
    train, test = rows[:-kept], rows[-kept:]
    most = recipe["test"]["tokens"]
    test = test[: max(1, most // length)] if most else test
    test_bytes = bytes_of_tokens(tokenizer).to(options.device)[test[:, 1:]].sum().item()
    config = AutoConfig.from_pretrained(options.run + "/model")
    config.use_cache = False
    model = GPT2LMHeadModel(config).to(options.device).train()
    print(f"{train.shape[0] * length:,} tokens of text to learn, {kept * length:,} for validation, {test[:, 1:].numel() / test_bytes:.4f} tokens per byte; "
          f"{sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    precision = recipe["train"]["precision"]

    def loss_of(rows):
        with torch.autocast(options.device.split(":")[0], torch.bfloat16, enabled=precision == "bf16"):
            logits = model(rows[:, :-1]).logits
        return F.cross_entropy(logits.float().flatten(0, 1), rows[:, 1:].flatten())

    compiled = loss_of if options.eager or not on_gpu else torch.compile(loss_of)
    parts = optimizers(model, recipe, name, on_gpu)
    per_epoch = len(train) // batch
    epochs = options.epochs or recipe["train"]["epochs"]
    steps = epochs * per_epoch
    warmup = recipe["schedule"]["warmup_steps"] or round(recipe["schedule"]["warmup_epochs"] * per_epoch)
    every = max(recipe["output"]["log_steps"], steps // 50)
    seconds, start, total = 0.0, time.time(), torch.zeros((), device=options.device)
    for step in range(steps):
        if step % per_epoch == 0:
            order = torch.randperm(len(train), device=options.device)
        chosen = order[step % per_epoch * batch :][:batch]
        loss = compiled(train[chosen])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["optimizer"]["clip"] or math.inf)
        for part in parts:
            for group in part.param_groups:
                group["lr"] = rate(step, steps, warmup, recipe)
            part.step()
            part.zero_grad(set_to_none=True)
        total += loss.detach()
        if (step + 1) % every == 0:
            print(f"step {step + 1}: loss {total.item() / every:.4f}, {seconds + time.time() - start:.1f} s", flush=True)
            total.zero_()
        if (step + 1) % per_epoch == 0:
            last = loss.item()
            seconds += time.time() - start
            model.eval()
            with torch.no_grad():
                value = sum(loss_of(some).item() * len(some) for some in test.split(16)) / len(test)
            model.train()
            bits = value * test[:, 1:].numel() / math.log(2) / test_bytes
            print(f"step {step + 1}: loss {last:.4f}, validation loss {value:.4f}, bits per byte {bits:.4f}, {seconds:.1f} s of training, "
                  f"{(step + 1) * batch * length / seconds:,.0f} tokens/s", flush=True)
            start = time.time()


main()
