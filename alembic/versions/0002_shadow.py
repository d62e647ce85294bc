"""Shadow tests of replicas."""

import sqlalchemy as sa
from alembic import op

revision = "0002_shadow"
down_revision = "0001_initial"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply."""
    op.add_column("replica", sa.Column("shadow_test", sa.Text(), nullable=True))


def downgrade() -> None:
    """Take back."""
    op.drop_column("replica", "shadow_test")
