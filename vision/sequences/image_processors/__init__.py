"""Image processors: how a sample's image becomes the rows of the `image` stream. They run in the loader's workers.

    patches   the image cut into squares (ViT, ViLT, CLIP)    patches [n, 3 * patch * patch] uint8, boxes [n, 4]
    pixels    the whole image for a backbone in the model     pixels [1, 3, size, size] uint8, boxes [grid^2, 4]
    regions   stored features (UNITER, LXMERT, ViLBERT)       features [n, d], boxes [n, 4]

Each is called as `image(sample, rng)`; `rng` None means no augmentation.
"""
