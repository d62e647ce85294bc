"""The operations of SDS, and the stages that they run."""
