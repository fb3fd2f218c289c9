"""Makes the fixtures of Whisper: tiny models with random weights, saved by transformers and by openai-whisper, with their outputs.

    python make.py        (torch, transformers, safetensors, openai-whisper)
"""

import dataclasses
import pathlib
import shutil

import torch
import transformers as hf
from safetensors.torch import save_file
from whisper.model import ModelDimensions, Whisper

HERE = pathlib.Path(__file__).resolve().parent / "fixtures"
SIZES = dict(vocab_size=31, num_mel_bins=7, d_model=12, encoder_layers=2, decoder_layers=3, encoder_attention_heads=3,
             decoder_attention_heads=2, encoder_ffn_dim=20, decoder_ffn_dim=17, max_source_positions=9, max_target_positions=13,
             pad_token_id=3, bos_token_id=3, eos_token_id=3, decoder_start_token_id=4, suppress_tokens=None,
             begin_suppress_tokens=None)


def disturb(model):
    model.eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn_like(parameter)


def save(name, model):
    target_path = HERE / name
    shutil.rmtree(target_path, ignore_errors=True)
    disturb(model)
    model.save_pretrained(target_path)
    (target_path / "generation_config.json").unlink(missing_ok=True)
    config = model.config
    mel = torch.randn(3, config.num_mel_bins, 2 * config.max_source_positions)
    target = torch.randint(0, config.vocab_size, (3, 5))
    with torch.no_grad():
        result = model(input_features=mel, decoder_input_ids=target)
    save_file({"mel": mel.transpose(1, 2).contiguous(), "target": target.float(),
               "memory": result.encoder_last_hidden_state.contiguous(), "logits": result.logits.contiguous()},
              target_path / "expected.safetensors")
    return mel, target


def gradients(name, model, mel, target):
    labels = torch.randint(0, model.config.vocab_size, target.shape)
    model.zero_grad()
    logits = model(input_features=mel, decoder_input_ids=target).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    loss.backward()
    path = HERE / f"{name}_gradients"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    found = {key: p.grad.contiguous() if p.grad is not None else torch.zeros_like(p) for key, p in model.named_parameters()}
    save_file(found, path / "model.safetensors", metadata={"format": "pt"})
    shutil.copy(HERE / name / "config.json", path / "config.json")
    save_file({"mel": mel.transpose(1, 2).contiguous(), "target": target.float(), "targets": labels.flatten().float(),
               "loss": loss.detach().reshape(1)}, path / "expected.safetensors")


def openai():
    """As OpenAI's files are: half precision, no configuration."""
    path = HERE / "openai"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir(parents=True)
    dims = ModelDimensions(n_mels=5, n_audio_ctx=6, n_audio_state=64, n_audio_head=1, n_audio_layer=1, n_vocab=29, n_text_ctx=8,
                           n_text_state=64, n_text_head=1, n_text_layer=2)
    model = Whisper(dims)
    disturb(model)
    with torch.no_grad():
        model.decoder.positional_embedding.copy_(0.1 * torch.randn_like(model.decoder.positional_embedding))
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(tensor.half().float())
    torch.save({"dims": dataclasses.asdict(dims), "model_state_dict": {k: v.half() for k, v in model.state_dict().items()}},
               path / "model.pt")
    mel, target = torch.randn(2, 5, 12), torch.randint(0, 29, (2, 4))
    with torch.no_grad():
        memory = model.encoder(mel)
        logits = model.decoder(target, memory)
    save_file({"mel": mel.transpose(1, 2).contiguous(), "target": target.float(), "memory": memory.contiguous(),
               "logits": logits.contiguous()}, path / "expected.safetensors")


def main():
    torch.manual_seed(11)
    model = hf.WhisperForConditionalGeneration(hf.WhisperConfig(**SIZES))
    mel, target = save("model", model)
    gradients("model", model, mel, target)
    # transformers has a setting for scaled embeddings, and scales none.
    scaled = {**SIZES, "scale_embedding": True, "activation_function": "relu", "d_model": 16, "num_mel_bins": 4,
              "encoder_attention_heads": 2, "decoder_attention_heads": 4, "encoder_layers": 1}
    save("scaled", hf.WhisperForConditionalGeneration(hf.WhisperConfig(**scaled)))
    openai()


main()
