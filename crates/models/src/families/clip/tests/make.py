"""Makes the fixtures of CLIP and SigLIP: tiny models with random weights, saved by transformers and open_clip, with what these libraries
compute of images and texts, and the gradients of their contrastive losses.

    python make.py        (torch, transformers, open_clip_torch, timm, safetensors)

`pooled` is the place of the token that a text is pooled from, counted over the whole batch.
"""

import json
import pathlib
import shutil

import open_clip
import torch
import transformers as hf
from safetensors.torch import save_file

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"
ROWS = 3


def stored(tensors):
    return {name: tensor.detach().float().contiguous() for name, tensor in tensors.items()}


def shaken(model):
    """Random values everywhere: norms and biases that start at 1 and 0 would hide mistakes."""
    for name, value in model.named_parameters():
        if "logit" not in name:
            value.data += 0.1 * torch.randn_like(value)
    return model.double().eval()


def texts(vocabulary, length, end):
    """Tokens below `end`; the end at a different place in each row, and what comes after it repeats smaller tokens."""
    tokens = torch.randint(3, end, (ROWS, length))
    places = [length - 1, 2, 4][:ROWS]
    for row, place in enumerate(places):
        tokens[row, place] = end
    # The first of two ends counts.
    tokens[1, 5] = end
    return tokens, torch.tensor([row * length + place for row, place in enumerate(places)])


def expect(folder, inputs, outputs, gradients):
    save_file(stored({**inputs, **outputs}), folder / "expected.safetensors")
    save_file(stored(gradients), folder / "gradients.safetensors", metadata={"format": "pt"})


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: value.grad for name, value in model.named_parameters()}


def softmax_loss(logits):
    labels = torch.arange(len(logits))
    return (torch.nn.functional.cross_entropy(logits, labels) + torch.nn.functional.cross_entropy(logits.T, labels)) / 2


def sigmoid_loss(logits):
    signs = 2 * torch.eye(len(logits), dtype=logits.dtype) - 1
    return -torch.nn.functional.logsigmoid(signs * logits).sum(-1).mean()


def hugging_face(name, model, end=None, loss=softmax_loss):
    folder = HERE / name
    model = shaken(model)
    model.float().save_pretrained(folder)
    model.double()
    text, vision = model.config.text_config, model.config.vision_config
    images = torch.randn(ROWS, 3, vision.image_size, vision.image_size, dtype=torch.float64).float().double()
    if end is None:
        tokens, places = torch.randint(0, text.vocab_size, (ROWS, text.max_position_embeddings)), None
    else:
        tokens, places = texts(text.vocab_size, text.max_position_embeddings - 1, end)
    given = model(input_ids=tokens, pixel_values=images)
    outputs = {
        "image_embeddings": given.image_embeds,
        "text_embeddings": given.text_embeds,
        "logits": given.logits_per_image,
    }
    inputs = {"images": images, "tokens": tokens} | ({} if places is None else {"pooled": places})
    # The library's own loss is that of the paper.
    own = model(input_ids=tokens, pixel_values=images, return_loss=True).loss
    wanted = loss(given.logits_per_image)
    assert abs(own - wanted) < 1e-9, (own, wanted)
    expect(folder, inputs, outputs, gradients_of(model, wanted))


