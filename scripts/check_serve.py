#!/usr/bin/env python3
"""Checks a server with the clients that people have: the `openai` package and `tritonclient`.

    pip install openai 'tritonclient[http]' numpy
    python scripts/check_serve.py --vitreous target/release/vitreous --language SmolLM2 --embed MiniLM --images VIT --picture photo.jpg

Starts `vitreous serve` with the models that are given, asks it by the clients, and compares the answers with those of the
commands (`generate`, `chat`, `embed`, `predict`, `transcribe`). A model that is not given is left out.
"""

import argparse
import json
import os
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
import zlib


def command(binary, *arguments, stdin=None):
    run = subprocess.run([binary, *arguments, "--device", "cpu", "-q"], input=stdin, capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: {run.stderr}")
    return run.stdout


def check(what, ours, theirs):
    if ours != theirs:
        sys.exit(f"FAILED {what}: {ours!r} is not {theirs!r}")
    print(f"ok  {what}")


def check_close(what, ours, theirs, limit):
    difference = max(abs(a - b) for a, b in zip(ours, theirs, strict=True))
    if difference > limit:
        sys.exit(f"FAILED {what}: the largest difference is {difference}")
    print(f"ok  {what} (largest difference {difference:.1e})")


def start(options, models):
    server = subprocess.Popen(
        [options.vitreous, "serve", *models, "--port", str(options.port), "--device", "cpu", "-q"]
    )
    for _ in range(600):
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{options.port}/v2/health/ready")
            return server
        except OSError:
            if server.poll() is not None:
                sys.exit("the server did not start")
            time.sleep(0.1)
    sys.exit("the server was not ready within a minute")


def check_language(client, options):
    import openai

    prompts = ["Once upon a time", "The capital of France is", "x = 1\n"]
    for prompt in prompts:
        lines = command(options.vitreous, "generate", options.language, prompt, "--max-tokens", "24", "--json")
        theirs = json.loads(lines)["text"]
        answer = client.completions.create(model="language", prompt=prompt, max_tokens=24, temperature=0)
        check(f"completion of {prompt!r}", answer.choices[0].text, theirs)
        pieces = client.completions.create(model="language", prompt=prompt, max_tokens=24, temperature=0, stream=True)
        check(f"stream of {prompt!r}", "".join(piece.choices[0].text for piece in pieces), theirs)
    all_at_once = client.completions.create(model="language", prompt=prompts, max_tokens=24, temperature=0)
    singles = [client.completions.create(model="language", prompt=p, max_tokens=24, temperature=0) for p in prompts]
    check("several prompts", [c.text for c in all_at_once.choices], [s.choices[0].text for s in singles])
    sampled = json.loads(
        command(options.vitreous, "generate", options.language, prompts[0], "--max-tokens", "16", "--json",
                "--temperature", "0.8", "--top-p", "0.9", "--seed", "7")
    )["text"]
    answer = client.completions.create(
        model="language", prompt=prompts[0], max_tokens=16, temperature=0.8, top_p=0.9, seed=7)
    check("sampling with a seed", answer.choices[0].text, sampled)
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer"}},
              "required": ["name", "age"], "additionalProperties": False}
    answer = client.chat.completions.create(
        model="language", messages=[{"role": "user", "content": "A person, please."}], max_tokens=60, temperature=0,
        response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema}})
    person = json.loads(answer.choices[0].message.content)
    check("a JSON schema", sorted(person), ["age", "name"])
    theirs = command(options.vitreous, "chat", options.language, "--temperature", "0", "--max-tokens", "24",
                     stdin="Say hello.\n").removesuffix("\n")
    messages = [{"role": "user", "content": "Say hello."}]
    answer = client.chat.completions.create(model="language", messages=messages, max_tokens=24, temperature=0, logprobs=True)
    check("chat", answer.choices[0].message.content, theirs)
    check("tokens and logprobs", len(answer.choices[0].logprobs.content), answer.usage.completion_tokens)
    with client.chat.completions.create(model="language", messages=messages, max_tokens=24, temperature=0, stream=True,
                                        stream_options={"include_usage": True}) as stream:
        events = list(stream)
    text = "".join(e.choices[0].delta.content or "" for e in events if e.choices)
    check("chat in pieces", text, theirs)
    check("usage of a stream", events[-1].usage.completion_tokens, answer.usage.completion_tokens)
    try:
        client.completions.create(model="nobody", prompt="a")
        sys.exit("FAILED: a model that is not there")
    except openai.NotFoundError as error:
        check("a model that is not there", error.code, "model_not_found")
    try:
        client.completions.create(model="language", prompt="a", temperature=-1)
        sys.exit("FAILED: a wrong temperature")
    except openai.BadRequestError as error:
        check("a wrong temperature", error.status_code, 400)


def check_embeddings(client, options, triton):
    import numpy as np
    import tritonclient.http as http

    texts = ["A man is eating.", "Someone has a meal.", "The weather is lovely."]
    lines = command(options.vitreous, "embed", options.embed, *texts, "--json").splitlines()
    theirs = [json.loads(line)["embedding"] for line in lines]
    # The package asks for base64.
    answer = client.embeddings.create(model="embed", input=texts)
    for ours, expected in zip(answer.data, theirs, strict=True):
        check_close("embedding", ours.embedding, expected, 2e-6)
    answer = client.embeddings.create(model="embed", input=texts[0], encoding_format="float")
    check_close("embedding as numbers", answer.data[0].embedding, theirs[0], 2e-6)
    for binary in [False, True]:
        tensor = http.InferInput("text", [3], "BYTES")
        tensor.set_data_from_numpy(np.array([t.encode() for t in texts], dtype=object), binary_data=binary)
        output = http.InferRequestedOutput("embedding", binary_data=binary)
        found = triton.infer("embed", [tensor], outputs=[output]).as_numpy("embedding")
        check_close(f"tritonclient, texts, binary {binary}", found.ravel().tolist(), sum(theirs, []), 2e-6)


