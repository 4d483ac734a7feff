"""The supersense of hidden words: whether it is one that the word may have, beside the commonest."""
