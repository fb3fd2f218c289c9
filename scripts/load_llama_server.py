#!/usr/bin/env python3
"""llama.cpp's server, for scripts/load to measure beside ours: load_llama_server.py MODEL.gguf PORT [SLOTS] [CONTEXT] [THREADS]

Needs `pip install xllamacpp`. Runs until its standard input is closed.
"""

import sys

import xllamacpp

model, port, slots, context, threads = sys.argv[1], *map(int, (sys.argv[2:] + ["8", "1024", "2"][len(sys.argv) - 3:]))
params = xllamacpp.CommonParams()
params.model.path, params.hostnames, params.port = model, ["127.0.0.1"], port
params.n_parallel, params.n_ctx, params.n_batch, params.n_ubatch = slots, slots * context, 512, 512
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
