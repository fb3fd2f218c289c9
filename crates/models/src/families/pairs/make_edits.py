"""Makes edits.safetensors: logits of the encoder-decoders in the fixtures of t5, bart, whisper and transformer, with one value edited by a
PyTorch hook. A name is `FAMILY/MODEL PATH EDIT`, with our path and the edit as `pairs/tests.rs` knows it.

    python make_edits.py        (torch, transformers, safetensors)
"""

import pathlib
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

FAMILIES = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(FAMILIES / "transformer/tests"))
sys.dont_write_bytecode = True

import make as translator  # noqa: E402

EDITS = {
    "zero": torch.zeros_like,
    "scale": lambda x: -1.5 * x,
    "clamp": lambda x: x.clamp(-0.3, 0.3),
    "add": lambda x: x + 0.5,
}


def edited(module, change, before=False):
    if before:
        return module.register_forward_pre_hook(lambda m, args: (change(args[0]), *args[1:]))

    def hook(m, args, result):
        return (change(result[0]), *result[1:]) if isinstance(result, tuple) else change(result)

    return module.register_forward_hook(hook)


def of_head(change, head, heads):
    def columns(x):
        x = x.clone()
        width = x.shape[-1] // heads
        part = slice(head * width, (head + 1) * width)
        x[..., part] = change(x[..., part])
        return x
    return columns


def t5_parts(model):
    parts = {}
    for side, stack in [("encoder", model.encoder), ("decoder", model.decoder)]:
        for i, block in enumerate(stack.block):
            parts[f"{side}.{i}"] = block
            parts[f"{side}.{i}.attention.heads"] = block.layer[0].SelfAttention.o
            parts[f"{side}.{i}.mlp"] = block.layer[-1].DenseReluDense
            if side == "decoder":
                parts[f"{side}.{i}.cross_attention.heads"] = block.layer[1].EncDecAttention.o
    return parts


def bart_parts(model):
    parts = {}
    for side, stack in [("encoder", model.model.encoder), ("decoder", model.model.decoder)]:
        for i, layer in enumerate(stack.layers):
            parts[f"{side}.{i}"] = layer
            parts[f"{side}.{i}.attention.heads"] = layer.self_attn.out_proj
            parts[f"{side}.{i}.mlp"] = layer.fc2
            if side == "decoder":
                parts[f"{side}.{i}.cross_attention.heads"] = layer.encoder_attn.out_proj
    return parts


def plan(heads):
    return [("encoder.0.attention.heads", 1, "zero"), ("decoder.0.attention.heads", 0, "scale"),
            ("decoder.0.cross_attention.heads", heads - 1, "zero"), ("encoder.0.mlp", None, "scale"), ("decoder.0.mlp", None, "clamp"),
            ("encoder.0", None, "add"), ("decoder.0", None, "clamp")]


def hugging_face(family, name, parts_of, out):
    folder = FAMILIES / family / "tests/fixtures" / name
    given = load_file(folder / "expected.safetensors")
    target = given["target"].long()
    if "mel" in given:
        model = hf.WhisperForConditionalGeneration.from_pretrained(folder, attn_implementation="eager").eval()
        inputs = {"input_features": given["mel"].transpose(1, 2)}
    else:
        model = hf.AutoModelForSeq2SeqLM.from_pretrained(folder, attn_implementation="eager").eval()
        source, lengths = given["source"].long(), given["source_lengths"].long()
        inputs = {"input_ids": source, "attention_mask": (torch.arange(source.shape[1])[None] < lengths[:, None]).long()}
    parts = parts_of(model)
    heads = getattr(model.config, "num_heads", None) or model.config.decoder_attention_heads
    run = lambda: model(**inputs, decoder_input_ids=target).logits
    with torch.no_grad():
        difference = (run() - given["logits"]).abs().max()
        assert difference < 1e-4, (family, name, difference)
        for path, head, edit in plan(heads):
            change = EDITS[edit] if head is None else of_head(EDITS[edit], head, heads if "decoder" in path else
                                                              getattr(model.config, "encoder_attention_heads", heads))
            handle = edited(parts[path], change, before=head is not None)
            path = path if head is None else f"{path}.{head}"
            out[f"{family}/{name} {path} {edit}"] = run()
            handle.remove()


def of_translator(name, options, out):
    """PyTorch's attention never calls its output matrix: a head is edited by the columns of that matrix that read it."""
    folder = FAMILIES / "transformer/tests/fixtures" / name
    model = translator.Model(*options)
    weights = load_file(folder / "model.safetensors")
    given = load_file(folder / "expected.safetensors")
    with torch.no_grad():
        for key, parameter in translator.named(model, options[2], lambda p: p).items():
            parameter.copy_(weights[key])
    source, target = given["source"].long(), given["target"].long()
    assert (model(source, target) - given["logits"]).abs().max() < 1e-4
    sides = {"encoder": model.encoder, "decoder": model.decoder}
    for path, head, edit in plan(translator.HEADS):
        side, index, *rest = path.split(".")
        layer = sides[side][int(index)]
        key = f"transformer/{name} {path if head is None else f'{path}.{head}'} {edit}"
        if head is None:
            handle = edited(layer.linear2 if rest else layer, EDITS[edit])
            out[key] = model(source, target)
            handle.remove()
            continue
        matrix = (layer.multihead_attn if rest[0] == "cross_attention" else layer.self_attn).out_proj.weight
        before = matrix.detach().clone()
        with torch.no_grad():
            matrix.copy_(of_head(EDITS[edit], head, translator.HEADS)(matrix))
        out[key] = model(source, target)
        with torch.no_grad():
            matrix.copy_(before)


def main():
    out = {}
    for name in ["model", "gated"]:
        hugging_face("t5", name, t5_parts, out)
    for name in ["model", "mbart", "marian"]:
        hugging_face("bart", name, bart_parts, out)
    for name in ["model", "scaled"]:
        hugging_face("whisper", name, bart_parts, out)
    torch.set_default_dtype(torch.float64)
    of_translator("post", (False, False, False, False), out)
    of_translator("pre", (True, True, False, True), out)
    out = {key: value.detach().float().contiguous() for key, value in out.items()}
    save_file(out, FAMILIES / "pairs/edits.safetensors")
    print(len(out), "results")


main()
