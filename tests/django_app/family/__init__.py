"""An app of models whose rows follow those of another."""
