"""Which entities a linker finds in a text: of given mentions, and with finding the mentions."""
