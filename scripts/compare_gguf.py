#!/usr/bin/env python3
"""Compares GGUF files that `vitreous convert` writes with llama.cpp itself: what they compute, how they split text, how they are quantised.

    npm pack @node-llama-cpp/linux-x64 && tar xf node-llama-cpp-linux-x64-*.tgz      (or any folder with libllama and libggml)
    scripts/compare_gguf.py models   --llama package/bins/linux-x64      random Phi-3, Gemma .. models, with their tokenizers
    scripts/compare_gguf.py quantise --llama package/bins/linux-x64 FILE.gguf [--type q4_k_m]

Needs numpy and gguf; `models` also torch, transformers and tokenizers. `quantise` takes a file of floats, or makes one of it.
"""

import argparse
import ctypes
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parent.parent
TYPES = {"f16": 1, "q4_0": 2, "q8_0": 7, "q4_k_m": 15}  # llama_ftype


class Opaque(ctypes.Structure):
    """Settings of llama.cpp, passed by value: larger than any of them, of which the callee takes what it knows."""

    _fields_ = [("words", ctypes.c_int32 * 128)]


class Batch(ctypes.Structure):
    _fields_ = [("count", ctypes.c_int32), ("tokens", ctypes.c_void_p), ("embd", ctypes.c_void_p), ("pos", ctypes.c_void_p),
                ("n_seq_id", ctypes.c_void_p), ("seq_id", ctypes.c_void_p), ("logits", ctypes.c_void_p)]


class LlamaCpp:
    def __init__(self, folder):
        find = lambda name: sorted(glob.glob(os.path.join(folder, name)))
        for name in ["libggml-base*.so", "libggml.so", "libggml.v*.so"]:
            for path in find(name):
                self.ggml = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        paths = find("libllama.so") + find("libllama.v*.so")
        if not paths:
            sys.exit(f"no libllama in {folder}")
        self.lib = ctypes.CDLL(paths[0], mode=ctypes.RTLD_GLOBAL)
        self.quiet = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
        self.lib.llama_log_set(self.quiet, None)
        self.ggml.ggml_backend_load_all_from_path(folder.encode())
        self.lib.llama_backend_init()
        for name in ["llama_model_quantize_default_params", "llama_model_default_params", "llama_context_default_params"]:
            getattr(self.lib, name).restype = Opaque
        for name in ["llama_model_load_from_file", "llama_init_from_model", "llama_model_get_vocab"]:
            getattr(self.lib, name).restype = ctypes.c_void_p
        self.lib.llama_batch_get_one.restype = Batch
        self.lib.llama_get_logits_ith.restype = ctypes.POINTER(ctypes.c_float)

    def quantise(self, source, target, kind):
        settings = self.lib.llama_model_quantize_default_params()
        settings.words[0], settings.words[1] = 2, TYPES[kind]
        if self.lib.llama_model_quantize(str(source).encode(), str(target).encode(), ctypes.byref(settings)) != 0:
            sys.exit(f"llama.cpp cannot quantise {source}")

    def open(self, path):
        return Model(self.lib, path)


class Model:
    def __init__(self, lib, path):
        self.lib = lib
        self.model = ctypes.c_void_p(lib.llama_model_load_from_file(str(path).encode(), lib.llama_model_default_params()))
        if not self.model:
            sys.exit(f"llama.cpp cannot open {path}")
        self.vocabulary = ctypes.c_void_p(lib.llama_model_get_vocab(self.model))

    def tokens(self, text):
        data = text.encode()
        room = (ctypes.c_int32 * (len(data) + 16))()
        flag = ctypes.c_bool
        count = self.lib.llama_tokenize(self.vocabulary, data, len(data), room, len(room), flag(True), flag(True))
        return list(room[:count])

    def logits(self, tokens, context):
        settings = self.lib.llama_context_default_params()
        settings.words[0] = context
        # Keys and values at f32: the types follow one another, and both are f16 (1) as they come.
        pairs = [at for at in range(8, 60) if settings.words[at] == 1 and settings.words[at + 1] == 1]
        if pairs:
            settings.words[pairs[0]] = settings.words[pairs[0] + 1] = 0
        context = ctypes.c_void_p(self.lib.llama_init_from_model(self.model, settings))
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        if self.lib.llama_decode(context, self.lib.llama_batch_get_one(array, len(tokens))) != 0:
            sys.exit("llama.cpp cannot read the tokens")
        size = self.lib.llama_vocab_n_tokens(self.vocabulary)
        logits = np.ctypeslib.as_array(self.lib.llama_get_logits_ith(context, -1), (size,)).astype(np.float64)
        self.lib.llama_free(context)
        return logits


def ours(binary, model, text, count, context):
    """Our logarithmic probabilities of the token after a text."""
    command = [binary, "generate", str(model), "--json", "--temperature", "0", "--max-tokens", "1", "--logprobs", str(count), "-q",
               "--ignore-eos", "--context", str(context), "--", text]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found = np.full(count, np.nan)
    for one in answer["logprobs"][0]["top"]:
        found[one["token"]] = one["logprob"]
    return found


