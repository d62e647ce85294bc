"""What was learned from calibrations: the arrays of each model, beside the calibration's JSON."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Apply: calibrations so far learned nothing."""
    op.create_table(
        "learned_model",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("calibration_id", sa.Integer(), nullable=False),
        sa.Column("via", sa.Text(), nullable=False),
        sa.Column("cache", sa.Text(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("arrays", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["calibration_id"],
            ["calibration.id"],
            name=op.f("fk_learned_model_calibration_id_calibration"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_learned_model")),
        sa.UniqueConstraint(
            "calibration_id", "via", "cache", name=op.f("uq_learned_model_calibration_id")
        ),
    )


def downgrade() -> None:
    """Take back: the equations of each calibration remain."""
    op.drop_table("learned_model")
