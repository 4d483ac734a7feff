"""Embeddings of the `image` stream.

All have `project`, the linear map from a row's features to the hidden size (masked feature regression ties its
output to it), and replace the features of rows whose `masked` is set before projecting them. One of
patches has `normalise`, from bytes to the numbers that it projects.
"""
