"""PyTorch's side of bench_ops.py: every benchmark of crates/engine/benches/subjects, with the same inputs."""

import functools
import math
import os
import tempfile

import torch
import torch.nn.functional as F

try:
    import onnxruntime
except ImportError:
    onnxruntime = None

# The same values as in the engine's benchmark.
PARAMETER_STRIDE = 97
LEARNING_RATE = 1e-3
DROPOUT = 0.1
# Tolerances of the relative difference between the two sides. Training amplifies it: AdamW divides by √v.
LIMITS = {"f32": 1e-4, "bf16": 2e-2}
TRAINING_LIMITS = {"f32": 1e-3, "bf16": 5e-2}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}

MASK = 0xFFFFFFFF


def mix(bits: torch.Tensor) -> torch.Tensor:
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & MASK
    bits = ((bits ^ (bits >> 15)) * 0x846CA68B) & MASK
    return bits ^ (bits >> 16)


def bits_of(name: str, count: int) -> torch.Tensor:
    seed = 0x811C9DC5
    for byte in name.encode():
        seed = ((seed ^ byte) * 0x01000193) & MASK
    return mix((mix(torch.arange(count, dtype=torch.int64)) + seed) & MASK)


def spread(name: str, *shape: int) -> torch.Tensor:
    """Uniform around 0, with standard deviation 1."""
    bits = bits_of(name, math.prod(shape))
    return (((bits >> 8).float() / 16777216.0 - 0.5) * math.sqrt(12)).reshape(shape)


def labels(count: int) -> torch.Tensor:
    return bits_of("labels", count) % 10


def parameter(name: str, *shape: int) -> torch.Tensor:
    centre, width = 0.0, 0.1
    if len(shape) == 2:
        width = 1.0 / math.sqrt(shape[1])
    elif name.endswith("weight"):
        centre = 1.0
    return centre + width * spread(name, *shape)


class Differentiated:
    """An output and the gradients of all leaves, given a fixed output gradient `dy`."""

    def __init__(self, forward, leaves, limit):
        self.forward, self.limit = forward, limit
        self.leaves = [leaf.contiguous().requires_grad_() for leaf in leaves]
        y = forward(*self.leaves)
        self.dy = spread("dy", *y.shape).to(y.dtype)

    def run(self):
        self.y = self.forward(*self.leaves)
        self.gradients = torch.autograd.grad(self.y, self.leaves, self.dy)

    def results(self, _ours):
        return [self.y, *self.gradients]


class Dropped(Differentiated):
    """Random masks differ: the expected values are computed with our mask, whose dropout rate is checked."""

    def results(self, ours):
        x, dy = self.leaves[0], self.dy
        kept = (ours[: x.numel()] != 0).reshape(x.shape)
        rate = 1 - kept.float().mean().item()
        if abs(rate - DROPOUT) > 0.005:
            raise SystemExit(f"our dropout rate is {rate:.4f} instead of {DROPOUT}")
        return [kept * x / (1 - DROPOUT), kept * dy / (1 - DROPOUT)]


class Product:
    def __init__(self, rows, inputs, outputs, precision):
        self.limit = LIMITS[precision]
        self.x = spread("x", rows, inputs).to(DTYPES[precision])
        self.weight = parameter("weight", outputs, inputs).to(DTYPES[precision])

    @torch.inference_mode()
    def run(self):
        self.y = F.linear(self.x, self.weight)

    def results(self, _ours):
        return [self.y]


def linear(rows, inputs, outputs, precision):
    leaves = [spread("x", rows, inputs), parameter("weight", outputs, inputs), parameter("bias", outputs)]
    return Differentiated(F.linear, [leaf.to(DTYPES[precision]) for leaf in leaves], LIMITS[precision])


