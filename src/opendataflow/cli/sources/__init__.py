"""Sources: tested, sampled, bound."""
