"""Replicas: when every byte was last compared with its checksum, or with the source."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


_REPLICA = sa.table("replica", sa.column("changed_ns"), sa.column("verified_ns"))


def upgrade() -> None:
    """Apply: replicas count as verified when they came into their state."""
    with op.batch_alter_table("replica", recreate="always") as batch:
        batch.add_column(
            sa.Column("verified_ns", sa.BigInteger(), nullable=True), insert_after="build_s"
        )
    op.execute(_REPLICA.update().values(verified_ns=_REPLICA.c.changed_ns))


def downgrade() -> None:
    """Take back."""
    with op.batch_alter_table("replica") as batch:
        batch.drop_column("verified_ns")
