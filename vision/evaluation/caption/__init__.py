"""Captioning: BLEU and CIDEr-D of what a run says of images or films, beside several references."""
