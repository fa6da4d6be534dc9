"""The nouns and rules of OpenDataFlow: pure values and decisions, no I/O, no clock, no third party."""
