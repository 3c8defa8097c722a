"""Pure data and rules: what the nouns are and what they may do; no I/O."""
