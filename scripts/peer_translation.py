"""PyTorch's side of the translation benchmark: trains a Transformer on sentence pairs, then translates.

The model is that of "Attention is all you need".

    python scripts/peer_translation.py --train train.tsv --test test.tsv --steps 2000 --save peer.pt
    python scripts/peer_translation.py --decode-only peer.pt --test test.tsv
    python scripts/peer_translation.py --decode-only runs/translation-1/model --test test.tsv
    (needs torch and tokenizers; safetensors for vitreous models, sacrebleu for the scores)

Pairs are lines of `source<TAB>target`. Post-norm (or pre-norm), ReLU, sinusoidal positions, label smoothing, Adam with
the paper's learning rates; batches are limited by tokens and grouped by length. Eager PyTorch, optimised as far as
possible without a compiler: projections of the same input are one matrix multiplication, attention is PyTorch's fused
kernel, Adam is fused, padding enters neither the output layer nor the loss, and decoding has a KV cache, works on whole
batches, and drops sentences that have ended. Token counts are target tokens without padding.
"""

import argparse
import json
import math
import os
import random
import sys
import time

import torch
import torch.nn.functional as F
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers
from torch import nn

PADDING, START, END = 0, 1, 2
SPECIAL = ["<pad>", "<s>", "</s>"]
LONGEST = 5000


def say(text):
    print(text, file=sys.stderr, flush=True)


# The model


def positions(length, dim):
    """Sines in even columns, cosines in odd ones."""
    angle = torch.arange(length)[:, None] * 10000.0 ** (-torch.arange(0, dim, 2) / dim)
    return torch.stack([angle.sin(), angle.cos()], -1).reshape(length, dim)


