"""Savings of replicas as advice predicted them; space for replicas of a policy."""

import sqlalchemy as sa
from alembic import op

revision = "0007_predicted_saving"
down_revision = "0006_stated_reads"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("replica", sa.Column("predicted_saving_s_per_read", sa.Float(), nullable=True))
    op.add_column("policy", sa.Column("budget_bytes", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("policy", "budget_bytes")
    op.drop_column("replica", "predicted_saving_s_per_read")
