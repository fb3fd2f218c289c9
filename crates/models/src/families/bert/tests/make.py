"""Makes the fixtures of BERT and its relatives: tiny models with random weights, saved by transformers, with its outputs
for padded tokens.

    python make.py        (torch, transformers, safetensors)
"""

import pathlib
import shutil
import sys

import torch
import transformers as hf
from safetensors.torch import load_file, save_file

FOLDER = pathlib.Path(__file__).resolve().parent
HERE = FOLDER / "fixtures"
sys.path.insert(0, str(FOLDER.parents[1] / "encoder"))

import peer  # noqa: E402

LABELS = {0: "down", 1: "up", 2: "sideways"}
SIZES = dict(vocab_size=23, max_position_embeddings=9)
SMALL = dict(SIZES, hidden_size=9, num_hidden_layers=1, num_attention_heads=3, intermediate_size=14)


def bert():
    def config(**changes):
        return hf.BertConfig(vocab_size=31, hidden_size=16, num_hidden_layers=2, num_attention_heads=4,
                             intermediate_size=24, max_position_embeddings=9, type_vocab_size=2, **changes)

    peer.save(HERE, "model", hf.BertModel(config()), peer.plain)
    peer.save(HERE, "masked", hf.BertForMaskedLM(config(hidden_act="gelu_new")), peer.masked)
    pretraining = hf.BertForPreTraining(config(layer_norm_eps=1e-3))
    peer.save(HERE, "pretraining", pretraining, lambda r: {"logits": r.prediction_logits})
    classes = hf.BertForSequenceClassification(config(id2label=LABELS))
    classes = peer.save(HERE, "classes", classes, peer.logits)
    # BERT-Base's own file has TensorFlow's names of norms, and position ids.
    old = {}
    for name, tensor in load_file(classes / "model.safetensors").items():
        old[name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")] = tensor
    old["bert.embeddings.position_ids"] = torch.arange(9)[None]
    target = HERE / "classes_old_names"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(classes, target)
    save_file(old, target / "model.safetensors", metadata={"format": "pt"})

    def small(**changes):
        return hf.BertConfig(**dict(SMALL, **changes))

    labels = small(hidden_act="relu", num_labels=4, problem_type="multi_label_classification")
    peer.save(HERE, "labels", hf.BertForSequenceClassification(labels), peer.logits)
    numbers = small(hidden_act="silu", num_labels=1, classifier_dropout=0.25)
    peer.save(HERE, "numbers", hf.BertForSequenceClassification(numbers), peer.logits)
    tokens = small(hidden_act="tanh", id2label=LABELS)
    peer.save(HERE, "token_classes", hf.BertForTokenClassification(tokens), peer.logits, left=True)
    peer.save(HERE, "span", hf.BertForQuestionAnswering(small(hidden_act="gelu_fast")), peer.span)
    peer.save(HERE, "untied", hf.BertForMaskedLM(small(tie_word_embeddings=False)), peer.masked)
    peer.save(HERE, "one_type", hf.BertModel(small(type_vocab_size=1)), peer.plain, types=1)
    peer.save(HERE, "three_types", hf.BertModel(small(type_vocab_size=3), add_pooling_layer=False), peer.plain, types=3)
    model = hf.BertForMaskedLM(small(num_hidden_layers=2, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
    peer.save(HERE, "trained", model, peer.masked, left=True)
    peer.gradients(HERE, "trained", model)


def roberta():
    def config(kind=hf.RobertaConfig, padding=1, **changes):
        return kind(**dict(SMALL, type_vocab_size=1, max_position_embeddings=8 + padding, pad_token_id=padding, **changes))

    def save(name, model, outputs, **more):
        padding = model.config.pad_token_id
        types = model.config.type_vocab_size
        peer.save(HERE, name, model, outputs, types=types, padding=padding, offset=padding + 1, **more)

    save("roberta", hf.RobertaModel(config()), peer.plain)
    # The masked-token head has gelu whatever the layers have.
    save("roberta_masked", hf.RobertaForMaskedLM(config(hidden_act="relu")), peer.masked, left=True)
    save("roberta_classes", hf.RobertaForSequenceClassification(config(padding=4, id2label=LABELS)), peer.logits)
    two_types = config(padding=0)
    two_types.type_vocab_size = 2
    save("roberta_token_classes", hf.RobertaForTokenClassification(two_types), peer.logits)
    save("roberta_span", hf.RobertaForQuestionAnswering(config()), peer.span)
    save("xlm_roberta_masked", hf.XLMRobertaForMaskedLM(config(hf.XLMRobertaConfig)), peer.masked)
    classes = config(hf.XLMRobertaConfig, num_labels=1)
    save("xlm_roberta_numbers", hf.XLMRobertaForSequenceClassification(classes), peer.logits)
    untied = config(hf.CamembertConfig, tie_word_embeddings=False)
    save("camembert_untied", hf.CamembertForMaskedLM(untied), peer.masked)


def distilbert():
    def config(**changes):
        return hf.DistilBertConfig(**dict(dict(SIZES, dim=9, n_layers=1, n_heads=3, hidden_dim=14), **changes))

    def save(name, model, outputs, **more):
        peer.save(HERE, name, model, outputs, types=0, **more)

    save("distilbert", hf.DistilBertModel(config(n_layers=2)), peer.plain)
    save("distilbert_masked", hf.DistilBertForMaskedLM(config(activation="relu")), peer.masked, left=True)
    save("distilbert_untied", hf.DistilBertForMaskedLM(config(tie_word_embeddings=False)), peer.masked)
    save("distilbert_classes", hf.DistilBertForSequenceClassification(config(id2label=LABELS)), peer.logits)
    save("distilbert_token_classes", hf.DistilBertForTokenClassification(config(num_labels=5)), peer.logits)
    save("distilbert_span", hf.DistilBertForQuestionAnswering(config(qa_dropout=0.3)), peer.span)


def electra():
    def config(**changes):
        return hf.ElectraConfig(**dict(SMALL, embedding_size=5, **changes))

    def same_width():
        result = config()
        result.embedding_size = 9
        return result

    peer.save(HERE, "electra", hf.ElectraModel(config()), peer.plain)
    peer.save(HERE, "electra_same_width", hf.ElectraModel(same_width()), peer.plain)
    peer.save(HERE, "electra_masked", hf.ElectraForMaskedLM(config(hidden_act="relu")), peer.masked, left=True)
    labels = config(num_labels=4, problem_type="multi_label_classification")
    peer.save(HERE, "electra_labels", hf.ElectraForSequenceClassification(labels), peer.logits)
    peer.save(HERE, "electra_token_classes", hf.ElectraForTokenClassification(config()), peer.logits)
    peer.save(HERE, "electra_span", hf.ElectraForQuestionAnswering(config()), peer.span)
    # The discriminator, whose head is not supported: its vectors are.
    peer.save(HERE, "electra_discriminator", hf.ElectraForPreTraining(config()), peer.last_tokens)


def main():
    hf.logging.set_verbosity_error()
    torch.manual_seed(2018)
    for make in (bert, roberta, distilbert, electra):
        make()


if __name__ == "__main__":
    main()
