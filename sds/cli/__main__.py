"""``python -m sds.cli`` is ``sds``."""

from sds.cli import main

main()