def tokenizer(folder, prepend):
    """A small vocabulary of byte pairs as sentencepiece has them, learned from the guide."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    texts = [path.read_text() for path in sorted(ROOT.glob("docs/*.md"))]
    learned.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=700, special_tokens=special, show_progress=False))
    state = json.loads(learned.to_str())["model"]
    merges = [tuple(merge) for merge in state["merges"]]
    result = Tokenizer(models.BPE(vocab=state["vocab"], merges=merges, byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    replace = normalizers.Replace(" ", "▁")
    result.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replace]) if prepend else replace
    result.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    result.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in ["<unk>", "<s>", "</s>", "<|end|>"]])
    result.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    result.save(str(folder / "tokenizer.json"))
    names = dict(tokenizer_class="LlamaTokenizerFast" if prepend else "GemmaTokenizerFast", bos_token="<s>", eos_token="</s>",
                 unk_token="<unk>", add_bos_token=True, add_eos_token=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(names))
    return result.get_vocab_size()


def models(args):
    import torch
    import transformers as hf

    hf.logging.set_verbosity_error()
    hf.logging.disable_progress_bar()
    llama = LlamaCpp(args.llama)
    texts = ["The loss is computed", "Ein Tee für 3 Personen: 日本 🙂\n\n  two spaces", "vitreous train gpt --data <|end|> x</s>", ""]
    sizes = dict(hidden_size=96, intermediate_size=128, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
                 max_position_embeddings=512, pad_token_id=None, bos_token_id=1, eos_token_id=2)
    factors = dict(short_factor=[1.0 + 0.05 * pair for pair in range(9)], long_factor=[1.0 + pair for pair in range(9)])
    rope = dict(rope_type="longrope", rope_theta=10000.0, partial_rotary_factor=0.75, original_max_position_embeddings=256, **factors)
    partial = dict(rope_type="default", rope_theta=10000.0, partial_rotary_factor=0.75)
    kinds = {
        "phi3": (hf.Phi3ForCausalLM, hf.Phi3Config, dict(rope_parameters=partial)),
        "phi3 with LongRoPE": (hf.Phi3ForCausalLM, hf.Phi3Config, dict(rope_parameters=rope, original_max_position_embeddings=256)),
        "gemma": (hf.GemmaForCausalLM, hf.GemmaConfig, dict(head_dim=32)),
        "llama": (hf.LlamaForCausalLM, hf.LlamaConfig, {}),
    }
    print("| model | context | largest difference of a log probability | same tokens |\n|---|--:|--:|--:|")
    for name, (kind, config, more) in kinds.items():
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            count = tokenizer(folder, prepend="gemma" not in name)
            torch.manual_seed(1)
            model = kind(config(vocab_size=count, **sizes, **more)).float()
            with torch.no_grad():
                for parameter in model.parameters():
                    usual = 1.0 if parameter.ndim == 1 and "gemma" not in name else 0.0
                    parameter.copy_(torch.randn_like(parameter) * 0.1 + usual)
            model.save_pretrained(folder)
            file = folder / "model.gguf"
            subprocess.run([args.binary, "convert", folder, file, "--type", "f32", "-q"], check=True)
            theirs = llama.open(file)
            same = 0
            reference = hf.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
            for text in texts:
                tokens = theirs.tokens(text)
                same += tokens == reference(text)["input_ids"]
            # LongRoPE has other factors where texts may become longer than the original length.
            for context in (256, 512):
                worst = 0.0
                for text in filter(None, texts):
                    logits = theirs.logits(theirs.tokens(text), context)
                    expected = logits - np.log(np.exp(logits - logits.max()).sum()) - logits.max()
                    worst = max(worst, np.abs(ours(args.binary, file, text, count, context) - expected).max())
                print(f"| {name} | {context} | {worst:.1e} | {same} of {len(texts)} texts |", flush=True)


def quantise(args):
    import gguf

    llama = LlamaCpp(args.llama)
    with tempfile.TemporaryDirectory() as folder:
        floats, theirs, mine = [os.path.join(folder, name) for name in ("f32.gguf", "llama.gguf", "ours.gguf")]
        run = lambda *arguments: subprocess.run([args.binary, "convert", *arguments, "-q"], check=True)
        run(args.file, floats, "--type", "f32")
        run(floats, mine, "--type", args.type)
        llama.quantise(floats, theirs, args.type)
        read = lambda path: {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
        floats, theirs, mine = read(floats), read(theirs), read(mine)
        assert theirs.keys() == mine.keys(), theirs.keys() ^ mine.keys()
        found = {}
        for name, their in theirs.items():
            our = mine[name]
            if our.tensor_type != their.tensor_type:
                print(f"{name}: ours is {our.tensor_type.name}, theirs {their.tensor_type.name}")
                continue
            truth = gguf.dequantize(floats[name].data, floats[name].tensor_type).astype(np.float64)
            errors = [np.sqrt(((gguf.dequantize(one.data, one.tensor_type) - truth) ** 2).mean()) for one in (our, their)]
            found.setdefault(our.tensor_type.name, []).append((*errors, np.array_equal(our.data, their.data)))
    print("| type | tensors | the same bytes | mean RMS error, ours | llama.cpp's | tensors where ours is larger |\n|---|--:|--:|--:|--:|--:|")
    for kind, rows in found.items():
        mine, theirs, same = zip(*rows)
        larger = sum(a > b * (1 + 1e-6) for a, b in zip(mine, theirs))
        print(f"| {kind} | {len(rows)} | {sum(same)} | {np.mean(mine):.3e} | {np.mean(theirs):.3e} | {larger} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["models", "quantise"])
    parser.add_argument("file", nargs="?", help="of `quantise`: a GGUF file or a model directory")
    parser.add_argument("--llama", required=True, help="the folder of libllama")
    parser.add_argument("--binary", default=str(ROOT / "target/release/vitreous"))
    parser.add_argument("--type", default="q4_k_m", choices=list(TYPES))
    args = parser.parse_args()
    if args.what == "quantise" and not args.file:
        parser.error("quantise needs a file")
    {"models": models, "quantise": quantise}[args.what](args)


main()
