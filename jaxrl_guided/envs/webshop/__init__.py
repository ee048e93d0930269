"""A shop on the web in text, by WebShop's rules: a catalogue of our own, or its own files."""
