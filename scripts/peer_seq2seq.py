"""Pre-training of `vitreous train t5` and `bart`, and fine-tuning of `vitreous train seq2seq`, in PyTorch with transformers.

    python scripts/peer_seq2seq.py pretrain TEXT RUN --save DIR
    python scripts/peer_seq2seq.py finetune PAIRS RUN --init DIR --translations FILE

RUN is the directory of our run: its recipe, tokenizer and sizes are used. Pre-training: blank lines separate documents, which are packed as
ours; spans are left out (T5), or masked with sentences shuffled (BART), for each epoch anew, by worker processes that are ahead of the
training. The last share of the sequences is for validation, of which 1,000 are evaluated. Fine-tuning: train.tsv, valid.tsv and test.tsv of
PAIRS; batches of similar lengths, limited by tokens; then test.tsv is translated greedily, and FILE has a line for each.
AdamW (fused), clipping, warm-up and schedule of the recipe. On a GPU: torch.compile, bf16 autocast if the recipe says bf16.
Needs PyTorch, transformers, tokenizers, numpy.
"""
import argparse
import math
import random
import re
import time
import tomllib
from multiprocessing import Pool

import numpy as np
import torch
import torch.nn.functional as F
from tokenizers import Tokenizer
from transformers import AutoConfig, AutoModelForSeq2SeqLM

MOST_EVALUATED = 1000


# Texts that are made worse; the rules are those of crates/data/src/text/corrupted.rs