def check_images(options, triton):
    import numpy as np
    import tritonclient.http as http

    line = json.loads(command(options.vitreous, "predict", options.images, options.picture, "--json"))
    with open(options.picture, "rb") as file:
        request = urllib.request.Request(f"http://127.0.0.1:{options.port}/classify/images", data=file.read())
    answer = json.load(urllib.request.urlopen(request))
    check_close("classify", answer["logits"], line["logits"], 1e-4)
    check("the first class", answer["top"][0]["label"], line["top"][0]["label"])
    told = triton.get_model_metadata("images")
    shape = [2, *told["inputs"][0]["shape"][1:]]
    numbers = (np.arange(np.prod(shape)).reshape(shape) % 17 / 17 - 0.5).astype(np.float32)
    found = []
    for binary in [False, True]:
        tensor = http.InferInput("images", shape, "FP32")
        tensor.set_data_from_numpy(numbers, binary_data=binary)
        output = http.InferRequestedOutput("logits", binary_data=binary)
        found.append(triton.infer("images", [tensor], outputs=[output], request_id="7").as_numpy("logits"))
    check_close("tritonclient, images as JSON and as bytes", found[0].ravel().tolist(), found[1].ravel().tolist(), 1e-6)
    # A picture of one colour stays one whatever its preprocessing resizes and crops: the command's answer to the file is that to the
    # tensor.
    colours = [(200, 30, 90), (12, 180, 60)]
    mean, std = normalisation(options.images)
    values = [[(value / 255 - m) / s for value, m, s in zip(colour, mean, std)] for colour in colours]
    numbers = np.ones(shape, np.float32) * np.array(values, np.float32)[:, :, None, None]
    tensor = http.InferInput("images", shape, "FP32")
    tensor.set_data_from_numpy(numbers, binary_data=True)
    found = triton.infer("images", [tensor]).as_numpy("logits")
    with tempfile.TemporaryDirectory() as folder:
        for colour, ours in zip(colours, found, strict=True):
            path = f"{folder}/colour.png"
            with open(path, "wb") as file:
                file.write(png(colour, shape[3], shape[2]))
            line = json.loads(command(options.vitreous, "predict", options.images, path, "--json"))
            check_close(f"tritonclient, an image of {colour}", ours.tolist(), line["logits"], 1e-4)


def normalisation(path):
    """Mean and standard deviation by which a model directory's images are normalised."""
    for name, keys in [("preprocessor_config.json", ("image_mean", "image_std")), ("config.json", ("mean", "std"))]:
        try:
            with open(os.path.join(path, name)) as file:
                settings = json.load(file)
        except OSError:
            continue
        settings = settings.get("pretrained_cfg", settings)
        if all(key in settings for key in keys):
            return [settings[key] for key in keys]
    sys.exit(f"{path} does not say how images are normalised: give a directory with a preprocessor_config.json")


def png(colour, width, height):
    """A picture of one colour."""
    chunk = lambda kind, data: (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + bytes(colour) * width) * height
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vitreous", default="target/release/vitreous")
    parser.add_argument("--language", help="a language model with a chat template")
    parser.add_argument("--embed", help="a sentence-transformers directory")
    parser.add_argument("--images", help="an image classifier")
    parser.add_argument("--picture", help="an image file, for --images")
    parser.add_argument("--speech", help="a speech recogniser")
    parser.add_argument("--recording", help="a recording, for --speech")
    parser.add_argument("--port", type=int, default=18234)
    options = parser.parse_args()
    import openai
    import tritonclient.http as http

    given = {"language": options.language, "embed": options.embed, "images": options.images, "speech": options.speech}
    server = start(options, [f"{name}={path}" for name, path in given.items() if path])
    try:
        client = openai.OpenAI(base_url=f"http://127.0.0.1:{options.port}/v1", api_key="none", max_retries=0)
        triton = http.InferenceServerClient(f"127.0.0.1:{options.port}")
        check("tritonclient: live and ready", (triton.is_server_live(), triton.is_server_ready()), (True, True))
        names = [model.id for model in client.models.list()]
        check("models", names, [name for name, path in given.items() if path])
        check("tritonclient: index", [m["name"] for m in triton.get_model_repository_index()], names)
        if options.language:
            check_language(client, options)
        if options.embed:
            check_embeddings(client, options, triton)
        if options.images:
            check_images(options, triton)
        if options.speech:
            with open(options.recording, "rb") as file:
                answer = client.audio.transcriptions.create(model="speech", file=file)
            # The text as one line: the command's plain output has a line per segment.
            theirs = json.loads(command(options.vitreous, "transcribe", options.speech, options.recording, "--json"))
            check("transcription", answer.text.strip(), theirs["text"].strip())
    finally:
        server.terminate()
        code = server.wait(60)
    check("the exit code after SIGTERM", code, 0)


if __name__ == "__main__":
    main()
