"""Small real inputs for the demo, built from packages of the Python index: a world graph, scenes, easy-VQA."""
