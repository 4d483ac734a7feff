"""Captioning: BLEU and CIDEr-D of what a run says of images, beside several references."""
