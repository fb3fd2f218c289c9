"""Speed of PyTorch training and inference of plain ViTs on a GPU: the peer of `vitreous bench --device cuda:0`.

    python scripts/bench_gpu.py vit_base_patch16_224 256 train

The model is timm's plain ViT written out (pre-norm, class token, learned positions, erf GELU), or the small ViT
`vit_cifar`. Training uses bf16 autocast, fused AdamW, clipping at 1 and `torch.compile`. Inference: `infer` has weights
and activations in bf16 and, for batch 1, max-autotune with CUDA graphs; `autocast` has f32 weights and autocast, as in
training. Prints one JSON object with the median of 30 runs after a warm-up. With the extra argument `warm` it only
compiles, so that the next call finds the compiled model in the cache.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {  # image, patch, dim, depth, heads, mlp
    "vit_small_patch16_224": (224, 16, 384, 12, 6, 1536),
    "vit_base_patch16_224": (224, 16, 768, 12, 12, 3072),
    "vit_large_patch16_224": (224, 16, 1024, 24, 16, 4096),
    "vit_cifar": (32, 8, 128, 6, 4, 512),
}


class Block(nn.Module):
    def __init__(self, dim, heads, mlp, post, dropout):
        super().__init__()
        self.heads, self.post, self.dropout = heads, post, dropout
        self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.fc1, self.fc2 = nn.Linear(dim, mlp), nn.Linear(mlp, dim)

    def attend(self, x):
        batch, tokens, dim = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.heads, dim // self.heads).permute(2, 0, 3, 1, 4)
        q, k, v = qkv.unbind(0)
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=self.dropout if self.training else 0.0)
        return self.proj(y.transpose(1, 2).reshape(batch, tokens, dim))

    def mlp(self, x):
        x = F.dropout(F.gelu(self.fc1(x)), self.dropout, self.training)
        return self.fc2(x)

    def forward(self, x):
        if self.post:
            x = self.norm1(x + F.dropout(self.attend(x), self.dropout, self.training))
            return self.norm2(x + F.dropout(self.mlp(x), self.dropout, self.training))
        x = x + self.attend(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    def __init__(self, name):
        super().__init__()
        image, patch, dim, depth, heads, mlp = SIZES[name]
        self.small = name == "vit_cifar"
        tokens = (image // patch) ** 2
        self.patch = nn.Conv2d(3, dim, patch, patch)
        if self.small:
            place = torch.arange(tokens)[:, None] / 10000 ** (torch.arange(0, dim, 2) / dim)
            self.register_buffer("positions", torch.stack([place.sin(), place.cos()], -1).reshape(1, tokens, dim))
        else:
            self.cls = nn.Parameter(torch.zeros(1, 1, dim))
            self.positions = nn.Parameter(torch.randn(1, tokens + 1, dim) * 0.02)
            self.norm = nn.LayerNorm(dim, eps=1e-6)
        dropout = 0.1 if self.small else 0.0
        self.blocks = nn.ModuleList(Block(dim, heads, mlp, self.small, dropout) for _ in range(depth))
        self.head = nn.Linear(dim, 10 if self.small else 1000)

    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        if self.small:
            x = F.dropout(x + self.positions, 0.1, self.training)
        else:
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean(1) if self.small else self.norm(x)[:, 0])


def median(run, count=30):
    for _ in range(8):
        run()
    torch.cuda.synchronize()
    times = []
    for _ in range(count):
        start = time.perf_counter()
        run()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main():
    name, batch, mode = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    size, classes = SIZES[name][0], 10 if name == "vit_cifar" else 1000
    model = ViT(name).cuda()
    images = torch.rand(batch, 3, size, size, device="cuda") * 2 - 1
    labels = torch.randint(classes, (batch,), device="cuda")
    if mode == "train":
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, weight_decay=0.05, fused=True)
        compiled = torch.compile(model)

        def run():
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(compiled(images), labels)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
    elif mode == "autocast":
        compiled = torch.compile(model.eval())

        def run():
            with torch.inference_mode(), torch.autocast("cuda", torch.bfloat16):
                compiled(images)
    else:
        model = model.eval().to(torch.bfloat16)
        images = images.to(torch.bfloat16)
        compiled = torch.compile(model, mode="max-autotune" if batch <= 8 else None)

        def run():
            with torch.inference_mode():
                compiled(images)

    if "warm" in sys.argv:
        return run()
    seconds = median(run, 200 if batch <= 8 else 30)
    print(json.dumps({"model": name, "batch": batch, "mode": mode, "median_ms": 1e3 * seconds,
                      "images_per_second": batch / seconds, "torch": torch.__version__}), flush=True)


main()