class Attention(nn.Module):
    """Self-attention or cross-attention."""

    def __init__(self, dim, heads, dropout):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.query_key_value = nn.Linear(dim, 3 * dim)
        self.output = nn.Linear(dim, dim)

    def split(self, x, parts):
        """[batch, length, parts * dim] to `parts` tensors of [batch, heads, length, head_dim]."""
        batch, length, width = x.shape
        return x.view(batch, length, parts, self.heads, width // (parts * self.heads)).permute(2, 0, 3, 1, 4).unbind(0)

    def project(self, x):
        return self.split(self.query_key_value(x), 3)

    def project_query(self, x):
        dim = x.shape[-1]
        return self.split(F.linear(x, self.query_key_value.weight[:dim], self.query_key_value.bias[:dim]), 1)[0]

    def project_memory(self, memory):
        dim = memory.shape[-1]
        return self.split(F.linear(memory, self.query_key_value.weight[dim:], self.query_key_value.bias[dim:]), 2)

    def mix(self, query, key, value, mask=None, causal=False):
        dropout = self.dropout if self.training else 0.0
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, is_causal=causal, dropout_p=dropout)
        return self.output(mixed.transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    def __init__(self, dim, hidden, dropout):
        super().__init__()
        self.first, self.second, self.dropout = nn.Linear(dim, hidden), nn.Linear(hidden, dim), nn.Dropout(dropout)

    def forward(self, x):
        return self.second(self.dropout(F.relu(self.first(x), inplace=True)))


class EncoderLayer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.attention = Attention(options["dim"], options["heads"], options["attention_dropout"])
        self.feed_forward = FeedForward(options["dim"], options["ff"], options["dropout"])
        self.norms, self.pre_norm = nn.ModuleList(nn.LayerNorm(options["dim"]) for _ in range(2)), options["pre_norm"]
        self.dropout = nn.Dropout(options["dropout"])

    def forward(self, x, mask):
        if self.pre_norm:
            x = x + self.dropout(self.attention.mix(*self.attention.project(self.norms[0](x)), mask))
            return x + self.dropout(self.feed_forward(self.norms[1](x)))
        x = self.norms[0](x + self.dropout(self.attention.mix(*self.attention.project(x), mask)))
        return self.norms[1](x + self.dropout(self.feed_forward(x)))


class DecoderLayer(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.attention = Attention(options["dim"], options["heads"], options["attention_dropout"])
        self.cross_attention = Attention(options["dim"], options["heads"], options["attention_dropout"])
        self.feed_forward = FeedForward(options["dim"], options["ff"], options["dropout"])
        self.norms, self.pre_norm = nn.ModuleList(nn.LayerNorm(options["dim"]) for _ in range(3)), options["pre_norm"]
        self.dropout = nn.Dropout(options["dropout"])

    def forward(self, y, memory, mask):
        key, value = self.cross_attention.project_memory(memory)
        return self.rest(y, self.attention.mix(*self.attention.project(self.first(y)), causal=True), key, value, mask)

    def step(self, y, kept, place):
        """One more token per sentence: `kept` is the KV cache of the tokens before, and of the source."""
        query, key, value = self.attention.project(self.first(y))
        kept["key"][:, :, place] = key[:, :, 0]
        kept["value"][:, :, place] = value[:, :, 0]
        own = self.attention.mix(query, kept["key"][:, :, : place + 1], kept["value"][:, :, : place + 1])
        return self.rest(y, own, kept["source_key"], kept["source_value"], kept["mask"])

    def first(self, y):
        """The input of the decoder's self-attention."""
        return self.norms[0](y) if self.pre_norm else y

    def rest(self, y, own, source_key, source_value, mask):
        if self.pre_norm:
            y = y + self.dropout(own)
            query = self.cross_attention.project_query(self.norms[1](y))
            y = y + self.dropout(self.cross_attention.mix(query, source_key, source_value, mask))
            return y + self.dropout(self.feed_forward(self.norms[2](y)))
        y = self.norms[0](y + self.dropout(own))
        query = self.cross_attention.project_query(y)
        y = self.norms[1](y + self.dropout(self.cross_attention.mix(query, source_key, source_value, mask)))
        return self.norms[2](y + self.dropout(self.feed_forward(y)))


class Transformer(nn.Module):
    def __init__(self, options, words):
        super().__init__()
        dim = options["dim"]
        self.scale = math.sqrt(dim)
        self.source = nn.Embedding(words, dim)
        self.target = self.source if options["shared"] else nn.Embedding(words, dim)
        self.encoder = nn.ModuleList(EncoderLayer(options) for _ in range(options["layers"]))
        self.decoder = nn.ModuleList(DecoderLayer(options) for _ in range(options["layers"]))
        # The output of a pre-norm stack is not normalised otherwise.
        last = (lambda: nn.LayerNorm(dim)) if options["pre_norm"] else nn.Identity
        self.encoder_norm, self.decoder_norm = last(), last()
        self.output = nn.Linear(dim, words)
        self.dropout = nn.Dropout(options["dropout"])
        self.register_buffer("positions", positions(LONGEST, dim), persistent=False)
        self.initialise(dim)
        if options["tied"]:
            self.output.weight = self.target.weight

    @torch.no_grad()
    def initialise(self, dim):
        for name, parameter in self.named_parameters():
            if "query_key_value.weight" in name:
                # Three matrices in one: initialise each separately.
                for part in parameter.split(dim):
                    nn.init.xavier_uniform_(part)
            elif parameter.dim() > 1:
                nn.init.xavier_uniform_(parameter)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def embed(self, table, tokens, place=0):
        return self.dropout(table(tokens) * self.scale + self.positions[place : place + tokens.shape[1]])

    def encode(self, source):
        """The encoder output, and the mask of source positions to attend to (None: all)."""
        seen = source != PADDING
        mask = None if bool(seen.all()) else seen[:, None, None, :]
        x = self.embed(self.source, source)
        for layer in self.encoder:
            x = layer(x, mask)
        return self.encoder_norm(x), mask

    def forward(self, source, target, wanted):
        """Logits at the positions that are not padding."""
        memory, mask = self.encode(source)
        y = self.embed(self.target, target)
        for layer in self.decoder:
            y = layer(y, memory, mask)
        return self.output(self.decoder_norm(y[wanted != PADDING]))


def from_ours(directory):
    """Loads a model written by `vitreous train translation`."""
    from safetensors.torch import load_file

    with open(f"{directory}/config.json", encoding="utf8") as file:
        config = json.load(file)["transformer"]
    if config["activation"] != "relu" or config["positions"] != "sinusoidal" or not config["shared_vocabulary"]:
        raise SystemExit("only ReLU, sinusoidal positions and a shared vocabulary are supported here")
    if config["encoder_layers"] != config["decoder_layers"] or abs(config["norm_eps"] - 1e-5) > 1e-9:
        raise SystemExit("only equally many encoder and decoder layers, and norms with eps 1e-5, are supported here")
    options = {"dim": config["dim"], "heads": config["heads"], "layers": config["encoder_layers"], "ff": config["mlp_dim"],
               "dropout": config["dropout"], "attention_dropout": config["attention_dropout"], "shared": True,
               "tied": config["tied_output"], "pre_norm": config["norm_order"] == "pre"}
    ours, theirs = load_file(f"{directory}/model.safetensors"), {}
    rest = {"mlp.fc1": "feed_forward.first", "mlp.fc2": "feed_forward.second", "norm1": "norms.0", "norm2": "norms.1", "norm3": "norms.2"}
    for name, value in ours.items():
        if name == "embedding":
            theirs |= {"source.weight": value, "target.weight": value}
        elif ".query." in name:
            parts = [ours[name.replace(".query.", f".{part}.")] for part in ["query", "key", "value"]]
            theirs[name.replace(".query.", ".query_key_value.")] = torch.cat(parts)
        elif ".key." not in name and ".value." not in name:
            for old, new in rest.items():
                name = name.replace(f".{old}.", f".{new}.")
            theirs[name] = value
    if options["tied"]:
        theirs["output.weight"] = theirs["target.weight"]
    model = Transformer(options, config["target_vocabulary"])
    model.load_state_dict(theirs)
    return model, Tokenizer.from_file(f"{directory}/tokenizer.json")


# Text


def read_pairs(path):
    with open(path, encoding="utf8", newline="\n") as file:
        pairs = [line.rstrip("\r\n").split("\t") for line in file]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) >= 2 and pair[0] and pair[1]]


