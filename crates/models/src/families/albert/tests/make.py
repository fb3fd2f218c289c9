"""Makes the fixtures of ALBERT: tiny models with random weights, saved by transformers, with its outputs for padded tokens.

    python make.py        (torch, transformers, safetensors)
"""

import pathlib
import sys

import torch
import transformers as hf

FOLDER = pathlib.Path(__file__).resolve().parent
HERE = FOLDER / "fixtures"
sys.path.insert(0, str(FOLDER.parents[1] / "encoder"))

import peer  # noqa: E402

SMALL = dict(vocab_size=23, embedding_size=5, hidden_size=9, num_hidden_layers=3, num_attention_heads=3,
             intermediate_size=14, max_position_embeddings=9)


def config(**changes):
    return hf.AlbertConfig(**dict(SMALL, **changes))


def main():
    hf.logging.set_verbosity_error()
    torch.manual_seed(2019)
    HERE.mkdir(exist_ok=True)
    peer.save(HERE, "model", hf.AlbertModel(config()), peer.plain)
    # Three groups for five layers: the first two have two each.
    groups = config(num_hidden_layers=5, num_hidden_groups=3, inner_group_num=2, hidden_act="gelu")
    peer.save(HERE, "groups", hf.AlbertModel(groups), peer.plain)
    masked = hf.AlbertForMaskedLM(config())
    peer.save(HERE, "masked", masked, peer.masked, left=True)
    peer.gradients(HERE, "masked", masked)
    untied = hf.AlbertForMaskedLM(config(tie_word_embeddings=False, hidden_act="relu"))
    peer.save(HERE, "untied", untied, peer.masked)
    pretraining = hf.AlbertForPreTraining(config(layer_norm_eps=1e-3))
    peer.save(HERE, "pretraining", pretraining, lambda r: {"logits": r.prediction_logits})
    classes = config(id2label={0: "down", 1: "up", 2: "sideways"}, hidden_act="tanh")
    peer.save(HERE, "classes", hf.AlbertForSequenceClassification(classes), peer.logits)
    labels = config(num_labels=4, problem_type="multi_label_classification")
    peer.save(HERE, "labels", hf.AlbertForSequenceClassification(labels), peer.logits)
    numbers = config(num_labels=2, problem_type="regression", hidden_act="silu")
    peer.save(HERE, "numbers", hf.AlbertForSequenceClassification(numbers), peer.logits)
    tokens = config(num_labels=5, type_vocab_size=1)
    peer.save(HERE, "token_classes", hf.AlbertForTokenClassification(tokens), peer.logits, types=1)
    peer.save(HERE, "span", hf.AlbertForQuestionAnswering(config()), peer.span)


if __name__ == "__main__":
    main()
