"""Tiny networks that read text, with random weights, saved in the forms of their own libraries."""

from __future__ import annotations

import json
from pathlib import Path

WORDS = ["a", "the", "of", "with", "and", "photo", "zebra", "horse", "lion", "stripes", "hooves", "big", "small"]


def open_clip_folder(folder: Path, seed: int = 0) -> Path:
    """An open_clip model in the layout of a hub; its tokenizer is open_clip's own."""
    import open_clip
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    config = {
        "embed_dim": 8,
        "vision_cfg": {"image_size": 32, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16},
        "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
    }
    folder.mkdir(parents=True, exist_ok=True)
    about = {"model_cfg": config, "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3}}
    (folder / "open_clip_config.json").write_text(json.dumps(about))
    save_file(open_clip.CLIP(**config).state_dict(), folder / "open_clip_model.safetensors")
    return folder


def word_tokenizer(longest: int = 12):
    """A tokenizer of whole words, which every library loads from ``tokenizer.json``."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    vocabulary = {word: i for i, word in enumerate([*special, *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        eos_token="[SEP]", model_max_length=longest, model_input_names=["input_ids", "attention_mask"],
    )  # fmt: skip


def transformers_folder(folder: Path, kind: str, seed: int = 0) -> Path:
    """A ``clip``, ``siglip``, ``bert``, ``t5`` or ``dinov2`` of transformers with a tokenizer of its words."""
    import torch
    import transformers as t

    torch.manual_seed(seed)
    small = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**small, "vocab_size": 4 + len(WORDS), "max_position_embeddings": 12}
    vision = {**small, "image_size": 32, "patch_size": 16}
    ends = {"eos_token_id": 3, "bos_token_id": 2, "pad_token_id": 0}
    if kind == "clip":
        model = t.CLIPModel(t.CLIPConfig(text_config={**text, **ends}, vision_config=vision, projection_dim=8))
    elif kind == "siglip":
        model = t.SiglipModel(t.SiglipConfig(text_config={**text, **ends}, vision_config=vision))
    elif kind == "bert":
        model = t.BertModel(t.BertConfig(**text))
    elif kind == "t5":
        model = t.T5Model(t.T5Config(vocab_size=4 + len(WORDS), d_model=16, d_kv=8, d_ff=16, num_layers=1, num_heads=2))
    else:
        model = t.Dinov2Model(t.Dinov2Config(**vision))
    model.eval().save_pretrained(folder)
    if kind != "dinov2":
        word_tokenizer().save_pretrained(folder)
    return folder


def sentence_transformer_folder(folder: Path, seed: int = 0) -> Path:
    """A model of sentence-transformers: a tiny BERT, the mean of its tokens, a dense layer."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.models import Dense, Pooling, Transformer

    bert = transformers_folder(folder / "bert", "bert", seed)
    torch.manual_seed(seed)
    parts = [Transformer(str(bert)), Pooling(16), Dense(16, 6)]
    SentenceTransformer(modules=parts, device="cpu").save(str(folder / "model"))
    return folder / "model"
