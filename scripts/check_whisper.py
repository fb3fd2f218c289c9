#!/usr/bin/env python3
"""Compares `vitreous transcribe` with openai-whisper: the same text and the same times of segments, to 0.02 s.

    python scripts/check_whisper.py VITREOUS MODEL.pt RECORDING.. [--minutes 10] [--words] [--keep DIR]

Each recording is transcribed alone, and then all of them over and over in one file of so many minutes. Needs openai-whisper, soundfile
and ffmpeg; both programs get the same WAV files of 16,000 samples per second.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
import soundfile
import whisper


def ours(program, model, path, words):
    command = [program, "transcribe", model, path, "--json", "--quiet", "--device", "cpu"] + (["--word-timestamps"] if words else [])
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


PEER = []


def peers(arguments, path):
    """What openai-whisper makes of a file, computed once."""
    kept = pathlib.Path(path).with_suffix(".words.json" if arguments.words else ".json")
    if kept.exists():
        return json.loads(kept.read_text())
    if not PEER:
        model = whisper.load_model(arguments.model, device="cpu")
        # A name in a path is not the name of a published model: heads for words are set as `load_model("tiny.en")` does.
        stem = pathlib.Path(arguments.model).stem
        if stem in whisper._ALIGNMENT_HEADS:
            model.set_alignment_heads(whisper._ALIGNMENT_HEADS[stem])
        PEER.append(model)
    result = PEER[0].transcribe(path, fp16=False, word_timestamps=arguments.words)
    kept.write_text(json.dumps(result))
    return result


def compare(name, theirs, found, words):
    expected = [segment for segment in theirs["segments"] if segment["text"].strip()]
    problems = []
    if theirs["text"].strip() != found["text"].strip():
        problems.append("the texts differ")
    if len(expected) != len(found["segments"]):
        problems.append(f"{len(found['segments'])} segments instead of {len(expected)}")
    worst = 0.0
    for a, b in zip(expected, found["segments"]):
        worst = max(worst, abs(a["start"] - b["start"]), abs(a["end"] - b["end"]))
        if a["text"].strip() != b["text"].strip():
            problems.append(f"{a['text']!r} != {b['text']!r}")
    if worst > 0.02 + 1e-6:
        problems.append(f"times differ by up to {worst:.2f} s")
    of_words = 0.0
    if words:
        a = [word for segment in expected for word in segment["words"]]
        b = [word for segment in found["segments"] for word in segment["words"]]
        if [word["word"] for word in a] != [word["word"] for word in b]:
            problems.append("the words differ")
        of_words = max((max(abs(x["start"] - y["start"]), abs(x["end"] - y["end"])) for x, y in zip(a, b)), default=0.0)
    print(f"{name}: {len(expected)} segments, times to {worst:.3f} s" + (f", words to {of_words:.3f} s" if words else "")
          + (": " + "; ".join(problems[:5]) if problems else ": the same"))
    return not problems


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("recordings", nargs="+")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--words", action="store_true")
    parser.add_argument("--keep", help="a folder for the WAV files and the peer's results, which are computed once")
    parser.add_argument("--peer-only", action="store_true", help="only compute the peer's results")
    arguments = parser.parse_args()
    good = True
    with tempfile.TemporaryDirectory() as folder:
        folder = arguments.keep or folder
        pathlib.Path(folder).mkdir(exist_ok=True)
        clips, names = [], []
        for number, recording in enumerate(arguments.recordings):
            clips.append(whisper.load_audio(recording))
            names.append((pathlib.Path(recording).name, f"{folder}/{number}.wav", clips[-1]))
        if arguments.minutes > 0:
            pause = np.zeros(8000, dtype=np.float32)
            once = np.concatenate([part for clip in clips for part in (clip, pause)])
            length = int(arguments.minutes * 60 * 16000)
            whole = np.tile(once, int(np.ceil(length / len(once))))[:length]
            names.append((f"{arguments.minutes:g} minutes", f"{folder}/long.wav", whole))
        for name, path, samples in names:
            soundfile.write(path, samples, 16000, subtype="PCM_16")
            theirs = peers(arguments, path)
            if not arguments.peer_only:
                good &= compare(name, theirs, ours(arguments.program, arguments.model, path, arguments.words), arguments.words)
    sys.exit(0 if good else 1)


main()
