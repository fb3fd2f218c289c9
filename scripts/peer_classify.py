"""Fine-tuning of `vitreous train classify-text` in PyTorch with transformers, to compare accuracies: MiniLM on the IMDB reviews.

    python scripts/peer_classify.py MODEL DATA [--seed N] [--train N] [--test N]
    vitreous train classify-text --init MODEL --data DATA --tf32 train.seed=N

DATA has train.jsonl and test.jsonl with `text` and `label`. The recipe of `classify-text`: 256 tokens, batch 32, 2 epochs, AdamW 5e-5,
decay 0.01 on matrices, clipping at 1, warm-up of a tenth of an epoch, linear decay, dropout 0.1; f32 with TF32. Batches are padded to their
longest text, in multiples of 32. Needs PyTorch, transformers.
"""
import argparse
import json
import time

import torch
from tokenizers import Tokenizer
from transformers import AutoModelForSequenceClassification

LENGTH, BATCH, EPOCHS, RATE = 256, 32, 2, 5e-5


def read(path, tokenizer, labels, most, device):
    """Padded tokens and lengths and labels, all on the device."""
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    # Files may be sorted by label: a part of them has every so-manieth text.
    rows = rows[:: max(1, len(rows) // most)][:most] if most else rows
    labels += sorted({row["label"] for row in rows} - set(labels), key=str)
    encoded = tokenizer.encode_batch([row["text"] for row in rows])
    ids = torch.tensor([one.ids for one in encoded], device=device)
    lengths = torch.tensor([sum(one.attention_mask) for one in encoded])
    return ids, lengths, torch.tensor([labels.index(row["label"]) for row in rows], device=device)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("data")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--train", type=int, help="only so many training texts")
    parser.add_argument("--test", type=int, help="only so many test texts")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    tokenizer = Tokenizer.from_file(options.model + "/tokenizer.json")
    tokenizer.enable_truncation(LENGTH)
    tokenizer.enable_padding(length=LENGTH)
    labels = []
    train = read(options.data + "/train.jsonl", tokenizer, labels, options.train, options.device)
    test = read(options.data + "/test.jsonl", tokenizer, labels, options.test, options.device)
    model = AutoModelForSequenceClassification.from_pretrained(options.model, num_labels=len(labels), dtype=torch.float32).to(options.device)
    matrices = [p for p in model.parameters() if p.dim() > 1]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=RATE, fused=options.device.startswith("cuda"))
    per_epoch = len(train[0]) // BATCH
    steps, warmup = EPOCHS * per_epoch, round(0.1 * per_epoch)
    factor = lambda step: (step + 1) / warmup if step < warmup else 1 - (step - warmup) / max(1, steps - warmup)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
    places = torch.arange(LENGTH, device=options.device)

    def inputs(data, chosen):
        width = min(LENGTH, -(-int(data[1][chosen].max()) // 32) * 32)  # lengths are on the host: nothing waits for the device
        on_device = chosen.to(options.device)
        mask = places[None, :width] < data[1][chosen].to(options.device)[:, None]
        return {"input_ids": data[0][on_device, :width], "attention_mask": mask.long()}, data[2][on_device]

    print(f"{len(train[0]):,} training and {len(test[0]):,} test texts, classes {labels}, {steps:,} steps", flush=True)
    seconds = 0.0
    for epoch in range(EPOCHS):
        model.train()
        start, order, total = time.time(), torch.randperm(len(train[0])), torch.zeros((), device=options.device)
        for at in range(0, per_epoch * BATCH, BATCH):
            given, wanted = inputs(train, order[at : at + BATCH])
            loss = torch.nn.functional.cross_entropy(model(**given).logits, wanted)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            schedule.step()
            total += loss.detach()
        mean = total.item() / per_epoch
        seconds += time.time() - start
        model.eval()
        order, right = test[1].argsort(), 0
        with torch.inference_mode():
            for chosen in order.split(256):
                given, wanted = inputs(test, chosen)
                right += (model(**given).logits.argmax(1) == wanted).sum().item()
        print(f"epoch {epoch + 1}: loss {mean:.4f}, test accuracy {100 * right / len(test[0]):.2f} %, {seconds:.1f} s of training", flush=True)


main()
