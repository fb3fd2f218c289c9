"""Microseconds per image of augmentation on one thread, next to timm and torchvision in the same run.

    python scripts/bench_augment.py          (needs timm, torchvision, Pillow; builds the Rust example in release mode)
"""

import statistics
import subprocess
import time
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from timm.data import create_transform
from torchvision import transforms

torch.set_num_threads(1)
ROOT = Path(__file__).parent.parent


def picture(height, width):
    """The same waves with noise as in the Rust example."""
    y, x, c = np.mgrid[0:height, 0:width, 0:3]
    waves = 128 + 50 * (np.sin(y / 17 + c) + np.sin(x / 23))
    return Image.fromarray((waves + np.random.default_rng(0).integers(0, 16, waves.shape)).clip(0, 255).astype(np.uint8))


def micros(transform, image, calls):
    rounds = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            transform(image)
        rounds.append((time.perf_counter() - start) * 1e6 / calls)
    return statistics.median(rounds)


def resized(side, **extra):
    half = (0.5, 0.5, 0.5)
    return create_transform((3, side, side), is_training=True, mean=half, std=half, interpolation="bicubic",
                            **{"color_jitter": None, **extra})


padded = transforms.Compose([transforms.RandomCrop(32, padding=4), transforms.RandomHorizontalFlip(), transforms.ToTensor(),
                             transforms.Normalize((0.5,) * 3, (0.5,) * 3)])
# Without noise on the magnitude: when it reaches 10, timm with Pillow 13 fails with an error.
rand = "rand-m8-inc1"
small, large = picture(32, 32), picture(375, 500)
peers = {
    "32x32 padded crop, flip": (padded, small, 300),
    "32x32 resized crop, flip": (resized(32), small, 300),
    "32x32 resized crop, RandAugment": (resized(32, auto_augment=rand), small, 300),
    "500x375 to 224, resized crop, flip": (resized(224), large, 40),
    "500x375 to 224, resized crop, RandAugment": (resized(224, auto_augment=rand), large, 40),
    "500x375 to 224, resized crop, RandAugment, erasing":
        (resized(224, auto_augment=rand, re_prob=0.25, re_mode="pixel"), large, 40),
    "500x375 to 224, resized crop, 3-Augment, jitter": (resized(224, auto_augment="3a", color_jitter=0.3), large, 40),
}
subprocess.run(["cargo", "build", "-q", "--release", "-p", "vitreous-data", "--example", "augment_speed"], cwd=ROOT, check=True)
ours = subprocess.run([ROOT / "target/release/examples/augment_speed"], capture_output=True, text=True, check=True).stdout
print(f"{'ours µs':>9} {'peer µs':>9}")
for line in ours.splitlines():
    number, name = line.split(maxsplit=1)
    peer = f"{micros(*peers[name]):9.1f}" if name in peers else f"{'':9}"
    print(f"{float(number):9.1f} {peer} {name}")
