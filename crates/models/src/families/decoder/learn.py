"""Makes the fixtures of learning for all language models that make.py of their families made: the gradients of the loss, and what 20
steps with AdamW and with Muon make of a model.

    python learn.py        (torch 2.9 or later, transformers, safetensors; after make.py of gpt2 and llama)

Everything is computed in float64, by transformers and torch.optim, and stored as float32 in a checkpoint's names. Dropout is off.
"""

import inspect
import json
import pathlib

import torch
import transformers as hf
from safetensors.torch import load_file, save_file
from torch.optim import _muon

FAMILIES = pathlib.Path(__file__).resolve().parents[1]
STEPS, RATE, DECAY, CLIP = 20, 0.003, 0.1, 1.0

# PyTorch rounds the matrices that it makes orthogonal to bfloat16; its own function is kept from that here, so that the algorithm can be
# compared to more than two digits.
exact = inspect.getsource(_muon._zeropower_via_newtonschulz).replace("torch.bfloat16", "grad.dtype")
assert "grad.dtype" in exact
exec(exact, _muon.__dict__)


def loss_of(model, tokens, lengths):
    """The mean loss over the tokens that have one before them."""
    seen = torch.arange(tokens.shape[1])[None] < lengths[:, None]
    labels = torch.where(seen, tokens, -100)[:, 1:]
    logits = model(tokens, attention_mask=seen.long()).logits[:, :-1]
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    if loss.isfinite() and not getattr(model.config, "sliding_window", None):
        return loss
    # With a window, padding has nothing to attend to, which the library makes NaN of: the sequences one by one, without padding.
    rows = [(row[:length], row[1:length]) for row, length in zip(tokens, lengths) if length > 1]
    each = [torch.nn.functional.cross_entropy(model(row[None]).logits[0, :-1], labels, reduction="sum") for row, labels in rows]
    return sum(each) / sum(len(labels) for _, labels in rows)


def stored(tensors):
    return {name: tensor.detach().float().contiguous() for name, tensor in tensors.items()}


def opened(folder):
    model = hf.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", dtype=torch.float32)
    # Gemma and Phi-3 have a padding token, whose vector PyTorch gives no gradient; here it is a word as any other.
    model.get_input_embeddings().padding_idx = None
    return model.double().eval()


def steps(folder, optimizer, tokens, lengths):
    model = opened(folder)
    named = dict(model.named_parameters())
    matrices = [name for name, value in named.items() if value.dim() == 2]
    hidden = [name for name in matrices if ".h." in name or ".layers." in name] if optimizer == "muon" else []
    decays = [named[name] for name in matrices if name not in hidden]
    others = [value for name, value in named.items() if name not in matrices]
    groups = [dict(params=decays, weight_decay=DECAY), dict(params=others, weight_decay=0.0)]
    # Adam would blow the rounding errors of gradients that are zero (a key's bias) up to whole steps with a smaller epsilon.
    optimizers = [torch.optim.AdamW(groups, lr=RATE, betas=(0.9, 0.95), eps=1e-4)]
    if hidden:
        optimizers.append(torch.optim.Muon([named[name] for name in hidden], lr=RATE, weight_decay=DECAY, momentum=0.95,
                                           nesterov=True, adjust_lr_fn="match_rms_adamw"))
    losses = []
    for _ in range(STEPS):
        model.zero_grad()
        loss = loss_of(model, tokens, lengths)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        for one in optimizers:
            one.step()
        losses.append(loss.item())
    save_file(stored(named), folder / f"{optimizer}.safetensors", metadata={"format": "pt"})
    return losses


def main():
    for family in ["gpt2", "llama"]:
        fixtures = FAMILIES / family / "tests/fixtures"
        for folder in sorted(path.parent for path in fixtures.glob("*/expected.safetensors")):
            expected = load_file(folder / "expected.safetensors")
            tokens, lengths = expected["tokens.in"].long(), expected["lengths.in"].long()
            model = opened(folder)
            loss = loss_of(model, tokens, lengths)
            loss.backward()
            gradients = {name: value.grad for name, value in model.named_parameters()}
            save_file(stored(gradients), folder / "gradients.safetensors", metadata={"format": "pt"})
            learnt = {"loss": loss.item()}
            if folder.name in ["model", "untied", "tied"]:
                learnt |= {optimizer: steps(folder, optimizer, tokens, lengths) for optimizer in ["adamw", "muon"]}
            (folder / "learning.json").write_text(json.dumps(learnt) + "\n")
            print(family, folder.name, learnt["loss"], learnt.get("muon", [0])[-1])


main()