class Spans:
    """Spans become sentinels."""

    def __init__(self, recipe, tokenizer):
        self.share, self.mean = recipe["corrupt"]["share"], recipe["corrupt"]["mean_length"]
        self.sentinels = [tokenizer.token_to_id(f"<extra_id_{number}>") for number in range(100)]
        self.end, most = recipe["model"]["end_token"], recipe["text"]["max_tokens"]
        self.length = next(length for length in range(2 * most - 1, 1, -1) if self.lengths(length)[0] <= most)

    def counts(self, length):
        noise = int(self.share * length + 0.5)
        return noise, max(1, int(noise / self.mean + 0.5))

    def lengths(self, length):
        noise, spans = self.counts(length)
        return length - noise + spans + 1, noise + spans + 1

    def pack(self, documents):
        tokens = np.concatenate([np.array(document + [self.end], dtype=np.int32) for document in documents if document])
        return tokens[: len(tokens) // self.length * self.length].reshape(-1, self.length)

    def apply(self, row, draw):
        noise, spans = self.counts(len(row))

        def parts(total):
            cuts = np.sort(draw.choice(total - 1, spans - 1, replace=False)) + 1
            return np.diff(np.concatenate([[0], cuts, [total]]))

        source, target, at = [], [], 0
        for left_out, kept, sentinel in zip(parts(noise), parts(len(row) - noise), self.sentinels):
            source += [*row[at : at + kept], sentinel]
            target += [sentinel, *row[at + kept : at + kept + left_out]]
            at += kept + left_out
        return source + [self.end], target + [self.end]


class Infilling:
    """Spans become masks, and sentences are shuffled."""

    def __init__(self, recipe, tokenizer):
        given = recipe["corrupt"]
        self.share, self.mean, self.random, self.permutes = given["share"], given["mean_length"], given["random"], given["permute"]
        self.mask, self.first, self.end = tokenizer.token_to_id("<mask>"), tokenizer.token_to_id("<s>"), recipe["model"]["end_token"]
        self.length, self.size = recipe["text"]["max_tokens"], tokenizer.get_vocab_size()
        self.ends = np.array([tokenizer.id_to_token(token).endswith((".", "!", "?", "。")) for token in range(self.size)])
        self.first_word = 1 + max([token for token in (recipe["model"]["padding_token"], self.end, self.mask) if token < 10], default=0)

    def pack(self, documents):
        stream = []
        for document in documents:
            stream += ([self.end] if stream and document else []) + document
        inner = np.array(stream[: len(stream) // (self.length - 2) * (self.length - 2)], dtype=np.int32).reshape(-1, self.length - 2)
        return np.pad(inner, ((0, 0), (1, 1)), constant_values=((0, 0), (self.first, self.end)))

    def apply(self, row, draw):
        inner = np.array(row[1:-1])
        if self.permutes:
            cuts = np.flatnonzero(self.ends[inner]) + 1
            sentences = [part for part in np.split(inner, cuts) if len(part)]
            inner = np.concatenate([sentences[place] for place in draw.permutation(len(sentences))])
        return [row[0], *self.infill(inner.tolist(), draw), row[-1]], list(row)

    def infill(self, tokens, draw):
        count = len(tokens)
        wanted, left_out, masks = min(count, int(self.share * count + 0.5)), [False] * count, [0] * count
        covered = inserted = spans = 0
        lengths, starts = draw.poisson(self.mean, count), draw.integers(0, count, count)
        for length, start in zip(lengths.tolist(), starts.tolist()):
            if covered >= wanted:
                break
            end = min(start + min(length, wanted - covered), count)
            if length == 0:
                inserted += 1
            elif any(left_out[max(0, start - 1) : end + 1]):
                continue
            else:
                left_out[start:end] = [True] * (end - start)
                covered, spans = covered + end - start, spans + 1
            masks[start] += 1
        # Masks of no tokens make it longer: no more of them than others have made room for.
        spare, out = max(0, inserted - max(0, covered - spans)), []
        for place, token in enumerate(tokens):
            for _ in range(masks[place]):
                if spare > 0 and not left_out[place]:
                    spare -= 1
                elif draw.random() >= self.random:
                    out.append(self.mask)
                else:
                    out.append(int(draw.integers(self.first_word, self.size)))
            if not left_out[place]:
                out.append(token)
        return out[:count]


def corrupted(work):
    """Sources and targets of some rows, padded with -1."""
    corruption, rows, seed = work
    draw = np.random.default_rng(seed)
    widths = corruption.lengths(corruption.length) if isinstance(corruption, Spans) else (corruption.length,) * 2
    sides = [np.full((len(rows), width), -1, dtype=np.int16 if max(map(max, rows.tolist())) < 32000 else np.int32) for width in widths]
    for place, row in enumerate(rows.tolist()):
        for side, tokens in zip(sides, corruption.apply(row, draw)):
            side[place, : len(tokens)] = tokens
    return sides


def epochs_of(pool, corruption, rows, seed, device, chunk=2048):
    """Each epoch's sources and targets on the device, in random order; the next epoch is prepared while one is trained on."""

    def begin(epoch):
        order = np.random.default_rng((seed, epoch)).permutation(len(rows))
        return pool.map_async(corrupted, [(corruption, rows[order[at : at + chunk]], (seed, epoch, at)) for at in range(0, len(rows), chunk)])

    epoch, waiting = 0, begin(0)
    while True:
        done, epoch = waiting.get(), epoch + 1
        waiting = begin(epoch)
        yield [torch.from_numpy(np.concatenate(side).astype(np.int32)).to(device) for side in zip(*done)]


# Training


class Trainer:
    """A model with loss, optimizer and schedule of a recipe."""

    def __init__(self, model, recipe, options, steps, per_epoch):
        given, self.recipe, self.steps = recipe["optimizer"], recipe, steps
        self.model, self.device = model.to(options.device).train(), options.device
        self.on_gpu, self.bf16 = options.device.startswith("cuda"), recipe["train"]["precision"] == "bf16"
        # Matrices and word embeddings decay; relative biases and positions do not.
        decays = lambda name, p: p.dim() > 1 and "relative_attention_bias" not in name and "embed_positions" not in name
        named = list(model.named_parameters())
        groups = [{"params": [p for name, p in named if decays(name, p)], "weight_decay": given["weight_decay"]},
                  {"params": [p for name, p in named if not decays(name, p)], "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=torch.tensor(given["lr"]) if self.on_gpu else given["lr"], betas=tuple(given["betas"]), eps=given["eps"], fused=self.on_gpu)
        schedule = recipe["schedule"]
        self.warmup = schedule["warmup_steps"] or round(schedule["warmup_epochs"] * per_epoch)
        self.compiled = torch.compile(self.loss, dynamic=options.dynamic) if self.on_gpu and not options.eager else self.loss
        self.step_number, self.total, self.start = 0, torch.zeros((), device=self.device), time.time()
        self.every = max(10, steps // 40)

    def loss(self, source, target):
        """The mean over target tokens; -1 is padding. The decoder reads the target shifted right."""
        config, padding = self.model.config, self.model.config.pad_token_id
        first = torch.full_like(target[:, :1], config.decoder_start_token_id)
        shifted = torch.cat([first, target[:, :-1]], 1)
        with torch.autocast(self.device.split(":")[0], torch.bfloat16, enabled=self.bf16):
            logits = self.model(input_ids=source.masked_fill(source < 0, padding), attention_mask=(source >= 0).long(),
                                decoder_input_ids=shifted.masked_fill(shifted < 0, padding), use_cache=False).logits
        return F.cross_entropy(logits.float().flatten(0, 1), target.flatten().long(), ignore_index=-1)

    def rate(self):
        high, low = self.recipe["optimizer"]["lr"], self.recipe["schedule"]["final_lr"]
        if self.step_number < self.warmup:
            return high * (self.step_number + 1) / self.warmup
        progress = (self.step_number - self.warmup) / max(1, self.steps - self.warmup)
        kinds = {"cosine": 0.5 * (1 + math.cos(math.pi * progress)), "linear": 1 - progress, "constant": 1.0}
        return low + (high - low) * kinds[self.recipe["schedule"]["kind"]]

    def step(self, source, target):
        loss = self.compiled(source, target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe["optimizer"]["clip"] or math.inf)
        for group in self.optimizer.param_groups:
            if self.on_gpu:
                group["lr"].fill_(self.rate())
            else:
                group["lr"] = self.rate()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.total += loss.detach()
        self.step_number += 1
        if self.step_number % self.every == 0:
            print(f"step {self.step_number}: loss {self.total.item() / self.every:.4f}, {time.time() - self.start:.1f} s", flush=True)
            self.total.zero_()

    @torch.no_grad()
    def evaluate(self, batches, what):
        self.model.eval()
        total = tokens = 0
        for source, target in batches:
            count = (target >= 0).sum().item()
            total, tokens = total + self.loss(source, target).item() * count, tokens + count
        self.model.train()
        print(f"step {self.step_number}: {what} loss {total / tokens:.4f} of {tokens:,} tokens, {time.time() - self.start:.1f} s", flush=True)


def documents(text):
    """Lines up to a blank one."""
    lines = open(text, encoding="utf-8", errors="replace", newline="\n").read()
    return [part.strip("\n") for part in re.split(r"\n(?:[^\S\n]*\n)+", lines) if part.strip()]


def pretrain(recipe, tokenizer, options):
    texts = documents(options.data)
    is_t5 = recipe["model"]["family"] == "t5"
    corruption = (Spans if is_t5 else Infilling)(recipe, tokenizer)
    encoded = [one.ids for at in range(0, len(texts), 1 << 14) for one in tokenizer.encode_batch(texts[at : at + (1 << 14)], add_special_tokens=False)]
    rows = corruption.pack(encoded)
    batch, kept = recipe["train"]["batch"], round(len(rows) * recipe["data"]["validation_share"])
    train, test = rows[:-kept], rows[-kept:][:MOST_EVALUATED]
    per_epoch = len(train) // batch
    steps = options.steps or recipe["train"]["epochs"] * per_epoch
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.from_pretrained(options.run + "/model"))
    print(f"{len(train):,} training and {kept:,} validation sequences of {rows.shape[1]} tokens; {per_epoch:,} batches per epoch; "
          f"{steps:,} steps; {sum(p.numel() for p in model.parameters()):,} parameters", flush=True)
    with Pool(options.workers) as pool:
        evaluated = [torch.from_numpy(side.astype(np.int32)).to(options.device) for side in corrupted((corruption, test, 0))]
        epochs = epochs_of(pool, corruption, train, options.seed, options.device)
        sides = next(epochs)
        trainer = Trainer(model, recipe, options, steps, per_epoch)
        for step in range(steps):
            if step and step % per_epoch == 0:
                sides = next(epochs)
            at = step % per_epoch * batch
            trainer.step(*(side[at : at + batch] for side in sides))
            if (step + 1) % per_epoch == 0 or step + 1 == steps:
                trainer.evaluate(zip(*(side.split(100) for side in evaluated)), "validation")
        pool.terminate()
    if options.save:
        model.save_pretrained(options.save)


def read_pairs(path):
    return [line.rstrip("\n").split("\t")[:2] for line in open(path, encoding="utf-8") if "\t" in line]


def encoded_pairs(tokenizer, pairs, recipe):
    """Tokens with what the tokenizer puts around a text; longer ones are cut, but for their end."""
    sides = []
    for side, (most, prefix) in enumerate([(recipe["text"]["max_source"], recipe["data"]["prefix"]), (recipe["text"]["max_target"], "")]):
        rows = [one.ids for one in tokenizer.encode_batch([prefix + pair[side] for pair in pairs])]
        sides.append([row if len(row) <= most else row[: most - 1] + row[-1:] for row in rows])
    return list(zip(*sides))


def padded(rows, device, step=8):
    """Widths are multiples of 8, so that few shapes are compiled."""
    width = -(-max(map(len, rows)) // step) * step
    return torch.tensor([row + [-1] * (width - len(row)) for row in rows], dtype=torch.int32).to(device)


def batches_of(pairs, tokens, seed, device):
    """Pairs of similar lengths, at most `tokens` on a side with padding; on the device, in random order."""
    draw = random.Random(seed)
    order = list(range(len(pairs)))
    draw.shuffle(order)
    order.sort(key=lambda index: (max(map(len, pairs[index])), len(pairs[index][0])))
    found, batch = [], []
    for index in order:
        longest = -(-max(map(len, pairs[index])) // 8) * 8
        if batch and longest * (len(batch) + 1) > tokens:
            found.append(batch)
            batch = []
        batch.append(index)
    found.append(batch)
    draw.shuffle(found)
    return [tuple(padded([pairs[index][side] for index in batch], device) for side in (0, 1)) for batch in found]


def finetune(recipe, tokenizer, options):
    train, valid, test = (read_pairs(f"{options.data}/{name}.tsv") for name in ("train", "valid", "test"))
    pairs, held_out = (encoded_pairs(tokenizer, some, recipe) for some in (train, valid))
    tokens = recipe["train"]["tokens"]
    per_epoch = len(batches_of(pairs, tokens, 0, "cpu"))
    epochs = recipe["train"]["epochs"]
    steps = options.steps or epochs * per_epoch
    model = AutoModelForSeq2SeqLM.from_pretrained(options.init, dtype=torch.float32)
    print(f"{len(pairs):,} training pairs, {len(held_out):,} validation pairs; {per_epoch:,} batches per epoch", flush=True)
    options.dynamic = True
    trainer = Trainer(model, recipe, options, steps, per_epoch)
    evaluated = batches_of(held_out, tokens, 0, options.device)
    for epoch in range(-(-steps // per_epoch)):
        for source, target in batches_of(pairs, tokens, options.seed + epoch, options.device):
            if trainer.step_number < steps:
                trainer.step(source, target)
        trainer.evaluate(evaluated, "validation")
    if options.save:
        model.save_pretrained(options.save)
    if options.translations:
        translate(model.eval(), tokenizer, test, recipe, options)


@torch.inference_mode()
def translate(model, tokenizer, pairs, recipe, options):
    """Greedily, in batches of similar lengths."""
    sources = [source for source, _ in encoded_pairs(tokenizer, pairs, recipe)]
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    written, start = [""] * len(sources), time.time()
    for at in range(0, len(order), 64):
        some = order[at : at + 64]
        rows = padded([sources[index] for index in some], options.device)
        with torch.autocast(options.device.split(":")[0], torch.bfloat16, enabled=recipe["train"]["precision"] == "bf16"):
            found = model.generate(rows.masked_fill(rows < 0, model.config.pad_token_id), attention_mask=(rows >= 0).long(),
                                   num_beams=1, do_sample=False, max_new_tokens=recipe["text"]["max_target"])
        for index, text in zip(some, tokenizer.decode_batch(found.tolist(), skip_special_tokens=True)):
            written[index] = " ".join(text.split())
    with open(options.translations, "w", encoding="utf-8") as file:
        file.writelines(text + "\n" for text in written)
    print(f"{len(written):,} translations in {time.time() - start:.1f} s: {options.translations}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["pretrain", "finetune"])
    parser.add_argument("data")
    parser.add_argument("run")
    parser.add_argument("--init", help="the model to fine-tune")
    parser.add_argument("--steps", type=int, help="those of the recipe's epochs if not given")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--save", metavar="DIR")
    parser.add_argument("--translations", metavar="FILE")
    parser.add_argument("--workers", type=int, default=12)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--eager", action="store_true", help="no torch.compile")
    options = parser.parse_args()
    options.dynamic = None
    torch.manual_seed(options.seed)
    torch.set_float32_matmul_precision("high")
    recipe = tomllib.load(open(options.run + "/recipe.toml", "rb"))
    tokenizer = Tokenizer.from_file(options.run + "/model/tokenizer.json")
    (pretrain if options.task == "pretrain" else finetune)(recipe, tokenizer, options)


if __name__ == "__main__":
    main()
