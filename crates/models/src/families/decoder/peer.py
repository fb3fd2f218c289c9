"""What the scripts that make fixtures of language models share: models of transformers with random weights, and their outputs.

Every model is computed for sequences that are padded on the right, and once more for sequences that are padded on the left, with
explicit positions: both must be the same.
"""

import pathlib
import shutil

import torch
from safetensors.torch import save_file

LENGTHS = [7, 4, 1]


def save(here, name, model, part=None):
    """Saves a model, or its `part`, with inputs and outputs."""
    model.eval()
    with torch.no_grad():
        # Norms and biases that differ from 1 and 0, so that nothing can be mixed up.
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    target = pathlib.Path(here) / name
    shutil.rmtree(target, ignore_errors=True)
    (getattr(model, part) if part else model).save_pretrained(target)
    lengths = torch.tensor(LENGTHS)
    width = max(LENGTHS)
    tokens = torch.randint(0, model.config.vocab_size, (len(LENGTHS), width))
    seen = torch.arange(width)[None] < lengths[:, None]
    # Where a place of the left-padded sequence lies in the right-padded one.
    places = (torch.arange(width)[None] + lengths[:, None]) % width
    with torch.no_grad():
        result = model(tokens, attention_mask=seen.long(), output_hidden_states=True)
        left = model(torch.gather(tokens, 1, places), attention_mask=torch.gather(seen, 1, places).long(),
                     position_ids=places)
    back = torch.gather(left.logits, 1, torch.argsort(places, dim=1)[..., None].expand_as(left.logits))
    real = seen[..., None]
    difference = torch.where(real, back - result.logits, 0).abs().max()
    assert difference < 1e-4, f"{name}: logits of left-padded sequences differ by {difference}"
    # Outputs for padding are meaningless.
    hidden = torch.where(real, result.hidden_states[-1], torch.nan)
    logits = torch.where(real, result.logits, torch.nan)
    save_file({"tokens.in": tokens.float(), "lengths.in": lengths.float(), "logits": logits.contiguous(),
               "tokens": hidden.contiguous()}, target / "expected.safetensors")
    return target


def tidy(here):
    """Removes what no test reads."""
    for path in pathlib.Path(here).glob("*/generation_config.json"):
        path.unlink()
