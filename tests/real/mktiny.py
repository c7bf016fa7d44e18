"""A Llama of 2.6 million random weights and its tokenizer, made on the spot: no model has to be fetched."""

from __future__ import annotations

import sys

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

WORDS = ["the quick brown fox jumps over the lazy dog. hello world, this is a tiny test model."] * 50
TEMPLATE = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}assistant:"


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<unk>", "<s>", "</s>"]
    trainer = trainers.BpeTrainer(vocab_size=512, special_tokens=special, initial_alphabet=alphabet)
    made.train_from_iterator(WORDS, trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>", bos_token="<s>", eos_token="</s>")
    fast.chat_template = TEMPLATE
    return fast


def config() -> LlamaConfig:
    return LlamaConfig(
        vocab_size=512, hidden_size=256, intermediate_size=512, num_hidden_layers=4, num_attention_heads=8,
        num_key_value_heads=4, max_position_embeddings=2048, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip


if __name__ == "__main__":
    torch.manual_seed(0)
    tokenizer().save_pretrained(sys.argv[1])
    LlamaForCausalLM(config()).to(torch.bfloat16).save_pretrained(sys.argv[1])
