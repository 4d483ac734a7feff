"""The page of `workbench serve`: what runs can do, tried in a browser."""
