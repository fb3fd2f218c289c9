"""Writes pairs of images and captions from a data set with classes: PNG files, train.csv and validation.csv with the columns image, caption
and label, for `vitreous train clip --data OUT`. Also the same images as a folder per class, by links, for `vitreous train --data OUT/classes`.

    python scripts/make_pairs.py DATA OUT [--images N] [--validation N]        (numpy, pillow)

DATA is a folder with CIFAR-10's binary files (data_batch_1.bin .., test_batch.bin, batches.meta.txt).
"""

import argparse
import csv
import pathlib

import numpy
from PIL import Image

PHRASES = ["a photo of a {}", "a picture of a {}", "a small image of one {}", "this is a {}", "there is a {} in the picture", "a blurry photo of the {}"]


def rows(path):
    data = numpy.fromfile(path, numpy.uint8).reshape(-1, 3073)
    return data[:, 0], data[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)


def write(out, split, labels, images, names):
    folder = out / "images" / split
    folder.mkdir(parents=True, exist_ok=True)
    with open(out / f"{split}.csv", "w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["image", "caption", "label"])
        for index, (label, image) in enumerate(zip(labels, images)):
            path = folder / f"{index:05}.png"
            Image.fromarray(image).save(path)
            # A phrase for each image, none of them tied to a class.
            caption = PHRASES[index % len(PHRASES)].format(names[label])
            table.writerow([path.relative_to(out), caption, names[label]])
            of_class = out / "classes" / split / names[label]
            of_class.mkdir(parents=True, exist_ok=True)
            link = of_class / path.name
            if not link.exists():
                link.hardlink_to(path)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--images", type=int, default=50_000)
    parser.add_argument("--validation", type=int, default=10_000)
    given = parser.parse_args()
    names = (given.data / "batches.meta.txt").read_text().split()
    parts = [rows(given.data / f"data_batch_{number}.bin") for number in range(1, 6)]
    labels, images = (numpy.concatenate(part) for part in zip(*parts))
    write(given.out, "train", labels[: given.images], images[: given.images], names)
    labels, images = rows(given.data / "test_batch.bin")
    write(given.out, "validation", labels[: given.validation], images[: given.validation], names)


if __name__ == "__main__":
    main()
