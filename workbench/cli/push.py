"""The command `workbench push`. Its inputs are checked before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from pydantic import StringConstraints
from rich.markup import escape

from workbench.core.errors import MachineError, WorkbenchError
from workbench.core.options.bounds import Means, Title
from workbench.core.packages import library
from workbench.core.terminal import Terminal
from workbench.interop.checkpoint_files import CONFIG, EXPORTED, WEIGHTS
from workbench.interop.model_card import CARD

HubName = Annotated[
    str,
    StringConstraints(pattern=r"^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$"),
    Means("OWNER/NAME, of letters, digits, '-', '_' and '.'"),
]


def push(
    folder: Annotated[Path, typer.Argument(help="The folder of `workbench export`.")],
    name: Annotated[HubName, typer.Argument(metavar="OWNER/NAME", help="The repository, which is made if needed.")],
    private: Annotated[bool, typer.Option("--private", help="A new repository is seen by its owner alone.")] = False,
    message: Annotated[Title, typer.Option(help="The message of the commit.")] = "Upload of an exported model",
) -> None:
    """Upload an exported folder to the Hugging Face hub, with its card.

    Only the files that `export` writes are sent. You are known by `hf auth login`, or by the variable HF_TOKEN. Read
    the card (README.md) before you publish: it has what the run knows of its data, and no licence of your own.

    Example:

      workbench export runs/sst2 --as bert --output exported/sst2

      workbench push exported/sst2 somebody/bert-sst2 --private
    """
    missing = [each for each in (CONFIG, WEIGHTS, CARD) if not (folder / each).is_file()]
    if missing:
        raise WorkbenchError(
            f"{folder} has no {', '.join(missing)}; a folder of `workbench export` is uploaded, which has these"
        )
    hub = library("huggingface_hub", "hub", "uploads")
    try:
        url = hub.HfApi().create_repo(name, private=private, exist_ok=True)
        if private and not hub.HfApi().repo_info(name).private:  # one that was there keeps what it is
            raise WorkbenchError(f"{name} is there and is public; make it private on the hub, or leave out --private")
        hub.HfApi().upload_folder(
            repo_id=name, folder_path=folder, allow_patterns=[*EXPORTED, CARD, "1_*/*", "2_*/*"], commit_message=message
        )
    except hub.errors.LocalTokenNotFoundError as error:
        raise WorkbenchError("nobody is logged in; run `hf auth login`, or set HF_TOKEN") from error
    except hub.errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403):
            raise WorkbenchError(
                f"the hub refuses {name} ({status}); log in as somebody who may write there"
            ) from error
        raise MachineError(f"the hub did not take {name}: {error}; try again later") from error
    except Exception as error:
        if not isinstance(error, OSError) and "httpx" not in type(error).__module__:  # its client's own errors
            raise
        raise MachineError(f"the hub cannot be reached: {error}; try again later") from error
    Terminal().print(f"{escape(str(folder))}: uploaded to {escape(str(url))}", highlight=False)