def train_tokenizer(pairs, words):
    """Byte-level BPE over both languages: nothing is out of vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=words, special_tokens=SPECIAL, show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator((text for pair in pairs for text in pair), trainer)
    return tokenizer


def encode_all(tokenizer, texts):
    """Token ids of each text, with the end token."""
    return [encoding.ids + [END] for encoding in tokenizer.encode_batch(texts, add_special_tokens=False)]


def padded(rows):
    longest = max(map(len, rows))
    return torch.tensor([row + [PADDING] * (longest - len(row)) for row in rows])


def batches_of(pairs, tokens, draw):
    """The batches of an epoch in random order: similar lengths together, at most `tokens` per side including padding."""
    order = list(range(len(pairs)))
    draw.shuffle(order)
    order.sort(key=lambda index: (len(pairs[index][1]), len(pairs[index][0])))
    batches, batch, longest = [], [], 0
    for index in order:
        longest = max(longest, *map(len, pairs[index]))
        if batch and longest * (len(batch) + 1) > tokens:
            batches.append(batch)
            batch, longest = [], max(map(len, pairs[index]))
        batch.append(index)
    batches.append(batch)
    draw.shuffle(batches)
    return batches


def tensors_of(pairs, batch):
    source, wanted = padded([pairs[index][0] for index in batch]), padded([pairs[index][1] for index in batch])
    # The decoder input is the target shifted right by one.
    target = torch.cat([torch.full((len(batch), 1), START), wanted[:, :-1]], 1)
    return source, target.masked_fill(target == END, PADDING), wanted


# Training and decoding


def rate(step, options):
    """Section 5.3 of the paper, times a factor."""
    return options["lr_factor"] * options["dim"] ** -0.5 * min(step**-0.5, step * options["warmup"] ** -1.5)


@torch.inference_mode()
def loss_of(model, pairs, tokens):
    """The mean validation loss per token, without label smoothing."""
    model.eval()
    total = count = 0
    for batch in batches_of(pairs, tokens, random.Random(0)):
        source, target, wanted = tensors_of(pairs, batch)
        words = wanted[wanted != PADDING]
        total += F.cross_entropy(model(source, target, wanted), words, reduction="sum").item()
        count += len(words)
    model.train()
    return total / count


class Average:
    """The average of the parameters at the last few checkpoints."""

    def __init__(self, options):
        self.first = options["steps"] - (options["average"] - 1) * options["average_every"]
        self.options, self.sums = options, None

    def add(self, step, model):
        if not self.options["average"] or step < self.first or (self.options["steps"] - step) % self.options["average_every"]:
            return
        values = [parameter.detach() for parameter in model.parameters()]
        if self.sums is None:
            self.sums, self.count = [value.clone() for value in values], 1
        else:
            torch._foreach_add_(self.sums, values)
            self.count += 1

    @torch.no_grad()
    def write(self, model):
        if self.sums is not None:
            for parameter, total in zip(model.parameters(), self.sums):
                parameter.copy_(total / self.count)


def train(model, pairs, valid, options):
    optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    draw, queue, average = random.Random(options["seed"]), [], Average(options)
    step = epoch = tokens = places = since_tokens = 0
    seconds = since_seconds = since_loss = 0.0
    history = []
    model.train()
    while step < options["steps"]:
        if not queue:
            queue, epoch = batches_of(pairs, options["tokens"], draw), epoch + 1
        start = time.perf_counter()
        source, target, wanted = tensors_of(pairs, queue.pop())
        step += 1
        optimizer.param_groups[0]["lr"] = rate(step, options)
        words = wanted[wanted != PADDING]
        loss = F.cross_entropy(model(source, target, wanted), words, label_smoothing=options["label_smoothing"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        average.add(step, model)
        since_loss += loss.item() * len(words)
        elapsed = time.perf_counter() - start
        tokens, places, since_tokens = tokens + len(words), places + wanted.numel(), since_tokens + len(words)
        seconds, since_seconds = seconds + elapsed, since_seconds + elapsed
        if step % options["log_every"] == 0 or step == options["steps"]:
            line = {"step": step, "epoch": epoch, "loss": since_loss / since_tokens, "lr": rate(step, options),
                    "tokens_per_second": since_tokens / since_seconds, "seconds": seconds}
            if valid and (step % options["valid_every"] == 0 or step == options["steps"]):
                line["val_loss"] = loss_of(model, valid, options["tokens"])
            history.append(line)
            say("  ".join(f"{name} {value:.6g}" for name, value in line.items()))
            since_tokens, since_seconds, since_loss = 0, 0.0, 0.0
    average.write(model)
    return {"steps": step, "epochs": epoch, "tokens": tokens, "seconds": seconds, "tokens_per_second": tokens / seconds,
            "padding": 1 - tokens / places, "history": history}


@torch.inference_mode()
def decode_batch(model, source):
    """Greedy translations of padded sources, without start and end tokens; at most fifty tokens longer than the source."""
    limit = min(source.shape[1] + 50, LONGEST)
    memory, mask = model.encode(source)
    batch, heads = len(source), model.decoder[0].attention.heads
    kept = []
    for layer in model.decoder:
        key, value = layer.cross_attention.project_memory(memory)
        empty = lambda: torch.empty(batch, heads, limit, key.shape[-1])
        # Read again for every token, so worth a contiguous copy.
        kept.append({"key": empty(), "value": empty(), "source_key": key.contiguous(), "source_value": value.contiguous(), "mask": mask})
    token, rows = torch.full((batch, 1), START), torch.arange(batch)
    written, alive = torch.full((batch, limit), END), torch.ones(batch, dtype=torch.bool)
    for place in range(limit):
        y = model.embed(model.target, token, place)
        for layer, of_layer in zip(model.decoder, kept):
            y = layer.step(y, of_layer, place)
        token = model.output(model.decoder_norm(y)).argmax(-1)
        written[rows, place] = token[:, 0]
        alive &= token[:, 0] != END
        living = int(alive.sum())
        if living == 0:
            break
        # Copying the cache costs about as much as a step: worth it when a good part of the sentences has ended.
        if living <= 0.75 * len(rows):
            rows, token = rows[alive], token[alive]
            kept = [{name: value if value is None else value[alive] for name, value in of_layer.items()} for of_layer in kept]
            alive = alive[alive]
    return [row[: row.index(END)] if END in row else row for row in written.tolist()]


def translate(model, tokenizer, texts, batch_size):
    """Translations in the order of the texts. Texts of similar length are translated together, the longest first."""
    model.eval()
    sources = encode_all(tokenizer, texts)
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
    found, count = [""] * len(texts), 0
    for start in range(0, len(order), batch_size):
        batch = order[start : start + batch_size]
        rows = decode_batch(model, padded([sources[index] for index in batch]))
        count += sum(len(row) + 1 for row in rows)
        for index, text in zip(batch, tokenizer.decode_batch(rows)):
            found[index] = text.strip()
    return found, count


def score(model, tokenizer, options):
    pairs = read_pairs(options["test"])[: options["test_pairs"]]
    texts, references = [source for source, _ in pairs], [target for _, target in pairs]
    # Warm-up: the first batch includes one-time setup.
    translate(model, tokenizer, texts[:8], 8)
    start = time.perf_counter()
    translations, tokens = translate(model, tokenizer, texts, options["decode_batch"])
    seconds = time.perf_counter() - start
    if options["translations"]:
        with open(options["translations"], "w", encoding="utf8") as file:
            file.writelines(text.replace("\n", " ") + "\n" for text in translations)
    found = {"sentences": len(pairs), "seconds": seconds, "sentences_per_second": len(pairs) / seconds, "tokens": tokens,
             "tokens_per_second": tokens / seconds}
    try:
        from sacrebleu.metrics import BLEU, CHRF
    except ImportError:
        say("no scores: pip install sacrebleu")
    else:
        for name, metric in [("bleu", BLEU()), ("chrf", CHRF())]:
            found[name] = metric.corpus_score(translations, [references]).score
            found[f"{name}_signature"] = str(metric.get_signature())
    examples = [{"source": s, "reference": r, "translation": t} for s, r, t in zip(texts, references, translations)]
    return found | {"examples": examples[:: max(1, len(examples) // 5)][:5]}


def read_options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    add = parser.add_argument
    add("--train", help="training pairs (TSV)")
    add("--valid", help="pairs for the validation loss (TSV)")
    add("--test", help="pairs to translate and score (TSV)")
    add("--tokenizer", help="a tokenizer.json with padding 0, start 1, end 2; trained from the pairs if not given")
    add("--vocabulary", type=int, default=8000, help="vocabulary size of a tokenizer trained here")
    add("--dim", type=int, default=256)
    add("--heads", type=int, default=4)
    add("--layers", type=int, default=4, help="layers of the encoder, and of the decoder")
    add("--ff", type=int, default=1024, help="width of the feed-forward layer")
    add("--pre-norm", action="store_true", help="LayerNorm before the sublayers, and after each stack")
    add("--dropout", type=float, default=0.1)
    add("--attention-dropout", type=float, default=0.1, help="dropout on attention weights")
    add("--label-smoothing", type=float, default=0.1)
    add("--shared", action=argparse.BooleanOptionalAction, default=True, help="one embedding for both languages")
    add("--tied", action=argparse.BooleanOptionalAction, default=True, help="tie the output layer to the target embedding")
    add("--steps", type=int, default=2000)
    add("--tokens", type=int, default=2048, help="maximum tokens per side of a batch, including padding")
    add("--lr-factor", type=float, default=1.0, help="factor on the paper's learning rate")
    add("--warmup", type=int, default=400, help="warm-up steps")
    add("--average", type=int, default=0, help="average the parameters of this many checkpoints at the end")
    add("--average-every", type=int, default=100, help="steps between those checkpoints")
    add("--seed", type=int, default=0)
    add("--threads", type=int, default=2)
    add("--device", default="cpu", help="cpu or cuda")
    add("--longest", type=int, default=128, help="training pairs with more tokens on a side are skipped")
    add("--log-every", type=int, default=50)
    add("--valid-every", type=int, default=500)
    add("--decode-batch", type=int, default=64, help="sentences per batch in decoding")
    add("--test-pairs", type=int, help="translate only this many test pairs")
    add("--translations", help="write the test translations to this file")
    add("--save", metavar="CHECKPOINT", help="write the trained model")
    add("--decode-only", metavar="CHECKPOINT", help="translate with a saved model, or a vitreous model directory, instead of training")
    add("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    if not options.decode_only and not options.train:
        parser.error("--train or --decode-only is required")
    if options.decode_only and not options.test:
        parser.error("--decode-only requires --test")
    if options.tied and not options.shared:
        say("note: the output layer is tied to the target embedding only")
    return vars(options)


def main():
    options = read_options()
    torch.set_num_threads(options["threads"])
    torch.set_default_device(options["device"])
    torch.manual_seed(options["seed"])
    result = {"torch": torch.__version__, "threads": options["threads"]}
    if options["decode_only"] and os.path.isdir(options["decode_only"]):
        model, tokenizer = from_ours(options["decode_only"])
    elif options["decode_only"]:
        saved = torch.load(options["decode_only"], weights_only=True)
        tokenizer = Tokenizer.from_str(saved["tokenizer"])
        model = Transformer(saved["options"], tokenizer.get_vocab_size())
        model.load_state_dict(saved["model"])
    else:
        pairs = read_pairs(options["train"])
        start = time.perf_counter()
        tokenizer = Tokenizer.from_file(options["tokenizer"]) if options["tokenizer"] else train_tokenizer(pairs, options["vocabulary"])
        tokenizer.no_padding()
        tokenizer.no_truncation()
        encoded = lambda pairs: list(zip(*[encode_all(tokenizer, side) for side in zip(*pairs)]))
        learned = [pair for pair in encoded(pairs) if max(map(len, pair)) <= options["longest"]]
        valid = encoded(read_pairs(options["valid"])) if options["valid"] else None
        say(f"{len(learned)} pairs of {len(pairs)}, vocabulary size {tokenizer.get_vocab_size()}, {time.perf_counter() - start:.1f} s")
        model = Transformer(options, tokenizer.get_vocab_size())
        result["parameters"] = sum(parameter.numel() for parameter in model.parameters())
        say(f"{result['parameters']} parameters")
        result["train"] = train(model, learned, valid, options)
        if options["save"]:
            torch.save({"options": options, "model": model.state_dict(), "tokenizer": tokenizer.to_str()}, options["save"])
    if options["test"]:
        result["decode"] = score(model, tokenizer, options)
    if options["json"]:
        print(json.dumps(result, ensure_ascii=False))
        return
    for part in ["train", "decode"]:
        for name, value in result.get(part, {}).items():
            if name == "examples":
                for example in value:
                    print("\n".join(f"  {side}: {text}" for side, text in example.items()), end="\n\n")
            elif name != "history":
                print(f"{part} {name}: {value}")


main()
