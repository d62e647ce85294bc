"""Arguments and options that several commands take."""

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print the result alone, as JSON, on stdout.")]

DatasetName = Annotated[
    str, typer.Argument(metavar="FILE:/DATASET", help="A dataset, for example run.h5:/entry/cube.")
]

OptionalName = Annotated[
    str | None,
    typer.Argument(metavar="FILE[:/DATASET]", help="Only this file, or this dataset of it."),
]
