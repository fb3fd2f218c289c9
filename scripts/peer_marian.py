"""Times `generate` of a Marian model of `transformers` with the size of our translator: greedy decoding with a KV cache.

    python scripts/peer_marian.py --sources test.en --translations ours.out --tokenizer runs/translation-1/model/tokenizer.json
    (needs torch, transformers and tokenizers)

Its weights are random, so each sentence is forced to end at the length of its translation in `--translations`: the same
number of steps and tokens. Sentences of similar length are translated together, the longest first.
"""

import argparse
import time

import torch
from tokenizers import Tokenizer
from transformers import LogitsProcessor, LogitsProcessorList, MarianConfig, MarianMTModel


class EndAt(LogitsProcessor):
    """Forces each row to end after its own number of tokens, and not before."""

    def __init__(self, lengths, end):
        self.lengths, self.end, self.step = lengths, end, 0

    def __call__(self, _, scores):
        scores[:, self.end] = torch.where(self.lengths == self.step, torch.inf, -torch.inf)
        self.step += 1
        return scores


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    for name in ["--sources", "--translations", "--tokenizer"]:
        parser.add_argument(name, required=True)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = MarianConfig(vocab_size=8000, d_model=256, encoder_layers=4, decoder_layers=4, encoder_attention_heads=4,
                          decoder_attention_heads=4, encoder_ffn_dim=1024, decoder_ffn_dim=1024, activation_function="relu",
                          scale_embedding=True, max_position_embeddings=512, pad_token_id=0, eos_token_id=2, bos_token_id=1,
                          decoder_start_token_id=1, forced_eos_token_id=None)
    model = MarianMTModel(config).eval()
    tokenizer = Tokenizer.from_file(options.tokenizer)
    tokenizer.no_padding()
    lines = lambda path: open(path, encoding="utf8").read().splitlines()
    encode = lambda path: [encoding.ids for encoding in tokenizer.encode_batch(lines(path), add_special_tokens=False)]
    sources, lengths = [ids + [2] for ids in encode(options.sources)], list(map(len, encode(options.translations)))
    order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))

    @torch.inference_mode()
    def translate(indices):
        for start in range(0, len(indices), options.batch):
            batch = indices[start : start + options.batch]
            longest = max(len(sources[index]) for index in batch)
            tokens = torch.tensor([sources[index] + [0] * (longest - len(sources[index])) for index in batch])
            ends = torch.tensor([lengths[index] for index in batch])
            model.generate(input_ids=tokens, attention_mask=tokens != 0, num_beams=1, do_sample=False, use_cache=True,
                           max_new_tokens=int(ends.max()) + 1, logits_processor=LogitsProcessorList([EndAt(ends, 2)]))

    translate(order[-8:])
    print(f"{sum(parameter.numel() for parameter in model.parameters())} parameters, {sum(lengths) + len(lengths)} tokens")
    for _ in range(options.rounds):
        start = time.perf_counter()
        translate(order)
        print(f"decode seconds: {time.perf_counter() - start:.2f}", flush=True)


main()
