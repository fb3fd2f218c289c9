"""Makes the fixtures of BERT: tiny models with random weights, saved by transformers, with its outputs for padded tokens.

    python make.py        (torch, transformers, safetensors)
"""

import pathlib
import shutil

import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertForPreTraining, BertForSequenceClassification, BertModel

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"
LENGTHS = [7, 4, 1]


def config(**changes):
    return BertConfig(vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, intermediate_size=24,
                      max_position_embeddings=9, type_vocab_size=2, **changes)


def save(name, model, outputs):
    model.eval()
    with torch.no_grad():
        # Norms and biases that differ from 1 and 0, so that nothing can be mixed up.
        for parameter in model.parameters():
            parameter += 0.1 * torch.randn_like(parameter)
    target = HERE / name
    shutil.rmtree(target, ignore_errors=True)
    model.save_pretrained(target)
    tokens = torch.randint(1, 31, (len(LENGTHS), max(LENGTHS)))
    types = torch.randint(0, 2, tokens.shape)
    lengths = torch.tensor(LENGTHS)
    seen = torch.arange(tokens.shape[1])[None] < lengths[:, None]
    tokens[~seen] = 0
    with torch.no_grad():
        result = model(input_ids=tokens, token_type_ids=types, attention_mask=seen.long(), output_hidden_states=True)
    expected = outputs(result)
    # Outputs for padding are meaningless.
    for key, value in expected.items():
        if value.shape[:2] == tokens.shape:
            expected[key] = torch.where(seen[..., None], value, torch.nan)
    inputs = {"tokens.in": tokens.float(), "token_types.in": types.float(), "lengths.in": lengths.float()}
    save_file({k: v.contiguous() for k, v in (inputs | expected).items()}, target / "expected.safetensors")
    return target


def main():
    torch.manual_seed(2018)
    save("model", BertModel(config()), lambda r: {"tokens": r.last_hidden_state, "features": r.pooler_output})
    save("masked", BertForMaskedLM(config(hidden_act="gelu_new")),
         lambda r: {"tokens": r.hidden_states[-1], "logits": r.logits})
    save("pretraining", BertForPreTraining(config(layer_norm_eps=1e-3)), lambda r: {"logits": r.prediction_logits})
    labels = {0: "down", 1: "up", 2: "sideways"}
    classes = save("classes", BertForSequenceClassification(config(id2label=labels)), lambda r: {"logits": r.logits})
    # BERT-Base's own file has TensorFlow's names of norms, and position ids.
    old = {}
    for name, tensor in load_file(classes / "model.safetensors").items():
        old[name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(9)[None]
    target = HERE / "classes_old_names"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(classes, target)
    save_file(old, target / "model.safetensors", metadata={"format": "pt"})


if __name__ == "__main__":
    main()
