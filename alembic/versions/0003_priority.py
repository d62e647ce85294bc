"""Priorities of jobs."""

import sqlalchemy as sa
from alembic import op

revision = "0003_priority"
down_revision = "0002_shadow"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("job", sa.Column("priority", sa.BigInteger(), server_default="0", nullable=False))


def downgrade() -> None:
    """Take back."""
    op.drop_column("job", "priority")
