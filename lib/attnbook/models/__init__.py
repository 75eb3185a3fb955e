"""Models: recurrent encoder-decoders, Transformers, and small models."""
