#!/usr/bin/env python3
"""Speed of CLIP's towers on the CPU, in turns with ONNX Runtime.

    python3 scripts/bench_clip.py target/release/vitreous [--batches 1 32] [--rounds 5] [--seconds 2]

Needs torch, transformers, onnxruntime, onnx and onnxscript. The model is CLIP ViT-B/32 with random weights, f32. Ours is `vitreous bench
clip_vit_base_patch32 --tower image|text`, the median of its runs; the peer is a session that is open and warm, the median of as many
seconds. Texts have 77 tokens. Each side runs `--rounds` times in turns; the table has medians, and the median of the rounds' ratios.
"""
import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time


def exported(tower, folder):
    import torch
    import transformers as hf

    config = hf.CLIPConfig()

    class Image(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = hf.CLIPVisionModelWithProjection._from_config(config.vision_config, attn_implementation="eager").eval()

        def forward(self, pixels):
            vector = self.model(pixel_values=pixels).image_embeds
            return vector / vector.norm(dim=-1, keepdim=True)

    class Text(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = hf.CLIPTextModelWithProjection._from_config(config.text_config, attn_implementation="eager").eval()

        def forward(self, tokens):
            vector = self.model(input_ids=tokens).text_embeds
            return vector / vector.norm(dim=-1, keepdim=True)

    path = os.path.join(folder, f"{tower}.onnx")
    batch = torch.export.Dim("batch")
    if tower == "image":
        module, example, name = Image(), torch.randn(2, 3, 224, 224), "pixels"
    else:
        module, example, name = Text(), torch.randint(0, 49406, (2, 77)), "tokens"
    torch.onnx.export(module, (example,), path, input_names=[name], output_names=["vector"], dynamic_shapes={name: {0: batch}}, dynamo=True)
    return path


class Peer:
    def __init__(self, path, tower, threads):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.tower = tower

    def rate(self, batch, seconds):
        import numpy

        random = numpy.random.default_rng(1)
        if self.tower == "image":
            given = {"pixels": random.standard_normal((batch, 3, 224, 224), dtype=numpy.float32)}
        else:
            given = {"tokens": random.integers(0, 49406, (batch, 77))}
        self.session.run(None, given)
        times, start = [], time.perf_counter()
        while time.perf_counter() - start < seconds or len(times) < 3:
            before = time.perf_counter()
            self.session.run(None, given)
            times.append(time.perf_counter() - before)
        return batch / statistics.median(times)


def ours(command, tower, batch, seconds, threads):
    given = [command, "bench", "clip_vit_base_patch32", "--tower", tower, "--batch", str(batch), "--seconds", str(seconds), "--threads", str(threads)]
    found = json.loads(subprocess.run([*given, "--tokens", "77", "--mode", "infer", "--device", "cpu", "--json"], capture_output=True, text=True, check=True).stdout)
    return found["images_per_second" if tower == "image" else "sequences_per_second"]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("command")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--folder", help="keeps the exported models here, or takes them from here")
    given = parser.parse_args()
    print("| tower, batch | ONNX Runtime /s | ours /s | ours / ONNX Runtime |\n|---|--:|--:|--:|", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or temporary
        for tower in ("image", "text"):
            path = os.path.join(folder, f"{tower}.onnx")
            peer = Peer(path if os.path.exists(path) else exported(tower, folder), tower, given.threads)
            for batch in given.batches:
                rows = [(peer.rate(batch, given.seconds), ours(given.command, tower, batch, given.seconds, given.threads)) for _ in range(given.rounds)]
                theirs, own = (statistics.median(side) for side in zip(*rows))
                print(f"| {tower}, {batch} | {theirs:.1f} | {own:.1f} | {statistics.median(b / a for a, b in rows):.2f} |", flush=True)


if __name__ == "__main__":
    main()
