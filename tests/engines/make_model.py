#!/usr/bin/env python3
"""A Llama of two layers with random weights, and a tokenizer of 1024 made-up words: enough for an engine to
serve, and nothing from a hub. The files are written by hand where releases of transformers differ.

usage: make_model.py FOLDER
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, pre_tokenizers

VOCABULARY, HIDDEN, HEADS, INNER, LAYERS, CONTEXT = 1024, 64, 2, 128, 2, 1024


def weights():
    torch.manual_seed(0)

    def drawn(*shape):
        return (torch.randn(*shape) * 0.05).to(torch.bfloat16)

    made = {"model.embed_tokens.weight": drawn(VOCABULARY, HIDDEN), "lm_head.weight": drawn(VOCABULARY, HIDDEN)}
    ones = torch.ones(HIDDEN, dtype=torch.bfloat16)
    made["model.norm.weight"] = ones.clone()
    for layer in range(LAYERS):
        at = f"model.layers.{layer}"
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            made[f"{at}.self_attn.{name}.weight"] = drawn(HIDDEN, HIDDEN)
        for name in ("gate_proj", "up_proj"):
            made[f"{at}.mlp.{name}.weight"] = drawn(INNER, HIDDEN)
        made[f"{at}.mlp.down_proj.weight"] = drawn(HIDDEN, INNER)
        for name in ("input_layernorm", "post_attention_layernorm"):
            made[f"{at}.{name}.weight"] = ones.clone()
    return made


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights(), folder / "model.safetensors", metadata={"format": "pt"})
    tokenizer = Tokenizer(models.WordLevel({f"w{at}": at for at in range(VOCABULARY)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(folder / "tokenizer.json"))
    # The class has this name in transformers 4 and 5.
    words = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "w1", "eos_token": "w2", "unk_token": "w0"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**words, "model_max_length": CONTEXT}))
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS, "num_key_value_heads": HEADS, "head_dim": HIDDEN // HEADS,
        "hidden_act": "silu", "max_position_embeddings": CONTEXT, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "rope_scaling": None, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
        "bos_token_id": 1, "eos_token_id": 2, "initializer_range": 0.02, "use_cache": True,
        # One word of transformers 4, one of 5.
        "torch_dtype": "bfloat16", "dtype": "bfloat16",
    }
    # Last: whoever finds it finds the rest.
    (folder / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main()
