"""The ranks of a run as a mesh: copies of the model, the parts of each copy, and the ranks that compute together."""

from __future__ import annotations

import os

from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from workbench.core.errors import WorkbenchError
from workbench.core.processes.distributed import World
from workbench.recipe.train_spec import ParallelSpec


def parts_of(spec: ParallelSpec, world: World) -> int:
    """The number of parts that a model is divided into, besides tensor parallelism.

    Raises:
        WorkbenchError: nodes with different numbers of ranks, or whole models on ranks of several processes.
    """
    if spec.shard == "none":
        if spec.tensor > 1 and world.size > 1:
            raise WorkbenchError(
                f"train.parallel: shard = none, but {world.size * spec.tensor} processes make {world.size} groups of "
                f"tensor = {spec.tensor}; set train.parallel.shard=full or node"
            )
        return 1
    on_node = int(os.environ.get("LOCAL_WORLD_SIZE", world.devices)) // spec.tensor
    parts = world.size if spec.shard == "full" else max(1, on_node)
    if world.size % parts:
        raise WorkbenchError(
            f"train.parallel.shard = node, but {world.size} ranks are no multiple of the {parts} on this node; start "
            "equally many ranks on every node, or set train.parallel.shard=full"
        )
    return parts


def mesh_of(spec: ParallelSpec, world: World) -> DeviceMesh:
    """The processes as a mesh of (replicate, shard, tensor). `replicate` is there where each node has a copy of the
    model, `tensor` where several processes compute together. Every rank takes part.

    Raises:
        WorkbenchError: see `parts_of`.
    """
    parts = parts_of(spec, world)
    everyone = world.gather(parts)
    if len(set(everyone)) > 1:
        found = ", ".join(f"{everyone.count(size) // size} x {size}" for size in sorted(set(everyone)))
        raise WorkbenchError(
            f"train.parallel.shard = node, but nodes have different numbers of ranks ({found}); start equally many "
            "ranks on every node, or set train.parallel.shard=full"
        )
    sizes = {"replicate": world.size // parts, "shard": parts, "tensor": spec.tensor}
    named = {name: size for name, size in sizes.items() if size > 1 or name == "shard"}
    return init_device_mesh(world.device.type, tuple(named.values()), mesh_dim_names=tuple(named))


def data_mesh(mesh: DeviceMesh) -> DeviceMesh:
    """The mesh without tensor parallelism."""
    names = mesh.mesh_dim_names or ()
    return mesh[tuple(name for name in names if name != "tensor")] if "tensor" in names else mesh
