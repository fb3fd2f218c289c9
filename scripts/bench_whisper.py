#!/usr/bin/env python3
"""Speed of `vitreous transcribe` beside openai-whisper, faster-whisper and whisper.cpp, in turns, as a table of Markdown.

    python scripts/bench_whisper.py VITREOUS MODEL.pt RECORDING [--ct2 DIR] [--ggml FILE] [--rounds 3] [--threads 2]

Each program transcribes the recording greedily, without temperatures above 0, with timestamps; models are opened before the clock
starts, but for ours, whose own time is what it prints. A peer without its model is left out: DIR is a model that CTranslate2's
`ct2-transformers-converter` wrote, FILE one of whisper.cpp's. The figure is seconds of audio per second, the median of all rounds.
"""

import argparse
import json
import re
import statistics
import subprocess
import time

import soundfile


def ours(arguments, precision):
    def run():
        command = [arguments.program, "transcribe", arguments.model, arguments.recording, "--format", "txt", "--temperature", "0",
                   "--device", "cpu", "--threads", str(arguments.threads), "--precision", precision]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return float(re.search(r"([\d.]+) times real time", done.stderr).group(1))
    return run


def peer(transcribe, seconds):
    def run():
        start = time.perf_counter()
        transcribe()
        return seconds / (time.perf_counter() - start)
    return run


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("recording")
    parser.add_argument("--ct2")
    parser.add_argument("--ggml")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    seconds = soundfile.info(arguments.recording).duration
    programs = {"Vitreous, f32": ours(arguments, "f32"), "Vitreous, bf16": ours(arguments, "bf16")}
    import torch
    import whisper
    torch.set_num_threads(arguments.threads)
    model = whisper.load_model(arguments.model, device="cpu")
    programs["openai-whisper, f32"] = peer(lambda: model.transcribe(arguments.recording, fp16=False, temperature=0.0), seconds)
    if arguments.ct2:
        from faster_whisper import WhisperModel
        for kind in ("float32", "int8"):
            fast = WhisperModel(arguments.ct2, device="cpu", compute_type=kind, cpu_threads=arguments.threads)
            run = lambda fast=fast: list(fast.transcribe(arguments.recording, beam_size=1, temperature=0.0, language="en")[0])
            programs[f"faster-whisper, {kind}"] = peer(run, seconds)
    if arguments.ggml:
        from pywhispercpp.model import Model
        cpp = Model(arguments.ggml, n_threads=arguments.threads, print_progress=False, print_realtime=False)
        # Its own fallback is an increment of the temperature.
        alone = {"temperature": 0.0, "temperature_inc": 0.0, "greedy": {"best_of": 1}}
        programs["whisper.cpp"] = peer(lambda: cpp.transcribe(arguments.recording, **alone), seconds)
    speeds = {name: [] for name in programs}
    for _ in range(arguments.rounds):
        for name, run in programs.items():
            speeds[name].append(run())
    base = statistics.median(speeds["Vitreous, f32"])
    print("| program | times real time | Vitreous f32 against it |\n|---|---|---|")
    for name, values in speeds.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.1f} | {base / median:.2f} |")
    print(json.dumps(speeds))


main()
