"""Language-model backbones: one decoder, LoRA, loaders, tokenizers, sentence vectors."""
