"""Spool files: how long each was when it was last read, which tells whether it has grown since."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None


_SPOOL_FILE = sa.table("spool_file", sa.column("offset_bytes"), sa.column("size_bytes"))


def upgrade() -> None:
    """Apply: what was counted so far is looked at once more where its end is damaged."""
    with op.batch_alter_table("spool_file", recreate="always") as batch:
        batch.add_column(
            sa.Column("size_bytes", sa.BigInteger(), nullable=True), insert_after="offset_bytes"
        )
    op.execute(_SPOOL_FILE.update().values(size_bytes=_SPOOL_FILE.c.offset_bytes))
    with op.batch_alter_table("spool_file") as batch:
        batch.alter_column("size_bytes", existing_type=sa.BigInteger(), nullable=False)


def downgrade() -> None:
    """Take back: the offsets remain."""
    with op.batch_alter_table("spool_file") as batch:
        batch.drop_column("size_bytes")
