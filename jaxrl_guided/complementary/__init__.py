"""Complementary RL (arXiv 2603.17621): an actor and an extractor of experience evolve together."""