def attend(qkv, heads, dropout=0.0):
    batch, tokens, width = qkv.shape
    q, k, v = qkv.reshape(batch, tokens, 3, heads, width // (3 * heads)).permute(2, 0, 3, 1, 4).unbind(0)
    y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout)
    return y.transpose(1, 2).reshape(batch, tokens, width // 3)


def attention(batch, heads, tokens, head_dim, precision):
    qkv = spread("qkv", batch, tokens, 3 * heads * head_dim).to(DTYPES[precision])
    return Differentiated(functools.partial(attend, heads=heads), [qkv], LIMITS[precision])


def layer_norm(rows, columns, precision):
    leaves = [spread("x", rows, columns), parameter("weight", columns), parameter("bias", columns)]
    return Differentiated(lambda x, gamma, beta: F.layer_norm(x, (columns,), gamma, beta), leaves, LIMITS[precision])


def gelu(rows, columns, precision):
    return Differentiated(F.gelu, [spread("x", rows, columns).to(DTYPES[precision])], LIMITS[precision])


def dropout(rows, columns, precision):
    return Dropped(lambda x: F.dropout(x, DROPOUT), [spread("x", rows, columns)], LIMITS[precision])


def cross_entropy(rows, classes, precision):
    wanted = labels(rows)
    return Differentiated(lambda x: F.cross_entropy(x, wanted), [spread("logits", rows, classes)], LIMITS[precision])


class AdamW:
    """The update of one large parameter whose rows all have the same gradient."""

    limit = 1e-6

    def __init__(self, rows, columns, fused):
        self.parameter = parameter("parameter", rows, columns).requires_grad_()
        self.parameter.grad = spread("row", columns).expand(rows, columns).contiguous()
        self.optimizer = adamw_of([self.parameter], fused)

    def run(self):
        self.optimizer.step()

    def results(self, _ours):
        return [self.parameter.flatten()[::PARAMETER_STRIDE]]


def adamw_of(parameters, fused=True):
    return torch.optim.AdamW(parameters, lr=LEARNING_RATE, weight_decay=0.05, fused=fused)


class Vit(torch.nn.Module):
    """The Vision Transformer of crates/models, with the same parameter names and order."""

    def __init__(self, image, patch, dim, layers, heads, hidden, classes, norm_first, eps, dropout):
        super().__init__()
        self.patch, self.layers, self.heads, self.norm_first, self.eps = patch, layers, heads, norm_first, eps
        self.dropout_rate = dropout
        # Our order is that in which the graph declares parameters; samples are compared in this order.
        self.ordered = {}
        places = (image // patch) ** 2
        self.add_linear("patch_embedding", 3 * patch * patch, dim)
        if norm_first:
            self.add("positions", places + 1, dim)
            self.add("class_token", 1, dim)
        else:
            self.register_buffer("sinusoid", sinusoidal_positions(places, dim))
        for layer in range(layers):
            for norm, linears in (
                ("norm1", [("attention.qkv", dim, 3 * dim), ("attention.output", dim, dim)]),
                ("norm2", [("mlp.fc1", dim, hidden), ("mlp.fc2", hidden, dim)]),
            ):
                scope = f"blocks.{layer}"
                if norm_first:
                    self.add_norm(f"{scope}.{norm}", dim)
                for name, inputs, outputs in linears:
                    self.add_linear(f"{scope}.{name}", inputs, outputs)
                if not norm_first:
                    self.add_norm(f"{scope}.{norm}", dim)
        if norm_first:
            self.add_norm("norm", dim)
        self.add_linear("head", dim, classes)

    def add(self, name, *shape):
        value = torch.nn.Parameter(parameter(name, *shape))
        self.register_parameter(name.replace(".", "_"), value)
        self.ordered[name] = value

    def add_linear(self, name, inputs, outputs):
        self.add(f"{name}.weight", outputs, inputs)
        self.add(f"{name}.bias", outputs)

    def add_norm(self, name, dim):
        self.add(f"{name}.weight", dim)
        self.add(f"{name}.bias", dim)

    def linear(self, name, x):
        return F.linear(x, self.ordered[f"{name}.weight"], self.ordered[f"{name}.bias"])

    def norm(self, name, x):
        return F.layer_norm(x, x.shape[-1:], self.ordered[f"{name}.weight"], self.ordered[f"{name}.bias"], self.eps)

    def drop(self, x):
        return F.dropout(x, self.dropout_rate) if self.dropout_rate and self.training else x

    def attention(self, scope, x):
        rate = self.dropout_rate if self.training else 0.0
        y = attend(self.linear(f"{scope}.qkv", x), self.heads, rate)
        return self.drop(self.linear(f"{scope}.output", y))

    def mlp(self, scope, x):
        y = self.drop(F.gelu(self.linear(f"{scope}.fc1", x)))
        return self.drop(self.linear(f"{scope}.fc2", y))

    def forward(self, images):
        n, channels, height, width = images.shape
        p = self.patch
        x = images.reshape(n, channels, height // p, p, width // p, p).permute(0, 2, 4, 1, 3, 5)
        x = self.linear("patch_embedding", x.reshape(n, -1, channels * p * p))
        if self.norm_first:
            x = torch.cat([self.ordered["class_token"].to(x.dtype).expand(n, -1, -1), x], 1) + self.ordered["positions"]
        else:
            x = self.drop(x + self.sinusoid)
        for layer in range(self.layers):
            for part, norm in ((self.attention, "norm1"), (self.mlp, "norm2")):
                scope, norm = f"blocks.{layer}.{part.__name__}", f"blocks.{layer}.{norm}"
                if self.norm_first:
                    x = x + part(scope, self.norm(norm, x))
                else:
                    x = self.norm(norm, x + part(scope, x))
        pooled = self.norm("norm", x)[:, 0] if self.norm_first else x.mean(1)
        return self.linear("head", pooled)


def sinusoidal_positions(tokens, dim):
    columns = torch.arange(dim, dtype=torch.float64)
    angles = torch.arange(tokens, dtype=torch.float64)[:, None] / 10000 ** (columns // 2 * 2 / dim)
    return torch.where(columns % 2 == 0, angles.sin(), angles.cos()).float()


SMALL = dict(image=32, patch=8, dim=128, layers=6, heads=4, hidden=512, classes=10, norm_first=False, eps=1e-5)
BASE = dict(image=224, patch=16, dim=768, layers=12, heads=12, hidden=3072, classes=1000, norm_first=True, eps=1e-6)


class Training:
    """Whole training steps: forward, backward, AdamW."""

    def __init__(self, sizes, batch, dropout, precision):
        self.model = Vit(**sizes, dropout=dropout)
        self.images = spread("images", batch, 3, sizes["image"], sizes["image"])
        self.labels = labels(batch)
        self.optimizer = adamw_of(self.model.parameters())
        self.autocast = precision == "bf16"
        self.dropout = dropout
        self.limit = 0.5 if dropout else TRAINING_LIMITS[precision]

    def run(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            self.loss = F.cross_entropy(self.model(self.images), self.labels)
        self.loss.backward()
        self.optimizer.step()

    def results(self, ours):
        if self.dropout:
            # The masks differ, so only the losses are compared, roughly; the step without dropout has its own benchmark.
            return [self.loss, ours[1:]]
        samples = [parameter.flatten()[::PARAMETER_STRIDE] for parameter in self.model.ordered.values()]
        return [self.loss, torch.cat(samples)]


class Inference:
    def __init__(self, sizes, batch, autocast=False, dtype=torch.float32):
        self.model = Vit(**sizes, dropout=0.0).eval().to(dtype)
        # `to` keeps the parameter objects, so the model's own table of parameters stays valid.
        self.images = spread("images", batch, 3, sizes["image"], sizes["image"]).to(dtype)
        self.autocast = autocast
        self.limit = LIMITS["f32"] if dtype == torch.float32 and not autocast else 5e-2

    @torch.inference_mode()
    def run(self):
        with torch.autocast("cpu", torch.bfloat16, enabled=self.autocast):
            self.logits = self.model(self.images)

    def results(self, _ours):
        return [self.logits]


class OnnxRuntime:
    """The same model, exported, in ONNX Runtime with the same number of threads as PyTorch."""

    def __init__(self, sizes, batch):
        model = Vit(**sizes, dropout=0.0).eval()
        images = spread("images", batch, 3, sizes["image"], sizes["image"])
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.onnx")
            torch.onnx.export(model, (images,), path, input_names=["images"], opset_version=20, dynamo=False)
            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = torch.get_num_threads()
            self.session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self.inputs = {"images": images.numpy()}
        self.limit = LIMITS["f32"]

    def run(self):
        self.logits = self.session.run(None, self.inputs)[0]

    def results(self, _ours):
        return [torch.from_numpy(self.logits)]


def single(op, *arguments):
    return lambda: {"": op(*arguments)}


def inference(sizes, batch, precision):
    if precision == "f32":
        runtime = {"ONNX Runtime": OnnxRuntime} if onnxruntime else {}
        return lambda: {"": Inference(sizes, batch), **{name: peer(sizes, batch) for name, peer in runtime.items()}}
    return lambda: {
        "autocast": Inference(sizes, batch, autocast=True),
        "all bf16": Inference(sizes, batch, dtype=torch.bfloat16),
    }


def peers():
    found = {"adamw/84375x1024/f32": lambda: {f"fused={fused}": AdamW(84375, 1024, fused) for fused in (True, False)}}
    shapes = [
        (Product, "product", [(2048, 128, 512), (1576, 768, 3072)], ("f32", "bf16")),
        (linear, "linear", [(2048, 128, 512), (1576, 768, 3072)], ("f32", "bf16")),
        (attention, "attention", [(128, 4, 16, 32), (8, 12, 197, 64)], ("f32", "bf16")),
        (layer_norm, "layer_norm", [(2048, 128), (1576, 768)], ("f32",)),
        (gelu, "gelu", [(1576, 3072)], ("f32", "bf16")),
        (dropout, "dropout", [(1576, 768)], ("f32",)),
        (cross_entropy, "cross_entropy", [(1024, 1000)], ("f32",)),
    ]
    for op, name, sizes, precisions in shapes:
        for shape in sizes:
            for precision in precisions:
                found[f"{name}/{'x'.join(map(str, shape))}/{precision}"] = single(op, *shape, precision)
    for precision in ("f32", "bf16"):
        training = functools.partial(single, Training)
        found[f"small_vit_training/{precision}"] = training(SMALL, 128, DROPOUT, precision)
        found[f"small_vit_training_without_dropout/{precision}"] = training(SMALL, 128, 0.0, precision)
        found[f"small_vit_inference/{precision}"] = inference(SMALL, 128, precision)
        found[f"vit_b16_training/{precision}"] = training(BASE, 4, 0.0, precision)
        found[f"vit_b16_inference/{precision}"] = inference(BASE, 4, precision)
        found[f"vit_b16_single_inference/{precision}"] = inference(BASE, 1, precision)
    return found


PEERS = peers()
