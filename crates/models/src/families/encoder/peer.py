"""What the scripts that make fixtures of encoders share: models of transformers with random weights, and their outputs.

Every model is computed for sequences that are padded on the right. Outputs per token are computed once more for sequences
that are padded on the left, with explicit positions, and must be the same.
"""

import pathlib
import shutil

import torch
from safetensors.torch import save_file

LENGTHS = [7, 4, 1]


def randomise(model):
    model.eval()
    with torch.no_grad():
        # Norms and biases that differ from 1 and 0, so that nothing can be mixed up.
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    return model


def inputs(config, types, padding=0):
    """Tokens, token types (None below two of them) and lengths, padded on the right."""
    tokens = torch.randint(padding + 1, config.vocab_size, (len(LENGTHS), max(LENGTHS)))
    kinds = torch.randint(0, types, tokens.shape) if types > 1 else None
    lengths = torch.tensor(LENGTHS)
    tokens[~seen(tokens, lengths)] = padding
    return tokens, kinds, lengths


def seen(tokens, lengths):
    return torch.arange(tokens.shape[1])[None] < lengths[:, None]


def run(model, tokens, types, mask, **more):
    if types is not None:
        more["token_type_ids"] = types
    return model(input_ids=tokens, attention_mask=mask.long(), output_hidden_states=True, **more)


def from_the_left(model, outputs, tokens, types, lengths, offset):
    """The outputs for each token of the same sequences with their padding on the left, moved back to the right."""
    width = tokens.shape[1]
    # Where a place of the left-padded sequence lies in the right-padded one.
    places = (torch.arange(width)[None] + lengths[:, None]) % width
    moved = lambda x: None if x is None else torch.gather(x, 1, places)
    positions = (places + offset).clamp(max=offset + width - 1)
    with torch.no_grad():
        result = run(model, moved(tokens), moved(types), moved(seen(tokens, lengths)), position_ids=positions)
    found = {}
    for key, value in outputs(result).items():
        if value.shape[:2] == tokens.shape:
            back = torch.argsort(places, dim=1)[..., None].expand_as(value)
            found[key] = torch.gather(value, 1, back)
    return found


def save(here, name, model, outputs, types=2, padding=0, offset=0, left=False):
    """Saves a model with its inputs and outputs. `left`: those of left-padded sequences where there is one per token."""
    randomise(model)
    target = pathlib.Path(here) / name
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    tokens, kinds, lengths = inputs(model.config, types, padding)
    with torch.no_grad():
        expected = outputs(run(model, tokens, kinds, seen(tokens, lengths)))
    moved = from_the_left(model, outputs, tokens, kinds, lengths, offset)
    for key, value in expected.items():
        if value.shape[:2] == tokens.shape:
            real = seen(tokens, lengths)[..., None]
            difference = torch.where(real, value - moved[key], 0).abs().max()
            assert difference < 1e-5, f"{name}: {key} of left-padded sequences differs by {difference}"
            # Outputs for padding are meaningless.
            expected[key] = torch.where(real, moved[key] if left else value, torch.nan)
    fed = {"tokens.in": tokens.float(), "lengths.in": lengths.float()}
    if kinds is not None:
        fed["token_types.in"] = kinds.float()
    save_file({k: v.contiguous() for k, v in (fed | expected).items()}, target / "expected.safetensors")
    return target


def gradients(here, name, model, types=2, padding=0):
    """Gradients of the cross-entropy of some tokens, saved as a checkpoint of the same dialect."""
    target = pathlib.Path(here) / f"{name}_gradients"
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    shutil.copy(pathlib.Path(here) / name / "config.json", target)
    model = model.double()
    tokens, kinds, lengths = inputs(model.config, types, padding)
    masked = torch.tensor([1, 3, 7, 10, 14])
    targets = torch.randint(0, model.config.vocab_size, masked.shape)
    logits = run(model, tokens, kinds, seen(tokens, lengths)).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1)[masked], targets)
    model.zero_grad()
    loss.backward()
    found = {k: v.grad.float().contiguous() for k, v in model.named_parameters()}
    save_file(found, target / "model.safetensors", metadata={"format": "pt"})
    expected = {"tokens": tokens, "lengths": lengths, "masked": masked, "targets": targets, "loss": loss.detach().reshape(1)}
    if kinds is not None:
        expected["token_types"] = kinds
    save_file({k: v.float().contiguous() for k, v in expected.items()}, target / "expected.safetensors")


def span(result):
    """Start and end of an answer, as one tensor."""
    return {"logits": torch.stack([result.start_logits, result.end_logits], dim=-1)}


def logits(result):
    return {"logits": result.logits}


def plain(result):
    found = {"tokens": result.last_hidden_state}
    if getattr(result, "pooler_output", None) is not None:
        found["features"] = result.pooler_output
    return found


def last_tokens(result):
    return {"tokens": result.hidden_states[-1]}


def masked(result):
    return last_tokens(result) | logits(result)
