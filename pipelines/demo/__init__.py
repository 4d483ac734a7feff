"""Small real inputs for the demo, made from packages on the Python index: a world graph, scenes, easy-VQA."""
