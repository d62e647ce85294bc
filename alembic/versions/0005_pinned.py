"""Replicas that the server may remove by itself, and others."""

import sqlalchemy as sa
from alembic import op

revision = "0005_pinned"
down_revision = "0004_policy"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("replica", sa.Column("pinned", sa.Boolean(), server_default="1", nullable=False))


def downgrade() -> None:
    """Take back."""
    op.drop_column("replica", "pinned")