def laion(name, model, config, end=None, loss=softmax_loss):
    """A directory as open_clip pushes it to the Hub."""
    folder = HERE / name
    folder.mkdir(parents=True)
    model = shaken(model)
    (folder / "open_clip_config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(stored(model.state_dict()), folder / "open_clip_model.safetensors", metadata={"format": "pt"})
    side = config["model_cfg"]["vision_cfg"].get("image_size", 28)
    images = torch.randn(ROWS, 3, side, side).double()
    length = config["model_cfg"]["text_cfg"]["context_length"]
    vocabulary = config["model_cfg"]["text_cfg"]["vocab_size"]
    if end is None:
        tokens, places = torch.randint(0, vocabulary, (ROWS, length)), None
    else:
        tokens, places = texts(vocabulary, length, end)
    given = model(images, tokens)
    image, text, scale, *bias = given
    logits = scale * image @ text.T + (bias[0] if bias else 0)
    outputs = {"image_embeddings": image, "text_embeddings": text, "logits": logits}
    inputs = {"images": images, "tokens": tokens} | ({} if places is None else {"pooled": places})
    expect(folder, inputs, outputs, gradients_of(model, loss(logits)))


def clip(**changes):
    text = dict(vocab_size=61, hidden_size=14, intermediate_size=36, num_hidden_layers=2, num_attention_heads=2, max_position_embeddings=9,
                bos_token_id=58, eos_token_id=59, pad_token_id=1)
    vision = dict(hidden_size=18, intermediate_size=28, num_hidden_layers=3, num_attention_heads=3, image_size=21, patch_size=7)
    for key, value in changes.items():
        if key in ("eos_token_id",):
            text[key] = value
        else:
            text[key] = vision[key] = value
    return hf.CLIPModel(hf.CLIPConfig(text_config=text, vision_config=vision, projection_dim=11))


def siglip():
    text = dict(vocab_size=47, hidden_size=18, intermediate_size=26, num_hidden_layers=1, num_attention_heads=2, max_position_embeddings=7)
    vision = dict(hidden_size=18, intermediate_size=28, num_hidden_layers=2, num_attention_heads=3, image_size=20, patch_size=5)
    model = hf.SiglipModel(hf.SiglipConfig(text_config=text, vision_config=vision))
    model.logit_scale.data.fill_(1.3)
    model.logit_bias.data.fill_(-2.1)
    return model


def main():
    torch.manual_seed(23)
    shutil.rmtree(HERE, ignore_errors=True)
    HERE.mkdir()
    hugging_face("clip", clip(), end=59)
    # Before transformers 4.31 the end of a text was configured as 2, and found as the largest token.
    hugging_face("clip_legacy", clip(eos_token_id=2, hidden_act="gelu", layer_norm_eps=1e-3), end=60)
    hugging_face("siglip", siglip(), loss=sigmoid_loss)

    vision = dict(image_size=10, layers=2, width=24, patch_size=5, mlp_ratio=1.5)
    text = dict(context_length=8, vocab_size=61, width=12, heads=3, layers=2)
    config = {"model_cfg": {"embed_dim": 10, "vision_cfg": vision | {"head_width": 8}, "text_cfg": text}, "preprocess_cfg": {}}
    laion("laion", open_clip.model.CLIP(10, vision | {"head_width": 8}, text), config, end=60)

    vision = dict(timm_model_name="vit_tiny_patch16_siglip_test", image_size=20, timm_model_pretrained=False, timm_pool="map", timm_proj="none")
    text = dict(context_length=7, vocab_size=47, width=18, heads=2, layers=1, mlp_ratio=1.5, no_causal_mask=True, proj_bias=True, pool_type="last",
                norm_kwargs={"eps": 1e-6}, act_kwargs={"approximate": "tanh"})
    import timm

    @timm.models.register_model
    def vit_tiny_patch16_siglip_test(pretrained=False, **given):
        sizes = dict(img_size=20, patch_size=5, embed_dim=18, depth=2, num_heads=3, mlp_ratio=1.5, class_token=False, global_pool="map", act_layer="gelu_tanh")
        return timm.models.vision_transformer._create_vision_transformer("vit_base_patch16_siglip_224", pretrained=False, **{**sizes, **given})

    model = open_clip.model.CustomTextCLIP(18, vision, text, init_logit_scale=1.3, init_logit_bias=-2.1)
    config = {"model_cfg": {"embed_dim": 18, "init_logit_bias": -10, "custom_text": True, "vision_cfg": vision, "text_cfg": text},
              "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "resize_mode": "squash"}}
    laion("laion_siglip", model, config, loss=sigmoid_loss)

    # OpenAI's file: names as open_clip's, heads of 64, quick GELU, a feed-forward block four times as wide, and three numbers.
    vision = dict(image_size=14, layers=1, width=64, patch_size=7, head_width=64)
    text = dict(context_length=8, vocab_size=61, width=64, heads=1, layers=1)
    model = shaken(open_clip.model.CLIP(10, vision, text, quick_gelu=True))
    images = torch.randn(ROWS, 3, 14, 14).double()
    tokens, places = texts(61, 8, 60)
    folder = HERE / "openai"
    folder.mkdir()
    state = {**stored(model.state_dict()), "input_resolution": torch.tensor(14), "context_length": torch.tensor(8), "vocab_size": torch.tensor(61)}
    torch.save({name: value.half() if value.dim() > 0 else value for name, value in state.items()}, folder / "model.pt")
    half = open_clip.model.CLIP(10, vision, text, quick_gelu=True)
    half.load_state_dict({name: value.half().float() if value.dim() > 0 else value for name, value in stored(model.state_dict()).items()})
    image, words, scale = half.double().eval()(images, tokens)
    outputs = {"image_embeddings": image, "text_embeddings": words, "logits": scale * image @ words.T}
    save_file(stored({"images": images, "tokens": tokens, "pooled": places, **outputs}), folder / "expected.safetensors")


main()
