"""What the scripts that make fixtures of encoder-decoders share: models of transformers with random weights, their outputs, gradients
and generated tokens.
"""

import json
import pathlib
import shutil

import torch
from safetensors.torch import save_file

LENGTHS = [7, 4, 1]
TARGET = 5


def disturb(model):
    """Norms and biases that differ from 1 and 0, so that nothing can be mixed up."""
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)
        if hasattr(model, "final_logits_bias"):
            model.final_logits_bias.copy_(0.3 * torch.randn_like(model.final_logits_bias))


def teach(model, steps=150):
    """Half learns to write sources backwards, so that texts of several lengths come out, and no choice is nearly a draw for all."""
    disturb(model)
    optimizer = torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=1e-2)
    end, pad, start = model.config.eos_token_id, model.config.pad_token_id, model.config.decoder_start_token_id
    for _ in range(steps):
        rows = [torch.randint(3, 30, (int(torch.randint(1, 8, ())),)).tolist() for _ in range(16)]
        width = max(map(len, rows)) + 1
        filled = lambda row: row + [end] + [pad] * (width - len(row) - 1)
        source = torch.tensor([filled(row) for row in rows])
        labels = torch.tensor([row[::-1] + [end] + [-100] * (width - len(row) - 1) for row in rows])
        mask = torch.tensor([[1] * (len(row) + 1) + [0] * (width - len(row) - 1) for row in rows])
        decoder = torch.tensor([([start] + filled(row[::-1]))[:width] for row in rows])
        logits = model(input_ids=source, attention_mask=mask, decoder_input_ids=decoder).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("taught to a loss of", loss.item())
    return model


def pairs(model):
    """Padded sources, their mask, and targets."""
    lengths = torch.tensor(LENGTHS)
    width = max(LENGTHS)
    source = torch.randint(3, model.config.vocab_size, (len(LENGTHS), width))
    seen = torch.arange(width)[None] < lengths[:, None]
    vocabulary = getattr(model.config, "decoder_vocab_size", None) or model.config.vocab_size
    target = torch.randint(3, vocabulary, (len(LENGTHS), TARGET))
    return source, lengths, seen, target


def save(here, name, model, unchanged=False):
    """Saves a model with inputs and outputs."""
    if not unchanged:
        disturb(model)
    target_path = pathlib.Path(here) / name
    shutil.rmtree(target_path, ignore_errors=True)
    model.save_pretrained(target_path)
    source, lengths, seen, target = pairs(model)
    with torch.no_grad():
        result = model(input_ids=source, attention_mask=seen.long(), decoder_input_ids=target)
    # Outputs for padding are meaningless.
    memory = torch.where(seen[..., None], result.encoder_last_hidden_state, torch.nan)
    save_file({"source": source.float(), "source_lengths": lengths.float(), "target": target.float(),
               "memory": memory.contiguous(), "logits": result.logits.contiguous()}, target_path / "expected.safetensors")
    return target_path


def gradients(here, name, model):
    """Gradients of the mean cross-entropy, in the form of a checkpoint."""
    source, lengths, seen, target = pairs(model)
    labels = torch.randint(3, model.lm_head.out_features, target.shape)
    model.zero_grad()
    logits = model(input_ids=source, attention_mask=seen.long(), decoder_input_ids=target).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    path = pathlib.Path(here) / f"{name}_gradients"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    # A parameter that the loss does not depend on, such as an untied table that nothing uses, has none.
    found = {key: parameter.grad.contiguous() for key, parameter in model.named_parameters() if parameter.grad is not None}
    if hasattr(model, "final_logits_bias"):
        found["final_logits_bias"] = torch.zeros_like(model.final_logits_bias)
    save_file(found, path / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(pathlib.Path(here) / name / "config.json", path / "config.json")
    save_file({"source": source.float(), "source_lengths": lengths.float(), "target": target.float(),
               "targets": labels.flatten().float(), "loss": loss.detach().reshape(1)}, path / "expected.safetensors")


def generated(here, name, model, settings, seed=3):
    """What `generate` writes for a few sources, by settings."""
    torch.manual_seed(seed)
    sources = [torch.randint(3, model.config.vocab_size, (length,)).tolist() for length in (6, 3, 7, 1, 5, 4)]
    end = model.config.eos_token_id
    cases = []
    for options in settings:
        outputs = []
        for source in sources:
            tokens = torch.tensor([source + [end]])
            result = model.generate(tokens, attention_mask=torch.ones_like(tokens), do_sample=False,
                                    return_dict_in_generate=True, output_scores=True, **options)
            scores = getattr(result, "sequences_scores", None)
            outputs.append({"tokens": result.sequences.tolist(), "scores": None if scores is None else scores.tolist()})
        cases.append({"options": options, "outputs": outputs})
    text = json.dumps({"sources": sources, "cases": cases}, separators=(",", ":"))
    (pathlib.Path(here) / name / "generated.json").write_text(text + "\n")
    lengths = [[len(row) for output in case["outputs"] for row in output["tokens"]] for case in cases]
    print(name, [(case["options"], row) for case, row in zip(cases, lengths)])


def tidy(here):
    """Removes what no test reads."""
    for path in pathlib.Path(here).glob("*/generation_config.json"):
        path.unlink()
