"""A model divided over ranks: units of FSDP2, cut layers, rows of tables, shards of optimizers, checked collectives."""
